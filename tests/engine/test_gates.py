"""Gates: intersected, ranked where they exclude each other, and enforced at the dispatch."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.events import GatesConflicted
from agentcli.domain.ports import GateAnswer, StepFacts
from agentcli.domain.tools import ToolContext, ToolOutput
from agentcli.engine.gates import OPEN, resolve
from tests.support.turns import FakeTool, PlayedProvider, World, calls, says

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
        ([], None, None),
        ([gate("one", None)], None, None),
        ([gate("one", "ab"), gate("two", "bc")], "b", None),
        ([gate("one", ""), gate("two", "")], None, None),
        ([gate("one", "a", 1), gate("two", "b", 2)], "b", "two"),
        ([gate("one", "ab", 1), gate("two", "c", 1)], "c", "two"),
        ([gate("two", "a"), gate("one", "b")], "b", "one"),
        ([gate("one", "", 9), gate("two", "b", 1)], "", "one"),
        ([gate("one", "a", 9), gate("two", "b", required=True)], "a", "one"),
        ([gate("one", "a", 9), gate("two", "b", required=True, outranks=True)], "b", None),
    ],
)
def test_the_answers_become_one(gates: list[Gate], allowed: str | None, winner: str | None) -> None:
    found = resolve(gates, FACTS)
    assert found.allowed == (None if allowed is None else frozenset(allowed))
    assert (found.conflict.winner if found.conflict else None) == winner


answers = st.none() | st.frozensets(st.sampled_from("abcd")).map(GateAnswer)


@pytest.mark.spec("CTRL-4")
@settings(max_examples=80)
@given(st.lists(st.tuples(answers, st.integers(0, 2)), max_size=5), st.randoms())
def test_the_order_of_the_gates_does_not_matter(
    given_gates: list[tuple[GateAnswer | None, int]], random: Any
) -> None:
    gates = [Gate(f"g{i}", answer, rank) for i, (answer, rank) in enumerate(given_gates)]
    found = resolve(gates, FACTS)
    random.shuffle(gates)
    assert resolve(gates, FACTS).allowed == found.allowed
    lists = [gate.answer.allow for gate in gates if gate.answer is not None]
    assert (found.allowed is None) == (not any(lists)) or found is OPEN


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
        conflicts = [e for e in world.events if isinstance(e, GatesConflicted)]
        assert [event.winner for event in conflicts] == ["plan", "plan"]

    asyncio.run(body())


@pytest.mark.spec("CTRL-8")
def test_transforms_run_in_order_on_a_copy_and_report() -> None:
    @dataclass
    class Cut:
        name: str
        keep: int

        def apply(self, messages: Any) -> Any:
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
