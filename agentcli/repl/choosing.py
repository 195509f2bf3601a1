"""Lists to choose from: move with the arrows, search as you type, look before opening (UI-8).

Law: the input steps aside meanwhile, and a signal ends the choice; Esc, Ctrl-C and Ctrl-D leave
without one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window

from agentcli.app.library import SearchHit, SessionLibrary
from agentcli.domain.errors import AgentError
from agentcli.domain.session import SessionInfo
from agentcli.repl.actions import ChatInput
from agentcli.repl.line_input import ask_line
from agentcli.repl.terminal import ESCAPE_S, Terminal
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean_line
from agentcli.ui.session_lines import (
    PickerView,
    listed_rows,
    picker_rows,
    preview_lines,
    session_rows,
)

T = TypeVar("T")


class Choosing:
    """One choice at a time. ``gone`` is called when the window was closed meanwhile."""

    def __init__(self, chat_input: ChatInput, gone: Callable[[], None]) -> None:
        self._input = chat_input
        self._gone = gone
        self._task: asyncio.Future[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a choice to be made."""
        return self._task is not None

    async def run(self, choosing: Coroutine[Any, Any, T | None]) -> T | None:
        """What was chosen; ``None`` also when ``stop`` or a closed window ended it."""
        async with self._input.aside():
            self._task = asyncio.ensure_future(choosing)
            try:
                await asyncio.wait({self._task})
                return None if self._task.cancelled() else self._task.result()
            except (EOFError, OSError):
                self._gone()
                return None
            finally:
                self.stop()
                self._task = None

    def stop(self) -> None:
        """End the choice without one."""
        if self._task is not None:
            self._task.cancel()


# --- what the lists share ---------------------------------------------------------------------

_MOVES = {"up": -1, "c-p": -1, "down": 1, "c-n": 1}
_PAGES = {"pageup": -1, "pagedown": 1}


def list_application(
    terminal: Terminal, shown: Callable[[], StyleAndTextTuples], bindings: KeyBindings
) -> Application[Any]:
    """A list below what was printed, gone when it is done; no timers."""
    application: Application[Any] = Application(
        layout=Layout(Window(FormattedTextControl(shown))),
        key_bindings=bindings,
        color_depth=terminal.color_depth,
        input=terminal.input,
        output=terminal.output,
        erase_when_done=True,
        terminal_size_polling_interval=None,
    )
    application.ttimeoutlen = ESCAPE_S
    return application


def bind_moves(
    bindings: KeyBindings,
    move: Callable[[int], None],
    page: Callable[[], int],
    total: Callable[[], int],
) -> None:
    """Arrows, pages, both ends: ``move`` gets how many rows; it knows where the ends are."""
    for key, by in _MOVES.items():
        bindings.add(key)(lambda _, by=by: move(by))
    for key, by in _PAGES.items():
        bindings.add(key)(lambda _, by=by: move(by * page()))
    bindings.add("home")(lambda _: move(-total()))
    bindings.add("end")(lambda _: move(total()))


def bind_leaving(bindings: KeyBindings) -> None:
    """Esc, Ctrl-C and Ctrl-D end the application with ``None``; Ctrl-Z suspends it."""

    @bindings.add("c-z")
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @bindings.add("escape", eager=True)
    @bindings.add("c-c")
    @bindings.add("c-d")
    @bindings.add("<sigint>")
    def _leave(event: KeyPressEvent) -> None:
        event.app.exit(result=None)


# --- a short list -----------------------------------------------------------------------------

_HINT = "↑↓ choose · Enter · Esc leaves"


async def choose_row(
    terminal: Terminal, title: str, rows: Sequence[str], start: int = 0
) -> int | None:
    """The index of the row that the user chooses, ``start`` first; ``None``: none of them."""
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
        """Until something is chosen or the user leaves."""
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


# --- sessions: what was typed, what fits, where one is ----------------------------------------


@dataclass(frozen=True, slots=True)
class Match:
    """A session that fits; ``excerpt`` shows where, when that is not its title."""

    info: SessionInfo
    excerpt: str = ""


