"""Choosing a session: search as one types, move with the arrows, look before opening (UI-8).

Law: a key press never waits for a disk: titles are searched at once, texts and previews come when
they are there, the newest wish first; Esc, Ctrl-C and Ctrl-D leave without a choice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from agentcli.app.library import SessionLibrary
from agentcli.domain.errors import AgentError
from agentcli.domain.session import SessionInfo
from agentcli.repl.list_keys import bind_leaving, bind_moves, list_application
from agentcli.repl.prompt import ask_line
from agentcli.repl.selection import Match, Selection
from agentcli.repl.terminal import Terminal
from agentcli.ui.session_lines import View, listed_rows, picker_rows, preview_lines, session_rows

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
    """The id of the session the person chooses; ``None`` when none was chosen."""
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
    """The list while it is open."""

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
        """Until something is chosen or the person leaves."""
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
        """Fetch the preview of whatever is chosen, one at a time."""
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
        """Search all that was said for what is typed, the newest wish first."""
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
        view = View(
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
