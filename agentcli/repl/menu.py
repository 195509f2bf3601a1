"""A short list to choose from: arrows, page keys and numbers; Esc, Ctrl-C, Ctrl-D leave it."""

from __future__ import annotations

from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from agentcli.repl.list_keys import bind_leaving, bind_moves, list_application
from agentcli.repl.prompt import ask_line
from agentcli.repl.terminal import Terminal
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line

_HINT = "↑↓ choose · Enter · Esc leaves"


async def choose_row(
    terminal: Terminal, title: str, rows: Sequence[str], start: int = 0
) -> int | None:
    """The index of the row that the person chooses, ``start`` first; ``None``: none of them."""
    shown = [clean_line(row) for row in rows]
    if terminal.is_dumb:
        lines = [f"{number:>3}  {row}" for number, row in enumerate(shown, 1)]
        terminal.screen.print_block([clean_line(title), *lines])
        answer = (await ask_line(terminal, "Number: ") or "").strip()
        return int(answer) - 1 if answer.isdecimal() and 1 <= int(answer) <= len(rows) else None
    return await _Menu(terminal, clean_line(title), shown, start).run()


class _Menu:
    """The list while it is open."""

    def __init__(self, terminal: Terminal, title: str, rows: Sequence[str], start: int) -> None:
        self._terminal = terminal
        self._title = title
        self._rows = rows
        self._cursor = start
        self._application: Application[int | None] = list_application(
            terminal, self._shown, self._bindings()
        )

    async def run(self) -> int | None:
        """Until something is chosen or the person leaves."""
        return await self._application.run_async(handle_sigint=False, set_exception_handler=False)

    def _listed(self) -> int:
        return max(1, self._terminal.screen.size.lines - 3)

    def _shown(self) -> StyleAndTextTuples:
        size = self._terminal.screen.size
        room, most = max(1, size.columns - 1), self._listed()
        first = max(0, min(self._cursor - most // 2, len(self._rows) - most))
        tuples: StyleAndTextTuples = [("bold", fit(self._title, room)), ("", "\n")]
        for at, row in enumerate(self._rows[first : first + most], first):
            mark, style = ("> ", "reverse") if at == self._cursor else ("  ", "")
            tuples += [(style, fit(mark + row, room)), ("", "\n")]
        return [*tuples, ("italic", fit(_HINT, room))]

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        def move(by: int) -> None:
            self._cursor = max(0, min(self._cursor + by, len(self._rows) - 1))
            self._application.invalidate()

        bind_moves(bindings, move, self._listed, lambda: len(self._rows))
        bind_leaving(bindings)

        @bindings.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            event.app.exit(result=self._cursor)

        return bindings
