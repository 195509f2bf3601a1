"""Limits of a turn: what forbids a request, what is near, and what the model is told then."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agentcli.domain.events import Outcome, WrappingUp
from agentcli.domain.messages import Usage, UserMessage
from agentcli.domain.ports import ModelInfo
from agentcli.domain.stream import UsageReport
from agentcli.domain.tools import ToolContext, ToolOutput
from agentcli.engine import limits
from agentcli.engine.limits import Spending, TurnLimits
from tests.support.turns import FakeTool, PlayedProvider, World, calls, says

PRICED = ModelInfo("test", "model", input_price=1.0, output_price=2.0, cache_read_price=0.1)
UNPRICED = ModelInfo("test", "model")
FREE_TIME = 1e12


def spent(*usages: Usage, model: ModelInfo = PRICED) -> Spending:
    found = Spending()
    for usage in usages:
        found.steps += 1
        found.add(model, usage)
    return found


@pytest.mark.spec("LOOP-1")
@pytest.mark.parametrize(("cap", "steps", "name"), [(3, 3, "steps"), (3, 2, None), (0, 999, None)])
def test_the_step_cap_counts_requests_and_zero_is_no_cap(
    cap: int, steps: int, name: str | None
) -> None:
    found = limits.reached(TurnLimits(cap), Spending(steps=steps), PRICED)
    assert (found[0] if found else None) == name


@pytest.mark.spec("COST-2")
def test_a_budget_stops_before_the_request_that_would_pass_it() -> None:
    one = Usage(400_000, 50_000)  # 0.4 + 0.1 USD
    budget = TurnLimits(max_budget_usd=1.0)
    assert limits.reached(budget, spent(one), PRICED) is None
    found = limits.reached(budget, spent(one, Usage(450_000, 0)), PRICED)
    assert found is not None
    assert found[0] == "budget" and "would be passed" in found[1]


@pytest.mark.spec("COST-2")
def test_an_unknown_price_cannot_be_limited_and_is_not_taken_for_nothing() -> None:
    used = spent(Usage(10**9, 10**9), model=UNPRICED)
    assert used.cost_usd is None
    assert limits.reached(TurnLimits(max_budget_usd=0.01), used, UNPRICED) is None
    assert limits.output_cap(TurnLimits(max_budget_usd=0.01), used, UNPRICED, 5) == 5


@pytest.mark.spec("COST-2")
def test_a_reply_may_be_no_longer_than_the_rest_of_the_budget_pays_for() -> None:
    budget = TurnLimits(max_budget_usd=0.01)
    assert limits.output_cap(budget, Spending(), PRICED, None) == 5_000
    assert limits.output_cap(budget, Spending(), PRICED, 1_000) == 1_000
    little = spent(Usage(0, 4_990))
    assert limits.output_cap(budget, little, PRICED, None) == limits.FEWEST_OUTPUT_TOKENS
    assert limits.output_cap(TurnLimits(max_budget_usd=9.0), Spending(), PRICED, None) is None


@pytest.mark.spec("HIS-7", "CTX-3")
def test_an_output_limit_is_never_higher_than_what_the_model_takes() -> None:
    most = PRICED.max_output_tokens
    for limit in (TurnLimits(), TurnLimits(max_budget_usd=100.0)):
        assert limits.output_cap(limit, Spending(), PRICED, 10 * most) == most
        assert limits.output_cap(limit, Spending(), PRICED, most - 1) == most - 1


@pytest.mark.spec("CLI-4")
def test_after_the_deadline_no_request_is_begun() -> None:
    now = time.monotonic()
    found = limits.reached(TurnLimits(deadline=now - 1, began=now - 11), Spending(), PRICED)
    assert found == ("time", "the time limit of 10 s was reached")
    assert limits.reached(TurnLimits(deadline=now + FREE_TIME), Spending(), PRICED) is None


@pytest.mark.spec("CTRL-7")
@pytest.mark.parametrize(
    ("limit", "used", "is_near"),
    [
        (TurnLimits(10), Spending(steps=7), False),
        (TurnLimits(10), Spending(steps=8), True),
        (TurnLimits(200), Spending(steps=189), False),
        (TurnLimits(200), Spending(steps=190), True),
        (TurnLimits(limits.FEWEST_STEPS - 1), Spending(steps=3), False),
        (TurnLimits(0), Spending(steps=10_000), False),
        (TurnLimits(max_budget_usd=1.0), spent(Usage(100_000, 0)), False),
        (TurnLimits(max_budget_usd=1.0), spent(Usage(100_000, 0), Usage(0, 380_000)), True),
        (TurnLimits(max_budget_usd=1.0), spent(Usage(350_000, 0)), True),
        (TurnLimits(max_budget_usd=1.0), Spending(), False),
    ],
)
def test_what_counts_as_near(limit: TurnLimits, used: Spending, is_near: bool) -> None:
    assert (limits.near(limit, used, PRICED) is not None) == is_near


@pytest.mark.spec("CTRL-7")
def test_the_last_part_of_the_time_is_near_its_end() -> None:
    now = time.monotonic()
    late = TurnLimits(deadline=now + 10, began=now - 90)
    assert limits.near(late, Spending(steps=1), PRICED) is not None
    early = TurnLimits(deadline=now + 80, began=now - 20)
    assert limits.near(early, Spending(steps=1), PRICED) is None


def test_what_a_summary_costs_counts_and_is_told_apart() -> None:
    used = spent(Usage(100, 10))
    used.add_compaction(PRICED, Usage(1_000, 100))
    assert used.usage == Usage(1_100, 110)
    assert used.compaction == Usage(1_000, 100)
    assert used.cost_usd == pytest.approx(0.00132)


async def look(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text(f"seen {ctx.call_id}")


def looks(count: int) -> list[Any]:
    return [calls((f"c{number}", "look", f'{{"n": {number}}}')) for number in range(count)]


@pytest.mark.spec("CTRL-7", "LOOP-2")
def test_near_the_step_cap_the_model_is_told_and_its_answer_ends_the_turn_wrapped_up() -> None:
    async def body() -> None:
        provider = PlayedProvider(*looks(4), says("this is what is done"))
        world = World(provider, [FakeTool("look", look)])
        summary = await world.run(max_steps=5)
        assert (summary.outcome, summary.steps) == (Outcome.WRAPPED_UP, 5)
        assert world.store.status is Outcome.WRAPPED_UP
        told = [_last_text(request.messages[-1]) for request in provider.requests]
        assert ["Limit ahead" in text for text in told] == [False, False, False, True, True]
        assert len([event for event in world.events if isinstance(event, WrappingUp)]) == 1
        stored = [m for m in world.history.messages if isinstance(m, UserMessage)]
        assert len(stored) == 1

    asyncio.run(body())


@pytest.mark.spec("CTRL-7", "LOOP-1", "COST-2")
def test_a_model_that_does_not_finish_is_stopped_at_the_cap_all_the_same() -> None:
    async def body() -> None:
        world = World(PlayedProvider(*looks(6)), [FakeTool("look", look)])
        summary = await world.run(max_steps=5)
        assert (summary.outcome, summary.limit) == (Outcome.MAX_STEPS, "steps")
        assert not world.history.pending

    asyncio.run(body())


@pytest.mark.spec("COST-2")
def test_the_budget_of_a_turn_is_kept_over_its_requests() -> None:
    async def body() -> None:
        used = UsageReport(Usage(300_000, 0))
        replies = [[used, *reply] for reply in looks(9)]
        world = World(PlayedProvider(*replies), [FakeTool("look", look)])
        summary = await world.run(max_budget_usd=1.0)
        assert (summary.outcome, summary.limit, summary.steps) == (Outcome.MAX_STEPS, "budget", 3)
        assert summary.cost_usd == pytest.approx(0.9)

    asyncio.run(body())


def _last_text(message: Any) -> str:
    return message.text if isinstance(message, UserMessage) else ""
