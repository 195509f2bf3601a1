"""One model reply: try, wait, try again; how a step is asked, for all providers, lives here.

Laws: after output a broken stream is not tried again (STR-4). A complete reply may be asked for
once more - because it said nothing (STR-6) or was cut at the output limit (STR-7) - and then
only what is new is shown (``replay``). A reply that has said its end is complete: nothing that
follows can spoil it. Waits are announced, and cancellable because the whole runs under ``race``;
where a cancellation was swallowed, the token is looked at before each chunk and each attempt
(CAN-9). Tokens of what did not become the reply are kept apart, in ``wasted`` (COST-1).

The budgets of retries are independent (STR-2, STR-5): *establishing* (no stream came of it),
*consuming* (a stream that broke before any output) and *empty* (a stream that ended without a
word). None of them eats from another, so all attempts together are bounded by their sum.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError, TurnCancelled
from agentcli.domain.events import (
    AgentEvent,
    CallForming,
    Notice,
    OutputCapRaised,
    RetryWait,
    TextChunk,
    ThinkingChunk,
)
from agentcli.domain.messages import AssistantMessage, StopReason, ThinkingPart, Usage, user_text
from agentcli.domain.ports import Effort, LongWait, ModelInfo, ModelRequest, Provider
from agentcli.domain.stream import (
    ProviderNote,
    StreamEnd,
    StreamEvent,
    TextDelta,
    TextWasThinking,
    ThinkingDelta,
    ToolCallStart,
)
from agentcli.domain.values import frozen
from agentcli.engine.assemble import Assembler

if TYPE_CHECKING:
    from agentcli.engine.replay import Replay, Shown


Emit = Callable[[AgentEvent], None]
HigherCap = Callable[[ModelRequest, Usage], int | None]

_CLOSE_PATIENCE_S = 2.0
_RECOVERY_NOTE = "(Your last reply was empty. Answer now with text or a tool call.)"
# how a server says no to an output limit that it takes for too high
_REFUSED = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.CONTEXT_OVERFLOW})
log = logging.getLogger(__name__)


def doubled_cap(request: ModelRequest, _wasted: Usage) -> int | None:
    """The next higher output limit for a reply that was cut at ``request``'s, if there is one."""
    cap, most = request.max_output_tokens, request.model.max_output_tokens
    return None if cap is None or cap >= most else min(cap * 2, most)


