"""The thread behind a session."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from agentcli.store.sqlite import Worker


def test_jobs_run_in_order_in_one_thread_and_the_last_word_is_on_stop() -> None:
    seen: list[object] = []

    async def scenario() -> None:
        worker = Worker(lambda: seen.append("stop"))
        await asyncio.gather(*(worker.run(lambda n=n: seen.append(n)) for n in range(5)))
        names = {await worker.run(threading.get_ident) for _ in range(3)}
        assert len(names) == 1
        assert names != {threading.get_ident()}
        await worker.aclose()
        await worker.aclose()

    asyncio.run(scenario())
    assert [item for item in seen if item != "stop"] == [0, 1, 2, 3, 4]
    assert seen[-1] == "stop"


def test_a_cancelled_caller_is_cancelled_after_its_job_ended() -> None:
    go, ended = threading.Event(), []

    async def scenario() -> None:
        worker = Worker(lambda: None)

        def job() -> None:
            go.wait(5)
            ended.append(True)

        task = asyncio.ensure_future(worker.run(job))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]
        await worker.aclose()

    asyncio.run(scenario())


def test_an_error_wins_over_a_cancellation() -> None:
    go = threading.Event()

    async def scenario() -> None:
        worker = Worker(lambda: None)

        def job() -> None:
            go.wait(5)
            raise ValueError("told")

        task = asyncio.ensure_future(worker.run(job))
        await asyncio.sleep(0)
        task.cancel()
        go.set()
        with pytest.raises(ValueError, match="told"):
            await task
        await worker.aclose()

    asyncio.run(scenario())


def test_a_worker_that_was_never_used_has_no_thread() -> None:
    before = threading.active_count()
    worker = Worker(lambda: None)
    asyncio.run(worker.aclose())
    assert threading.active_count() == before


@pytest.mark.slow
def test_a_forgotten_worker_stops_by_itself() -> None:
    stopped = threading.Event()

    async def scenario() -> None:
        worker = Worker(stopped.set)
        await worker.run(time.time)

    asyncio.run(scenario())
    gc.collect()
    assert stopped.wait(5)


def test_a_job_that_outlives_its_loop_disturbs_nobody() -> None:
    go, ended = threading.Event(), threading.Event()

    async def scenario() -> None:
        worker = Worker(ended.set)
        worker.submit(lambda: go.wait(5))

    asyncio.run(scenario())
    go.set()
    assert ended.wait(5)
