"""Money for tokens. Unknown stays unknown: a missing price or count is ``None``, never 0."""

from __future__ import annotations

from agentcli.domain.messages import Usage
from agentcli.domain.ports import ModelInfo

_PER_TOKENS = 1_000_000


def cost_usd(model: ModelInfo, usage: Usage) -> float | None:
    """What ``usage`` costs at list price, in USD; ``None`` when a figure it needs is unknown.

    A cache count that the provider did not report is taken for none (COST-1).
    """
    if not usage.is_known:
        return None
    total = 0.0
    for tokens, price in (
        (usage.input_tokens, model.input_price),
        (usage.output_tokens, model.output_price),
        (usage.cache_read_tokens or 0, model.cache_read_price),
        (usage.cache_write_tokens or 0, model.cache_write_price),
    ):
        if tokens == 0 or price == 0:
            continue
        if tokens is None or price is None:
            return None
        total += tokens * price
    return total / _PER_TOKENS
