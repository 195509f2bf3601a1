"""The sums of a session: turns, tokens, money. Law: what is unknown once stays unknown (COST-1)."""

from __future__ import annotations

from dataclasses import field

from agentcli.domain.events import TurnSummary
from agentcli.domain.messages import Usage
from agentcli.domain.session import SessionInfo
from agentcli.domain.values import mutable

_TITLE_LENGTH = 80


@mutable
class Totals:
    """``cost_usd`` is ``None`` when a part of it is unknown."""

    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    turns: int = 0
    title: str = ""

    @classmethod
    def of(cls, info: SessionInfo) -> Totals:
        """What is known of a session when it is opened."""
        return cls(info.usage, info.cost_usd if info.turns else 0.0, info.turns, info.title)

    def add_turn(self, summary: TurnSummary, prompt: str) -> None:
        """One more turn, begun with ``prompt``."""
        self.turns += 1
        self.spend(summary.usage, summary.cost_usd)
        if not self.title and prompt.strip():
            self.title = prompt.strip().splitlines()[0][:_TITLE_LENGTH]

    def spend(self, usage: Usage, cost_usd: float | None) -> None:
        """Tokens, and what they cost where that is known."""
        self.usage += usage
        known = self.cost_usd is not None and (cost_usd is not None or not usage.is_known)
        self.cost_usd = (self.cost_usd or 0.0) + (cost_usd or 0.0) if known else None
