"""The port of the task registry: the rows of background runs in the session file (BG-3, BG-8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentcli.domain.background import BackgroundTask, Beat, Schedule, TaskEnd
from agentcli.domain.ports import QueuedInput
from agentcli.domain.values import frozen


@frozen
class EndRecorded:
    """``changed`` is false where the attempt was stale; ``message`` now waits in the queue."""

    changed: bool
    message: QueuedInput | None = None


class TaskStore(Protocol):
    """The rows of the registry in the session file; each call is one commit.

    Raises ``StoreError``.
    """

    async def add(self, task: BackgroundTask, fired: Schedule | None = None) -> None:
        """A run is about to start; with ``fired`` the schedule that started it, as it is now."""

    async def tasks(self) -> Sequence[BackgroundTask]:
        """All runs, oldest first."""

    async def beat(self, beats: Sequence[Beat], now: float) -> None:
        """The runs are alive; what belongs to a stale attempt or an ended run changes nothing."""

    async def cancel_requests(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Those of the active runs ``run_ids`` that are asked to end, by whatever process."""

    async def request_cancel(self, run_id: str, now: float) -> bool:
        """Ask an active run to end; false when it is not active."""

    async def end(self, end: TaskEnd, now: float) -> EndRecorded:
        """The end of an attempt, and its message in the input queue, in one commit (BG-5)."""

    async def restart(self, run_id: str, attempt: int, now: float) -> int | None:
        """Begin the next attempt after ``attempt``; its number, ``None`` when that is stale."""

    async def announce(self, run_ids: Sequence[str], message: str, now: float) -> EndRecorded:
        """Tell the session of runs that had ended unannounced, in one commit."""

    async def schedules(self) -> Sequence[Schedule]:
        """All schedules, oldest first, also those that are over."""

    async def put_schedule(self, schedule: Schedule, now: float) -> None:
        """Add a schedule, or replace the one of its id."""
