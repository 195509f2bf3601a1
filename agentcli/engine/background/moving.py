"""A running call goes on as a background run: the user has asked for it (UI-3, Ctrl-B).

Laws. What runs is handed over, not started again: the call has its result at once, the work, its
process and its output go on under the run. From then on the run's token ends it, the turn's does
not. Where there is no place for another run the call simply goes on.
"""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.events import AgentEvent, Notice
from agentcli.domain.tools import ToolContext, ToolOutput

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundSink, Spawned, SpawnWish
    from agentcli.engine.jobs import Job

    Work = Callable[[ToolContext, BackgroundSink], Awaitable[ToolOutput]]
    Adopt = Callable[[SpawnWish, Work], Awaitable[Spawned]]

TAIL_CHARS = 2_000
_NO_PLACE = "the limit of active runs is reached (/tasks shows them, /tasks cancel ends one)"


class Moves:
    """The running calls of a chat that can be moved. ``adopt`` makes a run of one."""

    def __init__(self, adopt: Adopt) -> None:
        self.adopt = adopt
        self.offered: list[Moving] = []

    def request(self) -> bool:
        """Move the call that began last; false when there is none that can be.

        Asked once more while one is on its way, it has nothing to do and is true.
        """
        return any(moving.want() for moving in reversed(self.offered)) or bool(self.offered)

    def begin(
        self, job: Job, turn: CancelToken, emit: Callable[[AgentEvent], None]
    ) -> Moving | None:
        """The seam for a call that is about to run; ``None`` for one that cannot be moved."""
        if job.tool is None or not job.tool.definition.hints.background:
            return None
        return Moving(self, job, turn, emit)

    def withdraw(self, moving: Moving) -> None:
        """It can be moved no longer."""
        if moving in self.offered:
            self.offered.remove(moving)


class Moving:
    """One call that may be moved; satisfies ``domain.tools.BackgroundSwitch``.

    ``token`` is the call's own; ``is_moved``: what runs belongs to a run now.
    """

    def __init__(
        self, moves: Moves, job: Job, turn: CancelToken, emit: Callable[[AgentEvent], None]
    ) -> None:
        self._moves, self._job, self._emit = moves, job, emit
        self._turn = turn
        self.token = CancelToken()
        self._hand_over: Callable[[BackgroundSink], None] | None = None
        self._wanted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._forget = self._follow(self._turn)
        self.is_moved = False

    def offer(self, move: Callable[[BackgroundSink], None]) -> Callable[[], None]:
        """``move`` is called once, when the call is moved; returns what takes the offer back."""
        self._hand_over = move
        self._moves.offered.append(self)
        return self._withdraw

    def want(self) -> bool:
        """Ask for it; false where that was done already."""
        if self._wanted.done():
            return False
        self._wanted.set_result(None)
        return True

    async def watch(
        self,
        task: asyncio.Task[ToolOutput],
        cancelled: asyncio.Future[None],
        timeout_s: float | None,
    ) -> ToolOutput | None:
        """Until ``task`` is done, the turn ``cancelled`` or the time over.

        Returns the result of the call if it is moved; then ``task`` is no longer the caller's.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        ends: set[asyncio.Future[ToolOutput] | asyncio.Future[None]] = {task, cancelled}
        while not task.done() and not cancelled.done():
            left_s = None if deadline is None else max(0.0, deadline - loop.time())
            await asyncio.wait({*ends, self._wanted}, timeout=left_s, return_when=FIRST_COMPLETED)
            if task.done() or cancelled.done() or not self._wanted.done():
                break
            if output := await self._moved(task):
                return output
            self._wanted = loop.create_future()
        return None

    def end(self) -> bool:
        """The call has its result; whether what may still run is its own."""
        self._moves.withdraw(self)
        return not self.is_moved

    async def _moved(self, task: asyncio.Task[ToolOutput]) -> ToolOutput | None:
        from agentcli.domain.background import BackgroundRefused, PlacesTaken, SpawnWish
        from agentcli.engine.background.run import text_of_output

        job = self._job
        wish = SpawnWish(job.call.name, job.call.arguments, _title(job.summary))
        self._forget()

        async def work(ctx: ToolContext, sink: BackgroundSink) -> ToolOutput:
            forget = self._follow(ctx.cancel)
            try:
                if self._hand_over is not None and not task.done():
                    self._hand_over(sink)
                    return await task
                output = await task  # it has ended meanwhile: nobody else logs what it printed
                sink.output(text_of_output(output))
                return output
            finally:
                forget()

        try:
            spawned = await self._moves.adopt(wish, work)
        except BackgroundRefused as refused:
            self._forget = self._follow(self._turn)
            why = _NO_PLACE if isinstance(refused, PlacesTaken) else refused
            self._emit(Notice(f"not moved to the background: {why}"))
            return None
        except asyncio.CancelledError:  # of the caller: it was adopted all the same
            self.is_moved = True
            raise
        self.is_moved = True
        return ToolOutput.text(
            _moved_text(spawned, job.tail),
            display=f"/tail {spawned.number} shows its output",
            summary=f"moved to the background as run {spawned.number}",
        )

    def _follow(self, token: CancelToken) -> Callable[[], None]:
        """What is asked of ``token`` is asked of the call, until what is returned is called."""

        def pass_on() -> None:
            if token.cancelled:
                self.token.cancel(token.reason or CancelReason.USER, force=token.forced)

        pass_on()
        return token.add_callback(pass_on)

    def _withdraw(self) -> None:
        self._hand_over = None
        self._moves.withdraw(self)


def _title(summary: str) -> str:
    return summary.removeprefix("Run ").strip("`") or summary


def _moved_text(spawned: Spawned, tail: str) -> str:
    shown = tail[-TAIL_CHARS:].strip("\n")
    lines = [
        f"The user has moved it to the background as {spawned.run_id}, where it goes on.",
        f"Its output goes to {spawned.log_path}.",
        "A message tells when it ends: do not wait for it and do not run it again.",
        "Its cd and exports will not be kept.",
    ]
    if shown:
        lines.append(f"The end of what it has printed so far:\n{shown}")
    return "\n".join(lines)
