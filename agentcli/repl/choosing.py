"""While the person chooses from a list: the input steps aside, and a signal ends the choice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agentcli.repl.front import Front

T = TypeVar("T")


class Choosing:
    """One choice at a time. ``gone`` is told when the window was closed meanwhile."""

    def __init__(self, front: Callable[[], Front], gone: Callable[[], None]) -> None:
        self._front = front
        self._gone = gone
        self._task: asyncio.Future[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a choice to be made."""
        return self._task is not None

    async def run(self, choosing: Coroutine[Any, Any, T | None]) -> T | None:
        """What was chosen; ``None`` also when ``stop`` or a closed window ended it."""
        async with self._front().aside():
            self._task = asyncio.ensure_future(choosing)
            try:
                await asyncio.wait({self._task})
                return None if self._task.cancelled() else self._task.result()
            except (EOFError, OSError):
                self._gone()
                return None
            finally:
                self.stop()
                self._task = None

    def stop(self) -> None:
        """End the choice without one."""
        if self._task is not None:
            self._task.cancel()
