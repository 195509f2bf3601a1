"""One model reply: try, wait, try again; retry policy for all providers lives here, once.

Two budgets (STR-2, STR-4): *establishing* (no stream yet) and *consuming* (a stream that
broke before any output). After output nothing is retried: what was shown is never shown
twice. A reply that has said its end is complete: nothing that follows can spoil it. Waits are
cancellable because the whole runs under ``race``; where a cancellation was swallowed, the token
is looked at before each chunk and each attempt (CAN-9).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError, TurnCancelled
from agentcli.domain.events import AgentEvent, CallForming, RetryWait, TextChunk, ThinkingChunk
from agentcli.domain.messages import AssistantMessage, StopReason, Usage, user_text
from agentcli.domain.ports import Effort, ModelRequest, Provider
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallStart,
)
from agentcli.domain.values import frozen
from agentcli.engine.assemble import Assembler

Emit = Callable[[AgentEvent], None]

_WATCHDOG_STEP_S = 0.5
_CLOSE_PATIENCE_S = 2.0
_RECOVERY_NOTE = "(Your last reply was empty. Answer now with text or a tool call.)"
log = logging.getLogger(__name__)


@frozen
class RetryPolicy:
    """Budgets and waits, in seconds. ``sleep`` is a parameter so that tests own the time.

    ``max_attempts`` bounds all attempts at one reply together, whatever they failed of.
    """

    max_retries: int = 3
    first_delay_s: float = 1.0
    max_delay_s: float = 16.0
    max_retry_after_s: float = 60.0
    max_reconnects: int = 5
    max_attempts: int = 6
    max_empty_retries: int = 2
    empty_delay_s: float = 0.25
    recovery_delay_s: float = 0.5
    idle_s: float = 90.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


class Sampler:
    """Asks one provider for one reply at a time."""

    def __init__(self, provider: Provider, emit: Emit, policy: RetryPolicy | None = None) -> None:
        self._provider = provider
        self._emit = emit
        self._policy = policy or RetryPolicy()
        self.assembler: Assembler | None = None

    @property
    def partial_text(self) -> str:
        """Visible text of the last reply, until ``forget`` says that it is stored (CAN-5)."""
        return self.assembler.text if self.assembler is not None else ""

    @property
    def has_output(self) -> bool:
        """Whether the last reply, not yet stored, has shown anything (STR-4)."""
        return self.assembler is not None and self.assembler.has_output

    @property
    def partial_usage(self) -> Usage:
        """Tokens reported of a reply that was cut: it costs all the same (COST-1)."""
        return self.assembler.usage if self.assembler is not None else Usage()

    def forget(self) -> None:
        """The last reply is durable."""
        self.assembler = None

    async def sample(
        self, request: ModelRequest, taken_ids: frozenset[str], cancel: CancelToken
    ) -> AssistantMessage:
        """The reply to ``request``; raises ``ProviderError`` when the budgets are spent."""
        message = await self._with_retries(request, taken_ids, cancel)
        if not _usable(message):
            spent = message.usage
            await self._policy.sleep(self._policy.recovery_delay_s)
            message = await self._with_retries(_recovery(request), taken_ids, cancel)
            message = replace(message, usage=spent + message.usage)
        if not _usable(message):
            raise ProviderError(
                f"{request.model.id} returned an empty reply twice",
                "try again or switch the model",
                kind=ErrorKind.EMPTY,
                provider=request.model.provider,
            )
        return message

    async def _with_retries(
        self, request: ModelRequest, taken_ids: frozenset[str], cancel: CancelToken
    ) -> AssistantMessage:
        attempts = _Attempts(self._policy)
        while True:
            if cancel.cancelled:
                raise TurnCancelled
            assembler = Assembler(request.model.provider, request.model.name, taken_ids)
            self.assembler = assembler
            try:
                await self._attempt(request, assembler, cancel)
                return assembler.message()
            except ProviderError as error:
                if assembler.has_output:
                    raise
                wait = attempts.next_wait(error, streaming=error.streaming or assembler.started)
                if wait is None:
                    raise
            self._emit(wait)
            await self._policy.sleep(wait.delay_s)

    async def _attempt(
        self, request: ModelRequest, assembler: Assembler, cancel: CancelToken
    ) -> None:
        stream = self._provider.stream(request, cancel)
        try:
            await self._consume(stream, assembler, cancel)
        except Exception as error:
            if not assembler.ended or isinstance(error, TurnCancelled):
                raise
            log.warning("a fault after the end of a reply", exc_info=error)
        finally:
            await _close(stream)
        if not assembler.ended:
            kind = ErrorKind.NETWORK if assembler.has_output else ErrorKind.EMPTY
            raise ProviderError(
                f"{request.model.provider} closed the stream before the reply was complete",
                "send the message again to go on",
                kind=kind,
                provider=request.model.provider,
            )

    async def _consume(
        self, stream: AsyncIterator[StreamEvent], assembler: Assembler, cancel: CancelToken
    ) -> None:
        """Fold and show the stream under the idle watchdog (STR-3): a chunk moves its deadline."""
        add, show = assembler.add, self._show
        now, idle_s = asyncio.get_running_loop().time, self._policy.idle_s
        limit = asyncio.timeout(idle_s)
        try:
            async with limit:
                moved_at = now()
                async for event in stream:
                    if cancel.cancelled:
                        raise TurnCancelled
                    if assembler.ended:
                        continue
                    add(event)
                    show(event)
                    if isinstance(event, StreamEnd):
                        idle_s = _CLOSE_PATIENCE_S
                        moved_at = float("-inf")
                    if (time := now()) - moved_at > _WATCHDOG_STEP_S:
                        if limit.expired():  # a provider has swallowed the cancellation
                            break
                        moved_at = time
                        limit.reschedule(time + idle_s)
        except TimeoutError:
            if not limit.expired():
                raise
        if limit.expired():
            raise ProviderError(
                f"{self._provider.name} sent nothing for {idle_s:.0f} s",
                "try again; check the network or the server",
                kind=ErrorKind.STALLED,
                provider=self._provider.name,
            )

    def _show(self, event: StreamEvent) -> None:
        if isinstance(event, TextDelta):
            self._emit(TextChunk(event.text))
        elif isinstance(event, ThinkingDelta):
            if event.text:
                self._emit(ThinkingChunk(event.text))
        elif isinstance(event, ToolCallStart):
            self._emit(CallForming(event.name))


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


class _Attempts:
    """Counts what was tried and says how long to wait, or that it is over."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failed = 0
        self._established = 0
        self._reconnected = 0
        self._empty = 0

    def next_wait(self, error: ProviderError, *, streaming: bool) -> RetryWait | None:
        policy = self._policy
        self._failed += 1
        if not error.retryable or self._failed >= policy.max_attempts:
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
        if error.retry_after_s is not None:
            delay_s = max(0.0, min(error.retry_after_s, policy.max_retry_after_s))
        return RetryWait(error, attempt, limit, delay_s)

    def _backoff(self, attempt: int) -> float:
        full = min(self._policy.first_delay_s * 2.0 ** (attempt - 1), self._policy.max_delay_s)
        return full * (0.75 + 0.5 * self._policy.jitter())


def _usable(message: AssistantMessage) -> bool:
    """Whether there is something to show or to run, or the model said that it will not answer."""
    named = any(call.name.strip() for call in message.tool_calls)
    return named or bool(message.text.strip()) or message.stop_reason is StopReason.REFUSAL


def _recovery(request: ModelRequest) -> ModelRequest:
    lowered = {Effort.MEDIUM: Effort.MINIMAL, Effort.HIGH: Effort.MINIMAL}
    effort = lowered.get(request.effort, request.effort) if request.effort else None
    messages = (*request.messages, user_text(_RECOVERY_NOTE))
    return replace(request, messages=messages, effort=effort)
