"""Waits that end with the turn, and the owner of what is still stopping."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import TurnCancelled
from agentcli.engine.race import Reaper, cancel_future, race, stop
from tests.support.ticks import run_ticks


def play(scenario: Any) -> Any:
    result, _ = run_ticks(scenario, lambda tick, task: None)
    if isinstance(result, BaseException):
        raise result
    return result


async def for_ever() -> None:
    await asyncio.Event().wait()


async def stubborn(seconds: float) -> str:
    """Swallows every cancellation until its time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (left := end - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    return "in the end"


async def value() -> str:
    return "value"


@pytest.mark.spec("CAN-9")
def test_the_result_comes_through_when_nobody_cancels() -> None:
    token = CancelToken()
    assert play(lambda: race(value(), token, Reaper())) == "value"
    assert not token._callbacks


@pytest.mark.spec("CAN-3")
def test_work_is_not_begun_under_a_token_that_is_set() -> None:
    begun: list[int] = []

    async def work() -> None:
        begun.append(1)

    async def scenario() -> None:
        token = CancelToken()
        token.cancel()
        with pytest.raises(TurnCancelled):
            await race(work(), token, Reaper())

    play(scenario)
    assert begun == []


@pytest.mark.spec("CAN-9")
def test_the_cancel_wins_over_a_result_that_is_ready() -> None:
    token = CancelToken()

    async def work() -> str:
        token.cancel()
        return "ready"

    async def scenario() -> None:
        with pytest.raises(TurnCancelled):
            await race(work(), token, Reaper())

    play(scenario)


@pytest.mark.spec("CAN-9", "CAN-10")
def test_what_swallows_the_cancel_is_left_to_the_reaper_and_nobody_waits_for_it() -> None:
    async def scenario() -> None:
        loop, token, reaper = asyncio.get_running_loop(), CancelToken(), Reaper()
        loop.call_later(1, token.cancel)
        began = loop.time()
        with pytest.raises(TurnCancelled):
            await race(stubborn(10), token, reaper)
        assert loop.time() - began < 1.2
        assert await reaper.join(1) == 1
        assert await reaper.join(60) == 0

    play(scenario)


@pytest.mark.parametrize("fault", [ValueError("x"), BaseExceptionGroup("g", [KeyError()])])
def test_a_fault_of_the_work_comes_out(fault: BaseException) -> None:
    async def work() -> None:
        raise fault

    async def scenario() -> None:
        with pytest.raises(type(fault)):
            await race(work(), CancelToken(), Reaper())

    play(scenario)


def test_work_that_cancels_itself_is_a_fault_and_no_cancellation_of_the_turn() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    async def scenario() -> None:
        with pytest.raises(RuntimeError, match="cancelled itself"):
            await race(work(), CancelToken(), Reaper())

    play(scenario)


@pytest.mark.spec("CAN-9")
def test_an_outer_cancel_stops_the_work_and_is_raised_again() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await for_ever()
        finally:
            ended.append("work")

    def strike(tick: int, task: asyncio.Task[Any]) -> None:
        if tick == 3:
            task.cancel()

    result, _ = run_ticks(lambda: race(work(), CancelToken(), Reaper()), strike)
    assert isinstance(result, asyncio.CancelledError)
    assert ended == ["work"]


@pytest.mark.spec("CAN-10")
def test_before_a_dispatch_each_straggler_is_waited_for_once() -> None:
    async def scenario() -> None:
        loop, reaper, token = asyncio.get_running_loop(), Reaper(), CancelToken()
        for seconds in (1.0, 100.0):
            task = asyncio.create_task(stubborn(seconds))
            await asyncio.sleep(0)
            await stop(task, reaper)
        began = loop.time()
        assert await reaper.settle(3, token) == 1
        assert loop.time() - began == pytest.approx(3)
        assert await reaper.settle(3, token) == 0
        assert loop.time() - began == pytest.approx(3)
        assert len(reaper._tasks) == 1
        assert await reaper.join(1) == 1
        assert await reaper.join(200) == 0
        assert await reaper.settle(3, token) == 0

    play(scenario)


@pytest.mark.spec("CAN-9", "CAN-10")
def test_a_cancel_ends_the_wait_for_stragglers() -> None:
    async def scenario() -> None:
        loop, reaper, token = asyncio.get_running_loop(), Reaper(), CancelToken()
        task = asyncio.create_task(stubborn(100))
        await asyncio.sleep(0)
        await stop(task, reaper)
        loop.call_later(0.5, token.cancel)
        began = loop.time()
        assert await reaper.settle(3, token) == 0
        assert loop.time() - began == pytest.approx(0.5)
        assert await reaper.join(200) == 0

    play(scenario)


@pytest.mark.spec("CAN-10")
def test_the_reaper_asks_again_and_logs_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def second_time() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            try:
                await for_ever()
            except asyncio.CancelledError:
                raise ValueError("while cleaning up") from None

    async def scenario() -> None:
        reaper = Reaper()
        task = asyncio.create_task(second_time())
        await asyncio.sleep(0)
        await stop(task, reaper)
        assert await reaper.join(0.1) == 1
        reaper.cancel()
        assert await reaper.join(1) == 0

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert "a stopped task failed" in caplog.text


def test_a_cancel_future_hears_what_happened_before_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        token = CancelToken()
        with cancel_future(token) as cancelled, cancel_future(token, forced=True) as forced:
            assert not cancelled.done()
            token.cancel()
            assert cancelled.done()
            assert not forced.done()
            token.cancel(force=True)
            assert forced.done()
        with cancel_future(token) as again:
            assert again.done()
        assert not token._callbacks

    play(scenario)
