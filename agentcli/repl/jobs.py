"""Small things to do beside the agent's work, one after the other: queueing, safe commands.

Law: what is asked first is done first; an error of the program's own is shown, a bug is raised
where the chat ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from agentcli.domain.errors import AgentError

Job = Callable[[], Awaitable[None]]


class Jobs:
    """``show_error`` gets what went wrong."""

    def __init__(self, show_error: Callable[[str], None]) -> None:
        self._show_error = show_error
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()

    def add(self, job: Job) -> None:
        """Do ``job`` when all that was asked before is done."""
        self._waiting.put_nowait(job)

    async def done(self) -> None:
        """Wait until nothing waits."""
        await self._waiting.join()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Jobs are done until the block ends; those under way are finished first."""
        worker = asyncio.ensure_future(self._work())
        try:
            yield
            finished = asyncio.ensure_future(self.done())
            await asyncio.wait({worker, finished}, return_when=asyncio.FIRST_COMPLETED)
            finished.cancel()
        finally:
            worker.cancel()
            await asyncio.wait({worker})
            if not worker.cancelled() and (error := worker.exception()) is not None:
                raise error

    async def _work(self) -> None:
        while True:
            job = await self._waiting.get()
            try:
                await job()
            except (AgentError, OSError) as error:
                self._show_error(str(error))
            finally:
                self._waiting.task_done()
