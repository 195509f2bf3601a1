"""Plan mode: what passes, what the model is told, and what each answer to a plan does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentcli.domain.events import Outcome
from agentcli.domain.messages import UserMessage
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, PermissionMode, Verdict
from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.engine.gates import PLAN_KEY, PRESENT_PLAN, plan_notice
from tests.support.turns import Answers, FakeTool, PlayedProvider, World, calls, says

PLAN = "# Rename it\n\n1. edit a.py"


class User(Answers):
    """Answers with reasons."""

    def __init__(self, *answers: ApprovalAnswer) -> None:
        super().__init__()
        self._answers = list(answers)

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.requests.append(request)
        if not self._answers:
            await asyncio.Event().wait()
        return self._answers.pop(0)


async def works(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text("ok")


async def present(args: Any, ctx: ToolContext) -> ToolOutput:
    assert ctx.plans is not None
    return await ctx.plans.present(ctx.call_id, args["plan"], ctx.cancel)


def planning(user: Answers, *replies: Any, mode: PermissionMode = PermissionMode.PLAN) -> World:
    tools = [
        FakeTool("look", works),
        FakeTool("edit", works, Asks.EDIT),
        FakeTool("bash", works, Asks.ANYTHING),
        FakeTool(PRESENT_PLAN, present, timeout_s=None),
    ]
    return World(PlayedProvider(*replies), tools, approver=user, mode=mode)


def presents(call_id: str = "p", plan: str = PLAN) -> Any:
    return calls((call_id, PRESENT_PLAN, json.dumps({"plan": plan})))


def notes(world: World) -> list[bool]:
    """Whether each request said that it is plan mode."""
    last = [request.messages[-1] for request in world.provider.requests]
    return [isinstance(m, UserMessage) and "Plan mode" in m.text for m in last]


@pytest.mark.spec("SEC-3", "CTRL-4")
def test_only_reads_pass_and_the_model_is_told_in_the_request_alone() -> None:
    async def body() -> None:
        batch = calls(("1", "look", "{}"), ("2", "edit", "{}"), ("3", "bash", "{}"))
        world = planning(User(), batch, says("the plan"))
        await world.run()
        assert [result.is_error for result in world.results] == [False, True, True]
        assert "plan mode" in world.results[1].text and "reads only" in world.results[2].text
        assert notes(world) == [True, True]
        stored = [m.text for m in world.history.messages if isinstance(m, UserMessage)]
        assert stored == ["go"]
        assert len({r.system for r in world.provider.requests}) == 1
        assert world.provider.requests[0].tools == world.provider.requests[1].tools

    asyncio.run(body())


@pytest.mark.spec("SEC-3", "CTRL-4", "LOOP-3")
@pytest.mark.parametrize(
    ("verdict", "mode"),
    [(Verdict.ONCE, PermissionMode.DEFAULT), (Verdict.SESSION, PermissionMode.ACCEPT_EDITS)],
)
def test_a_yes_switches_the_mode_and_the_same_turn_goes_on(
    verdict: Verdict, mode: PermissionMode
) -> None:
    async def body() -> None:
        user = User(ApprovalAnswer(verdict), ApprovalAnswer(Verdict.ONCE))
        world = planning(user, presents(), calls(("e", "edit", "{}")), says("done"))
        summary = await world.run()
        assert (summary.outcome, summary.text) == (Outcome.DONE, "done")
        assert [result.is_error for result in world.results] == [False, False]
        assert world.conversation.parts.policy.mode is mode and str(mode) in world.results[0].text
        asked = user.requests[0]
        assert (asked.is_plan, asked.detail, asked.call.id) == (True, PLAN, "p")
        assert notes(world) == [True, False, False]
        assert world.store.state[PLAN_KEY]["status"] == "approved"
        assert (await plan_notice(world.store))[0].count("Rename it") == 1
        assert [len(r.tools) for r in world.provider.requests] == [4, 4, 4]

    asyncio.run(body())


@pytest.mark.spec("SEC-3")
def test_what_comes_with_the_plan_in_one_batch_is_not_carried_out() -> None:
    async def body() -> None:
        batch = calls(("p", PRESENT_PLAN, json.dumps({"plan": PLAN})), ("e", "edit", "{}"))
        world = planning(User(ApprovalAnswer(Verdict.SESSION)), batch, says("done"))
        await world.run()
        assert [result.is_error for result in world.results] == [False, True]

    asyncio.run(body())


@pytest.mark.spec("SEC-3")
def test_a_no_goes_back_to_the_model_with_the_reason_and_the_mode_stays() -> None:
    async def body() -> None:
        user = User(ApprovalAnswer(Verdict.NO, "keep the old name too"))
        world = planning(user, presents(), says("then this"))
        await world.run()
        assert "keep the old name too" in world.results[0].text and world.results[0].is_error
        assert world.conversation.parts.policy.mode is PermissionMode.PLAN
        kept = world.store.state[PLAN_KEY]
        assert (kept["status"], kept["reason"]) == ("refused", "keep the old name too")

    asyncio.run(body())


@pytest.mark.spec("CLI-7", "CTRL-2")
def test_with_nobody_there_the_plan_is_the_answer_and_the_turn_ends() -> None:
    async def body() -> None:
        world = planning(User(ApprovalAnswer(Verdict.UNATTENDED)), presents(), says("never"))
        summary = await world.run()
        assert (summary.outcome, summary.text, summary.steps) == (Outcome.DONE, PLAN, 1)
        assert world.store.state[PLAN_KEY]["status"] == "handed over"
        assert "tool_refused" not in world.types() and not world.history.pending

    asyncio.run(body())


@pytest.mark.spec("CAN-9", "CAN-1")
def test_a_cancel_while_the_plan_waits_ends_the_turn_and_keeps_the_plan() -> None:
    async def body() -> None:
        user = User()
        world = planning(user, presents())
        task = asyncio.create_task(world.run())
        while not user.requests:
            await asyncio.sleep(0)
        world.cancel()
        assert (await task).outcome is Outcome.CANCELLED
        assert world.results[0].text.startswith("Cancelled by user")
        assert world.conversation.parts.policy.mode is PermissionMode.PLAN
        assert world.store.state[PLAN_KEY]["status"] == "presented"

    asyncio.run(body())


def test_outside_of_plan_mode_nobody_is_asked() -> None:
    async def body() -> None:
        user = User()
        world = planning(user, presents(), says("ok"), mode=PermissionMode.DEFAULT)
        await world.run()
        assert user.requests == [] and PLAN_KEY not in world.store.state
        assert "Plan mode is off" in world.results[0].text and notes(world) == [False, False]

    asyncio.run(body())


def test_without_a_way_to_present_it_the_note_names_none() -> None:
    async def body() -> None:
        world = World(PlayedProvider(says("plan")), [FakeTool("look", works)])
        world.conversation.parts.policy.mode = PermissionMode.PLAN
        await world.run()
        text = world.provider.requests[0].messages[-1].text
        assert "Plan mode" in text and PRESENT_PLAN not in text
        assert await plan_notice(world.store) == ()

    asyncio.run(body())


@pytest.mark.spec("CTRL-4", "CTRL-7")
def test_near_a_limit_no_big_work_is_begun() -> None:
    async def body() -> None:
        tools = [FakeTool(name, works) for name in ("look", "task", "spawn_background")]
        batch = [calls((f"t{n}", "task", f'{{"n": {n}}}')) for n in range(4)]
        world = World(PlayedProvider(*batch, says("done")), tools)
        summary = await world.run(max_steps=5)
        assert summary.outcome is Outcome.WRAPPED_UP
        assert [result.is_error for result in world.results] == [False, False, False, True]
        assert "wrap-up" in world.results[3].text

    asyncio.run(body())