class Sampler:
    """Asks one provider for one reply at a time.

    ``wasted`` are tokens of attempts that did not become the reply: they cost all the same.
    ``long_wait`` asks the user whether to wait for a rate limit beyond the policy's cap; without
    it such a limit is an error that says when to try again.
    """

    def __init__(
        self,
        provider: Provider,
        emit: Emit,
        policy: RetryPolicy | None = None,
        long_wait: LongWait | None = None,
    ) -> None:
        self._provider = provider
        self._emit = emit
        self._policy = policy or RetryPolicy()
        self._long_wait = long_wait
        self._assembler: Assembler | None = None
        self._shown: Shown | None = None
        self._replay: Replay | None = None
        self.wasted = Usage()

    # --- what is known of the last reply ---------------------------------------------------

    @property
    def partial_text(self) -> str:
        """What was shown of the last reply, until ``forget`` says that it is stored (CAN-5)."""
        if self._shown is not None:
            return self._shown.text.screen + (self._replay.new_text if self._replay else "")
        return self._assembler.text if self._assembler is not None else ""

    @property
    def has_output(self) -> bool:
        """Whether the last reply, not yet stored, has shown anything (STR-4)."""
        if self._shown is not None:
            return True
        return self._assembler is not None and self._assembler.has_output

    @property
    def partial_usage(self) -> Usage:
        """All tokens reported since ``forget``, for a step that ends without a reply."""
        usage = self._assembler.usage if self._assembler is not None else Usage()
        return self.wasted + usage

    def forget(self) -> None:
        """The last reply is durable."""
        self._assembler = self._shown = self._replay = None
        self.wasted = Usage()

    # --- asking ----------------------------------------------------------------------------

    async def sample(
        self,
        request: ModelRequest,
        taken_ids: AbstractSet[str],
        cancel: CancelToken,
        higher_cap: HigherCap = doubled_cap,
    ) -> AssistantMessage:
        """The reply to ``request``; raises ``ProviderError`` when the budgets are spent.

        ``higher_cap`` says whether and how far the output limit of a cut reply may be raised.
        """
        reply = await self._whole(request, taken_ids, cancel, higher_cap)
        if not _usable(reply):
            self._set_aside(reply)
            await self._wait(RetryWait(self._nothing(request), 1, 1, self._policy.recovery_delay_s))
            reply = await self._whole(_recovery(request), taken_ids, cancel, higher_cap)
        if not _usable(reply):
            raise self._nothing(request)
        return reply

    async def _whole(
        self,
        request: ModelRequest,
        taken_ids: AbstractSet[str],
        cancel: CancelToken,
        higher_cap: HigherCap,
    ) -> AssistantMessage:
        """A reply that was not cut, as far as the output limit can be raised (STR-7)."""
        reply = await self._with_retries(request, taken_ids, cancel)
        while reply.stop_reason is StopReason.MAX_TOKENS and request.max_output_tokens is not None:
            cap = higher_cap(request, self.wasted + reply.usage)
            if cap is None or cap <= request.max_output_tokens:
                break
            before = (self._assembler, self.wasted)
            self._set_aside(reply)
            self._emit(OutputCapRaised(request.max_output_tokens, cap))
            request = replace(request, max_output_tokens=cap)
            try:
                reply = await self._with_retries(request, taken_ids, cancel)
            except ProviderError as error:
                if error.kind not in _REFUSED or self._assembler is not None:
                    raise
                self._assembler, self.wasted = before
                self._emit(Notice(f"the higher output limit was refused: {error.message}"))
                break
        return reply

    def _set_aside(self, reply: AssistantMessage) -> None:
        """``reply`` is complete and will not be the answer; what it has shown stays shown."""
        assembler, replayed = self._assembler, self._replay
        text = assembler.text if assembler is not None else reply.text
        thinking = "".join(part.text for part in reply.parts if isinstance(part, ThinkingPart))
        if self._shown is None:
            from agentcli.engine.replay import Shown  # rare: not on the way to a first request

            self._shown = Shown(calls=[call.name for call in reply.tool_calls])
        self._shown.text.add(text, replayed.new_text if replayed else text)
        self._shown.thinking.add(thinking, replayed.new_thinking if replayed else thinking)
        self.wasted += reply.usage
        self._assembler = self._replay = None

    async def _with_retries(
        self, request: ModelRequest, taken_ids: AbstractSet[str], cancel: CancelToken
    ) -> AssistantMessage:
        policy = self._policy.for_model(request.model)
        budgets = Budgets(policy)
        while True:
            if cancel.cancelled:
                raise TurnCancelled
            assembler = Assembler(request.model.provider, request.model.name, taken_ids)
            self._assembler = assembler
            self._replay = None
            if self._shown is not None:
                from agentcli.engine.replay import Replay

                self._replay = Replay(self._shown)
            try:
                await self._attempt(request, assembler, cancel)
                return assembler.message()
            except ProviderError as error:
                failed = error
            if assembler.has_output:
                raise failed
            self.wasted += assembler.usage
            self._assembler = None
            if (delay_s := long_wait_s(failed, policy)) is not None:
                await self._wait_long(failed, delay_s)
                budgets = Budgets(policy)
                continue
            wait = budgets.next_wait(failed, streaming=failed.streaming or assembler.started)
            if wait is None:
                raise failed
            await self._wait(wait)

    # --- waiting ---------------------------------------------------------------------------

    async def _wait(self, wait: RetryWait) -> None:
        self._emit(wait)
        await self._policy.sleep(wait.delay_s)

    async def _wait_long(self, error: ProviderError, delay_s: float) -> None:
        """A limit beyond the cap: the user decides; nobody is there: the error says when."""
        later = retry_later(error, delay_s)
        if self._long_wait is None or not await self._long_wait.offer(later, delay_s):
            raise later from error
        self._emit(RetryWait(error, 1, 1, delay_s))
        await sleep_long(delay_s, self._policy)

    # --- one attempt -----------------------------------------------------------------------

    async def _attempt(
        self, request: ModelRequest, assembler: Assembler, cancel: CancelToken
    ) -> None:
        stream = self._provider.stream(request, cancel)
        try:
            await self._consume(stream, assembler, request.model, cancel)
        except Exception as error:
            if not assembler.ended or isinstance(error, TurnCancelled):
                raise
            log.warning("a fault after the end of a reply", exc_info=error)
        finally:
            await _close(stream)
        if not assembler.ended:
            kind = ErrorKind.NETWORK if assembler.has_output else ErrorKind.EMPTY
            what = "closed the stream before the reply was complete"
            raise self._fault(what, "send the message again to go on", kind)

    async def _consume(
        self,
        stream: AsyncIterator[StreamEvent],
        assembler: Assembler,
        model: ModelInfo,
        cancel: CancelToken,
    ) -> None:
        """Fold and show the stream; one that is silent for too long is given up (STR-3)."""
        add, show, now = assembler.add, self._show, asyncio.get_running_loop().time
        idle_s = model.idle_timeout_s or self._policy.idle_s
        limit_s = first_s = model.first_token_timeout_s or self._policy.idle_s
        try:
            async with asyncio.timeout(None) as silence:
                watchdog = _Watchdog(silence, first_s)
                try:
                    async for event in stream:
                        if cancel.cancelled:
                            raise TurnCancelled
                        if silence.expired():  # a provider has swallowed the cancellation
                            break
                        if assembler.ended:
                            continue
                        watchdog.fed_at = now()
                        add(event)
                        show(event)
                        if limit_s != idle_s and assembler.has_output:
                            limit_s = idle_s
                            watchdog.stop()
                            watchdog.start(limit_s)
                        if isinstance(event, StreamEnd):
                            watchdog.stop()
                            silence.reschedule(now() + _CLOSE_PATIENCE_S)
                finally:
                    watchdog.stop()
        except TimeoutError:
            if not silence.expired():
                raise
        if silence.expired():
            setting = "idle" if assembler.has_output else "first_token"
            advice = (
                f"try again; check the server, or raise its {setting}_timeout_s in the settings"
            )
            raise self._fault(f"sent nothing for {limit_s:.0f} s", advice, ErrorKind.STALLED)

    def _show(self, event: StreamEvent) -> None:
        if isinstance(event, TextDelta):
            text = event.text if self._replay is None else self._new_part(self._replay, event.text)
            if text:
                self._emit(TextChunk(text))
        elif isinstance(event, ThinkingDelta):
            replayed = self._replay
            text = event.text if replayed is None else replayed.thinking(event.text).text
            if text:
                self._emit(ThinkingChunk(text))
        elif isinstance(event, ToolCallStart) and (
            self._replay is None or self._replay.is_new_call(event.name)
        ):
            self._emit(CallForming(event.name, event.id))
        elif isinstance(event, TextWasThinking):
            self._emit(
                Notice("so far the model was thinking; its answer follows", is_warning=False)
            )
        elif isinstance(event, ProviderNote):
            self._emit(Notice(event.text))

    def _new_part(self, replayed: Replay, text: str) -> str:
        piece = replayed.text(text)
        if piece.turns_off:
            self._emit(Notice("the new reply says something else from here on", is_warning=False))
        return piece.text

    # --- faults ----------------------------------------------------------------------------

    def _nothing(self, request: ModelRequest) -> ProviderError:
        what = f"answered with nothing to show or to run ({request.model.name})"
        return self._fault(what, "try again or switch the model", ErrorKind.EMPTY)

    def _fault(self, what: str, advice: str, kind: ErrorKind) -> ProviderError:
        """An error that names the provider and, where there is one, its host (STR-9)."""
        name = self._provider.name
        host = self._provider.host
        label = f"{name} at {host}" if host else name
        return ProviderError(f"{label} {what}", advice, kind=kind, provider=name, host=host)


