"""Choosing a session: search as you type in titles and texts, look before opening (UI-8).

Law: a signal ends the choice; Esc, Ctrl-C and Ctrl-D leave without one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from agentcli.app.library import SearchHit, SessionLibrary
from agentcli.domain.errors import AgentError
from agentcli.domain.session import NewestUnreadable, SessionInfo
from agentcli.domain.values import frozen
from agentcli.repl.actions import ChatInput
from agentcli.repl.panel import (
    WIDE,
    Given,
    Panel,
    PanelMode,
    PanelRows,
    Picker,
    PickRow,
    Press,
    highlighted,
)
from agentcli.ui.rows import fit_row
from agentcli.ui.sanitize import clean_line
from agentcli.ui.screen import Size
from agentcli.ui.session_lines import (
    PickerView,
    listed_rows,
    picker_rows,
    preview_lines,
    session_rows,
)
from agentcli.ui.theme import BOLD, DIM, Theme


class Choosing:
    """One choice at a time, which a signal can end."""

    def __init__(self, chat_input: ChatInput) -> None:
        self._input = chat_input
        self._task: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a choice to be made."""
        return self._task is not None

    async def row(
        self,
        title: str,
        rows: Sequence[PickRow],
        start: int = 0,
        on_move: Callable[[int], None] = lambda _: None,
        about: Callable[[], Sequence[str]] = tuple,
    ) -> int | None:
        """Let the user choose a row; ``None``: none of them. See ``commands.Chat.choose``."""
        panel = Picker(title, rows, start, on_move=on_move, subject=about)
        await self._run(self._input.choose(panel))
        return panel.answer

    async def session(self, infos: Sequence[SessionInfo], sessions: SessionLibrary) -> str | None:
        """Let the user choose a session; its id, or ``None``."""
        panel = SessionPicker(infos, sessions, self._input.refresh)
        await self._run(panel.chosen_by(self._input.choose))
        return panel.answer

    async def instead_of(self, error: NewestUnreadable) -> str | None:
        """Let the user choose the session to open, which is to be repaired if it is the error's.

        Empty: a new one; ``None``: nothing was chosen.
        """
        ways = [("", PickRow("Start a new session"))]
        if (older := error.older) is not None:
            row = PickRow(f"Go on in the older one: {clean_line(older.title)}", older.id)
            ways.insert(0, (older.id, row))
        if error.can_repair:
            row = PickRow("Repair it and go on", "the damaged file is kept beside it")
            ways.insert(0, (error.session_id, row))
        chosen = await self.row("What now?", [row for _, row in ways])
        return None if chosen is None else ways[chosen][0]

    async def _run(self, choosing: Coroutine[Any, Any, None]) -> None:
        """Until something is chosen, or ``stop``."""
        self._task = asyncio.ensure_future(choosing)
        try:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()
        finally:
            self.stop()
            self._task = None

    def stop(self) -> None:
        """End the choice without one."""
        if self._task is not None:
            self._task.cancel()


# --- sessions: what was typed, what fits, where one is ----------------------------------------


@frozen
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
        self._texts = {info.id: _searched_text(info) for info in infos}
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

    def unknown(self, hits: Sequence[SearchHit]) -> list[str]:
        """The sessions in ``hits`` that are not among those that can be chosen."""
        return [hit.session_id for hit in hits if hit.session_id not in self._infos]

    def add_hits(
        self, query: str, hits: Sequence[SearchHit], older: Iterable[SessionInfo] = ()
    ) -> None:
        """What holds ``query`` in its text; too late when something else was typed since.

        ``older`` are sessions that can be chosen, too, from now on.
        """
        for info in older:
            self._infos[info.id], self._texts[info.id] = info, _searched_text(info)
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


def _searched_text(info: SessionInfo) -> str:
    return f"{info.title}\n{info.cwd}\n{info.status}\n{info.model}".lower()


# --- the list of sessions, with a preview (UI-8) ----------------------------------------------

SHOWN_AT_ONCE = 30
MAX_HITS = 50
LEAST_LETTERS = 2
MAX_PREVIEWS = 200
MAX_PICKED = 2_000  # the newest: older ones come by what is in them; a key press stays quick
PROGRESS_STEP = 100
MAX_TYPED = 200


def by_number(answer: str, infos: Sequence[SessionInfo]) -> str | None:
    """The session meant by a number of the list, or by an id or its beginning."""
    text = answer.strip()
    if text.isdecimal() and 1 <= int(text) <= len(infos):
        return infos[int(text) - 1].id
    fitting = [info.id for info in infos if text and info.id.startswith(text)]
    return fitting[0] if len(fitting) == 1 else None