class Selection:
    """The state of a list of sessions, pure. ``infos``: newest first.

    Law: what fits by its title or its place comes first, newest first; then what holds the words in
    its text, best first; typing on never takes longer than the first letter.
    """

    def __init__(self, infos: Sequence[SessionInfo]) -> None:
        self._infos = {info.id: info for info in infos}
        self._texts = {
            info.id: f"{info.title}\n{info.cwd}\n{info.status}\n{info.model}".lower()
            for info in infos
        }
        self._fitting = list(self._infos)
        self._hits: Sequence[SearchHit] = ()
        self._matches: list[Match] | None = None
        self.query = ""
        self.cursor = 0

    def __len__(self) -> int:
        return len(self.matches())

    def matches(self) -> Sequence[Match]:
        """What fits."""
        if self._matches is None:
            found = dict.fromkeys(self._fitting, "")
            for hit in self._hits:
                if hit.session_id in self._infos:
                    found.setdefault(hit.session_id, hit.excerpt)
            self._matches = [Match(self._infos[key], excerpt) for key, excerpt in found.items()]
        return self._matches

    def move(self, by: int) -> None:
        """Up or down, not beyond the ends."""
        self.cursor = max(0, min(self.cursor + by, len(self) - 1))

    def type(self, text: str) -> None:
        """Narrow the list."""
        self._search(self.query + text, self._fitting)

    def erase(self, letters: int = 1) -> None:
        """Take back the last letters."""
        self._search(self.query[: max(0, len(self.query) - letters)], list(self._infos))

    def add_hits(self, query: str, hits: Sequence[SearchHit]) -> None:
        """What holds ``query`` in its text; too late when something else was typed since."""
        if query == self.query:
            self._hits, self._matches = hits, None

    def chosen(self) -> Match | None:
        """Where the cursor is."""
        matches = self.matches()
        return matches[self.cursor] if matches else None

    def _search(self, query: str, scope: Sequence[str]) -> None:
        words = query.lower().split()
        self._fitting = [
            session_id
            for session_id in scope
            if all(word in self._texts[session_id] or session_id.startswith(word) for word in words)
        ]
        self.query, self.cursor = query, 0
        self._hits, self._matches = (), None


# --- the list of sessions, with a preview (UI-8) ----------------------------------------------

SHOWN_AT_ONCE = 30
MAX_HITS = 50
LEAST_LETTERS = 2
MAX_PREVIEWS = 200
MAX_TYPED = 200


def by_number(answer: str, infos: Sequence[SessionInfo]) -> str | None:
    """The session meant by a number of the list, or by an id or its beginning."""
    text = answer.strip()
    if text.isdecimal() and 1 <= int(text) <= len(infos):
        return infos[int(text) - 1].id
    fitting = [info.id for info in infos if text and info.id.startswith(text)]
    return fitting[0] if len(fitting) == 1 else None


async def pick_session(
    terminal: Terminal, infos: Sequence[SessionInfo], sessions: SessionLibrary
) -> str | None:
    """The id of the session the user chooses; ``None`` when none was chosen."""
    if terminal.is_dumb:
        newest = infos[:SHOWN_AT_ONCE]
        lines = session_rows(newest, time.time(), terminal.theme)
        if len(infos) > len(newest):
            lines.append(f"{len(infos) - len(newest)} more: find them with /search")
        terminal.screen.print_block(lines)
        answer = await ask_line(terminal, "Number of the session: ")
        return by_number(answer or "", infos)
    return await _Picker(terminal, infos, sessions).run()


