"""What goes on beside background runs while there are any: one timer, one writer for all of them.

Law: heartbeats, logs and requests are observational: where they cannot be written or read, the
user is warned once and the runs go on (FAIL-2). An end that could not be written is tried again,
less and less often. Nothing else wakes the program while no run is active.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentcli.domain.background import HEARTBEAT_S, TaskEnd
from agentcli.domain.errors import StoreError
from agentcli.domain.events import AgentEvent, Notice
from agentcli.domain.ports import QueuedInput, TaskStore
from agentcli.domain.values import mutable
from agentcli.engine.background.run import ActiveRun

POLL_S = 0.25
MAX_RETRY_S = 60.0
log = logging.getLogger(__name__)


@mutable
class Outlets:
    """Where news of runs go. ``arrived`` gets the message of an end, which waits in the file.

    ``start_time`` tells when a process started; it blocks.
    """

    store: TaskStore
    emit: Callable[[AgentEvent], None]
    arrived: Callable[[QueuedInput], None]
    start_time: Callable[[int], str]


class Watch:
    """Looks after the runs in ``active``, by run id, from ``begin`` until there are none."""

    def __init__(self, outlets: Outlets, active: Mapping[str, ActiveRun]) -> None:
        self._out = outlets
        self._active = active
        self._news = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._unrecorded: list[tuple[TaskEnd, float]] = []
        self._warned = False
        self._closed = False

    def begin(self) -> None:
        """There is a run."""
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._keep())
        elif self._unrecorded:
            self.wake()

    def wake(self) -> None:
        """Something is to be written at once."""
        self._news.set()

    async def aclose(self) -> None:
        """All runs have ended. The flag, as a write that fails outdoes a cancellation."""
        self._closed = True
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait({self._work})
            self._work = None
        await self._record_again()

    async def record(self, end: TaskEnd, now: float) -> None:
        """Write the end of a run; its message is passed on."""
        try:
            recorded = await self._out.store.end(end, now)
        except StoreError as error:
            self._unrecorded.append((end, now))
            self.warn_of(error.message)
            return
        if recorded.message is not None:
            self._out.arrived(recorded.message)

    async def note_request(self, run_id: str) -> None:
        """The row of a run learns that it is asked to end."""
        try:
            await self._out.store.request_cancel(run_id, time.time())
        except StoreError as error:
            self.warn_of(error.message)

    def warn_of(self, problem: str) -> None:
        """Once; then only in the log."""
        if not problem:
            return
        log.warning("background runs: %s", problem)
        if not self._warned:
            self._warned = True
            text = f"background runs go on, but not all that they tell is kept: {problem}"
            self._out.emit(Notice(text))

    async def _keep(self) -> None:
        next_beat, pause_s = 0.0, HEARTBEAT_S
        while not self._closed and (self._active or self._unrecorded):
            has_news = self._news.is_set()
            self._news.clear()
            runs = tuple(self._active.values())
            for run in runs:
                await run.flush()
                self.warn_of(run.log.problem)
            try:
                if has_news or time.monotonic() >= next_beat:
                    pause_s = HEARTBEAT_S if runs else min(2 * pause_s, MAX_RETRY_S)
                    next_beat = time.monotonic() + pause_s
                    await self._beat(runs)
                await self._hear_requests()
            except StoreError as error:
                self.warn_of(error.message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S if self._active else pause_s):
                    await self._news.wait()

    async def _beat(self, runs: Sequence[ActiveRun]) -> None:
        for run in runs:
            if (pid := run.task.pid) is not None and not run.task.pid_started:
                started = await asyncio.to_thread(self._out.start_time, pid)
                run.task = replace(run.task, pid_started=started or "?")
        now = time.time()
        if runs:
            await self._out.store.beat([run.beat for run in runs], now)
        for run in runs:
            run.task = replace(run.task, heartbeat_at=now)
        await self._record_again()

    async def _hear_requests(self) -> None:
        """Those of other processes, through the file (BG-6)."""
        if not self._active:
            return
        for run_id in await self._out.store.cancel_requests(tuple(self._active)):
            if run := self._active.get(run_id):
                run.stop()

    async def _record_again(self) -> None:
        for unrecorded in tuple(self._unrecorded):  # a cancellation leaves the others
            self._unrecorded.remove(unrecorded)
            await self.record(*unrecorded)
