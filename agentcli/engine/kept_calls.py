"""A call with what it is about to change remembered before it (TT-1).

Law: a cancel waits neither for looking at files before the call, which then does not run, nor for
long after it: what is still being found out then is the reaper's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.domain.errors import TurnCancelled
from agentcli.domain.tools import Effect, ToolOutput
from agentcli.engine.jobs import Job
from agentcli.engine.race import Reaper, cancel_future, first_of, race
from agentcli.engine.toolkit import Toolkit

END_PATIENCE_S = 0.1


async def run_kept(
    kit: Toolkit,
    job: Job,
    run: Callable[[], Awaitable[ToolOutput | None]],
    token: CancelToken,
) -> ToolOutput | None:
    """``run``, between ``begin`` and ``end`` of the keeper when the call may change files.

    Raises ``TurnCancelled`` when ``token`` is set before it runs.
    """
    if token.cancelled:
        raise TurnCancelled
    keeper = kit.keeper
    if keeper is None or job.facts is None or job.effect is Effect.READ:
        return await run()
    try:
        await race(keeper.begin(job.call.id, job.effect, job.facts.paths), token, kit.reaper)
        return await run()
    finally:
        await uninterruptible(_ended(keeper.end(job.call.id), token, kit.reaper))


async def _ended(end: Coroutine[Any, Any, None], token: CancelToken, reaper: Reaper) -> None:
    task = asyncio.create_task(end)
    with cancel_future(token) as cancelled:
        await first_of(task, cancelled)
    if not task.done() and not token.forced:
        with cancel_future(token, forced=True) as forced:
            await first_of(task, forced, timeout_s=END_PATIENCE_S)
    if not task.done():
        reaper.adopt(task)
