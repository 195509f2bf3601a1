"""An event loop whose every iteration is counted, with a clock that jumps to the next timer.

Nothing sleeps: a grace period of 150 ms costs one iteration.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TickLoop(asyncio.SelectorEventLoop):
    """Calls ``hook(tick)`` before each iteration; time stands still while something is ready."""

    def __init__(self, hook: Callable[[int], None]) -> None:
        super().__init__(selectors.SelectSelector())
        self._hook = hook
        self._now = 1000.0
        self.ticks = 0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        self.ticks += 1
        self._hook(self.ticks)
        if not self._ready:
            timers = [timer._when for timer in self._scheduled if not timer.cancelled()]
            self._now = max(self._now, min(timers, default=self._now))
        super()._run_once()


def run_ticks(
    start: Callable[[], Coroutine[Any, Any, T]], hook: Callable[[int, asyncio.Task[T]], None]
) -> tuple[T | BaseException, int]:
    """Run ``start()`` as a task; its result or what it raised, and the number of iterations."""
    task: asyncio.Task[T] | None = None

    def on_tick(tick: int) -> None:
        if task is not None and not task.done():
            hook(tick, task)

    loop = TickLoop(on_tick)
    asyncio.set_event_loop(loop)
    try:
        task = loop.create_task(start())
        try:
            result: T | BaseException = loop.run_until_complete(task)
        except BaseException as error:
            result = error
        return result, loop.ticks
    finally:
        leftovers = asyncio.all_tasks(loop)
        for left in leftovers:
            left.cancel()
        if leftovers:
            loop.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()
