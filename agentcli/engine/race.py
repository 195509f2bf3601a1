"""Waits that end when the turn is cancelled, and the owner of what is still stopping.

Law: a task that was started here is, at every moment, either awaited by its caller or owned
by the ``Reaper``; nothing is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.domain.errors import TurnCancelled

T = TypeVar("T")

STOP_PATIENCE_S = 0.03
log = logging.getLogger(__name__)


class Reaper:
    """Owns tasks that were told to stop and are still cleaning up (CAN-10)."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._given_up: set[asyncio.Task[Any]] = set()

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Take a cancelled task that has not ended yet."""
        self._tasks.add(task)

    async def join(self, timeout_s: float) -> int:
        """Wait for the adopted tasks; the number of those that are still not done."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
            self._waiting()
        return len(self._tasks)

    async def settle(self, timeout_s: float, token: CancelToken) -> int:
        """Before a dispatch: wait for each adopted task once, until the time or the turn is over.

        Returns how many were waited for in vain just now; they stay owned, and later dispatches
        wait for them no more.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        with cancel_future(token) as cancelled:
            while not cancelled.done() and (waiting := self._waiting()):
                left_s = deadline - asyncio.get_running_loop().time()
                if left_s <= 0:
                    self._given_up |= waiting
                    return len(waiting)
                await first_of(cancelled, *waiting, timeout_s=left_s)
        return 0

    def _waiting(self) -> set[asyncio.Task[Any]]:
        """Those that are waited for; what has ended is forgotten."""
        for task in tuple(self._tasks):
            if task.done():
                self._tasks.discard(task)
                self._given_up.discard(task)
                if not task.cancelled() and task.exception() is not None:
                    log.warning("a stopped task failed", exc_info=task.exception())
        return self._tasks - self._given_up

    def cancel(self) -> None:
        """Ask all adopted tasks once more to end."""
        for task in self._tasks:
            task.cancel()


@contextmanager
def cancel_future(token: CancelToken, *, forced: bool = False) -> Iterator[asyncio.Future[None]]:
    """A future that is done when the token is set (or, with ``forced``, when it is forced)."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if (token.forced if forced else token.cancelled) and not future.done():
            future.set_result(None)

    remove = token.add_callback(wake)
    wake()
    try:
        yield future
    finally:
        remove()
        future.cancel()


async def first_of(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Return when one of ``futures`` is done or the time is over; nothing is cancelled by it."""
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


async def stop(task: asyncio.Task[Any], reaper: Reaper) -> None:
    """Cancel ``task`` and wait a moment for it; what takes longer goes to the reaper."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=STOP_PATIENCE_S)
    if not task.done():
        reaper.adopt(task)
    elif not task.cancelled():
        task.exception()


async def race(work: Coroutine[Any, Any, T], token: CancelToken, reaper: Reaper) -> T:
    """The result of ``work``, or ``TurnCancelled`` as soon as ``token`` is set (CAN-9).

    The cancel wins when both are ready. An outer cancellation stops ``work`` and is re-raised.
    """
    if token.reason is not None:
        work.close()
        raise TurnCancelled
    task = asyncio.create_task(work)
    try:
        with cancel_future(token) as cancelled:
            await first_of(task, cancelled)
    except asyncio.CancelledError:
        await uninterruptible(stop(task, reaper))
        raise
    if token.cancelled:
        await uninterruptible(stop(task, reaper))
        raise TurnCancelled
    if task.cancelled():
        raise RuntimeError("the awaited work cancelled itself")
    return task.result()
