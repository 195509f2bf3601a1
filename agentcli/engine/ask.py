"""One step's reply: make the request, ask, and remedy what can be remedied.

Law: what is sent is a valid copy of the history; nothing stored is changed by asking. A fault
that has a remedy is met with it once; every other fault is the turn's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.domain.errors import AgentError, ErrorKind, ProviderError, StoreError
from agentcli.domain.events import CompactionTrigger, ContextTransformed, ModelFellBack, Notice
from agentcli.domain.messages import AssistantMessage, Message, ToolCall, Usage, user_text
from agentcli.domain.ports import ModelRequest, StepFacts, cost_usd
from agentcli.engine.conversation import Conversation, Emit
from agentcli.engine.limits import output_cap, reached
from agentcli.engine.race import race
from agentcli.engine.sample import Sampler, doubled_cap

_CHARACTERS_PER_TOKEN = 4
_TOO_MANY_BYTES = 413
_PART_OF_BUDGET = 0.25
_BEYOND_ALL = 2_000_000  # tokens; no window is so wide
# what another model may be able to answer
_OUT_OF_REACH = frozenset({ErrorKind.OVERLOADED, ErrorKind.RATE_LIMIT, ErrorKind.SERVER})
log = logging.getLogger(__name__)


class Requests:
    """Asks for the replies of one turn. ``api_s`` is the time spent waiting for them."""

    def __init__(self, conversation: Conversation, token: CancelToken, emit: Emit) -> None:
        self._conversation = conversation
        self._parts = conversation.parts
        self._limits, self._spent = conversation.limits, conversation.spent
        self._token = token
        self._emit = emit
        self._fallbacks = list(conversation.parts.fallbacks)
        self.sampler = self._new_sampler()
        self.api_s = 0.0
        self._overflows = 0
        self._refused = False

    async def ask(
        self, notes: Sequence[str], facts: StepFacts, tool_choice: str = ""
    ) -> AssistantMessage:
        """The reply to the history and to ``notes``, which are sent and never stored."""
        conversation = self._conversation
        self._overflows = 0
        self._refused = False
        attempts = 0
        while True:
            request = await self._request(notes, facts)
            if tool_choice:
                request = replace(request, tool_choice=tool_choice)
            attempts += 1
            self._emit(conversation.prefix.prepared(request, facts.step, attempts))
            asked_at = time.monotonic()
            reply = self.sampler.sample(
                request, conversation.history.call_ids, self._token, self._higher_cap
            )
            try:
                message = await race(reply, self._token, self._parts.reaper)
            except ProviderError as error:
                failure = error
            else:
                conversation.context.gauge.measured(message.usage)
                if not message.tool_calls:
                    return message
                from agentcli.engine.arguments.schema import repaired

                return repaired(message, self._parts.toolbox)
            finally:
                self.api_s += time.monotonic() - asked_at
            if not await self._remedied(failure, request):
                raise failure

    async def _request(self, notes: Sequence[str], facts: StepFacts) -> ModelRequest:
        conversation, parts = self._conversation, self._parts
        model, outgoing = conversation.model, conversation.outgoing
        history = conversation.history.messages
        messages: Sequence[Message] = history
        if parts.transforms:
            facts = replace(facts, messages=history, model=model)
            messages = conversation.chain.apply(parts.transforms, facts, self._emit)
        messages = conversation.context.pruner.apply(messages)
        prepared = await race(outgoing.messages(messages, model), self._token, parts.reaper)
        for line in outgoing.news:
            self._emit(Notice(line))
        cap = output_cap(self._limits, self._spent, model, parts.max_output_tokens)
        return ModelRequest(
            model=model,
            system=parts.system,
            messages=(*prepared, *map(user_text, notes)),
            tools=parts.toolbox.definitions,
            max_output_tokens=conversation.context.room_for_output(model, cap),
            effort=conversation.effort,
            temperature=parts.temperature,
            fields=parts.request_fields,
        )

    def _new_sampler(self) -> Sampler:
        """The user is asked to wait only where no other model can answer instead."""
        parts = self._parts
        long_wait = None if self._fallbacks and parts.choose is not None else parts.long_wait
        return Sampler(self._conversation.provider, self._emit, parts.retry, long_wait)

    def _higher_cap(self, request: ModelRequest, wasted: Usage) -> int | None:
        """Raise a cut reply's output limit (STR-7) as far as money, time and window allow."""
        cap, after = doubled_cap(request, wasted), replace(self._spent)
        if wasted.is_known:
            after.add(request.model, wasted)
        limits = self._limits
        if cap is None or reached(replace(limits, max_steps=0), after, request.model):
            return None
        if output_cap(limits, after, request.model, cap) != cap:
            return None
        return self._conversation.context.room_for_output(request.model, cap)

    # --- room in the window ----------------------------------------------------------------

    async def make_room(self) -> None:
        """Before each step: leave old output out, fold old messages where it is time (CMP-4).

        Raises ``ProviderError`` where what is left fits into no window: it grows no more (SEC-13).
        """
        conversation = self._conversation
        context, history, model = conversation.context, conversation.history, conversation.model
        context.look(history, self._parts.system, self._parts.toolbox.definitions, model)
        used = context.used
        if count := context.prune(history.messages, model, self._stays):
            left, total = context.used, len(history)
            what = f"{context.pruner.name} ({count} results)"
            sizes = (used * _CHARACTERS_PER_TOKEN, left * _CHARACTERS_PER_TOKEN)
            self._emit(ContextTransformed(what, total, total, *sizes))
        if context.is_full(model) and self._can_pay(context.used):
            await self._compact(CompactionTrigger.WINDOW)
            context.look(history, self._parts.system, self._parts.toolbox.definitions, model)
        if context.used > max(_BEYOND_ALL, 2 * context.window(model)):
            what = f"the conversation has grown to about {context.used:,} tokens: too long to send"
            kind = ErrorKind.CONTEXT_OVERFLOW
            raise ProviderError(what, "/rewind, or start a new session", kind=kind)

    def _stays(self, call: ToolCall) -> bool:
        """Whether what ``call`` has read is a skill: the model goes by it (EXT-1)."""
        if not self._parts.skills:
            return False
        from agentcli.engine.context.activated import reads_skill

        return reads_skill(call, self._parts.skills, self._parts.workspace)

    def _can_pay(self, tokens: int) -> bool:
        """Whether a summary of ``tokens`` costs a small part of what is left (COST-2)."""
        budget, cost = self._limits.max_budget_usd, self._spent.cost_usd
        coming = cost_usd(self._conversation.model, Usage(tokens, 0))
        if budget is None or cost is None or coming is None:
            return True
        return coming <= (budget - cost) * _PART_OF_BUDGET

    async def _make_it_fit(self, error: ProviderError) -> bool:
        """It was too long: fold what is old; where that was not enough, all but the prompt."""
        if error.status != _TOO_MANY_BYTES:
            self._conversation.context.overflowed(self._conversation.model)
        for harder in (False, True)[self._overflows :]:
            self._overflows += 1
            done = await self._compact(CompactionTrigger.OVERFLOW, harder=harder)
            if done is not None:
                return done
        return False

    async def _compact(self, trigger: CompactionTrigger, *, harder: bool = False) -> bool | None:
        """Whether the history was folded; ``None`` when there is nothing to fold."""
        from agentcli.engine.context.compaction import Compactor

        compactor = Compactor(self._conversation, self._token, self._emit)
        try:
            return await compactor.attempt(trigger, harder=harder)
        finally:
            self.api_s += compactor.api_s
            if compactor.usage.is_known:
                self._spent.add_compaction(compactor.model, compactor.usage)

    # --- remedies --------------------------------------------------------------------------

    async def _remedied(self, error: ProviderError, request: ModelRequest) -> bool:
        """Whether something was changed that makes it worth asking again."""
        if self.sampler.has_output:  # what was shown is never shown twice (STR-4)
            return False
        if error.kind is ErrorKind.CONTEXT_OVERFLOW:
            return await self._make_it_fit(error)
        if error.kind is ErrorKind.BAD_REQUEST:
            return await self._leave_out(error, request)
        return error.kind in _OUT_OF_REACH and await self._fall_back(error)

    async def _leave_out(self, error: ProviderError, request: ModelRequest) -> bool:
        """What the provider has refused of the history is quarantined (HIS-8)."""
        conversation = self._conversation
        answer = await conversation.outgoing.refused(
            error, request, conversation.provider, again=self._refused
        )
        self._refused = True
        if answer.notice:
            self._emit(Notice(answer.notice))
        return answer.ask_again

    async def _fall_back(self, error: ProviderError) -> bool:
        """Another model answers from now on, in this session, when one can be chosen."""
        conversation, choose = self._conversation, self._parts.choose
        while self._fallbacks and choose is not None:
            name = self._fallbacks.pop(0)
            try:
                provider, model = choose(name)
            except AgentError:
                continue
            old, before = conversation.model, conversation.provider
            if model.id == old.id:
                await provider.aclose()
                continue
            await uninterruptible(self._record_cost())
            conversation.provider, conversation.model = provider, model
            self.sampler = self._new_sampler()
            self._emit(ModelFellBack(old.id, model.id, error))
            await before.aclose()
            return True
        return False

    async def _record_cost(self) -> None:
        """What the present model was paid for nothing, at its own prices (COST-1)."""
        model, wasted = self._conversation.model, self.sampler.partial_usage
        if not wasted.is_known:
            return
        self._spent.add_wasted(model, wasted)
        self.sampler.forget()
        try:
            cost = cost_usd(model, wasted)
            await self._parts.store.add_usage(model.id, wasted, cost, kind="partial")
        except StoreError:  # the next write of the history says whether the store works (FAIL-2)
            log.warning("the cost of a failed request could not be stored", exc_info=True)
