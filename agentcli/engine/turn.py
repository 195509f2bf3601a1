"""The turn loop: one user message to its end.

::

    W0 commit user message
    loop: checkpoint → steering → limits → request → sample
          → W1 commit assistant message + one pending row per call
          no calls → what was queued, else done
          calls → the batch (``tool_calls``): W2 intent → run → W3 result
    one except: repair the history, commit, emit the terminal event (``_conclude``)

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
from operator import attrgetter
from os import urandom
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
    ToolGateApplied,
    ToolGateConflictResolved,
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
from agentcli.domain.tools import RunIdentity
from agentcli.engine.ask import Requests
from agentcli.engine.conversation import Conversation, Emit
from agentcli.engine.gates import PlanGate, WrapUpGate, plan_note, resolve
from agentcli.engine.limits import Repeats, Spending, TurnLimits, asked, near, reached, wrap_up_note
from agentcli.engine.race import race
from agentcli.engine.tool_calls import ToolCalls

if TYPE_CHECKING:
    from agentcli.engine.finishing import Finishing
    from agentcli.engine.hooked import TurnHooks

log = logging.getLogger(__name__)


class Turn:
    """One run of the loop. ``deadline`` is a time of ``time.monotonic`` (CLI-4).

    ``begun``: the prompt is durable.
    """

    def __init__(
        self,
        conversation: Conversation,
        token: CancelToken,
        emit: Emit,
        deadline: float | None = None,
    ) -> None:
        self._conversation = conversation
        self._parts = parts = conversation.parts
        self._store = parts.store
        self._token = token
        self._listener = emit
        self._started_at = time.monotonic()
        self._limits = conversation.limits = TurnLimits(
            parts.max_steps,
            parts.max_budget_usd,
            deadline,
            self._started_at,
            parts.outside_usd,
            parts.pause_usd,
        )
        self._spent = conversation.spent = Spending()
        self._requests = Requests(conversation, token, self._emit)
        self._identity = RunIdentity(parts.session_id, f"run_{urandom(8).hex()}", parts.parent_id)
        self._calls = ToolCalls(parts, conversation.history, token, self._emit, self._identity)
        self._tools = frozenset(map(attrgetter("name"), parts.toolbox.definitions))
        self._finishing: Finishing | None = None
        if parts.answer_check is not None or parts.max_answers_without_tools is not None:
            from agentcli.engine.finishing import Finishing

            check = None if parts.answer_check is None else parts.answer_check()
            self._finishing = Finishing(check, parts.max_answers_without_tools, parts.reminders)
        self._hooks: TurnHooks | None = None
        if parts.hooks is not None:
            from agentcli.engine.hooked import TurnHooks

            self._hooks = TurnHooks(
                parts.hooks.of_run(self._identity), conversation, token, self._emit
            )
        self._gates: tuple[ToolGate, ...] = (
            PlanGate(parts.policy, parts.toolbox),
            WrapUpGate(),
            *parts.gates,
        )
        self._repeats = Repeats()
        self._lasted_s: dict[str, float] = {}
        self._prompt_text = ""
        self.begun = False
        self._answer = ""
        self._wrapping_up = ""
        self._reminder = ""
        self._at_end = False
        self._stop_reason: StopReason | None = None
        self._truncated: list[str] = []
        self._unrecorded = Usage()
        self._terminal: TerminalEvent | None = None

    async def run(self, prompt: UserMessage | None, queued: Sequence[int] = ()) -> TurnSummary:
        """Run to the terminal event; ``None`` continues without new input (REC-5).

        ``queued`` are the rows of the input queue that ``prompt`` was made of. Raises
        ``PromptBlocked`` when a hook of the user refuses the prompt: then there is no turn.
        """
        task = asyncio.current_task()
        cancels_before = 0 if task is None else task.cancelling()
        if self._hooks is not None:
            prompt = await self._hooks.admitted(prompt, queued)
        self._conversation.turns += 1
        try:
            self._emit(TurnStart(self._conversation.turns))
            if self._hooks is not None:
                self._hooks.emit_notices()
            await self._protected(self._begin(prompt, queued))
            await self._loop()
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._terminal is None:
                await uninterruptible(self._conclude(error))
            if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
                raise
            if task is not None and task.cancelling() > cancels_before:
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
        history = self._conversation.history
        if prompt is not None:
            if not prompt.text.strip() and not any(isinstance(p, ImagePart) for p in prompt.parts):
                raise UsageError("the message is empty", "say what you want")
            self._prompt_text = prompt.text
        if history.pending:
            reason = self._conversation.unbalanced
            await self._balance(Outcome.ERROR, "balanced after a failed write", "", reason)
        if prompt is None:
            history.require_continuable()
        await self._record_message(prompt, queued, begins_turn=True)

    async def _record_message(
        self, message: UserMessage | None, queued: Sequence[int] = (), *, begins_turn: bool = False
    ) -> None:
        """The user's message becomes durable; what it was made of (``queued``) waits no longer."""
        queue = self._parts.queue
        seq = await self._store.record_prompt(message, queued=queued, begins_turn=begins_turn)
        if begins_turn:
            self.begun, self._prompt_text = True, ""
        if message is None:
            return
        self._conversation.history.append(message)
        self._repeats.forget()
        if queued and queue is not None:
            queue.delivered(queued)
        self._emit(PromptRecorded(message, seq))
        for line in self._conversation.truncations(message):
            self._truncated.append(line)
            self._emit(Notice(line))
        if queued and queue is not None:
            self._emit(QueueChanged(len(queue.waiting())))

    async def _loop(self) -> None:
        while True:
            if self._token.cancelled:  # checkpoint 1: even a swallowed cancel is seen (CAN-9)
                raise TurnCancelled
            await self._poll(QueueKind.STEERING)
            await self._deliver(self._waiting(QueueKind.STEERING))
            if limit := reached(self._limits, self._spent, self._conversation.model):
                if self._finishing is not None and self._finishing.last_resort():
                    return await self._protected(self._finish())
                return await self._protected(self._stop_at_limit(*limit))
            await self._requests.make_room()
            notes = self._notes()
            self._spent.steps += 1
            facts = self._pass_gates()
            self._emit(StepStart(self._spent.steps))
            choice = "" if self._finishing is None else self._finishing.tool_choice(self._allowed)
            message = await self._requests.ask(notes, facts, choice)
            if not message.tool_calls:
                await self._poll(QueueKind.STEERING, QueueKind.FOLLOW_UP)
            await self._protected(self._record_reply(message))
            if message.tool_calls:
                await self._calls.run_batch(message.tool_calls, message.stop_reason)
                if self._batch_ends_turn(message.tool_calls):
                    return await self._finish_after_batch()
                await self._record_feedback()
            elif self._terminal is not None:
                return None
            elif not await self._goes_on():
                return await self._protected(self._finish())

    def _notes(self) -> list[str]:
        """What the next request says beside the history."""
        model, reminder, self._reminder = self._conversation.model, self._reminder, ""
        notes = [plan_note(self._parts.policy, self._parts.toolbox), reminder]
        reason = near(self._limits, self._spent, model)
        if reason is None and self._spent.steps:
            reason = self._conversation.context.near_end(model)
        for signal in self._parts.wrap_up:
            reason = reason or asked(signal)
        if reason and not self._wrapping_up:
            self._emit(WrappingUp(reason))
        self._wrapping_up = reason or ""
        return [*filter(None, notes), *([wrap_up_note(reason)] if reason else ())]

    def _pass_gates(self) -> StepFacts:
        """Settle which tools the coming step may call (CTRL-4); what gates were told of it."""
        step, conversation = self._spent.steps, self._conversation
        facts = StepFacts(
            step,
            self._tools,
            bool(self._wrapping_up),
            conversation.history.messages,
            self._spent.usage,
            conversation.model,
            self._identity,
        )
        self._calls.passage = passage = resolve(self._gates, facts)
        if passage.allowed is not None:
            allowed = tuple(sorted(self._allowed))
            if passage.winner:
                self._emit(ToolGateConflictResolved(step, passage.winner, passage.lists, allowed))
            self._emit(ToolGateApplied(step, passage.lists, allowed))
        return facts

    @property
    def _allowed(self) -> frozenset[str]:
        """The tools that the step may call."""
        allowed = self._calls.passage.allowed
        return self._tools if allowed is None else self._tools & allowed

    async def _record_reply(self, message: AssistantMessage) -> None:
        """W1; a message without calls is also the turn's end, unless something waits."""
        conversation, sampler = self._conversation, self._requests.sampler
        calls, model = message.tool_calls, conversation.model
        self._stop_reason = message.stop_reason
        self._at_end = not calls and self._ends_with(message.text)
        held = self._hooks is not None and self._hooks.guards_the_end
        final = self._complete if self._at_end and not held else None
        wasted = sampler.wasted if sampler.wasted.is_known else None
        seq = await self._store.record_assistant(message, calls, final=final, wasted=wasted)
        conversation.history.append(message)
        sampler.forget()
        if wasted is not None:
            self._spent.add_wasted(model, wasted)
        self._spent.add(model, message.usage)
        self._answer = message.text or self._answer
        self._emit(AssistantRecorded(message, seq))
        if message.stop_reason is StopReason.MAX_TOKENS:
            self._emit(Notice("the reply was cut at the model's output limit"))
        elif message.stop_reason is StopReason.REFUSAL:
            self._emit(Notice("the model declined to answer"))
        if final is not None:
            self._end(Done(self._summary(final)))

    def _ends_with(self, text: str) -> bool:
        """Whether an answer without calls is the end: not when somebody has more to say."""
        ends: bool | None = None
        if self._finishing is not None and not self._waiting(QueueKind.STEERING):
            ends = self._finishing.answered(text, self._allowed)
        return not self._next_input() if ends is None else ends

    async def _goes_on(self) -> bool:
        """Record what keeps the turn going after an answer without calls, if anything does."""
        if self._at_end:
            return self._hooks is not None and await self._hooks.holds_back(self._answer)
        if self._finishing is not None and (text := self._finishing.objection()):
            await self._protected(self._record_message(user_text(text)))
            return True
        waiting = self._next_input()
        await self._deliver(waiting)
        return bool(waiting)  # it may have been taken back at the last moment

    def _batch_ends_turn(self, calls: Sequence[ToolCall]) -> bool:
        """Whether the batch that has just run ends the turn (CTRL-2, CTRL-5).

        A model that goes in circles is reminded of it, then stopped (OPS-2).
        """
        newest = self._conversation.history.messages[-len(calls) :]
        results = [message for message in newest if isinstance(message, ToolResult)]
        finishing, ended = self._finishing, self._calls.ended_turn
        has_result = finishing is not None and finishing.called(calls, results)
        if ended and not has_result and finishing is not None:
            finishing.cut_short()
        if ended or has_result:
            return True
        if (found := self._repeats.observe(calls, results, self._lasted_s)) is not None:
            if found.stop:
                raise AgentError(found.stop, "say what it should do instead")
            self._reminder = found.reminder
        return False

    async def _record_feedback(self) -> None:
        """What hooks and checks have said of the calls of a batch are the next messages."""
        if self._hooks is not None and self._calls.hooks is not None:
            await self._hooks.record_feedback(self._calls.hooks.take_feedback())
        if self._parts.checks is not None and (found := await self._calls.checked()):
            await self._protected(self._conversation.record_unsaid(found))
        if self._calls.touched:
            await self._instruct()

    async def _instruct(self) -> None:
        """What holds for the files that were just touched is the next message, once (EXT-4)."""
        touched, self._calls.touched = self._calls.touched, []
        if names := await self._conversation.learn_instructions(touched):
            self._emit(Notice(f"instructions for these files: {names}", is_warning=False))

    # --- what was queued -------------------------------------------------------------------

    async def _poll(self, *kinds: QueueKind) -> None:
        """What the sources of the program have by now waits with the rest (CTRL-9)."""
        queue = self._parts.queue
        if queue is not None and queue.has_sources:
            polling = queue.poll(*kinds)
            await race(polling, self._token, self._parts.reaper)

    def _waiting(self, kind: QueueKind) -> Sequence[QueuedInput]:
        return self._parts.queue.waiting(kind) if self._parts.queue is not None else ()

    def _next_input(self) -> Sequence[QueuedInput]:
        """What keeps a turn going that would end: all steering, else one follow-up (CTRL-1)."""
        return self._waiting(QueueKind.STEERING) or self._waiting(QueueKind.FOLLOW_UP)[:1]

    async def _deliver(self, waiting: Sequence[QueuedInput]) -> None:
        """Each text becomes a message, in order, each in one commit."""
        for item in waiting:
            message: UserMessage | None = await self._conversation.message_for(item)
            if not item.is_among(self._waiting(item.kind)):
                continue
            if self._hooks is not None and message is not None:
                message = await self._hooks.admitted_later(item, message)
            if message is not None:
                await self._protected(self._record_message(message, item.ids))

    # --- the end ---------------------------------------------------------------------------

    @property
    def _complete(self) -> Outcome:
        has_result = self._finishing is not None and self._finishing.has_value
        is_cut = self._stop_reason is StopReason.MAX_TOKENS
        if is_cut and not self._calls.answer and not has_result:  # LOOP-13
            return Outcome.MAX_TOKENS
        return Outcome.WRAPPED_UP if self._wrapping_up else Outcome.DONE

    async def _finish(self) -> None:
        """A tool has ended the turn; what waits keeps waiting (CTRL-2)."""
        await self._store.record_end((), self._complete, "", "")
        self._end(Done(self._summary(self._complete)))

    async def _finish_after_batch(self) -> None:
        """A tool or a hook has ended the turn: hooks hear of it, and cannot hold it back."""
        await self._record_feedback()
        stopped = self._calls.hooks is not None and self._calls.hooks.stopped
        if self._hooks is not None and not stopped:
            await self._hooks.holds_back(self._calls.answer or self._answer, final=True)
        await self._protected(self._finish())

    async def _stop_at_limit(self, limit: str, reason: str) -> None:
        """What was to follow is recorded and not run (CTRL-3)."""
        for item in self._waiting(QueueKind.FOLLOW_UP):
            message: UserMessage | None = user_text(item.text)
            if self._hooks is not None and message is not None:
                message = await self._hooks.admitted_later(item, message)
            if message is not None:
                await self._record_message(message, item.ids)
        is_late = limit == "time"
        outcome = Outcome.TIMED_OUT if is_late else Outcome.MAX_STEPS
        await self._store.record_end((), outcome, CancelReason.LIMIT if is_late else reason, "")
        self._emit(Notice(reason))
        self._end(Done(self._summary(outcome, limit)))

    def _emit(self, event: AgentEvent) -> None:
        if isinstance(event, ToolFinished):
            self._lasted_s[event.call.id] = event.duration_s
        if self._terminal is None:
            self._listener(event)

    def _end(self, event: TerminalEvent) -> None:
        self._terminal = event
        self._listener(event)

    def _summary(self, outcome: Outcome, limit: str = "") -> TurnSummary:
        spent = self._spent
        if self._unrecorded.is_known:
            spent = replace(spent)
            spent.add(self._conversation.model, self._unrecorded)
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
            stop_reason="" if self._stop_reason is None else str(self._stop_reason),
            truncated=tuple(self._truncated),
        )

    # --- the end that nobody planned -------------------------------------------------------

    async def _conclude(self, error: BaseException) -> None:
        """Balance the history, store what there is, and say how the turn ended."""
        cause = _first_fault(error)
        cancelled = isinstance(cause, TurnCancelled | asyncio.CancelledError)
        failure = None if cancelled else _as_agent_error(cause)
        detail = (
            str(self._token.reason or CancelReason.OUTER) if failure is None else failure.message
        )
        partial, unsaved = self._requests.sampler.partial_text, self._prompt_text
        if self.begun:
            reason = RepairReason.CANCELLED if cancelled else RepairReason.CRASHED
            outcome = self._cut_outcome if cancelled else Outcome.ERROR
            self._conversation.unbalanced = reason
            try:
                await self._balance(outcome, detail, partial, reason)
            except Exception as store_failure:  # noqa: BLE001 - FAIL-4: a store may raise anything
                unsaved = partial
                if failure is None or not isinstance(failure, StoreError):
                    failure = _as_agent_error(store_failure)
        if failure is None:
            if self._cut_outcome is Outcome.TIMED_OUT:
                self._answer = partial or self._answer
            self._end(Cancelled(self._summary(self._cut_outcome), detail))
        else:
            unsaved = await self._rescue(unsaved)
            self._end(Failed(self._summary(Outcome.ERROR), failure, unsaved))

    @property
    def _cut_outcome(self) -> Outcome:
        """What a turn amounts to that was stopped: its time was over, or somebody cancelled it."""
        out_of_time = self._token.reason is CancelReason.LIMIT
        return Outcome.TIMED_OUT if out_of_time else Outcome.CANCELLED

    async def _balance(
        self, outcome: Outcome, detail: str, partial: str, reason: RepairReason
    ) -> None:
        """The one repair: every pending call gets its result, on disk and then in memory.

        ``reason`` words the results: what failed was not cancelled by anybody (CAN-1, REC-1).
        """
        conversation, sampler = self._conversation, self._requests.sampler
        pending = conversation.history.pending
        runs = await self._store.tool_runs() if pending else {}
        details = self._calls.details
        results = repair_results(pending, runs, reason, details)
        spent = sampler.partial_usage
        await self._store.record_end(
            results,
            outcome,
            detail,
            partial,
            usage=spent if spent.is_known else None,
            model=conversation.model.id,
        )
        self._unrecorded += spent
        sampler.forget()
        for result in results:
            conversation.history.append(result)
        for call, result in zip(pending, results, strict=True):
            elapsed_s = details[call.id].elapsed_s if call.id in details else 0.0
            display = runs[call.id].display if call.id in runs else ""
            self._emit(ToolFinished(call, result, result.status.value, elapsed_s, display))

    async def _rescue(self, text: str) -> str:
        """What only memory holds goes to a recovery file, or back to be shown (FAIL-1)."""
        if not text:
            return ""
        try:
            path = await self._store.rescue(text)
        except Exception:
            log.exception("nothing could be rescued")
            path = None
        if path is None:
            return text
        self._emit(Notice(f"what was not saved is in {path}"))
        return ""


def _first_fault(error: BaseException) -> BaseException:
    """The first fault in a group of faults; a fault of the store before any other."""
    while isinstance(error, BaseExceptionGroup):
        stored = [inner for inner in error.exceptions if isinstance(inner, StoreError)]
        error = stored[0] if stored else error.exceptions[0]
    return error


def _as_agent_error(error: BaseException) -> AgentError:
    """``error`` as one that can be shown; a fault of ours goes to the log whole."""
    if isinstance(error, AgentError):
        return error
    log.error("the turn failed", exc_info=error)
    return AgentError(
        f"internal error: {type(error).__name__}: {error}", "this is a bug of agentcli; see the log"
    )
