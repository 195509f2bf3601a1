"""One model reply: try, wait, try again; retry policy for all providers lives here, once.

Two budgets (STR-2, STR-4): *establishing* (no stream yet) and *consuming* (a stream that
broke before any output). After output nothing is retried: what was shown is never shown
twice. Waits are cancellable because the whole runs under ``race``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.events import AgentEvent, CallForming, RetryWait, TextChunk, ThinkingChunk
from agentcli.domain.messages import AssistantMessage, user_text
from agentcli.domain.ports import Effort, ModelRequest, Provider
from agentcli.domain.stream import StreamEvent, TextDelta, ThinkingDelta, ToolCallStart
from agentcli.engine.assemble import Assembler

Emit = Callable[[AgentEvent], None]

_WATCHDOG_STEP_S = 0.5
_RECOVERY_NOTE = "(Your last reply was empty. Answer now with text or a tool call.)"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Budgets and waits, in seconds. ``sleep`` is a parameter so that tests own the time."""

    max_retries: int = 3
    first_delay_s: float = 1.0
    max_delay_s: float = 16.0
    max_retry_after_s: float = 60.0
    max_reconnects: int = 5
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
        """Visible text of the reply that is under way or was cut (CAN-5)."""
        return self.assembler.text if self.assembler is not None else ""

    async def sample(
        self, request: ModelRequest, taken_ids: frozenset[str], cancel: CancelToken
    ) -> AssistantMessage:
        """The reply to ``request``; raises ``ProviderError`` when the budgets are spent."""
        message = await self._with_retries(request, taken_ids, cancel)
        if not _usable(message):
            await self._policy.sleep(self._policy.recovery_delay_s)
            message = await self._with_retries(_recovery(request), taken_ids, cancel)
        if not _usable(message):
            raise ProviderError(
                f"{request.model.id} returned an empty reply twice",
                "try again or switch the model",
                kind=ErrorKind.EMPTY,
                provider=request.model.provider,
            )
        self.assembler = None
        return message

    async def _with_retries(
        self, request: ModelRequest, taken_ids: frozenset[str], cancel: CancelToken
    ) -> AssistantMessage:
        attempts = _Attempts(self._policy)
        while True:
            assembler = Assembler(request.model.provider, request.model.name, taken_ids)
            self.assembler = assembler
            try:
                await self._attempt(request, assembler, cancel)
                return assembler.message()
            except ProviderError as error:
                if assembler.has_output:
                    raise
                wait = attempts.next_wait(error)
                if wait is None:
                    raise
            self._emit(wait)
            await self._policy.sleep(wait.delay_s)

    async def _attempt(
        self, request: ModelRequest, assembler: Assembler, cancel: CancelToken
    ) -> None:
        stream = self._provider.stream(request, cancel)
        try:
            await self._consume(stream, assembler, request)
        finally:
            closing = getattr(stream, "aclose", None)
            if closing is not None:
                await closing()
        if not assembler.ended:
            kind = ErrorKind.NETWORK if assembler.has_output else ErrorKind.EMPTY
            raise ProviderError(
                f"{request.model.provider} closed the stream before the reply was complete",
                "send the message again to go on",
                kind=kind,
                provider=request.model.provider,
            )

    async def _consume(
        self, stream: AsyncIterator[StreamEvent], assembler: Assembler, request: ModelRequest
    ) -> None:
        """Fold and show the stream under the idle watchdog (STR-3): a chunk moves its deadline."""
        emit, add = self._emit, assembler.add
        now, idle_s = asyncio.get_running_loop().time, self._policy.idle_s
        limit = asyncio.timeout(idle_s)
        try:
            async with limit:
                moved_at = now()
                async for event in stream:
                    add(event)
                    if isinstance(event, TextDelta):
                        emit(TextChunk(event.text))
                    elif isinstance(event, ThinkingDelta):
                        if event.text:
                            emit(ThinkingChunk(event.text))
                    elif isinstance(event, ToolCallStart):
                        emit(CallForming(event.name))
                    if (time := now()) - moved_at > _WATCHDOG_STEP_S:
                        moved_at = time
                        limit.reschedule(time + idle_s)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ProviderError(
                f"{request.model.provider} sent nothing for {idle_s:.0f} s",
                "try again; check the network or the server",
                kind=ErrorKind.STALLED,
                provider=request.model.provider,
            ) from None


class _Attempts:
    """Counts what was tried and says how long to wait, or that it is over."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._established = 0
        self._reconnected = 0
        self._empty = 0

    def next_wait(self, error: ProviderError) -> RetryWait | None:
        policy = self._policy
        if not error.retryable:
            return None
        if error.kind is ErrorKind.EMPTY:
            self._empty += 1
            attempt, limit = self._empty, policy.max_empty_retries
            delay_s = policy.empty_delay_s * attempt
        elif error.kind is ErrorKind.STALLED:
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
            if error.retry_after_s > policy.max_retry_after_s:
                return None
            delay_s = error.retry_after_s
        return RetryWait(error, attempt, limit, delay_s)

    def _backoff(self, attempt: int) -> float:
        full = min(self._policy.first_delay_s * 2.0 ** (attempt - 1), self._policy.max_delay_s)
        return full * (0.75 + 0.5 * self._policy.jitter())


def _usable(message: AssistantMessage) -> bool:
    return bool(message.tool_calls) or bool(message.text.strip())


def _recovery(request: ModelRequest) -> ModelRequest:
    lowered = {Effort.MEDIUM: Effort.MINIMAL, Effort.HIGH: Effort.MINIMAL}
    effort = lowered.get(request.effort, request.effort) if request.effort else None
    messages = (*request.messages, user_text(_RECOVERY_NOTE))
    return replace(request, messages=messages, effort=effort)
