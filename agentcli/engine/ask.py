"""One step's reply: make the request, ask, and mend what can be mended.

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
from agentcli.domain.messages import AssistantMessage, Usage, user_text
from agentcli.domain.ports import ModelInfo, ModelRequest, Provider, cost_usd
from agentcli.engine.conversation import Conversation, Emit
from agentcli.engine.limits import Limits, Spending, output_cap, reached
from agentcli.engine.race import race
from agentcli.engine.sample import HigherCap, Sampler, doubled_cap

_CHARACTERS_PER_TOKEN = 4
_TOO_MANY_BYTES = 413
_PART_OF_BUDGET = 0.25
# what another model may be able to answer
_OUT_OF_REACH = frozenset({ErrorKind.OVERLOADED, ErrorKind.RATE_LIMIT, ErrorKind.SERVER})
log = logging.getLogger(__name__)


class Requests:
    """Asks for the replies of one turn. ``api_s`` is the time spent waiting for them."""

    def __init__(self, conversation: Conversation, token: CancelToken, emit: Emit) -> None:
        self._it = conversation
        self._token = token
        self._emit = emit
        self._fallbacks = list(conversation.fallbacks)
        self.sampler = self._new_sampler()
        self.api_s = 0.0
        self._overflows = 0
        self._refused = False

    async def ask(self, limits: Limits, spent: Spending, notes: Sequence[str]) -> AssistantMessage:
        """The reply to the history and to ``notes``, which are sent and never stored."""
        self._overflows = 0
        self._refused = False
        while True:
            request = await self._request(limits, spent, notes)
            try:
                message = await self._timed(request, self._higher_cap(limits, spent))
            except ProviderError as error:
                if not await self._remedied(error, spent, request):
                    raise
            else:
                self._it.context.measured(message.usage)
                if not message.tool_calls:
                    return message
                from agentcli.engine.arguments.schema import repaired

                return repaired(message, self._it.kit.toolbox)

    async def _request(self, limits: Limits, spent: Spending, notes: Sequence[str]) -> ModelRequest:
        it = self._it
        messages = it.context.pruner.apply(
            it.chain.apply(it.transforms, it.history.messages, self._emit)
        )
        prepared = await race(it.outgoing.messages(messages, it.model), self._token, it.kit.reaper)
        for line in it.outgoing.news:
            self._emit(Notice(line))
        messages = (*prepared, *(user_text(note) for note in notes))
        cap = output_cap(limits, spent, it.model, it.max_output_tokens)
        return ModelRequest(
            model=it.model,
            system=it.system,
            messages=messages,
            tools=it.kit.toolbox.definitions,
            max_output_tokens=it.context.room_for_output(it.model, cap),
            effort=it.effort,
        )

    def _new_sampler(self) -> Sampler:
        """A person is asked to wait only where no other model can answer instead."""
        it = self._it
        long_wait = None if self._fallbacks and it.choose is not None else it.long_wait
        return Sampler(it.provider, self._emit, it.retry, long_wait)

    def _higher_cap(self, limits: Limits, spent: Spending) -> HigherCap:
        """Raise a cut reply's output limit (STR-7) as far as money, time and window allow."""

        def higher(request: ModelRequest, wasted: Usage) -> int | None:
            cap, after = doubled_cap(request, wasted), replace(spent)
            if wasted.is_known:
                after.add(request.model, wasted)
            if cap is None or reached(replace(limits, max_steps=0), after, request.model):
                return None
            if output_cap(limits, after, request.model, cap) != cap:
                return None
            return self._it.context.room_for_output(request.model, cap)

        return higher

    async def _timed(self, request: ModelRequest, higher_cap: HigherCap) -> AssistantMessage:
        asked_at = time.monotonic()
        try:
            return await race(
                self.sampler.sample(request, self._it.history.call_ids, self._token, higher_cap),
                self._token,
                self._it.kit.reaper,
            )
        finally:
            self.api_s += time.monotonic() - asked_at

    # --- room in the window ----------------------------------------------------------------

    async def make_room(self, limits: Limits, spent: Spending) -> None:
        """Before each step: leave old output out, fold old messages where it is time (CMP-4)."""
        it = self._it
        it.context.look(it.history, it.system, it.kit.toolbox.definitions, it.model)
        used = it.context.used
        if count := it.context.prune(it.history.messages, it.model):
            left, total = it.context.used, len(it.history)
            what = f"{it.context.pruner.name} ({count} results)"
            sizes = (used * _CHARACTERS_PER_TOKEN, left * _CHARACTERS_PER_TOKEN)
            self._emit(ContextTransformed(what, total, total, *sizes))
        if it.context.is_full(it.model) and self._can_pay(limits, spent, it.context.used):
            await self._compact(CompactionTrigger.WINDOW, spent)

    def _can_pay(self, limits: Limits, spent: Spending, tokens: int) -> bool:
        """Whether a summary of ``tokens`` costs a small part of what is left (COST-2)."""
        budget, cost = limits.max_budget_usd, spent.cost_usd
        coming = cost_usd(self._it.model, Usage(tokens, 0))
        if budget is None or cost is None or coming is None:
            return True
        return coming <= (budget - cost) * _PART_OF_BUDGET

    async def _make_it_fit(self, error: ProviderError, spent: Spending) -> bool:
        """It was too long: fold what is old; where that was not enough, all but the prompt."""
        if error.status != _TOO_MANY_BYTES:
            self._it.context.overflowed(self._it.model)
        for harder in (False, True)[self._overflows :]:
            self._overflows += 1
            done = await self._compact(CompactionTrigger.OVERFLOW, spent, harder=harder)
            if done is not None:
                return done
        return False

    async def _compact(
        self, trigger: CompactionTrigger, spent: Spending, *, harder: bool = False
    ) -> bool | None:
        """Whether the history was folded; ``None`` when there is nothing to fold."""
        from agentcli.engine.context.compaction import Compactor

        compactor = Compactor(self._it, self._token, self._emit)
        try:
            return await compactor.attempt(trigger, harder=harder)
        finally:
            self.api_s += compactor.api_s
            if compactor.usage.is_known:
                spent.add_compaction(self._it.model, compactor.usage)

    # --- remedies --------------------------------------------------------------------------

    async def _remedied(self, error: ProviderError, spent: Spending, request: ModelRequest) -> bool:
        """Whether something was changed that makes it worth asking again."""
        if self.sampler.has_output:  # what was shown is never shown twice (STR-4)
            return False
        if error.kind is ErrorKind.CONTEXT_OVERFLOW:
            return await self._make_it_fit(error, spent)
        if error.kind is ErrorKind.BAD_REQUEST:
            return await self._leave_out(error, request)
        return error.kind in _OUT_OF_REACH and await self._fall_back(error, spent)

    async def _leave_out(self, error: ProviderError, request: ModelRequest) -> bool:
        """What the provider has refused of the history is quarantined (HIS-8)."""
        it = self._it
        answer = await it.outgoing.refused(error, request, it.provider, again=self._refused)
        self._refused = True
        if answer.notice:
            self._emit(Notice(answer.notice))
        return answer.ask_again

    async def _fall_back(self, error: ProviderError, spent: Spending) -> bool:
        """Another model answers from now on, in this session, when one can be chosen."""
        it = self._it
        while self._fallbacks and it.choose is not None:
            name = self._fallbacks.pop(0)
            try:
                provider, model = it.choose(name)
            except AgentError:
                continue
            if model.id == it.model.id:
                await provider.aclose()
                continue
            await uninterruptible(self._note_cost(spent))
            await self._switch(provider, model, error)
            return True
        return False

    async def _note_cost(self, spent: Spending) -> None:
        """What the present model was paid for nothing, at its own prices (COST-1)."""
        it, wasted = self._it, self.sampler.partial_usage
        if not wasted.is_known:
            return
        spent.add_wasted(it.model, wasted)
        self.sampler.forget()
        try:
            cost = cost_usd(it.model, wasted)
            await it.store.add_usage(it.model.id, wasted, cost, kind="partial")
        except StoreError:  # the next write of the history says whether the store works (FAIL-2)
            log.warning("the cost of a failed request could not be stored", exc_info=True)

    async def _switch(self, provider: Provider, model: ModelInfo, error: ProviderError) -> None:
        it, old = self._it, self._it.model
        before, it.provider, it.model = it.provider, provider, model
        self.sampler = self._new_sampler()
        self._emit(ModelFellBack(old.id, model.id, error))
        await before.aclose()
