"""What a session stands on: its file and what compose lends to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from agentcli.app.queue import DurableQueue, QueueFile
from agentcli.domain.ports import ModelInfo, Provider
from agentcli.domain.session import LoadedSession
from agentcli.domain.values import mutable

if TYPE_CHECKING:
    from agentcli.domain.rewind import RewindStore


class SessionFile(QueueFile, Protocol):
    """What a session needs of its file beside what the engine needs."""

    @property
    def rewinds(self) -> RewindStore:
        """Snapshots of files, and what was taken back (TT-1, TT-2)."""

    async def load(self, *, hidden: bool = False) -> LoadedSession:
        """All of it."""

    async def undo_compaction(self) -> bool:
        """Bring back what the newest summary stands for."""

    async def set_title(self, title: str) -> None:
        """Name the session."""

    async def set_model(self, model: str) -> None:
        """Remember who answers from now on."""

    async def aclose(self) -> None:
        """Close the file and give up the lock."""


@mutable
class Surroundings:
    """What compose lends to a session.

    ``choose`` turns a model's name into a provider; ``after_turn`` updates the catalogue and
    may fail; ``on_close`` ends what the session's tools have left running; ``ending`` is why the
    session is closed, for hooks.
    """

    choose: Callable[[str], tuple[Provider, ModelInfo]]
    after_turn: Callable[[], Awaitable[None]]
    on_close: Sequence[Callable[[], Awaitable[None]]] = ()
    resumed: LoadedSession | None = None
    notices: Sequence[str] = ()
    ending: str = "other"
    queue: DurableQueue | None = None
