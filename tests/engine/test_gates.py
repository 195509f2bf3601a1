"""Gates: intersected, ranked where they exclude each other, and enforced at the dispatch."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import AgentError
from agentcli.domain.events import (
    Failed,
    ToolGateApplied,
    ToolGateConflictResolved,
    ToolRefused,
)
from agentcli.domain.ports import GateAnswer, StepFacts
from agentcli.domain.tools import ToolContext, ToolOutput
from agentcli.engine.gates import resolve
from tests.support.turns import MODEL, FakeTool, PlayedProvider, World, calls, says

FACTS = StepFacts(1, frozenset("abc"))


@dataclass
class Gate:
    """A gate with one answer."""

    name: str
    answer: GateAnswer | None
    priority: int = 0

    def allow(self, facts: StepFacts) -> GateAnswer | None:
        return self.answer


def gate(name: str, tools: str | None, priority: int = 0, **how: bool) -> Gate:
    answer = None if tools is None else GateAnswer(frozenset(tools), **how)
    return Gate(name, answer, priority)


@pytest.mark.spec("CTRL-4")
@pytest.mark.parametrize(
    ("gates", "allowed", "winner"),
    [
        ([], None, ""),
        ([gate("one", None)], None, ""),
        ([gate("one", "ab"), gate("two", "bc")], "b", ""),
        ([gate("one", "")], "", ""),
        ([gate("one", ""), gate("two", "ab")], "", ""),
        ([gate("one", "", 1), gate("two", "b", 9, required=True)], "", ""),
        ([gate("one", "a", 1), gate("two", "b", 2)], "b", "two"),
        ([gate("one", "a", 1), gate("two", "bc", 1, required=True)], "bc", "two"),
        ([gate("one", "ab", 1), gate("two", "c", 1)], "c", "two"),
        ([gate("two", "a"), gate("one", "b")], "b", "one"),
        ([gate("one", "a", 9), gate("two", "b", required=True)], "a", "one"),
        ([gate("one", "a", 1), gate("two", "b", 2, required=True, outranks=True)], "b", ""),
        ([gate("one", "", 1), gate("two", "b", 2, required=True, outranks=True)], "b", ""),
        ([gate("one", "a", 9), gate("two", "b", required=True, outranks=True)], "a", "one"),
        ([gate("one", "ab", 2), gate("two", "b", 2, required=True, outranks=True)], "b", ""),
        ([gate("one", "a", 1), gate("two", "", 2, required=True, outranks=True)], "", ""),
    ],
)
def test_the_answers_become_one(gates: list[Gate], allowed: str | None, winner: str) -> None:
    found = resolve(gates, FACTS)
    assert found.allowed == (None if allowed is None else frozenset(allowed))
    assert found.winner == winner
    assert [each.gate for each in found.lists] == [each.name for each in gates if each.answer]


answers = st.none() | st.frozensets(st.sampled_from("abcd")).map(GateAnswer)


@pytest.mark.spec("CTRL-4")
@settings(max_examples=80)
@given(st.lists(st.tuples(answers, st.integers(0, 2)), max_size=5), st.randoms())
def test_the_order_of_the_gates_does_not_matter_and_an_empty_list_closes(
    given_gates: list[tuple[GateAnswer | None, int]], random: Any
) -> None:
    gates = [Gate(f"g{i}", answer, rank) for i, (answer, rank) in enumerate(given_gates)]
    found = resolve(gates, FACTS)
    random.shuffle(gates)
    assert resolve(gates, FACTS).allowed == found.allowed
    lists = [gate.answer.allow for gate in gates if gate.answer is not None]
    assert (found.allowed is None) == (not lists)
    assert bool(found.allowed) == (bool(lists) and all(lists))


class Raises:
    """A gate of somebody who has made a mistake."""

    name, priority = "mine", 5

    def __init__(self, error: BaseException | None = None, answer: Any = None) -> None:
        self._error, self._answer = error, answer

    def allow(self, facts: StepFacts) -> Any:
        if self._error is not None:
            raise self._error
        return self._answer


@pytest.mark.spec("CTRL-4")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Raises(KeyError("rules")), "the gate mine failed: KeyError: 'rules'"),
        (Raises(SystemExit(3)), "the gate mine failed: SystemExit"),
        (Raises(AgentError("no rules", "write some")), "no rules - write some"),
        (Raises(answer={"a"}), "it returned set, not GateAnswer or None"),
        (type("Odd", (Raises,), {"name": 3})(answer=GateAnswer(["a"])), "its name is no text"),
        (Raises(answer=GateAnswer("abc")), "no collection of tool names"),
        (Raises(answer=GateAnswer([1])), "no collection of tool names"),  # type: ignore[list-item]  # wrong on purpose
    ],
)
def test_a_gate_that_fails_ends_the_turn_before_anything_runs(wrong: Raises, said: str) -> None:
    world = World(PlayedProvider(calls(("1", "a", "{}"))), [FakeTool("a", _done)])
    summary = asyncio.run(world.run("go", gates=[wrong]))
    assert (summary.outcome, summary.steps) == ("error", 1)
    assert not world.provider.requests and not world.results
    last = world.events[-1]
    assert isinstance(last, Failed) and said in str(last.error)


@pytest.mark.spec("CTRL-4", "CTRL-9", "CLI-5")
def test_every_decision_and_every_refused_call_is_an_event_and_gates_see_what_happens() -> None:
    seen: list[StepFacts] = []

    class Watching:
        name, priority = "watch", 1

        def allow(self, facts: StepFacts) -> GateAnswer:
            seen.append(facts)
            return GateAnswer(["a"], required=True, outranks=True)

    world = World(
        PlayedProvider(calls(("1", "b", "{}")), says("done")),
        [FakeTool("a", _done), FakeTool("b", _done)],
    )
    asyncio.run(world.run("go", gates=[Watching(), gate("late", "b")], session_id="s1"))
    applied = [event for event in world.events if isinstance(event, ToolGateApplied)]
    assert [(event.step, event.allowed) for event in applied] == [(1, ("a",)), (2, ("a",))]
    assert [(each.gate, each.allowed, each.set_aside) for each in applied[0].lists] == [
        ("watch", ("a",), False),
        ("late", ("b",), True),
    ]
    refused = [event for event in world.events if isinstance(event, ToolRefused)]
    assert [(event.call.name, event.unattended) for event in refused] == [("b", False)]
    assert "watch" in refused[0].reason
    assert world.types().index("tool_announced") < world.types().index("tool_refused")
    assert [len(facts.messages) for facts in seen] == [1, 3]
    first, second = seen
    assert first.model == MODEL and first.run.session_id == "s1"
    assert first.run.run_id == second.run.run_id and first.run.run_id.startswith("run_")


async def _done(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text("done")


@pytest.mark.spec("CTRL-4", "LOOP-3", "LOOP-5")
def test_a_call_outside_is_answered_not_run_and_the_tool_list_stays() -> None:
    ran = []

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        ran.append(ctx.call_id)
        return ToolOutput.text("done")

    async def body() -> None:
        tools = [FakeTool(name, work) for name in ("a", "b")]
        provider = PlayedProvider(calls(("1", "a", "{}"), ("2", "b", "{}")), says("done"))
        world = World(provider, tools)
        gates = [gate("plan", "a", 1), gate("other", "b")]
        await world.run("go", gates=gates)
        assert ran == ["1"]
        refused = world.results[1]
        assert refused.is_error and "plan" in refused.text and "a" in refused.text
        assert [r.tools for r in provider.requests] == [provider.requests[0].tools] * 2
        conflicts = [e for e in world.events if isinstance(e, ToolGateConflictResolved)]
        assert [event.winner for event in conflicts] == ["plan", "plan"]

    asyncio.run(body())


@pytest.mark.spec("CTRL-8")
def test_transforms_run_in_order_on_a_copy_and_report() -> None:
    @dataclass
    class Cut:
        name: str
        keep: int

        def apply(self, messages: Any, facts: StepFacts) -> Any:
            assert facts.step and len(facts.messages) >= len(messages)
            return messages[-self.keep :]

    async def body() -> None:
        provider = PlayedProvider(says("one"), says("two"))
        world = World(provider)
        await world.run("first", transforms=[Cut("most", 2), Cut("last", 1)])
        await world.next_turn("second")
        assert [len(request.messages) for request in provider.requests] == [1, 1]
        assert len(world.history) == 4 == len(world.store.disk)
        told = [event for event in world.events if event.type == "context_transformed"]
        assert [(e.name, e.messages_before, e.messages_after) for e in told] == [  # type: ignore[union-attr]  # by its type
            ("most", 3, 2),
            ("last", 2, 1),
        ]

    asyncio.run(body())
