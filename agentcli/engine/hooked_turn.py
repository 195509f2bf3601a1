"""What the person's hooks say of a turn: may the prompt be sent, may the turn end?

Laws. A prompt that a hook refuses is never stored and never lost: it goes back to the person. What
hooks say to the model is stored like everything it is told. A turn is kept from ending at most
``MAX_HOLDS`` times in a row; without hooks nothing here waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentcli.domain.cancel import CancelReason, CancelToken, uninterruptible
from agentcli.domain.errors import AgentError, PromptBlocked, TurnCancelled
from agentcli.domain.events import CompactionTrigger, Notice, QueueChanged
from agentcli.domain.messages import TextPart, UserMessage, user_text
from agentcli.domain.ports import QueueSource
from agentcli.engine.race import race

if TYPE_CHECKING:
    from agentcli.domain.hooks import Hooks, HookVerdict
    from agentcli.domain.ports import QueuedInput
    from agentcli.engine.conversation import Conversation, Emit

MAX_HOLDS = 8
_SHOWN = 200


class TurnHooks:
    """The hooks around one turn."""

    def __init__(self, conversation: Conversation, token: CancelToken, emit: Emit) -> None:
        self._it = conversation
        self._token = token
        self._emit = emit
        self._holds = 0
        self._notices: tuple[str, ...] = ()

    @property
    def guard_the_end(self) -> bool:
        """Whether a hook has to be asked before a turn ends."""
        hooks = self._it.kit.hooks
        if hooks is None:
            return False
        from agentcli.domain.hooks import HookEvent

        return hooks.listens(HookEvent.STOP)

    # --- the prompt ------------------------------------------------------------------------

    async def admitted(
        self, prompt: UserMessage | None, queued: Sequence[int]
    ) -> UserMessage | None:
        """The prompt with what hooks add to it; raises ``PromptBlocked``.

        A cancel ends the asking and not the turn: it then records the prompt and ends (CAN-3).
        """
        hooks = self._it.kit.hooks
        if hooks is None or prompt is None or not prompt.text.strip():
            return prompt
        asking = self._ask(hooks, prompt.text)
        try:
            said = await uninterruptible(asking, lambda: self._token.cancel(CancelReason.OUTER))
        except (TurnCancelled, asyncio.CancelledError):
            return prompt  # the token remembers it
        if blocked := said.blocked or said.stopped:
            self._tell(said.notices)
            if queued and self._it.queue is not None:
                for row in queued:
                    await self._it.queue.drop(row)
                blocked = f"{blocked} (the prompt was: {_short(prompt.text)})"
            raise PromptBlocked(f"a hook refused the prompt: {blocked}", "nothing was sent")
        self._notices = said.notices
        return _with_context(prompt, said)

    def tell_notices(self) -> None:
        """What was said before the turn began."""
        self._tell(self._notices)
        self._notices = ()

    async def admitted_later(self, item: QueuedInput, message: UserMessage) -> UserMessage | None:
        """The message that a queued text becomes; ``None`` when a hook refuses it.

        Raises ``TurnCancelled``.
        """
        hooks, queue = self._it.kit.hooks, self._it.queue
        if hooks is None or queue is None or item.source is not QueueSource.USER:
            return message
        said = await self._ask(hooks, item.text)
        self._tell(said.notices)
        if blocked := said.blocked or said.stopped:
            self._emit(Notice(f"a hook refused what waited ({item.text}): {blocked}"))
            await queue.drop(item.id)
            self._emit(QueueChanged(len(queue.waiting())))
            return None
        return _with_context(message, said)

    async def _ask(self, hooks: Hooks, text: str) -> HookVerdict:
        asking = hooks.prompt_submitted(text, self._token)
        return await race(asking, self._token, self._it.kit.reaper)

    # --- on the way ------------------------------------------------------------------------

    async def tell_model(self, text: str) -> None:
        """Store what hooks have said of the calls of a batch, as the next message."""
        if text:
            await uninterruptible(
                self._record(user_text(f"({text})")),
                lambda: self._token.cancel(CancelReason.OUTER),
            )

    async def _record(self, message: UserMessage) -> None:
        await self._it.store.record_prompt(message, begins_turn=False)
        self._it.history.append(message)

    # --- the end ---------------------------------------------------------------------------

    async def holds_back(self, answer: str, *, final: bool = False) -> bool:
        """Whether the turn goes on instead of ending; why is then the next message.

        Nothing holds back a turn that is ``final``: a tool has ended it (CTRL-2).
        """
        hooks = self._it.kit.hooks
        if hooks is None or not self.guard_the_end:
            return False
        asking = hooks.stopping(answer, self._token, active=self._holds > 0)
        said = await race(asking, self._token, self._it.kit.reaper)
        self._tell(said.notices)
        if said.stopped:
            self._emit(Notice(f"a hook ends the turn: {said.stopped}"))
        if said.stopped or not said.blocked:
            return False
        if final or self._holds >= MAX_HOLDS:
            why = "a tool has ended it" if final else f"it did so {MAX_HOLDS} times"
            self._emit(Notice(f"a hook wants the turn to go on, but {why}: {said.blocked}"))
            return False
        self._holds += 1
        self._emit(Notice(f"a hook keeps the turn going: {said.blocked}", is_warning=False))
        await self.tell_model(f"A hook asks you to go on: {said.blocked}")
        return True

    def _tell(self, notices: Sequence[str]) -> None:
        for text in notices:
            self._emit(Notice(text))


async def before_compaction(
    it: Conversation, token: CancelToken, emit: Emit, trigger: CompactionTrigger, focus: str
) -> str:
    """What the summary should mind: ``focus`` and what hooks add to it.

    Raises ``AgentError`` when a hook refuses it, and ``TurnCancelled``.
    """
    hooks = it.kit.hooks
    if hooks is None:
        return focus
    kind = "manual" if trigger is CompactionTrigger.MANUAL else "auto"
    said = await race(hooks.before_compaction(kind, focus, token), token, it.kit.reaper)
    for text in said.notices:
        emit(Notice(text))
    if refused := said.blocked or said.stopped:
        raise AgentError(f"a hook refused it: {refused}")
    return "\n".join(filter(None, (focus, *said.context)))


def _with_context(message: UserMessage, said: HookVerdict) -> UserMessage:
    parts = (TextPart(f"(A hook adds: {text})") for text in said.context)
    return UserMessage((*message.parts, *parts))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