class SessionPicker:
    """The list while it is open; ``answer`` is the id of the session that was chosen.

    Law: a key press never waits for a disk: titles are searched at once, texts and previews come
    when they are there, the newest query first. ``changed`` is called when there is more to see.
    """

    yields_to_text = False
    due: float | None = None

    def __init__(
        self, infos: Sequence[SessionInfo], sessions: SessionLibrary, changed: Callable[[], None]
    ) -> None:
        self._infos = infos
        self._selection = Selection(infos)
        self._sessions = sessions
        self._on_change = changed
        self._previews: dict[tuple[str, str], list[str]] = {}
        self._searched = ""
        self._moved = asyncio.Event()
        self._typed = asyncio.Event()
        self._now = time.time()
        self._page = 1
        self._at_least = "at least " if len(infos) >= MAX_PICKED else ""
        self._progress = ""
        self._left = False
        self.answer: str | None = None

    @property
    def is_answered(self) -> bool:
        """Chosen or left."""
        return self._left or self.answer is not None

    async def chosen_by(self, choose: Callable[[Panel], Awaitable[None]]) -> None:
        """Fetch what is to be seen until something is chosen or the user leaves."""
        bodies = (self._look_up(), self._search_texts(), self._refresh())
        work = [asyncio.ensure_future(body) for body in bodies]
        try:
            await choose(self)
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
            self._on_change()

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
                hits = await self._sessions.search(query, MAX_HITS)
                older = await self._sessions.infos_of(self._selection.unknown(hits))
                users = [info for info in older.values() if not info.agent]
                self._selection.add_hits(query, hits, users)
                self._changed()

    async def _refresh(self) -> None:
        """Let the search know of what is new, then search again."""
        with suppress(AgentError, OSError):
            await self._sessions.refresh_search(self._say_progress)
            self._progress = ""
            self._searched = ""
            self._typed.set()

    def _say_progress(self, done: int, total: int) -> None:
        if done % PROGRESS_STEP == 0 and total > PROGRESS_STEP:
            self._progress = f" Reading {total - done} sessions to search in."
            self._on_change()

    def _changed(self) -> None:
        """Something else is to be seen, or to be fetched."""
        self._moved.set()
        self._on_change()

    # --- the panel -------------------------------------------------------------------------

    def open(self, now: float, *, has_text: bool) -> None:
        """It appears; what stands in the input waits there."""

    def text_sent(self) -> None:
        """Nothing is sent meanwhile."""

    def tick(self, now: float) -> None:
        """Nothing comes later."""

    def leave(self) -> bool:
        """Esc: none of them."""
        self._left = True
        return True

    def press(self, press: Press, now: float, *, more: bool) -> Given:
        """Search, move, choose."""
        del now
        selection, (key, text) = self._selection, press
        chosen = selection.chosen()
        if key == "enter":
            if chosen is not None and not more:
                self.answer = chosen.info.id
        elif key in {"char", "paste"}:
            typed = " ".join(text.split("\n"))[:MAX_TYPED]
            if typed.isprintable():
                selection.type(typed)
        elif key in {"backspace", "erase-line", "erase-word"}:
            letters = {"backspace": 1, "erase-line": len(selection.query)}
            selection.erase(letters.get(key, _last_word(selection.query)))
        else:
            total = len(selection)
            moves = {"up": -1, "down": 1, "pageup": -self._page, "pagedown": self._page,
                     "home": -total, "end": total}  # fmt: skip
            selection.move(moves.get(key, 0))
        self._typed.set()
        self._changed()
        return Given()

    def rows(self, size: Size, theme: Theme, now: float, *, mode: PanelMode) -> PanelRows:
        """What was typed, the sessions that fit, a preview of the chosen one."""
        del now, mode
        selection = self._selection
        matches = selection.matches()
        most = self._page = listed_rows(size.lines)
        first = max(0, min(selection.cursor - most // 2, len(matches) - most))
        chosen = selection.chosen()
        view = PickerView(
            query=selection.query,
            listed=[match.info for match in matches[first : first + most]],
            above=first,
            found=f"{self._at_least}{len(matches):,} found",
            cursor=selection.cursor,
            preview=self._previews.get(_key(chosen)) if chosen else None,
            now=self._now,
            progress=self._progress,
        )
        rows = []
        for style, text in picker_rows(view, size.columns, size.lines):
            painted = theme.paint(text, {"bold": BOLD, "italic": DIM}.get(style, 0))
            here = style == "reverse"
            rows.append(fit_row(highlighted(text, theme) if here else painted, size.columns))
        return PanelRows(rows[: size.lines], min(selection.cursor - first + 1, len(rows) - 1))

    def lines(self, theme: Theme, columns: int = WIDE) -> list[str]:
        """The newest, for a terminal that cannot redraw."""
        del columns
        newest = self._infos[:SHOWN_AT_ONCE]
        lines = session_rows(newest, time.time(), theme)
        if len(self._infos) > len(newest):
            more = f"{self._at_least}{len(self._infos) - len(newest):,} more"
            lines.append(f"{more}: find them with /search")
        return [*lines, "Number of the session:"]

    def answer_line(self, text: str) -> bool:
        """A number or an id."""
        self.answer = by_number(text, self._infos)
        return self.answer is not None


def _key(match: Match) -> tuple[str, str]:
    return match.info.id, match.excerpt


def _last_word(query: str) -> int:
    """How many letters the last word has, with the blanks after it."""
    return len(query) - len(query.rstrip().rpartition(" ")[0])
