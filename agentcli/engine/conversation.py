"""The state of a session: all of it that changes from turn to turn.

Law: ``history`` mirrors the store at every moment: commit, then append.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.events import AgentEvent
from agentcli.domain.history import History, RepairReason
from agentcli.domain.messages import UserMessage, user_text
from agentcli.domain.ports import Effort, ModelInfo, Provider, QueuedInput, QueueSource
from agentcli.domain.values import mutable
from agentcli.engine.context.outgoing import CachedPrefix, Outgoing, TransformChain, truncations
from agentcli.engine.context.window import Context
from agentcli.engine.limits import Spending, TurnLimits
from agentcli.engine.parts import SessionParts

if TYPE_CHECKING:
    from pathlib import Path

Emit = Callable[[AgentEvent], None]


@mutable
class Conversation:
    """Its history, who answers, what its context holds, what the newest turn may spend and has.

    ``end_reason`` is why the session is closed, for hooks. ``unbalanced`` says why calls are
    without results when even the repair could not be stored. ``quotes``: what is said now is the
    text of a command or skill, not the user's own words.
    """

    parts: SessionParts
    history: History
    provider: Provider
    model: ModelInfo
    effort: Effort | None = None
    turns: int = 0
    small_failed: bool = False
    unbalanced: RepairReason = RepairReason.CRASHED
    limits: TurnLimits = field(default_factory=TurnLimits)
    spent: Spending = field(default_factory=Spending)
    end_reason: str = "other"
    quotes: bool = False
    context: Context = field(default_factory=Context)
    chain: TransformChain = field(default_factory=TransformChain)
    prefix: CachedPrefix = field(default_factory=CachedPrefix)
    outgoing: Outgoing = field(init=False)

    def __post_init__(self) -> None:
        self.outgoing = Outgoing(self.parts.state, self.parts.repair_image)

    async def learn_instructions(self, touched: Sequence[Path]) -> str:
        """Tell the model what holds for the files ``touched``, once (EXT-4); the names, or ""."""
        if self.parts.later is None:
            return ""
        later, messages = self.parts.later, self.history.messages
        docs = await asyncio.to_thread(lambda: later().for_files(touched, messages))
        if docs:
            from agentcli.domain.extensions.instructions import instructions_text

            await uninterruptible(self.record_unsaid(instructions_text(docs)))
        return ", ".join(doc.name for doc in docs)

    def truncations(self, message: UserMessage) -> tuple[str, ...]:
        """What of ``message`` is not sent whole, a line each (LOOP-13)."""
        return truncations(message, self.model.context_tokens)

    async def record_unsaid(self, text: str) -> None:
        """Store what the program says within a turn; nobody is told that it was said."""
        message = user_text(text)
        await self.parts.store.record_prompt(message, begins_turn=False)
        self.history.append(message)

    async def message_for(self, item: QueuedInput) -> UserMessage:
        """What waited, as a message with the files that it names (UI-4).

        What the program says names none (BG-5); what only the session file says that a user has
        typed names files of the workspace.
        """
        attach = self.parts.attach
        if attach is None or item.source is QueueSource.BACKGROUND:
            return user_text(item.text)
        return await attach(item.text, only_inside=item.is_earlier)
