"""Money for tokens. Unknown stays unknown: a missing price or count is ``None``, never 0."""

from __future__ import annotations

from agentcli.domain.messages import Usage
from agentcli.domain.ports import ModelInfo

_PER_TOKENS = 1_000_000


def cost_usd(model: ModelInfo, usage: Usage) -> float | None:
    """What ``usage`` costs at ``model``'s prices, in USD (COST-1).

    Cached input that a model has no price of its own for is priced as plain input.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    if model.input_price is None or model.output_price is None:
        return None
    read_price = model.cache_read_price if model.cache_read_price is not None else model.input_price
    write_price = (
        model.cache_write_price if model.cache_write_price is not None else model.input_price
    )
    total = (
        usage.input_tokens * model.input_price
        + usage.output_tokens * model.output_price
        + (usage.cache_read_tokens or 0) * read_price
        + (usage.cache_write_tokens or 0) * write_price
    )
    return total / _PER_TOKENS