class _Picker:
    """The list while it is open.

    Law: a key press never waits for a disk: titles are searched at once, texts and previews come
    when they are there, the newest query first.
    """

    def __init__(
        self, terminal: Terminal, infos: Sequence[SessionInfo], sessions: SessionLibrary
    ) -> None:
        self._terminal = terminal
        self._selection = Selection(infos)
        self._sessions = sessions
        self._previews: dict[tuple[str, str], list[str]] = {}
        self._searched = ""
        self._moved = asyncio.Event()
        self._typed = asyncio.Event()
        self._now = time.time()
        self._application: Application[str | None] = list_application(
            terminal, self._shown, self._bindings()
        )

    async def run(self) -> str | None:
        """Until something is chosen or the user leaves."""
        bodies = (self._look_up(), self._search_texts(), self._refresh())
        work = [asyncio.ensure_future(body) for body in bodies]
        try:
            return await self._application.run_async(
                handle_sigint=False, set_exception_handler=False
            )
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    # --- what comes later ------------------------------------------------------------------

    async def _look_up(self) -> None:
        """Fetch the preview of what is chosen, one at a time."""
        while True:
            chosen = self._selection.chosen()
            if chosen is None or _key(chosen) in self._previews:
                self._moved.clear()
                await self._moved.wait()
                continue
            try:
                loaded = await self._sessions.load(chosen.info.id)
                lines = await asyncio.to_thread(preview_lines, loaded, chosen.excerpt)
            except (AgentError, OSError) as error:
                lines = [str(error)]
            if len(self._previews) >= MAX_PREVIEWS:
                self._previews.clear()
            self._previews[_key(chosen)] = lines
            self._application.invalidate()

    async def _search_texts(self) -> None:
        """Search all that was said for what is typed, the newest query first."""
        while True:
            query = self._selection.query
            if query == self._searched or len(query.strip()) < LEAST_LETTERS:
                self._typed.clear()
                await self._typed.wait()
                continue
            self._searched = query
            with suppress(AgentError, OSError):
                self._selection.add_hits(query, await self._sessions.search(query, MAX_HITS))
                self._changed()

    async def _refresh(self) -> None:
        """Let the search know of what is new, then search again."""
        with suppress(AgentError, OSError):
            await self._sessions.refresh_search()
            self._searched = ""
            self._typed.set()

    def _changed(self) -> None:
        """Something else is to be seen, or to be fetched."""
        self._moved.set()
        self._application.invalidate()

    # --- what is seen ----------------------------------------------------------------------

    def _shown(self) -> StyleAndTextTuples:
        size = self._terminal.screen.size
        selection = self._selection
        matches = selection.matches()
        most = listed_rows(size.lines)
        first = max(0, min(selection.cursor - most // 2, len(matches) - most))
        chosen = selection.chosen()
        view = PickerView(
            query=selection.query,
            listed=[match.info for match in matches[first : first + most]],
            above=first,
            total=len(matches),
            cursor=selection.cursor,
            preview=self._previews.get(_key(chosen)) if chosen else None,
            now=self._now,
        )
        rows = picker_rows(view, size.columns, size.lines)
        tuples: StyleAndTextTuples = []
        for style, text in rows:
            tuples += [(style, text), ("", "\n")]
        return tuples[:-1]

    # --- keys ------------------------------------------------------------------------------

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        self._bind_moves(bindings)
        self._bind_typing(bindings)
        self._bind_ends(bindings)
        return bindings

    def _bind_moves(self, bindings: KeyBindings) -> None:
        def move(by: int) -> None:
            self._selection.move(by)
            self._changed()

        def page() -> int:
            return listed_rows(self._terminal.screen.size.lines)

        bind_moves(bindings, move, page, lambda: len(self._selection))

    def _bind_typing(self, bindings: KeyBindings) -> None:
        def erase(letters: int) -> None:
            self._selection.erase(letters)
            self._typed.set()
            self._changed()

        bindings.add("backspace")(lambda _: erase(1))
        bindings.add("c-u")(lambda _: erase(len(self._selection.query)))
        bindings.add("c-w")(lambda _: erase(_last_word(self._selection.query)))

        @bindings.add(Keys.BracketedPaste)
        @bindings.add(Keys.Any)
        def _type(event: KeyPressEvent) -> None:
            text = " ".join(event.data.split("\n"))[:MAX_TYPED]
            if text.isprintable():
                self._selection.type(text)
                self._typed.set()
                self._changed()

    def _bind_ends(self, bindings: KeyBindings) -> None:
        bind_leaving(bindings)

        @bindings.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            chosen = self._selection.chosen()
            if chosen is not None:
                event.app.exit(result=chosen.info.id)


def _key(match: Match) -> tuple[str, str]:
    return match.info.id, match.excerpt


def _last_word(query: str) -> int:
    """How many letters the last word has, with the blanks after it."""
    return len(query) - len(query.rstrip().rpartition(" ")[0])
