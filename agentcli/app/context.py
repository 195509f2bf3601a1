"""A session's context by hand: compact now, take it back, look where the tokens go (CMP-3 to 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import AgentEvent, Compacted, CompactionTrigger
from agentcli.domain.messages import Usage
from agentcli.domain.ports import cost_usd
from agentcli.domain.session import LoadedSession
from agentcli.engine.conversation import Conversation

if TYPE_CHECKING:
    from agentcli.domain.session import ContextReport

Spend = Callable[[Usage, float | None], None]


class CompactedFile(Protocol):
    """What is needed of a session's file."""

    async def load(self, *, hidden: bool = False) -> LoadedSession:
        """All of it."""

    async def undo_compaction(self) -> bool:
        """Bring back what the newest summary stands for."""


async def compact(
    it: Conversation,
    token: CancelToken,
    emit: Callable[[AgentEvent], None],
    focus: str,
    spend: Spend,
) -> Compacted | None:
    """Fold what is old into a summary; ``None`` when there is nothing to fold.

    ``spend`` hears what it cost, also where nothing came of it. Raises ``AgentError`` and
    ``TurnCancelled``; the history is then as it was.
    """
    from agentcli.engine.context.compaction import Compactor

    compactor = Compactor(it, token, emit)
    try:
        return await compactor.run(CompactionTrigger.MANUAL, focus)
    finally:
        if compactor.usage.is_known:
            spend(compactor.usage, cost_usd(it.model, compactor.usage))


async def undo(it: Conversation, file: CompactedFile) -> bool:
    """Bring back what the newest summary stands for, on disk and in memory; false: none."""
    if not await file.undo_compaction():
        return False
    it.history = (await file.load()).history()
    return True


def report(it: Conversation) -> ContextReport:
    """Where the tokens of the next request go."""
    from agentcli.engine.context.report import report as look

    return look(it)
