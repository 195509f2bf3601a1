"""What may be tried again, how often, and after how long (STR-2, STR-4, STR-5).

Law: the budgets are independent: *establishing* (no stream came of it), *consuming* (a stream
that broke before any output) and *empty* (a stream that ended without a word). None of them eats
from another, so all attempts together are bounded by their sum.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.events import RetryWait
from agentcli.domain.values import frozen

_DAY_S = 86_400
_SLICE_S = 30.0


@frozen
class RetryPolicy:
    """Budgets and waits, in seconds. ``sleep`` is a parameter so that tests own the time.

    A rate limit for longer than ``max_retry_after_s`` is not waited for unasked; one for longer
    than ``believable_s`` is not believed at all.
    """

    max_retries: int = 3
    first_delay_s: float = 1.0
    max_delay_s: float = 16.0
    max_retry_after_s: float = 60.0
    believable_s: float = 8.0 * _DAY_S
    max_reconnects: int = 5
    max_empty_retries: int = 2
    empty_delay_s: float = 0.25
    recovery_delay_s: float = 0.5
    idle_s: float = 90.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


class Budgets:
    """Counts what was tried for one reply and says how long to wait, or that it is over."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._established = 0
        self._reconnected = 0
        self._empty = 0

    def next_wait(self, error: ProviderError, *, streaming: bool) -> RetryWait | None:
        """The wait before the next attempt; ``streaming`` says that a stream had come."""
        policy = self._policy
        if not error.retryable:
            return None
        dropped = streaming and error.kind is ErrorKind.NETWORK
        if error.kind is ErrorKind.EMPTY:
            self._empty += 1
            attempt, limit = self._empty, policy.max_empty_retries
            delay_s = policy.empty_delay_s * attempt
        elif error.kind is ErrorKind.STALLED or dropped:
            self._reconnected += 1
            attempt, limit = self._reconnected, policy.max_reconnects
            delay_s = self._backoff(attempt)
        else:
            self._established += 1
            attempt, limit = self._established, policy.max_retries
            delay_s = self._backoff(attempt)
        if attempt > limit:
            return None
        asked_s = error.retry_after_s
        if asked_s is not None and asked_s <= policy.believable_s:
            delay_s = max(0.0, min(asked_s, policy.max_retry_after_s))
        return RetryWait(error, attempt, limit, delay_s)

    def _backoff(self, attempt: int) -> float:
        full = min(self._policy.first_delay_s * 2.0 ** (attempt - 1), self._policy.max_delay_s)
        return full * (0.75 + 0.5 * self._policy.jitter())


def long_wait_s(error: ProviderError, policy: RetryPolicy) -> float | None:
    """How long a rate limit lasts that a person should decide about; ``None`` for any other."""
    asked_s = error.retry_after_s
    if error.kind is not ErrorKind.RATE_LIMIT or not error.retryable or asked_s is None:
        return None
    return asked_s if policy.max_retry_after_s < asked_s <= policy.believable_s else None


def retry_later(error: ProviderError, delay_s: float) -> ProviderError:
    """``error`` with the advice when to try again, by the clock on the wall."""
    return ProviderError(
        error.message,
        f"retry after {clock_time(time.time() + delay_s)}, in {in_words(delay_s)}",
        kind=error.kind,
        provider=error.provider,
        host=error.host,
        status=error.status,
        retry_after_s=delay_s,
        retryable=error.retryable,
        streaming=error.streaming,
    )


def clock_time(at: float) -> str:
    """``at`` (seconds since 1970) in local time: ``14:05``, on another day ``Tue 2 Jun 14:05``."""
    then, now = time.localtime(at), time.localtime()
    clock = time.strftime("%H:%M", then)
    if then[:3] == now[:3]:
        return clock
    return f"{time.strftime('%a', then)} {then.tm_mday} {time.strftime('%b', then)} {clock}"


def in_words(seconds: float) -> str:
    """``90 s``, ``42 min``, ``3 h 5 min``, ``2 d 4 h``; rounded up, so that nobody is early."""
    whole = -int(-seconds // 1)
    if whole < 120:  # noqa: PLR2004 - two minutes are still told in seconds
        return f"{whole} s"
    minutes = -(-whole // 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


async def sleep_long(delay_s: float, policy: RetryPolicy) -> None:
    """Wait ``delay_s`` seconds: not moved by the clock being set, not longer for a suspend.

    The loop's clock stands still while the computer sleeps; the limit that is waited for does
    not. So the wait goes in slices, and time since boot counts too where the system tells it.
    """
    booted, slept_s = _since_boot(), 0.0
    while (left_s := delay_s - max(slept_s, _since_boot() - booted)) > 0:
        slice_s = min(left_s, _SLICE_S)
        await policy.sleep(slice_s)
        slept_s += slice_s


def _since_boot() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
