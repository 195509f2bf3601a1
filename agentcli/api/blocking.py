"""An event loop in a thread of its own: what lets a program without one use the agent.

Law: what is submitted is joined before the caller goes on, also when Ctrl-C interrupts the wait: it
is then cancelled first.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads that have no event loop, or have one that must not wait."""

    def __init__(self) -> None:
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(started,), name="agentcli", daemon=True
        )
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(started.set)
            self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, or its exception."""
        tasks: list[asyncio.Task[Any] | None] = []

        async def owned() -> T:
            tasks.append(asyncio.current_task())
            return await work

        done = asyncio.run_coroutine_threadsafe(owned(), self._loop)
        try:
            return done.result()
        except BaseException:
            if not done.done():  # the wait was interrupted
                self._loop.call_soon_threadsafe(_cancel, tasks)
                wait([done])
            raise

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _cancel(tasks: list[asyncio.Task[Any] | None]) -> None:
    for task in tasks:
        if task is not None:
            task.cancel()
