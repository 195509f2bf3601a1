"""Run one command so that it can always be stopped, with everything that it started.

Law: each command has a guard (``_guard.py``), each guard is owned by the ``ProcessKeeper`` until
nothing of its command is left. ``run`` returns or raises only when the command has ended by
itself or everything of it was killed (bounded: see ``JOIN_S``). What a command leaves running in
the background lives until ``ProcessKeeper.close`` or the end of the app (CAN-10, REC-8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.process import guard as _guard
from agentcli.process.guarded import (
    DRAIN_S,
    GRACE_S,
    JOIN_S,
    QUIET_S,
    Command,
    Ended,
    Ending,
    GuardedProcess,
    Sink,
    StartFailed,
)
from agentcli.process.keeper import keeper_of


async def run(
    command: Command,
    sink: Sink,
    cancel: CancelToken,
    timeout_s: float | None = None,
    on_start: Callable[[int], Awaitable[None]] | None = None,
    unlimited: asyncio.Future[None] | None = None,
) -> Ended:
    """Run ``command``, its output (standard error too) going to ``sink``; raises ``StartFailed``.

    ``on_start`` is told the command's pid, which is also its process group. Once ``unlimited`` is
    done ``timeout_s`` holds no more.

    On cancel everything that came of it gets SIGTERM at once and SIGKILL ``GRACE_S`` later, or at
    once when the token is forced. The same happens when the calling task is cancelled or
    ``on_start`` fails, before the exception leaves this function.
    """
    began = time.monotonic()
    if cancel.cancelled:
        return Ended(Ending.CANCELLED, None, 0.0)
    process = GuardedProcess(sink, command.namespaces)
    keeper_of(command.owner).adopt(process)

    def stop() -> None:
        process.stop(Ending.CANCELLED, 0.0 if cancel.forced else GRACE_S)

    forget = cancel.add_callback(stop)
    try:
        await process.start(command)
        if on_start is not None:
            await on_start(process.pid)
        return await _watch(process, began, timeout_s, unlimited)
    except StartFailed:
        process.kill(0.0)
        await uninterruptible(_join_guard(process))
        raise
    except BaseException:
        process.abandon(Ending.CANCELLED, 0.0 if cancel.forced else GRACE_S)
        await uninterruptible(_join_guard(process))
        raise
    finally:
        forget()
        process.detach()


async def _watch(
    process: GuardedProcess,
    began: float,
    timeout_s: float | None,
    unlimited: asyncio.Future[None] | None,
) -> Ended:
    left = None if timeout_s is None else max(0.0, began + timeout_s - time.monotonic())
    waiting: set[asyncio.Future[int] | asyncio.Future[Ending] | asyncio.Future[None]]
    waiting = {process.exited, process.stopping, process.gone}
    bounded = waiting if unlimited is None else {*waiting, unlimited}
    await asyncio.wait(bounded, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    if unlimited is not None and unlimited.done():
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if process.exited.done() and not process.stopping.done():
        duration_s = time.monotonic() - began
        await _drain(process)
        background = await _left_running(process)
        return Ended(Ending.EXITED, process.exited.result(), duration_s, background)
    if process.gone.done() and not process.stopping.done():
        return Ended(Ending.LOST, None, time.monotonic() - began)
    if not process.stopping.done():
        process.stop(Ending.TIMED_OUT, GRACE_S)
    await _join_guard(process)
    survivors: tuple[int, ...] = ()
    if not process.gone.done():
        survivors = await _left_running(process)
    returncode = process.exited.result() if process.exited.done() else None
    ending = process.stopping.result()
    return Ended(ending, returncode, time.monotonic() - began, survivors)


async def _join_guard(process: GuardedProcess) -> None:
    await asyncio.wait({process.gone}, timeout=JOIN_S)


async def _drain(process: GuardedProcess) -> None:
    """Wait for the rest of the output, but not for a daemon that keeps it open."""
    give_up = time.monotonic() + DRAIN_S
    while not process.output_ended.done() and time.monotonic() < give_up:
        before = process.bytes_read
        await asyncio.wait({process.output_ended}, timeout=QUIET_S)
        if process.bytes_read == before:
            break
    process.read_rest()


async def _left_running(process: GuardedProcess) -> tuple[int, ...]:
    """The processes that the command has left, seen once the dust has settled."""
    await asyncio.wait({process.gone}, timeout=QUIET_S)
    if process.gone.done():
        return ()
    found = await asyncio.to_thread(_guard.descendants, process.guard.pid)
    return tuple(sorted(_guard.without_helpers(found)))
