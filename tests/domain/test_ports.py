"""Money for tokens, and what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentcli.domain.messages import Usage
from agentcli.domain.ports import ModelInfo, cost_usd

MODEL = ModelInfo(
    "p", "m", input_price=3.0, output_price=15.0, cache_read_price=0.3, cache_write_price=3.75
)


@pytest.mark.spec("COST-1")
def test_each_kind_of_token_has_its_own_price() -> None:
    usage = Usage(1_000_000, 1_000_000, 1_000_000, 1_000_000)
    assert cost_usd(MODEL, usage) == pytest.approx(3.0 + 15.0 + 0.3 + 3.75)


@pytest.mark.spec("COST-1")
def test_reasoning_is_part_of_the_output_and_not_paid_twice() -> None:
    plain = cost_usd(MODEL, Usage(10, 20))
    assert plain == cost_usd(MODEL, Usage(10, 20, reasoning_tokens=15))
    assert plain == pytest.approx(10 * 3e-6 + 20 * 15e-6)


@pytest.mark.spec("COST-1")
def test_cached_input_without_a_price_of_its_own_has_an_unknown_cost() -> None:
    model = replace(MODEL, cache_read_price=None, cache_write_price=None)
    assert cost_usd(model, Usage(0, 0, 1_000_000, 1_000_000)) is None
    assert cost_usd(model, Usage(10, 0, 0, 0)) == pytest.approx(10 * 3e-6)


@pytest.mark.spec("COST-1")
@pytest.mark.parametrize(
    ("model", "usage"),
    [
        (MODEL, Usage()), (MODEL, Usage(1)), (MODEL, Usage(None, 1)),
        (replace(MODEL, input_price=None), Usage(1, 1)),
        (replace(MODEL, output_price=None), Usage(1, 1)),
    ],
)  # fmt: skip
def test_an_unknown_price_or_count_makes_the_cost_unknown(model: ModelInfo, usage: Usage) -> None:
    assert cost_usd(model, usage) is None


@pytest.mark.spec("COST-1")
def test_a_free_model_costs_nothing() -> None:
    free = replace(MODEL, input_price=0.0, output_price=0.0)
    assert cost_usd(free, Usage(5, 5)) == 0.0
