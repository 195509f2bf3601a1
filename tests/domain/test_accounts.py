"""A request's tokens are shared out among what it sent, to the token; money follows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.domain.accounts import (
    COMPACTION,
    Ledger,
    SentMessage,
    UsageRow,
    call_costs,
    sum_of,
)
from agentcli.domain.messages import Usage
from agentcli.domain.ports import LongPromptPrices, ModelInfo, cost_usd

MODEL = ModelInfo(
    "p",
    "m",
    input_price=10.0,
    output_price=50.0,
    cache_read_price=1.0,
    cache_write_price=12.5,
    long_prompts=(LongPromptPrices(200_000, 20.0, 75.0, 2.0, 25.0),),
)


def model_of(name: str) -> ModelInfo | None:
    return MODEL if name == MODEL.id else None


def row(before: int, usage: Usage, kind: str = "step", **changes: object) -> UsageRow:
    known = {"created_at": float(before), "model": MODEL.id, "cost_usd": cost_usd(MODEL, usage)}
    return UsageRow(kind=kind, usage=usage, before=before, **{**known, **changes})  # type: ignore[arg-type]  # a builder


def prompt(seq: int, size: int, **more: int) -> SentMessage:
    return SentMessage(seq, size, **more)


def result(seq: int, size: int, **more: int) -> SentMessage:
    return SentMessage(seq, size, call_id=f"c{seq}", name="bash", line=f"Run {seq}", **more)


@pytest.mark.spec("COST-1", "COST-3")
def test_a_result_costs_when_it_comes_and_again_in_each_later_request() -> None:
    """1,000 tokens of system, 100 of prompt; the reply writes 50, its result is 400 in truth."""
    messages = (prompt(1, 100), prompt(2, 9), result(3, 300), prompt(4, 20))
    rows = (
        row(2, Usage(100, 50, 0, 1000)),
        row(4, Usage(0, 20, 1100, 450)),
        row(5, Usage(20, 5, 1550, 0)),
    )
    cost = call_costs(Ledger(messages, rows), model_of)["c3"]
    found = cost.result
    assert (cost.name, cost.line) == ("bash", "Run 3")
    assert (found.added_tokens, found.again_requests) == (400, 1)
    assert (found.again_cached_tokens, found.again_uncached_tokens) == (400, 0)
    assert found.added_usd == pytest.approx(400 * 12.5e-6)
    assert found.again_usd == pytest.approx(400 * 1e-6)
    assert found.cost_usd == pytest.approx(found.added_usd + found.again_usd)


@pytest.mark.spec("COST-1")
def test_what_was_folded_or_taken_back_costs_nothing_more() -> None:
    messages = (
        prompt(9, 10),  # the summary stands before what is left
        prompt(1, 100),
        result(3, 400, until=9, folded_by=9),
        result(5, 400, until=7),
    )
    rows = (
        row(4, Usage(600, 10)),
        row(6, Usage(1000, 10)),
        row(8, Usage(600, 10)),
        row(9, Usage(800, 10), COMPACTION),
        row(12, Usage(210, 10)),
    )
    found = call_costs(Ledger(messages, rows), model_of)
    assert found["c5"].result.again_requests == 0
    assert found["c3"].result.again_requests == 3  # two replies, and its summary
    assert found["c3"].result.again_uncached_tokens == 400 + 400 + 800


@pytest.mark.spec("COST-1", "UI-13")
def test_money_is_the_bookings_and_unknown_where_there_is_none() -> None:
    messages = (result(1, 500),)
    usage = Usage(500, 100)
    doubled = row(2, usage, cost_usd=2 * (cost_usd(MODEL, usage) or 0))
    assert call_costs(Ledger(messages, (doubled,)), model_of)["c1"].result.cost_usd == (
        pytest.approx(500 * 20e-6)
    )
    for missing in (row(2, usage, cost_usd=None), row(2, usage, model="other/x", cost_usd=1.0)):
        found = call_costs(Ledger(messages, (missing,)), model_of)["c1"].result
        assert (found.cost_usd, found.unknown, found.added_tokens) == (None, 1, 500)
    free = row(2, usage, model="ollama/x", cost_usd=0.0)
    assert call_costs(Ledger(messages, (free,)), model_of)["c1"].result.cost_usd == 0.0
    long = Usage(300_000, 100)
    found = call_costs(Ledger((result(1, 300_000),), (row(2, long),)), model_of)["c1"].result
    assert found.cost_usd == pytest.approx(300_000 * 20e-6)


@pytest.mark.spec("COST-1")
def test_a_request_of_another_file_is_not_counted_but_has_sent_a_result_first() -> None:
    rows = (row(2, Usage(500, 1)), row(3, Usage(501, 1)))
    found = call_costs(Ledger((result(1, 500),), rows), model_of, lambda each: each is rows[1])
    assert (found["c1"].result.added_tokens, found["c1"].result.again_requests) == (0, 1)


@pytest.mark.spec("COST-1")
@given(
    sizes=st.lists(st.integers(0, 5_000), min_size=1, max_size=8),
    prompts=st.lists(
        st.tuples(st.integers(0, 9_000), st.integers(0, 9_000), st.integers(0, 9_000)),
        min_size=1,
        max_size=8,
    ),
)
def test_the_parts_of_a_request_are_its_whole(
    sizes: list[int], prompts: list[tuple[int, int, int]]
) -> None:
    """Nothing but results was sent: theirs is all but what no message explains."""
    messages = tuple(result(seq, size, folded_by=99) for seq, size in enumerate(sizes))
    rows = [row(seq + 1, Usage(u, 3, r, w)) for seq, (u, r, w) in enumerate(prompts)]
    for each in rows:
        found = sum_of(call_costs(Ledger(messages, tuple(rows)), model_of, each.__eq__).values())
        assert 0 <= found.tokens <= each.prompt_tokens
        assert found.known_usd <= (each.cost_usd or 0.0) + 1e-9
    whole = row(99, Usage(*prompts[0][:1], 3, *prompts[0][1:]), COMPACTION)
    found = sum_of(call_costs(Ledger(messages, (whole,)), model_of).values())
    if sum(sizes):
        assert found.tokens == whole.prompt_tokens
        written = 3 * 50e-6
        if whole.prompt_tokens:
            assert found.known_usd == pytest.approx((whole.cost_usd or 0.0) - written)
