"""Small things done beside the agent's work."""

from __future__ import annotations

import asyncio

import pytest

from agentcli.domain.errors import UsageError
from agentcli.repl.jobs import Jobs


def test_jobs_are_done_in_order_and_an_error_is_shown() -> None:
    done: list[str] = []

    async def main() -> None:
        jobs = Jobs(done.append)

        async def fail() -> None:
            raise UsageError("no", "try again")

        async def note(text: str) -> None:
            await asyncio.sleep(0)
            done.append(text)

        async with jobs.running():
            jobs.add(lambda: note("one"))
            jobs.add(fail)
            jobs.add(lambda: note("two"))
            await jobs.done()
            jobs.add(lambda: note("at the end"))

    asyncio.run(main())
    assert done == ["one", "no - try again", "two", "at the end"]


def test_a_bug_in_a_job_is_raised_where_the_chat_ends() -> None:
    async def main() -> None:
        jobs = Jobs(lambda _: None)

        async def bug() -> None:
            raise RuntimeError("a bug")

        async with jobs.running():
            jobs.add(bug)
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="a bug"):
        asyncio.run(main())
