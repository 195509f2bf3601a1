"""Compaction: the older part of a history gives way to a summary (CMP-1 to CMP-4).

``plan`` says what is folded: a pure function. ``Compactor`` asks for the summary and stores it.
Laws: a call stays with its result; the last turns stay word for word, and the newest prompt
always; until the one commit nothing has changed, whatever happens: a failure or a cancel leaves
the history as it was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from agentcli.domain.errors import AgentError, ErrorKind, ProviderError, TurnCancelled
from agentcli.domain.events import (
    AgentEvent,
    Compacted,
    CompactionStarted,
    CompactionTrigger,
    Notice,
    RetryWait,
)
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    StopReason,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import Effort, ModelRequest, cost_usd
from agentcli.domain.prepare import check_request, prepare
from agentcli.domain.values import frozen
from agentcli.engine.context import summary as writing
from agentcli.engine.context.pruning import is_prompt
from agentcli.engine.context.tokens import of_message, of_text
from agentcli.engine.conversation import Conversation, Emit
from agentcli.engine.hooked import before_compaction
from agentcli.engine.race import race
from agentcli.engine.sample import Sampler

KEPT_TURNS = 2
KEPT_SHARE = 0.25
LIMIT_S = 300.0
_MOST_OUTPUT = 16_000
_LEAST_OUTPUT = 1_000
_SPARE_TOKENS = 500
_SHORT_TOKENS = 2_000
_NARROWER = (1.0, 0.5, 0.2)  # of the window: what else is tried when even that is too long
log = logging.getLogger(__name__)


@frozen
class Plan:
    """Indices of the messages to fold; all others stay. ``turns``: prompts that stay."""

    folded: tuple[int, ...]
    turns: int


def plan(
    messages: Sequence[Message], sizes: Sequence[int], budget: int, newest_step: int = 0
) -> Plan | None:
    """What to fold so that about ``budget`` tokens stay word for word; ``None``: nothing.

    The last turns stay where they fit. Of a turn that does not fit its prompt and its newest
    steps stay, the very last one also where it takes up to ``newest_step`` tokens; with 0 for
    both the prompt stays alone.
    """
    count = len(messages)
    left = [0] * (count + 1)  # tokens from an index to the end
    for index in range(count - 1, -1, -1):
        left[index] = left[index + 1] + sizes[index]
    prompts = [index for index, message in enumerate(messages) if is_prompt(message)]
    start = count
    for index in reversed(prompts[-KEPT_TURNS:]):
        if left[index] > budget:
            break
        start = index
    kept: set[int] = set()
    if start == count and prompts:
        newest = prompts[-1]
        kept.add(newest)
        room = max(budget - sizes[newest], budget // 2)
        steps = [
            index
            for index in range(newest + 1, count)
            if not isinstance(messages[index], ToolResult)
        ]
        fitting = [index for index in steps if left[index] <= room]
        if not fitting and steps and left[steps[-1]] <= newest_step:
            fitting = steps[-1:]
        start = fitting[0] if fitting else count
    folded = tuple(index for index in range(start) if index not in kept)
    if not any(not _is_summary(messages[index]) for index in folded):
        return None
    return Plan(folded, sum(index >= start or index in kept for index in prompts))


def _is_summary(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.is_summary


class Compactor:
    """One compaction. ``usage`` is what it has cost so far, ``api_s`` how long it was waited."""

    def __init__(self, conversation: Conversation, token: CancelToken, emit: Emit) -> None:
        self._it = conversation
        self._token = token
        self._emit = emit
        self.usage = Usage()
        self.api_s = 0.0

    async def attempt(self, trigger: CompactionTrigger, *, harder: bool = False) -> bool | None:
        """Compact; whatever fails is said, and the history stays as it is (CMP-1).

        True when it was folded, ``None`` when there is nothing to fold. Raises only for a cancel.
        """
        context = self._it.context
        try:
            if await self.run(trigger, harder=harder) is not None:
                return True
        except TurnCancelled:
            raise
        except Exception as error:
            if not isinstance(error, AgentError):
                log.exception("a compaction failed")
            context.failed()
            why = error.message if isinstance(error, AgentError) else type(error).__name__
            self._emit(Notice(f"the conversation could not be compacted: {why}; it stays as it is"))
            return False
        context.wait_for_more(self._it.model)
        return None

    async def run(
        self, trigger: CompactionTrigger, focus: str = "", *, harder: bool = False
    ) -> Compacted | None:
        """Compact; ``None`` when there is nothing to fold.

        ``harder``: nothing stays but the newest prompt. Raises ``AgentError`` and
        ``TurnCancelled``; then nothing has changed.
        """
        it = self._it
        context, history = it.context, it.history
        if history.pending:
            raise AgentError("calls are without results", "send a message first")
        context.look(history, it.system, it.kit.toolbox.definitions, it.model)
        share = int(KEPT_SHARE * context.window(it.model) / context.gauge.scale)
        sizes = context.gauge.sizes
        budgets = (0, 0) if harder else (min(share, sum(sizes) // 2), share)
        chosen = plan(history.messages, sizes, *budgets)
        if chosen is None:
            return None
        focus = await before_compaction(it, self._token, self._emit, trigger, focus)
        self._emit(CompactionStarted(trigger))
        try:
            done = await self._written(trigger, focus, chosen)
        except BaseException:
            with suppress(Exception):
                await uninterruptible(self._note_cost(), self._on_cancel)
            raise
        return await uninterruptible(self._store(done), self._on_cancel)

    async def _written(self, trigger: CompactionTrigger, focus: str, chosen: Plan) -> _Done:
        """The summary, ready to be stored."""
        messages, sizes = self._it.history.messages, self._it.context.gauge.sizes
        folded = [messages[index] for index in chosen.folded]
        todos = await self._todos()
        text = await self._summary(folded, focus)
        record = writing.record(text, folded, _stands_for(folded), todos)
        replaced = max(sum(sizes[index] for index in chosen.folded), _SHORT_TOKENS)
        if of_message(record) > replaced and trigger is not CompactionTrigger.MANUAL:
            raise AgentError("the summary is longer than what it stands for")
        if self._token.cancelled:
            raise TurnCancelled
        return _Done(trigger, record, chosen, folded, _kept(chosen, len(messages), todos))

    def _on_cancel(self) -> None:
        self._token.cancel(CancelReason.OUTER)

    # --- the summary -----------------------------------------------------------------------

    async def _summary(self, folded: Sequence[Message], focus: str) -> str:
        asked_at = time.monotonic()
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self._ask_in_less_and_less(folded, focus)
        except TimeoutError as error:
            raise AgentError(f"the summary took longer than {LIMIT_S:.0f} s") from error
        finally:
            self.api_s += time.monotonic() - asked_at

    async def _ask_in_less_and_less(self, folded: Sequence[Message], focus: str) -> str:
        it = self._it
        window = it.context.window(it.model)
        cap = self._output_cap(window)
        room = int((window - cap - of_text(writing.SYSTEM)) / it.context.gauge.scale)
        for share in _NARROWER:
            limit = int((room - _SPARE_TOKENS) * 0.9 * share)
            request = self._request(folded, focus, (limit, cap))
            try:
                return _text_of(await self._ask(request))
            except ProviderError as error:
                if error.kind is not ErrorKind.CONTEXT_OVERFLOW or share == _NARROWER[-1]:
                    raise
        raise AssertionError  # the last share returns or raises

    def _output_cap(self, window: int) -> int:
        it = self._it
        most = min(it.model.max_output_tokens, it.max_output_tokens or _MOST_OUTPUT, _MOST_OUTPUT)
        return max(_LEAST_OUTPUT, min(most, window // 8))

    def _request(
        self, folded: Sequence[Message], focus: str, limits: tuple[int, int]
    ) -> ModelRequest:
        it = self._it
        asked = writing.request_message(folded, focus, limits[0])
        messages = prepare([asked], it.model.provider, it.model.name)
        check_request(messages)
        thinks = it.effort in {Effort.MEDIUM, Effort.HIGH}
        return ModelRequest(
            model=it.model,
            system=writing.SYSTEM,
            messages=messages,
            max_output_tokens=limits[1],
            effort=Effort.LOW if thinks else it.effort,
        )

    async def _ask(self, request: ModelRequest) -> AssistantMessage:
        it = self._it
        sampler = Sampler(it.provider, self._heard, it.retry)
        try:
            return await race(
                sampler.sample(request, frozenset(), self._token, lambda *_: None),
                self._token,
                it.kit.reaper,
            )
        finally:
            self.usage += sampler.partial_usage

    def _heard(self, event: AgentEvent) -> None:
        """Of the asking the user sees the waits; the text is not an answer."""
        if isinstance(event, RetryWait):
            self._emit(event)

    async def _todos(self) -> Sequence[Mapping[str, Any]]:
        try:
            found = await self._it.kit.state.get("todos")
        except AgentError:
            return ()
        return [todo for todo in found if isinstance(todo, dict)] if isinstance(found, list) else ()

    # --- storing it ------------------------------------------------------------------------

    async def _note_cost(self) -> None:
        """A summary that came to nothing costs all the same (COST-1)."""
        it = self._it
        if self.usage.is_known:
            cost = cost_usd(it.model, self.usage)
            await it.store.add_usage(it.model.id, self.usage, cost, kind="compaction")

    async def _store(self, done: _Done) -> Compacted:
        """One commit, then memory, then the event."""
        it = self._it
        context, before, used = it.context, len(it.history), it.context.used
        await it.store.record_compaction(
            done.record, done.plan.folded, before, usage=self.usage, model=it.model.id
        )
        it.history.fold(done.record, done.plan.folded)
        context.folded(it.history, it.system, it.kit.toolbox.definitions)
        if context.used >= used or context.is_full(it.model):
            context.wait_for_more(it.model)
        event = Compacted(
            trigger=done.trigger,
            messages_before=before,
            messages_after=len(it.history),
            tokens_before=used,
            tokens_after=context.used,
            kept=done.kept,
            folded=_folded(done.folded),
            usage=self.usage,
        )
        self._emit(event)
        return event


@frozen
class _Done:
    """A summary that is ready to be stored."""

    trigger: CompactionTrigger
    record: UserMessage
    plan: Plan
    folded: Sequence[Message]
    kept: str


def _text_of(reply: AssistantMessage) -> str:
    if reply.stop_reason is StopReason.REFUSAL or not reply.text.strip():
        raise AgentError("the model wrote no summary")
    return reply.text


def _stands_for(folded: Sequence[Message]) -> int:
    """How many messages are folded, those behind an earlier summary included."""
    return sum(
        writing.stands_for(message)
        if isinstance(message, UserMessage) and message.is_summary
        else 1
        for message in folded
    )


def _kept(chosen: Plan, count: int, todos: Sequence[Any]) -> str:
    """What stays, in a line: "the last 2 turns (9 messages), project instructions"."""
    left, turns = count - len(chosen.folded), chosen.turns
    what = "the last turn" if turns == 1 else f"the last {turns} turns"
    messages = f"{what} ({_plural(left, 'message')})" if turns else _plural(left, "message")
    instructions = "system prompt and project instructions"
    return ", ".join((messages, instructions, *(["to-do list"] if todos else [])))


def _folded(folded: Sequence[Message]) -> str:
    """What went into the summary, in a line."""
    prompts = sum(is_prompt(message) for message in folded)
    results = sum(isinstance(message, ToolResult) for message in folded)
    parts = [_plural(prompts, "prompt"), _plural(results, "tool result")]
    earlier = ", the summary before" if any(map(_is_summary, folded)) else ""
    return f"{_plural(len(folded), 'message')} ({', '.join(parts)}{earlier})"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
