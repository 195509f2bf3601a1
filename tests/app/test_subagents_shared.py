"""What a sub-agent gets of its parent's is never more than the parent has."""

from __future__ import annotations

import asyncio

import pytest

from agentcli.app.subagents import WITHHELD, Meter, NamedApprover, Narrowed
from agentcli.app.toolset import MAX_LISTED_CHARS, listing
from agentcli.domain.messages import ToolCall, Usage
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Verdict
from agentcli.engine.limits import Spending
from agentcli.extensions.agents import AgentDefinition
from agentcli.tools.common.registry import Registry, standard_name


def names(box: Registry | Narrowed) -> set[str]:
    return {each.name for each in box.definitions}


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["read_file", "bash"], {"read_file", "bash"}),
        (["Read", "Bash", "WebSearch"], {"read_file", "bash"}),
        (["shell", "*_files"], {"bash", "grep_files", "glob_files"}),
        (["task", "ask_user", "final_result"], set()),
        (["../x", "[", ""], set()),
    ],
)
def test_a_list_of_tools_only_takes_away(only: list[str], expected: set[str]) -> None:
    part = Narrowed(Registry.builtin(), only, standard_name)
    assert names(part) == expected
    assert part.get("edit_file") is None
    assert set(part.near("edit")) <= expected


def test_a_tool_that_the_parent_does_not_have_cannot_be_had_by_naming_it() -> None:
    part = Narrowed(Registry.builtin(["read_file"]), ["read_file", "bash"], standard_name)
    assert names(part) == {"read_file"}
    assert part.get("bash") is None


def test_without_a_list_everything_is_there_but_what_belongs_to_the_conversation() -> None:
    box = Registry.builtin()
    part = Narrowed(box, None, standard_name)
    assert names(part) == names(box) - WITHHELD - {"memory"}  # of the group project_memory
    assert part.get("task") is None


@pytest.mark.spec("COST-1")
def test_what_agents_spend_is_added_once_and_known_to_each_other() -> None:
    spent = Spending()
    spent.add_elsewhere(Usage(10, 1), 0.5)
    one, two = Meter(spent), Meter(spent)
    one.read(Usage(100, 5), 1.0)
    one.read(Usage(150, 9), 1.5)
    two.read(Usage(7), 0.25)
    two.read(Usage(), None)
    assert spent.usage == Usage(167, 10)
    assert spent.cost_usd == pytest.approx(2.25)
    assert one.outside() == pytest.approx(0.75)
    assert two.outside() == pytest.approx(2.0)


@pytest.mark.spec("COST-1")
def test_a_price_that_is_unknown_makes_the_sum_unknown() -> None:
    spent = Spending()
    meter = Meter(spent)
    meter.read(Usage(1, 1), None)
    assert spent.cost_usd is None
    assert meter.outside() is None


def test_a_question_says_who_asks() -> None:
    asked: list[ApprovalRequest] = []

    class Person:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            asked.append(request)
            return ApprovalAnswer(Verdict.ONCE)

    request = ApprovalRequest(ToolCall("a", "bash", {}), "Run ls", "ls", "why")
    assert asyncio.run(NamedApprover(Person(), "scout").approve(request)).verdict is Verdict.ONCE
    assert (asked[0].summary, asked[0].detail) == ("scout: Run ls", "ls")


@pytest.mark.spec("CTX-2")
def test_the_list_for_the_model_is_bounded() -> None:
    many = {f"a{n}": AgentDefinition(f"a{n}", "x" * 300, "p") for n in range(50)}
    text = listing(many)
    assert len(text) < MAX_LISTED_CHARS + 50 * 8
    assert text.endswith("- a49")