class _Watchdog:
    """Lets ``limit`` expire when it was not fed in time: one look a period, none for each event."""

    def __init__(self, limit: asyncio.Timeout, idle_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self.fed_at = self._loop.time()
        self.start(idle_s)

    def start(self, idle_s: float) -> None:
        """From now on it is to be fed every ``idle_s`` seconds."""
        self._idle_s = idle_s
        self._timer = self._loop.call_at(self.fed_at + idle_s, self._look)

    def _look(self) -> None:
        due = self.fed_at + self._idle_s
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self._limit.reschedule(self._loop.time())

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()


async def _close(stream: AsyncIterator[StreamEvent]) -> None:
    """End the provider's generator; a fault of its cleaning up is not one of the reply."""
    closing = getattr(stream, "aclose", None)
    if closing is None:
        return
    try:
        async with asyncio.timeout(_CLOSE_PATIENCE_S):
            await closing()
    except Exception:
        log.warning("a stream could not be closed", exc_info=True)


def _usable(message: AssistantMessage) -> bool:
    """Whether there is something to show or to run, or the model said that it will not answer."""
    named = any(call.name.strip() for call in message.tool_calls)
    return (
        named
        or bool(message.text and not message.text.isspace())
        or message.stop_reason is StopReason.REFUSAL
    )


def _recovery(request: ModelRequest) -> ModelRequest:
    effort = request.effort
    if effort is not None and effort.is_much:
        effort = Effort.MINIMAL
    messages = (*request.messages, user_text(_RECOVERY_NOTE))
    return replace(request, messages=messages, effort=effort)


# --- what may be tried again, how often, after how long -------------------------------------------


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

    def for_model(self, model: ModelInfo) -> RetryPolicy:
        """The policy with the user's own limit of attempts, of whatever kind (STR-3)."""
        if model.max_attempts is None:
            return self
        again = model.max_attempts - 1
        return replace(self, max_retries=again, max_reconnects=again, max_empty_retries=again)


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
    """How long a rate limit lasts that the user should decide about; ``None`` for any other."""
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
