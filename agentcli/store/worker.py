"""A thread that runs one job after another, so that the event loop never waits for a disk.

Laws: a job is never torn, whatever happens to the coroutine that asked for it: a cancelled
caller waits for the end of its job and is cancelled then. The thread starts with the first
job, sleeps without waking while there is none, and never keeps the interpreter alive.

Session files have this and not aiosqlite, on which the catalogue is built: that makes one hop
per SQL statement, so that a cancellation can leave a transaction half done, and its thread is
no daemon: a connection left open keeps the process from exiting (aiosqlite 0.22.1, ``core.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple[Callable[[], Any], "asyncio.Future[Any] | None"]
"""A function, and who waits for what it returns or raises."""

JOIN_TIMEOUT_S = 5.0


class Worker:
    """Owns the thread. ``on_stop`` runs in it, last, also when the worker is forgotten."""

    __slots__ = ("_jobs", "_on_stop", "_thread")

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._on_stop = on_stop
        self._thread: threading.Thread | None = None

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``function`` after the jobs before it; what it returns or raises, later."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._jobs,), name="session", daemon=True
            )
            self._thread.start()
        self._jobs.put((function, done))
        return done

    async def run(self, function: Callable[[], T]) -> T:
        """What ``function`` returns or raises; it runs to its end in any case."""
        done = self.submit(function)
        cancelled: asyncio.CancelledError | None = None
        while not done.done():
            try:
                await asyncio.wait({done})
            except asyncio.CancelledError as error:
                cancelled = error
        result = done.result()
        if cancelled is not None:
            raise cancelled
        return result

    async def aclose(self) -> None:
        """Run what is queued, then ``on_stop``, and end the thread. May be called again."""
        if self._thread is None:
            return
        thread = self._thread
        try:
            await self.run(self._on_stop)
        finally:
            self._thread = None
            self._jobs.put(None)
            thread.join(JOIN_TIMEOUT_S)

    def __del__(self) -> None:
        if self._thread is not None:
            self._jobs.put((self._on_stop, None))
            self._jobs.put(None)


def _work(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        function, done = job
        result, failure = None, None
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - handed to the coroutine that waits for it
            failure = error
        if done is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed; nobody waits any more
                done.get_loop().call_soon_threadsafe(_answer, done, result, failure)
        del job, function, done, result, failure  # what they hold is not kept until the next one


def _answer(done: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is not None:
        done.set_exception(failure)
    else:
        done.set_result(result)
