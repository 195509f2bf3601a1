"""Budgets, rate limits that last, and how a time is told."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.engine import sample
from agentcli.engine.sample import (
    Budgets,
    RetryPolicy,
    clock_time,
    in_words,
    long_wait_s,
    retry_later,
    sleep_long,
)

POLICY = RetryPolicy(jitter=lambda: 0.5)
NOON = 1_750_000_000.0


def fault(kind: ErrorKind, retry_after_s: float | None = None, **more: object) -> ProviderError:
    return ProviderError(kind.value, kind=kind, retry_after_s=retry_after_s, **more)  # type: ignore[arg-type]


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.spec("STR-2", "STR-4", "STR-5")
@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(ErrorKind)), st.booleans(), st.sampled_from([None, 5.0])),
        min_size=30,
        max_size=30,
    )
)
def test_each_budget_allows_its_number_whatever_else_fails(
    faults: list[tuple[ErrorKind, bool, float | None]],
) -> None:
    budgets, counted = Budgets(POLICY), {"refused": 0, "broken": 0, "empty": 0}
    for kind, streaming, asked_s in faults:
        wait = budgets.next_wait(fault(kind, asked_s), streaming=streaming)
        if not kind.retryable:
            assert wait is None
            continue
        broken = kind is ErrorKind.STALLED or (streaming and kind is ErrorKind.NETWORK)
        name = "empty" if kind is ErrorKind.EMPTY else "broken" if broken else "refused"
        counted[name] += 1
        limit = {"refused": 3, "broken": 5, "empty": 2}[name]
        if counted[name] > limit:
            assert wait is None
            continue
        assert wait is not None
        assert (wait.attempt, wait.max_attempts) == (counted[name], limit)
        own = 0.25 * wait.attempt if name == "empty" else min(2.0 ** (wait.attempt - 1), 16)
        assert wait.delay_s == (own if asked_s is None else asked_s)


@pytest.mark.spec("STR-2")
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 5))
def test_jitter_stays_within_a_quarter(jitter: float, attempt: int) -> None:
    budgets = Budgets(RetryPolicy(jitter=lambda: jitter))
    for _ in range(attempt):
        wait = budgets.next_wait(fault(ErrorKind.STALLED), streaming=True)
    assert wait is not None
    full = 2.0 ** (attempt - 1)
    assert 0.75 * full <= wait.delay_s <= 1.25 * full


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (fault(ErrorKind.RATE_LIMIT, 60.5), 60.5),
        (fault(ErrorKind.RATE_LIMIT, 5 * 3600.0), 5 * 3600.0),
        (fault(ErrorKind.RATE_LIMIT, 7 * 86_400.0), 7 * 86_400.0),
        (fault(ErrorKind.RATE_LIMIT, 60.0), None),
        (fault(ErrorKind.RATE_LIMIT, 1e9), None),
        (fault(ErrorKind.RATE_LIMIT), None),
        (fault(ErrorKind.RATE_LIMIT, 3600.0, retryable=False), None),
        (fault(ErrorKind.OVERLOADED, 3600.0), None),
        (fault(ErrorKind.SERVER, 3600.0), None),
    ],
    ids=str,
)
def test_only_a_believable_rate_limit_beyond_the_cap_is_a_long_wait(
    error: ProviderError, waits: float | None
) -> None:
    assert long_wait_s(error, POLICY) == waits


@pytest.mark.spec("STR-9")
@pytest.mark.usefixtures("utc")
def test_the_error_says_when_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON)
    monkeypatch.setattr(time, "localtime", _localtime_at(NOON))
    error = ProviderError(
        "p at h limits the rate of requests (429)", "try again in a moment",
        kind=ErrorKind.RATE_LIMIT, provider="p", host="h", status=429, retry_after_s=2520.0,
    )  # fmt: skip
    later = retry_later(error, 2520.0)
    assert str(later) == f"{error.message} - retry after 15:48, in 42 min"
    kept = ("kind", "provider", "host", "status", "retry_after_s", "retryable", "streaming")
    assert all(getattr(later, name) == getattr(error, name) for name in kept)


def _localtime_at(now: float):  # type: ignore[no-untyped-def]
    real = time.localtime
    return lambda at=None: real(now if at is None else at)


@pytest.mark.usefixtures("utc")
def test_another_day_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", _localtime_at(NOON))
    assert clock_time(NOON) == "15:06"
    assert clock_time(NOON + 86_400) == "Mon 16 Jun 15:06"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (0.2, "1 s"), (61, "61 s"), (119.5, "2 min"), (120, "2 min"), (121, "3 min"),
        (2520, "42 min"), (3600, "1 h"), (3540.5, "1 h"), (11_100, "3 h 5 min"), (86_400, "1 d"),
        (86_399, "1 d"), (100_800, "1 d 4 h"), (7 * 86_400, "7 d"),
    ],
)  # fmt: skip
def test_a_wait_in_words_is_never_too_short(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


class Clock:
    """Sleeps that take no time; the computer is suspended for ``suspended_s`` in the third."""

    def __init__(self, suspended_s: float = 0.0) -> None:
        self.slept: list[float] = []
        self.boot_s = 100.0
        self._suspended_s = suspended_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.boot_s += seconds + (self._suspended_s if len(self.slept) == 3 else 0.0)


@pytest.mark.parametrize("suspended_s", [0.0, 400.0, 9e9])
def test_a_suspend_counts_as_waiting(suspended_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(suspended_s)
    monkeypatch.setattr(sample, "_since_boot", lambda: clock.boot_s)
    policy = RetryPolicy(sleep=clock.sleep)
    _finish(sleep_long(700.0, policy))
    assert sum(clock.slept) == max(90.0, 700.0 - suspended_s)
    assert max(clock.slept) <= 30.0


@pytest.mark.parametrize("days", [-400, 400])
def test_a_clock_that_is_set_moves_no_wait(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, jump = Clock(), time.time() + days * 86_400
    monkeypatch.setattr(time, "time", lambda: jump)
    _finish(sleep_long(95.0, RetryPolicy(sleep=clock.sleep)))
    assert clock.slept[:3] == pytest.approx([30.0, 30.0, 30.0])
    assert sum(clock.slept) == pytest.approx(95.0, abs=5.0)


def _finish(coroutine: object) -> None:
    """Run what never truly waits."""
    with pytest.raises(StopIteration):
        coroutine.send(None)  # type: ignore[attr-defined]
