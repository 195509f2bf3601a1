"""Cancellation: a token that remembers, and waits that cannot be torn.

asyncio's own ``Task.cancel`` is edge-triggered: code that swallows the ``CancelledError``
forgets it. A ``CancelToken`` is level-triggered: set once, never unset, the first reason
wins, and anyone who looks later still sees it (CAN-2). An outer ``Task.cancel`` is turned into
a token by ``uninterruptible(..., on_cancel=token.cancel)`` and raised again afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger(__name__)


class CancelReason(StrEnum):
    """Who asked for the cancellation."""

    USER = "user"
    SIGTERM = "sigterm"
    SIGHUP = "sighup"
    LIMIT = "limit"
    OUTER = "outer"
    PARENT = "parent"


class CancelToken:
    """Set once, never unset. Belongs to one event loop; signal handlers of that loop may set it.

    ``forced`` is the second Ctrl-C: what is being polite stops being so (CAN-13).
    """

    __slots__ = ("_callbacks", "_forced", "_reason")

    def __init__(self) -> None:
        self._reason: CancelReason | None = None
        self._forced = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        """Whether the token is set."""
        return self._reason is not None

    @property
    def reason(self) -> CancelReason | None:
        """The first reason given, or ``None`` while the token is not set."""
        return self._reason

    @property
    def forced(self) -> bool:
        """Whether grace periods are to be skipped."""
        return self._forced

    def cancel(self, reason: CancelReason = CancelReason.USER, *, force: bool = False) -> None:
        """Set the token; later calls change nothing but ``forced``.

        Everybody who waits is told: a callback that raises is logged and keeps nobody from it.
        """
        if self._reason is not None and (self._forced or not force):
            return
        if self._reason is None:
            self._reason = reason
        self._forced = self._forced or force
        for callback in tuple(self._callbacks):
            try:
                callback()
            except Exception:
                log.exception("a cancel callback failed")

    def add_callback(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when the token is set and again when it is forced.

        Not called for what happened before. Returns a function that removes it.
        """
        self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    async def wait(self) -> None:
        """Return when the token is set, at once if it already is."""
        if self._reason is not None:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        remove = self.add_callback(wake)
        try:
            await future
        finally:
            remove()


async def uninterruptible(
    work: Coroutine[Any, Any, T] | asyncio.Future[T], on_cancel: Callable[[], None] | None = None
) -> T:
    """Run ``work`` to its end whatever happens to the caller: shield *and join*.

    A cancellation of the caller is remembered, reported to ``on_cancel`` and raised again as
    ``CancelledError`` once ``work`` has ended. An exception of ``work`` wins over it. ``work``
    must be short or must end soon after ``on_cancel``.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                on_cancel()
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


async def unless_cancelled(work: Awaitable[T], token: CancelToken) -> T | None:
    """What ``work`` returns; ``None``, and it is stopped, once ``token`` is set before that."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(token.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        stopped.cancel()
        if not task.done():
            task.cancel()
        await uninterruptible(asyncio.wait({task, stopped}))
        if not task.cancelled():
            task.exception()


async def in_own_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, in a thread that nobody has to wait for (CAN-9).

    A cancellation leaves it behind, and so does the program's end.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(settled: Callable[[], None]) -> None:
        if not answer.done():
            settled()

    def run() -> None:
        try:
            settled = partial(answer.set_result, work())
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            settled = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(settle, settled)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await answer
