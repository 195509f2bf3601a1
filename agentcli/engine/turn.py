"""The turn loop: one user message to its end.

::

    W0 commit user message
    loop: checkpoint → steering → limits → request → sample
          → W1 commit assistant message + one pending row per call
          no calls → what was queued, else done
          calls → the batch (``tool_calls``): W2 intent → run → W3 result
    one except: repair the history, commit, emit the terminal event (``Repair``)

Laws: events come after the commit they announce; memory follows disk; whatever happens, the
history is balanced when the terminal event is emitted, and it is emitted exactly once, last:
what still runs when the turn is over is not heard any more. An outer cancellation is raised
again after the repair. There is one repair, the same after a cancel and after a fault; a failing
store is contained (FAIL-4); nothing that a user typed or saw is lost (FAIL-1).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
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
    QueueChanged,
    StepStart,
    TerminalEvent,
    ToolFinished,
    TurnStart,
    TurnSummary,
    WrappingUp,
)
from agentcli.domain.history import RepairReason, repair_results
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    StopReason,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import QueuedInput, QueueKind, StepFacts, ToolGate
from agentcli.engine.ask import Requests
from agentcli.engine.conversation import Conversation, Emit
from agentcli.engine.gates import PlanGate, WrapUpGate, plan_note, resolve
from agentcli.engine.hooked import TurnHooks
from agentcli.engine.limits import Limits, Repeats, Spending, near, reached, wrap_up_note
from agentcli.engine.tool_calls import ToolCalls

if TYPE_CHECKING:
    from agentcli.engine.finishing import Finishing


class Turn:
    """One run of the loop. ``deadline`` is a time of ``time.monotonic`` (CLI-4)."""

    def __init__(
        self,
        conversation: Conversation,
        token: CancelToken,
        emit: Emit,
        deadline: float | None = None,
    ) -> None:
        self._it = conversation
        self._token = token
        self._listener = emit
        self._requests = Requests(conversation, token, self._emit)
        self._calls = ToolCalls(
            conversation.kit, conversation.store, conversation.history, token, self._emit
        )
        self._repair = Repair(conversation, self._requests, self._calls, self._emit)
        self._started_at = time.monotonic()
        self._limits = conversation.limits = Limits(
            conversation.max_steps,
            conversation.max_budget_usd,
            deadline,
            self._started_at,
            conversation.outside_usd,
        )
        self._spent = conversation.spent = Spending()
        self._prompt_text = ""
        self._begun = False
        self._answer = ""
        self._wrapping_up = ""
        self._repeats = Repeats()
        self._finishing = finishing_of(conversation)
        self._gates: tuple[ToolGate, ...] = (
            PlanGate(conversation.kit.policy, conversation.kit.toolbox),
            WrapUpGate(),
            *(self._finishing.gates if self._finishing is not None else ()),
            *conversation.gates,
        )
        self._reminder = ""
        self._hooks = TurnHooks(conversation, token, self._emit)
        self._at_end = False
        self._terminal: TerminalEvent | None = None
        self._cancels_before = 0

    @property
    def begun(self) -> bool:
        """Whether the prompt is durable."""
        return self._begun

    async def run(self, prompt: UserMessage | None, queued: Sequence[int] = ()) -> TurnSummary:
        """Run to the terminal event; ``None`` continues without new input (REC-5).

        ``queued`` are the rows of the input queue that ``prompt`` was made of. Raises
        ``PromptBlocked`` when a hook of the person refuses the prompt: then there is no turn.
        """
        self._cancels_before = cancels()
        prompt = await self._hooks.admitted(prompt, queued)
        self._it.turns += 1
        try:
            self._emit(TurnStart(self._it.turns))
            self._hooks.tell_notices()
            await self._protected(self._begin(prompt, queued))
            await self._loop()
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._terminal is None:
                await uninterruptible(self._conclude(error))
            if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
                raise
            if cancels() > self._cancels_before:
                raise asyncio.CancelledError from error
        if self._terminal is None:
            raise RuntimeError("a turn ended without a terminal event")
        return self._terminal.summary

    async def _protected(self, work: Coroutine[Any, Any, None]) -> None:
        """W0, W1: one short transaction that nothing tears; an outer cancel sets the token."""
        await uninterruptible(work, lambda: self._token.cancel(CancelReason.OUTER))

    # --- the way there ---------------------------------------------------------------------

    async def _begin(self, prompt: UserMessage | None, queued: Sequence[int]) -> None:
        """W0. What an earlier failed repair left unbalanced is balanced first."""
        it = self._it
        if prompt is not None:
            if not prompt.text.strip() and not any(isinstance(p, ImagePart) for p in prompt.parts):
                raise UsageError("the message is empty", "say what you want")
            self._prompt_text = prompt.text
        if it.history.pending:
            await self._repair.balance(
                Outcome.ERROR, "balanced after a failed write", "", it.unbalanced
            )
        if prompt is None:
            it.history.require_continuable()
        seq = await it.store.record_prompt(prompt, queued=queued)
        self._begun = True
        self._prompt_text = ""
        if prompt is not None:
            self._recorded(prompt, seq, queued)

    def _recorded(self, message: UserMessage, seq: int, queued: Sequence[int]) -> None:
        """The user's message is durable; what it was made of waits no longer."""
        self._it.history.append(message)
        self._repeats.forget()
        if queued and self._it.queue is not None:
            self._it.queue.delivered(queued)
        self._emit(PromptRecorded(message, seq))
        if queued:
            self._emit_waiting()

    async def _loop(self) -> None:
        while True:
            self._checkpoint()
            await self._deliver(self._waiting(QueueKind.STEERING))
            if limit := reached(self._limits, self._spent, self._it.model):
                if self._finishing is not None and self._finishing.last_resort():
                    return await self._protected(self._finish())
                return await self._protected(self._stop_at_limit(*limit))
            await self._requests.make_room(self._limits, self._spent)
            notes = self._notes()
            self._spent.steps += 1
            self._pass_gates()
            self._emit(StepStart(self._spent.steps))
            message = await self._requests.ask(self._limits, self._spent, notes)
            await self._protected(self._record(message))
            if message.tool_calls:
                await self._calls.run_batch(message.tool_calls, message.stop_reason)
                if self._has_finished(message.tool_calls):
                    return await self._finish_with_hooks()
                self._look_for_repeats(message.tool_calls)
                await self._hooks.tell_model(self._calls.hooks.take_feedback())
            elif self._terminal is not None:
                return None
            elif not await self._goes_on():
                return await self._protected(self._finish())

    async def _goes_on(self) -> bool:
        """Record what keeps the turn going after an answer without calls, if anything does."""
        if self._at_end:
            return await self._hooks.holds_back(self._answer)
        if self._finishing is not None and (text := self._finishing.objection()):
            await self._protected(self._record_reminder(user_text(text)))
            return True
        waiting = self._next_input()
        await self._deliver(waiting)
        return bool(waiting)  # it may have been taken back at the last moment

    def _checkpoint(self) -> None:
        """Before each step: here even a swallowed ``CancelledError`` is seen (CAN-9)."""
        if self._token.cancelled:
            raise TurnCancelled

    def _notes(self) -> list[str]:
        """What the next request says beside the history."""
        it, reminder, self._reminder = self._it, self._reminder, ""
        notes = [note for note in (plan_note(it.kit.policy, it.kit.toolbox), reminder) if note]
        reason = near(self._limits, self._spent, it.model)
        if reason is None and self._spent.steps:
            reason = it.context.near_end(it.model)
        if reason and not self._wrapping_up:
            self._emit(WrappingUp(reason))
        self._wrapping_up = reason or ""
        return [*notes, wrap_up_note(reason)] if reason else notes

    def _look_for_repeats(self, calls: Sequence[ToolCall]) -> None:
        """A model that goes in circles is told so, then stopped (OPS-2)."""
        found = self._repeats.observe(calls, self._results(calls))
        if found is None:
            return
        if found.stop:
            raise AgentError(found.stop, "say what it should do instead")
        self._reminder = found.reminder

    def _results(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """The results of the batch that has just run."""
        newest = self._it.history.messages[-len(calls) :]
        return [message for message in newest if isinstance(message, ToolResult)]

    def _has_finished(self, calls: Sequence[ToolCall]) -> bool:
        """Whether the batch that has just run ends the turn (CTRL-2, CTRL-5)."""
        has_result = self._finishing is not None and self._finishing.called(
            calls, self._results(calls)
        )
        if self._calls.ended_turn and not has_result and self._finishing is not None:
            self._finishing.cut_short()
        return has_result or self._calls.ended_turn

    def _pass_gates(self) -> None:
        """Which tools the coming step may call (CTRL-4)."""
        facts = StepFacts(self._spent.steps, self._tool_names(), bool(self._wrapping_up))
        self._calls.passage = resolve(self._gates, facts)
        if self._calls.passage.conflict is not None:
            self._emit(self._calls.passage.conflict)

    def _tool_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self._it.kit.toolbox.definitions)

    def _ends_with(self, text: str) -> bool:
        """Whether an answer without calls is the end: not when somebody has more to say."""
        if self._finishing is not None and not self._waiting(QueueKind.STEERING):
            names = self._tool_names()
            allowed = self._calls.passage.allowed
            ends = self._finishing.answered(text, names if allowed is None else names & allowed)
            if ends is not None:
                return ends
        return not self._next_input()

    async def _record(self, message: AssistantMessage) -> None:
        """W1; a message without calls is also the turn's end, unless something waits."""
        it = self._it
        calls = message.tool_calls
        self._at_end = not calls and self._ends_with(message.text)
        final = self._complete if self._at_end and not self._hooks.guard_the_end else None
        wasted = self._requests.sampler.wasted if self._requests.sampler.wasted.is_known else None
        seq = await it.store.record_assistant(message, calls, final=final, wasted=wasted)
        it.history.append(message)
        self._requests.sampler.forget()
        if wasted is not None:
            self._spent.add_wasted(it.model, wasted)
        self._spent.add(it.model, message.usage)
        self._answer = message.text or self._answer
        self._emit(AssistantRecorded(message, seq))
        if message.stop_reason is StopReason.MAX_TOKENS:
            self._emit(Notice("the reply was cut at the model's output limit"))
        elif message.stop_reason is StopReason.REFUSAL:
            self._emit(Notice("the model declined to answer"))
        if final is not None:
            self._end(Done(self._summary(final)))

    # --- what was queued -------------------------------------------------------------------

    def _waiting(self, kind: QueueKind) -> Sequence[QueuedInput]:
        return self._it.queue.waiting(kind) if self._it.queue is not None else ()

    def _next_input(self) -> Sequence[QueuedInput]:
        """What keeps a turn going that would end: all steering, else one follow-up (CTRL-1)."""
        return self._waiting(QueueKind.STEERING) or self._waiting(QueueKind.FOLLOW_UP)[:1]

    async def _deliver(self, waiting: Sequence[QueuedInput]) -> None:
        """Each text becomes a message, in order, each in one commit."""
        for item in waiting:
            message = await self._it.message_for(item)
            if not item.is_among(self._waiting(item.kind)):
                continue
            if (admitted := await self._hooks.admitted_later(item, message)) is not None:
                await self._protected(self._record_input(item, admitted))

    async def _record_reminder(self, message: UserMessage) -> None:
        seq = await self._it.store.record_prompt(message, begins_turn=False)
        self._recorded(message, seq, ())

    async def _record_input(self, item: QueuedInput, message: UserMessage) -> None:
        seq = await self._it.store.record_prompt(message, queued=item.ids, begins_turn=False)
        self._recorded(message, seq, item.ids)

    def _emit_waiting(self) -> None:
        if self._it.queue is not None:
            self._emit(QueueChanged(len(self._it.queue.waiting())))

    # --- the end ---------------------------------------------------------------------------

    @property
    def _complete(self) -> Outcome:
        return Outcome.WRAPPED_UP if self._wrapping_up else Outcome.DONE

    async def _finish(self) -> None:
        """A tool has ended the turn; what waits keeps waiting (CTRL-2)."""
        await self._it.store.record_end((), self._complete, "", "")
        self._end(Done(self._summary(self._complete)))

    async def _finish_with_hooks(self) -> None:
        """A tool or a hook has ended the turn: hooks are told, and cannot hold it back."""
        await self._hooks.tell_model(self._calls.hooks.take_feedback())
        if not self._calls.hooks.stopped:
            await self._hooks.holds_back(self._calls.answer or self._answer, final=True)
        await self._protected(self._finish())

    async def _stop_at_limit(self, limit: str, reason: str) -> None:
        """What was to follow is recorded and not run (CTRL-3)."""
        for item in self._waiting(QueueKind.FOLLOW_UP):
            message = await self._hooks.admitted_later(item, user_text(item.text))
            if message is not None:
                await self._record_input(item, message)
        await self._it.store.record_end((), Outcome.MAX_STEPS, reason, "")
        self._emit(Notice(reason))
        self._end(Done(self._summary(Outcome.MAX_STEPS, limit)))

    async def _conclude(self, error: BaseException) -> None:
        """Balance the history and say how the turn ended."""
        reason = str(self._token.reason or CancelReason.OUTER)
        failure, unsaved = await self._repair.conclude(
            unwrapped(error), reason, self._prompt_text, begun=self._begun
        )
        if failure is None:
            self._end(Cancelled(self._summary(Outcome.CANCELLED), reason))
        else:
            self._end(Failed(self._summary(Outcome.ERROR), failure, unsaved))

    def _emit(self, event: AgentEvent) -> None:
        if self._terminal is None:
            self._listener(event)

    def _end(self, event: TerminalEvent) -> None:
        self._terminal = event
        self._listener(event)

    def _summary(self, outcome: Outcome, limit: str = "") -> TurnSummary:
        spent = self._spent
        if self._repair.spent.is_known:
            spent = replace(spent)
            spent.add(self._it.model, self._repair.spent)
        structured, text = None, self._calls.answer or self._answer
        is_complete = outcome in {Outcome.DONE, Outcome.WRAPPED_UP}
        if is_complete and self._finishing is not None and self._finishing.has_value:
            structured = self._finishing.value
            text = json.dumps(structured, ensure_ascii=False)
        return TurnSummary(
            outcome=outcome,
            steps=spent.steps,
            usage=spent.usage,
            duration_s=time.monotonic() - self._started_at,
            api_duration_s=self._requests.api_s,
            text=text,
            cost_usd=spent.cost_usd if spent.usage.is_known else None,
            limit=limit,
            compaction=spent.compaction,
            structured=structured,
        )


