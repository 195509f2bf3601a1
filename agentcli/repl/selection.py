"""The state of a list of sessions to choose from: what was typed, what fits, where one is. Pure.

Law: what fits by its title or its place comes first, newest first; then what holds the words in
its text, best first; typing on never takes longer than the first letter, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentcli.app.library import SearchHit
from agentcli.domain.session import SessionInfo


@dataclass(frozen=True, slots=True)
class Match:
    """A session that fits; ``excerpt`` shows where, when that is not its title."""

    info: SessionInfo
    excerpt: str = ""


class Selection:
    """``infos``: newest first."""

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
