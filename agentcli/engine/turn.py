"""The turn loop: one user message to its end.

::

    W0 commit user message
    loop: checkpoint → request → sample → W1 commit assistant message + one pending row per call
          no calls → done;  else the batch (``tool_calls``): W2 intent → run → W3 result
    one except: repair the history, commit, emit the terminal event

Law: events come after the commit they announce; memory follows disk; whatever happens, the
history is balanced when the terminal event is emitted, and it is emitted exactly once, last:
what still runs when the turn is over is not heard any more. An outer cancellation is raised
again after the repair.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from agentcli.domain.cost import cost_usd
from agentcli.domain.errors import AgentError, StoreError, TurnCancelled, UsageError
from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    Cancelled,
    Done,
    Failed,
    Notice,
    Outcome,
    PromptRecorded,
    StepStart,
    TerminalEvent,
    ToolFinished,
    TurnStart,
    TurnSummary,
)
from agentcli.domain.history import History, RepairReason, repair_results
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    StopReason,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import Effort, ModelInfo, ModelRequest, Provider, SessionStore
from agentcli.domain.prepare import check_request, prepare
from agentcli.engine.race import race
from agentcli.engine.sample import RetryPolicy, Sampler
from agentcli.engine.tool_calls import ToolCalls, Toolkit

log = logging.getLogger(__name__)

BudgetCheck = Callable[[Usage], str | None]


@dataclass(slots=True)
class Conversation:
    """What a session lends to its turns. ``history`` mirrors ``store`` at every moment.

    ``unbalanced`` says why calls are without results when even the repair could not be stored.
    """

    history: History
    store: SessionStore
    provider: Provider
    model: ModelInfo
    system: str
    kit: Toolkit
    effort: Effort | None = None
    max_output_tokens: int | None = None
    max_steps: int = 200
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    turns: int = 0
    unbalanced: RepairReason = RepairReason.CRASHED


class Turn:
    """One run of the loop. ``over_budget`` may end it between two steps (LOOP-1, COST-2)."""

    def __init__(
        self,
        conversation: Conversation,
        token: CancelToken,
        emit: Callable[[AgentEvent], None],
        over_budget: BudgetCheck | None = None,
    ) -> None:
        self._it = conversation
        self._token = token
        self._listener = emit
        self._over_budget = over_budget
        self._sampler = Sampler(conversation.provider, self._emit, conversation.retry)
        self._calls = ToolCalls(
            conversation.kit, conversation.store, conversation.history, token, self._emit
        )
        self._prompt_text = ""
        self._begun = False
        self._steps = 0
        self._usage = Usage()
        self._answer = ""
        self._started_at = time.monotonic()
        self._api_s = 0.0
        self._terminal: TerminalEvent | None = None
        self._cancels_before = 0

    async def run(self, prompt: UserMessage | None) -> TurnSummary:
        """Run to the terminal event; ``None`` continues without new input (REC-5)."""
        self._it.turns += 1
        self._cancels_before = _cancels()
        try:
            self._emit(TurnStart(self._it.turns))
            await self._protected(self._begin(prompt))
            await self._loop()
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._terminal is None:
                await uninterruptible(self._conclude(error))
            if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
                raise
            if _cancels() > self._cancels_before:
                raise asyncio.CancelledError from error
        if self._terminal is None:
            raise RuntimeError("a turn ended without a terminal event")
        return self._terminal.summary

    async def _protected(self, work: Coroutine[Any, Any, None]) -> None:
        """W0, W1: one short transaction that nothing tears; an outer cancel sets the token."""
        await uninterruptible(work, lambda: self._token.cancel(CancelReason.OUTER))

    # --- the way there ---------------------------------------------------------------------

    async def _begin(self, prompt: UserMessage | None) -> None:
        """W0. What an earlier failed repair left unbalanced is balanced first."""
        it = self._it
        if prompt is not None:
            if not prompt.text.strip() and not any(isinstance(p, ImagePart) for p in prompt.parts):
                raise UsageError("the message is empty", "say what you want")
            self._prompt_text = prompt.text
        if it.history.pending:
            await self._balance(Outcome.ERROR, "balanced after a failed write", "", it.unbalanced)
        if prompt is None:
            it.history.require_continuable()
        seq = await it.store.record_prompt(prompt)
        self._begun = True
        self._prompt_text = ""
        if prompt is not None:
            it.history.append(prompt)
            self._emit(PromptRecorded(prompt, seq))

    async def _loop(self) -> None:
        while True:
            self._checkpoint()
            if limit := self._limit_reached():
                return await self._protected(self._stop_at_limit(*limit))
            self._steps += 1
            self._emit(StepStart(self._steps))
            message = await self._sample()
            await self._protected(self._record(message))
            if not message.tool_calls:
                return None
            await self._calls.run_batch(message.tool_calls, message.stop_reason)

    def _checkpoint(self) -> None:
        """Before each step: here even a swallowed ``CancelledError`` is seen (CAN-9)."""
        if self._token.cancelled:
            raise TurnCancelled

    def _limit_reached(self) -> tuple[str, str] | None:
        """The name of a limit that was reached, and the reason in words."""
        if self._it.max_steps and self._steps >= self._it.max_steps:
            return "steps", f"the limit of {self._it.max_steps} steps was reached"
        reason = self._over_budget(self._usage) if self._over_budget else None
        return ("budget", reason) if reason else None

    async def _sample(self) -> AssistantMessage:
        it = self._it
        messages = prepare(it.history.messages, it.model.provider, it.model.name)
        check_request(messages)
        request = ModelRequest(
            model=it.model,
            system=it.system,
            messages=messages,
            tools=it.kit.toolbox.definitions,
            max_output_tokens=it.max_output_tokens,
            effort=it.effort,
        )
        asked_at = time.monotonic()
        try:
            return await race(
                self._sampler.sample(request, it.history.call_ids, self._token),
                self._token,
                it.kit.reaper,
            )
        finally:
            self._api_s += time.monotonic() - asked_at

    async def _record(self, message: AssistantMessage) -> None:
        """W1; a message without calls is also the turn's end, in the same transaction."""
        it = self._it
        calls = message.tool_calls
        final = None if calls else Outcome.DONE
        seq = await it.store.record_assistant(message, calls, final=final)
        it.history.append(message)
        self._sampler.forget()
        self._usage += message.usage
        self._answer = message.text or self._answer
        self._emit(AssistantRecorded(message, seq))
        if message.stop_reason is StopReason.MAX_TOKENS:
            self._emit(Notice("the reply was cut at the model's output limit"))
        elif message.stop_reason is StopReason.REFUSAL:
            self._emit(Notice("the model declined to answer"))
        if final is not None:
            self._end(Done(self._summary(final)))

    # --- the end ---------------------------------------------------------------------------

    async def _stop_at_limit(self, limit: str, reason: str) -> None:
        await self._it.store.record_end((), Outcome.MAX_STEPS, reason, "")
        self._emit(Notice(reason))
        self._end(Done(self._summary(Outcome.MAX_STEPS, limit)))

    async def _conclude(self, error: BaseException) -> None:
        """Balance the history and say how the turn ended; a failing store is contained (FAIL-4)."""
        cause = _unwrapped(error)
        cancelled = isinstance(cause, TurnCancelled | asyncio.CancelledError)
        outcome = Outcome.CANCELLED if cancelled else Outcome.ERROR
        failure = None if cancelled else _as_agent_error(cause)
        partial = self._sampler.partial_text
        detail = self._cancel_reason() if failure is None else failure.message
        unsaved = self._prompt_text
        if self._begun:
            reason = RepairReason.CANCELLED if cancelled else RepairReason.CRASHED
            self._it.unbalanced = reason
            try:
                await self._balance(outcome, detail, partial, reason)
            except Exception as store_failure:  # noqa: BLE001 - FAIL-4: a store may raise anything
                unsaved = partial
                if failure is None or not isinstance(failure, StoreError):
                    failure = _as_agent_error(store_failure)
        if failure is None:
            self._end(Cancelled(self._summary(outcome), self._cancel_reason()))
        else:
            unsaved = await self._rescue(unsaved)
            self._end(Failed(self._summary(Outcome.ERROR), failure, unsaved))

    async def _balance(
        self, outcome: Outcome, detail: str, partial: str, reason: RepairReason
    ) -> None:
        """The one repair: every pending call gets its result, on disk and then in memory.

        ``reason`` words the results: what failed was not cancelled by anybody (CAN-1, REC-1).
        """
        it = self._it
        pending = it.history.pending
        runs = await it.store.tool_runs() if pending else {}
        details = self._calls.details
        results = repair_results(pending, runs, reason, details)
        spent = self._sampler.partial_usage
        await it.store.record_end(
            results,
            outcome,
            detail,
            partial,
            usage=spent if spent.is_known else None,
            model=it.model.id,
        )
        self._usage += spent
        self._sampler.forget()
        for result in results:
            it.history.append(result)
        for call, result in zip(pending, results, strict=True):
            elapsed_s = details[call.id].elapsed_s if call.id in details else 0.0
            display = runs[call.id].display if call.id in runs else ""
            self._emit(ToolFinished(call, result, result.status.value, elapsed_s, display))

    async def _rescue(self, text: str) -> str:
        """What only memory holds goes to a recovery file, or back to be shown (FAIL-1)."""
        if not text:
            return ""
        try:
            path = await self._it.store.rescue(text)
        except Exception:
            log.exception("nothing could be rescued")
            path = None
        if path is None:
            return text
        self._emit(Notice(f"what was not saved is in {path}"))
        return ""

    def _emit(self, event: AgentEvent) -> None:
        if self._terminal is None:
            self._listener(event)

    def _end(self, event: TerminalEvent) -> None:
        self._terminal = event
        self._listener(event)

    def _cancel_reason(self) -> str:
        return str(self._token.reason or CancelReason.OUTER)

    def _summary(self, outcome: Outcome, limit: str = "") -> TurnSummary:
        return TurnSummary(
            outcome=outcome,
            steps=self._steps,
            usage=self._usage,
            duration_s=time.monotonic() - self._started_at,
            api_duration_s=self._api_s,
            text=self._answer,
            cost_usd=cost_usd(self._it.model, self._usage),
            limit=limit,
        )


def _cancels() -> int:
    """How often somebody has cancelled the task that runs the turn."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _unwrapped(error: BaseException) -> BaseException:
    """The first fault in a group of faults; a fault of the store before any other."""
    while isinstance(error, BaseExceptionGroup):
        stored = [inner for inner in error.exceptions if isinstance(inner, StoreError)]
        error = stored[0] if stored else error.exceptions[0]
    return error


def _as_agent_error(error: BaseException) -> AgentError:
    if isinstance(error, AgentError):
        return error
    log.error("the turn failed", exc_info=error)
    return AgentError(
        f"internal error: {type(error).__name__}: {error}", "this is a bug of agentcli; see the log"
    )