# --- when a turn does not end by itself -----------------------------------------------------------


log = logging.getLogger(__name__)


class Repair:
    """Ends one turn. ``spent`` is what a reply cost that did not become a message."""

    def __init__(
        self, conversation: Conversation, requests: Requests, calls: ToolCalls, emit: Emit
    ) -> None:
        self._it = conversation
        self._requests = requests
        self._calls = calls
        self._emit = emit
        self.spent = Usage()

    async def conclude(
        self, cause: BaseException, detail: str, unsaved: str, *, begun: bool
    ) -> tuple[AgentError | None, str]:
        """Balance and store; the failure (``None`` for a cancel) and what could be saved nowhere.

        ``unsaved`` is typed text that is not stored yet; ``begun`` whether W0 was committed.
        """
        cancelled = isinstance(cause, TurnCancelled | asyncio.CancelledError)
        failure = None if cancelled else as_agent_error(cause)
        partial = self._requests.sampler.partial_text
        if begun:
            reason = RepairReason.CANCELLED if cancelled else RepairReason.CRASHED
            outcome = Outcome.CANCELLED if cancelled else Outcome.ERROR
            self._it.unbalanced = reason
            try:
                detail = detail if failure is None else failure.message
                await self.balance(outcome, detail, partial, reason)
            except Exception as store_failure:  # noqa: BLE001 - FAIL-4: a store may raise anything
                unsaved = partial
                if failure is None or not isinstance(failure, StoreError):
                    failure = as_agent_error(store_failure)
        if failure is None:
            return None, ""
        return failure, await self._rescue(unsaved)

    async def balance(
        self, outcome: Outcome, detail: str, partial: str, reason: RepairReason
    ) -> None:
        """The one repair: every pending call gets its result, on disk and then in memory.

        ``reason`` words the results: what failed was not cancelled by anybody (CAN-1, REC-1).
        """
        it, sampler = self._it, self._requests.sampler
        pending = it.history.pending
        runs = await it.store.tool_runs() if pending else {}
        details = self._calls.details
        results = repair_results(pending, runs, reason, details)
        spent = sampler.partial_usage
        await it.store.record_end(
            results,
            outcome,
            detail,
            partial,
            usage=spent if spent.is_known else None,
            model=it.model.id,
        )
        self.spent += spent
        sampler.forget()
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


def unwrapped(error: BaseException) -> BaseException:
    """The first fault in a group of faults; a fault of the store before any other."""
    while isinstance(error, BaseExceptionGroup):
        stored = [inner for inner in error.exceptions if isinstance(inner, StoreError)]
        error = stored[0] if stored else error.exceptions[0]
    return error


def as_agent_error(error: BaseException) -> AgentError:
    """``error`` as one that can be shown; a fault of ours goes to the log whole."""
    if isinstance(error, AgentError):
        return error
    log.error("the turn failed", exc_info=error)
    return AgentError(
        f"internal error: {type(error).__name__}: {error}", "this is a bug of agentcli; see the log"
    )


def finishing_of(conversation: Conversation) -> Finishing | None:
    """The rules of how the turn has to end; ``None`` when any answer ends it."""
    check, budget = conversation.answer_check, conversation.max_answers_without_tools
    if check is None and budget is None:
        return None
    from agentcli.engine.finishing import Finishing

    return Finishing(None if check is None else check(), budget)


def cancels() -> int:
    """How often somebody has cancelled the task that runs the turn."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
