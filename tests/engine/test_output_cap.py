"""A turn whose replies are cut at the output limit, and one whose rate limit lasts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.events import ModelFellBack, Notice, Outcome, OutputCapRaised, RetryWait
from agentcli.domain.messages import StopReason, Usage
from agentcli.domain.ports import ModelInfo, Provider
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.domain.tools import ToolContext, ToolOutput
from agentcli.engine.sample import RetryPolicy
from agentcli.store.sqlite import SqliteStore
from tests.support.turns import MODEL, FakeTool, PlayedProvider, World, calls, says

SMALL = replace(MODEL, max_output_tokens=400)


def cut_call(arguments: str, usage: Usage | None = None) -> list[StreamEvent]:
    begun = [UsageReport(usage)] if usage else []
    return [
        *begun, TextDelta(0, "I write. "), ToolCallStart(1, "c", "write"),
        ToolCallDelta(1, arguments), StreamEnd(StopReason.MAX_TOKENS),
    ]  # fmt: skip


def worker(done: list[str]) -> FakeTool:
    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        done.append(str(args))
        return ToolOutput.text("ok")

    return FakeTool("write", work)


def play(world: World, **settings: Any) -> Any:
    retry = RetryPolicy(sleep=lambda seconds: asyncio.sleep(0))
    return asyncio.run(world.run(**{"model": SMALL, "retry": retry, **settings}))


@pytest.mark.spec("STR-7", "LOOP-12")
def test_a_call_cut_below_the_limit_is_asked_again_and_runs_once() -> None:
    done: list[str] = []
    whole = calls(("c", "write", '{"x": "all"}'), text="I write. ")
    world = World(PlayedProvider(cut_call('{"x": "al'), whole, says("done")), [worker(done)])
    summary = play(world, max_output_tokens=200)
    assert summary.outcome is Outcome.DONE
    assert done == ["{'x': 'all'}"]
    assert [r.max_output_tokens for r in world.provider.requests] == [200, 400, 200]
    assert summary.steps == 2
    assert world.types().count("output_cap_raised") == 1


@pytest.mark.spec("STR-7", "LOOP-12")
@pytest.mark.parametrize("arguments", ['{"x": "al', '{"x": "all"', "{", ""])
def test_at_the_models_limit_the_cut_reply_is_recorded_and_its_call_never_runs(
    arguments: str,
) -> None:
    done: list[str] = []
    replies = (cut_call(arguments), cut_call(arguments), says("smaller then"))
    world = World(PlayedProvider(*replies), [worker(done)])
    summary = play(world, max_output_tokens=200)
    assert summary.outcome is Outcome.DONE
    assert done == []
    assert world.results[0].is_error
    assert any(isinstance(e, Notice) and "cut" in e.text for e in world.events)
    text = "".join(e.text for e in world.events if e.type == "text_delta")
    assert text == "I write. smaller then"


@pytest.mark.spec("STR-7", "COST-1", "LOOP-6", "FAIL-5")
def test_the_cut_attempt_counts_in_the_sums_and_has_a_row_of_its_own(tmp_path: Path) -> None:
    info = SessionInfo("s", "", "/w", 0.0, 0.0, SessionStatus.NEW, 0, "test/model")
    store = SqliteStore.new(tmp_path / "s.db", info)
    whole = [UsageReport(Usage(11, 22)), *says("I write. It all.")]
    world = World(PlayedProvider(cut_call("{", Usage(10, 20)), whole), store=store)

    async def run() -> tuple[Any, Any]:
        summary = await world.run(model=SMALL, max_output_tokens=200)
        loaded = await store.load()
        await store.aclose()
        return summary, loaded

    summary, loaded = asyncio.run(run())
    assert summary.usage == loaded.info.usage == Usage(21, 42)
    assert loaded.messages[-1].message.usage == Usage(11, 22)
    assert summary.cost_usd == pytest.approx((21 * 1.0 + 42 * 2.0) / 1e6)


@pytest.mark.spec("STR-7", "COST-2")
def test_a_limit_that_the_budget_has_lowered_is_not_raised() -> None:
    price = replace(SMALL, max_output_tokens=100_000, output_price=10_000.0)
    for cap in (None, 50_000, 300):
        world = World(PlayedProvider(cut_call("{"), says("never")))
        play(world, model=price, max_budget_usd=4.0, max_output_tokens=cap, max_steps=1)
        assert world.provider.requests[0].max_output_tokens == min(cap or 400, 400)
        assert world.types().count("output_cap_raised") == 0


@pytest.mark.spec("STR-7", "COST-2")
def test_a_limit_is_raised_only_as_far_as_the_budget_goes() -> None:
    price = replace(SMALL, max_output_tokens=100_000, output_price=1_000.0)
    reply = cut_call("{", Usage(0, 1_000))  # 1 USD each
    world = World(PlayedProvider(*[reply] * 9))
    summary = play(world, model=price, max_budget_usd=10.0, max_output_tokens=1_000, max_steps=1)
    raised = [e.new_tokens for e in world.events if isinstance(e, OutputCapRaised)]
    assert raised == [2_000, 4_000]
    assert summary.cost_usd == pytest.approx(3.0)


@pytest.mark.spec("STR-7", "LOOP-1")
def test_a_second_try_is_no_step() -> None:
    world = World(PlayedProvider(cut_call("{"), says("I write. Whole.")))
    summary = play(world, max_output_tokens=200, max_steps=1)
    assert summary.outcome is Outcome.DONE
    assert summary.text == "I write. Whole."


# --- a rate limit that lasts -------------------------------------------------------------------


def limited() -> ProviderError:
    return ProviderError("slow", kind=ErrorKind.RATE_LIMIT, retry_after_s=7200.0)


class Yes:
    """A user who always waits."""

    def __init__(self) -> None:
        self.asked = 0

    async def offer(self, error: ProviderError, delay_s: float) -> bool:
        self.asked += 1
        return True


@pytest.mark.spec("STR-2")
def test_the_turn_goes_on_after_a_long_limit_when_the_person_agrees() -> None:
    world, user = World(PlayedProvider([limited()], says("at last"))), Yes()
    summary = play(world, long_wait=user)
    assert (summary.outcome, summary.text, user.asked) == (Outcome.DONE, "at last", 1)
    assert [e.delay_s for e in world.events if isinstance(e, RetryWait)] == [7200.0]


@pytest.mark.spec("STR-2", "STR-9")
def test_without_a_person_the_turn_fails_at_once_and_says_when() -> None:
    world = World(PlayedProvider([limited()], says("never")))
    assert play(world).outcome is Outcome.ERROR
    assert "in 2 h" in world.events[-1].error.advice  # type: ignore[union-attr]


@pytest.mark.spec("STR-2")
def test_another_model_that_can_answer_comes_before_the_question() -> None:
    other, user = PlayedProvider(says("from the other")), Yes()

    def choose(name: str) -> tuple[Provider, ModelInfo]:
        return other, replace(MODEL, name=name)

    world = World(PlayedProvider([limited()]))
    summary = play(world, long_wait=user, fallbacks=("other",), choose=choose)
    assert (summary.text, user.asked) == ("from the other", 0)
    assert any(isinstance(e, ModelFellBack) for e in world.events)


@pytest.mark.spec("COST-1", "LOOP-6")
def test_what_the_first_model_was_paid_for_nothing_counts_at_its_own_prices() -> None:
    overloaded = ProviderError("busy", kind=ErrorKind.OVERLOADED)
    broken: list[Any] = [UsageReport(Usage(1_000, 0)), overloaded]
    other = PlayedProvider([UsageReport(Usage(10, 10)), *says("from the other")])

    def choose(name: str) -> tuple[Provider, ModelInfo]:
        return other, replace(MODEL, name=name, input_price=100.0, output_price=100.0)

    world = World(PlayedProvider(*[broken] * 9))
    summary = play(world, fallbacks=("other",), choose=choose)
    attempts = len(world.provider.requests)
    assert attempts == RetryPolicy().max_retries + 1
    assert summary.usage == Usage(1_000 * attempts + 10, 10)
    assert summary.cost_usd == pytest.approx(0.001 * attempts + 0.002)
    assert world.store.other_usages == [("test/model", Usage(1_000 * attempts, 0))]
    assert world.store.partial_usages == []


@pytest.mark.spec("STR-7")
def test_a_limit_is_raised_only_as_far_as_the_window_has_room() -> None:
    small = replace(MODEL, context_tokens=2_000, max_output_tokens=4_000)
    world = World(PlayedProvider(*[cut_call("{")] * 9))
    play(world, model=small, max_output_tokens=1_000, max_steps=1)
    (raised,) = [e for e in world.events if isinstance(e, OutputCapRaised)]
    assert 1_000 < raised.new_tokens < 2_000
    world = World(PlayedProvider(*[cut_call("{")] * 9))
    play(world, model=small, max_steps=1)
    assert (world.provider.requests[0].max_output_tokens or 0) < 2_000
    assert not any(isinstance(e, OutputCapRaised) for e in world.events)
