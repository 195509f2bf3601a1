"""Choosing a session: a list to move in with the arrow keys, to search by typing (UI-8)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from agentcli.domain.session import SessionInfo
from agentcli.repl.prompt import ask_line
from agentcli.repl.terminal import Terminal
from agentcli.ui.sanitize import clean_line
from agentcli.ui.session_lines import session_row, session_rows
from agentcli.ui.width import fit

SHOWN = 10
_MOVES = {"up": -1, "c-p": -1, "down": 1, "c-n": 1, "pageup": -SHOWN, "pagedown": SHOWN}


class Selection:
    """The state of the list: what was typed, what matches, where the cursor is. Pure."""

    def __init__(self, infos: Sequence[SessionInfo], now: float) -> None:
        self._all = [(info, session_row(info, now)) for info in infos]
        self.query = ""
        self.cursor = 0

    def matches(self) -> list[tuple[SessionInfo, str]]:
        """The sessions whose row or id holds every typed word."""
        words = self.query.lower().split()
        return [
            (info, row)
            for info, row in self._all
            if all(word in row.lower() or info.id.startswith(word) for word in words)
        ]

    def move(self, by: int) -> None:
        """Up or down, not beyond the ends."""
        self.cursor = max(0, min(self.cursor + by, len(self.matches()) - 1))

    def type(self, text: str) -> None:
        """Narrow the list."""
        self.query += text
        self.cursor = 0

    def erase(self) -> None:
        """Take back one letter."""
        self.query = self.query[:-1]
        self.cursor = 0

    def chosen(self) -> str | None:
        """The id of the session that the cursor is on."""
        found = self.matches()
        return found[self.cursor][0].id if found else None


def by_number(answer: str, infos: Sequence[SessionInfo]) -> str | None:
    """The session meant by a number of the list, or by an id or its beginning."""
    text = answer.strip()
    if text.isdecimal() and 1 <= int(text) <= len(infos):
        return infos[int(text) - 1].id
    fitting = [info.id for info in infos if text and info.id.startswith(text)]
    return fitting[0] if len(fitting) == 1 else None


async def pick_session(terminal: Terminal, infos: Sequence[SessionInfo]) -> str | None:
    """The id of the session the person chooses; ``None`` when none was chosen."""
    if terminal.is_dumb:
        terminal.screen.print_block(session_rows(infos, time.time(), terminal.theme))
        answer = await ask_line(terminal, "Number of the session: ")
        return by_number(answer or "", infos)
    selection = Selection(infos, time.time())
    application: Application[str | None] = Application(
        layout=Layout(Window(FormattedTextControl(lambda: _shown(selection, terminal)))),
        key_bindings=_bindings(selection),
        color_depth=terminal.color_depth,
        input=terminal.input,
        output=terminal.output,
        erase_when_done=True,
        terminal_size_polling_interval=None,
    )
    return await application.run_async(handle_sigint=False, set_exception_handler=False)


def _shown(selection: Selection, terminal: Terminal) -> StyleAndTextTuples:
    matches = selection.matches()
    first = max(0, min(selection.cursor - SHOWN // 2, len(matches) - SHOWN))
    room = terminal.screen.columns - 3
    lines: StyleAndTextTuples = [
        ("bold", fit(f"Resume which session? {clean_line(selection.query)}", room)),
        ("", "\n"),
    ]
    for at, (_, row) in enumerate(matches[first : first + SHOWN], first):
        here = at == selection.cursor
        lines.append(("reverse" if here else "", f"{'>' if here else ' '} {fit(row, room)}\n"))
    if not matches:
        lines.append(("", "  No session matches.\n"))
    hint = f"{len(matches)} found. Type to search, arrows to move, Enter opens, Esc leaves."
    lines.append(("italic", fit(hint, room)))
    return lines


def _bindings(selection: Selection) -> KeyBindings:
    bindings = KeyBindings()

    for key, by in _MOVES.items():
        bindings.add(key)(lambda _, by=by: selection.move(by))

    @bindings.add("backspace")
    def _erase(_: KeyPressEvent) -> None:
        selection.erase()

    @bindings.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        event.app.exit(result=selection.chosen())

    @bindings.add("c-z")
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @bindings.add("escape", eager=True)
    @bindings.add("c-c")
    @bindings.add("c-d")
    @bindings.add("<sigint>")
    def _leave(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    @bindings.add(Keys.Any)
    def _type(event: KeyPressEvent) -> None:
        if event.data.isprintable():
            selection.type(event.data)

    return bindings
