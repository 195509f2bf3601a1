"""The token remembers, and what is uninterruptible is joined."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from tests.support.ticks import run_ticks


@pytest.mark.spec("CAN-2")
def test_the_first_reason_wins_and_nothing_unsets_the_token() -> None:
    token = CancelToken()
    assert (token.cancelled, token.reason, token.forced) == (False, None, False)
    token.cancel(CancelReason.SIGTERM)
    for _ in range(100):
        token.cancel(CancelReason.USER)
    assert (token.cancelled, token.reason, token.forced) == (True, CancelReason.SIGTERM, False)


@pytest.mark.spec("CAN-2", "CAN-13")
def test_callbacks_hear_the_cancel_once_and_the_force_once() -> None:
    token = CancelToken()
    heard: list[bool] = []
    token.add_callback(lambda: heard.append(token.forced))
    for force in (False, False, True, True, False):
        token.cancel(force=force)
    assert heard == [False, True]
    assert token.reason is CancelReason.USER


@pytest.mark.spec("CAN-13")
def test_a_first_cancel_may_be_forced_at_once() -> None:
    token = CancelToken()
    heard: list[bool] = []
    token.add_callback(lambda: heard.append(token.forced))
    token.cancel(force=True)
    assert token.cancelled
    assert heard == [True]


def test_a_removed_callback_hears_nothing_and_removing_twice_is_fine() -> None:
    token = CancelToken()
    heard: list[int] = []
    remove = token.add_callback(lambda: heard.append(1))
    remove()
    remove()
    token.cancel()
    assert heard == []


@pytest.mark.spec("CAN-6", "CAN-11")
def test_a_callback_that_fails_keeps_nobody_else_from_hearing() -> None:
    token = CancelToken()
    heard: list[int] = []

    def broken() -> None:
        raise ValueError

    token.add_callback(broken)
    token.add_callback(lambda: heard.append(1))
    token.cancel()
    assert heard == [1]


def test_a_callback_may_remove_itself_and_add_others_while_it_is_called() -> None:
    token = CancelToken()
    heard: list[str] = []
    removers: list[Callable[[], None]] = []

    def first() -> None:
        heard.append("first")
        removers[0]()
        token.add_callback(lambda: heard.append("late"))

    removers.append(token.add_callback(first))
    token.add_callback(lambda: heard.append("second"))
    token.cancel()
    assert heard == ["first", "second"]
    token.cancel(force=True)
    assert heard == ["first", "second", "second", "late"]


@pytest.mark.spec("CAN-6")
def test_every_waiter_wakes_and_later_ones_do_not_wait() -> None:
    async def scenario() -> None:
        token = CancelToken()
        waiters = [asyncio.create_task(token.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        token.cancel()
        await asyncio.gather(*waiters)
        await token.wait()
        assert not token._callbacks

    asyncio.run(scenario())


def test_a_waiter_that_is_cancelled_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        token = CancelToken()
        waiter = asyncio.create_task(token.wait())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert not token._callbacks
        token.cancel()

    asyncio.run(scenario())


@pytest.mark.spec("CAN-7", "CAN-8")
@pytest.mark.parametrize("times", [0, 1, 2, 5])
def test_work_is_joined_and_the_cancel_raised_again_afterwards(times: int) -> None:
    done: list[str] = []
    told: list[int] = []

    async def work() -> str:
        for _ in range(10):
            await asyncio.sleep(0)
        done.append("work")
        return "result"

    async def outer() -> str:
        return await uninterruptible(work(), lambda: told.append(len(done)))

    def strike(tick: int, task: asyncio.Task[str]) -> None:
        if 3 <= tick < 3 + times:
            task.cancel()

    result, _ = run_ticks(outer, strike)
    assert done == ["work"]
    assert told == [0] * times
    if times:
        assert isinstance(result, asyncio.CancelledError)
    else:
        assert result == "result"


@pytest.mark.parametrize("cancelled", [False, True])
def test_an_exception_of_the_work_wins_over_the_cancel(cancelled: bool) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise KeyError("inner")

    def strike(tick: int, task: asyncio.Task[None]) -> None:
        if tick == 2 and cancelled:
            task.cancel()

    result, _ = run_ticks(lambda: uninterruptible(work()), strike)
    assert isinstance(result, KeyError)


@pytest.mark.spec("CAN-9")
def test_work_that_listens_to_the_token_ends_soon_after_the_cancel() -> None:
    token = CancelToken()

    async def work() -> str:
        await token.wait()
        return "stopped by the token"

    def strike(tick: int, task: asyncio.Task[str]) -> None:
        if tick == 3:
            task.cancel()

    result, _ = run_ticks(
        lambda: uninterruptible(work(), lambda: token.cancel(CancelReason.OUTER)), strike
    )
    assert isinstance(result, asyncio.CancelledError)
    assert token.reason is CancelReason.OUTER


def test_work_that_is_cancelled_itself_is_a_cancellation() -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    result, _ = run_ticks(lambda: uninterruptible(work()), lambda tick, task: None)
    assert isinstance(result, asyncio.CancelledError)
