"""One batch of calls under every kind of cancel, approval and misbehaving tool."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.events import (
    AgentEvent,
    Notice,
    Outcome,
    ToolAnnounced,
    ToolFinished,
    ToolProgress,
    ToolRefused,
    ToolStarted,
)
from agentcli.domain.extensions.keeping import MemoryStore
from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, PermissionMode, Verdict
from agentcli.domain.tools import (
    Asks,
    OutputKind,
    ToolContext,
    ToolDefinition,
    ToolOutput,
    Workspace,
    WouldFail,
)
from agentcli.engine.jobs import Job
from agentcli.engine.tool_calls import ResultWriter
from agentcli.policy.decision import Rule
from tests.support.ticks import run_ticks
from tests.support.turns import Answers, Box, FakeTool, PlayedProvider, Run, World, calls, says

CANCELLED = TextPart("Cancelled by user")


async def ok(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text(f"ran {ctx.call_id}")


async def for_ever(args: Any, ctx: ToolContext) -> ToolOutput:
    ctx.progress("begun\n")
    await asyncio.Event().wait()
    raise AssertionError


def swallowing(seconds: float) -> Run:
    """A tool that ignores the token and every cancellation for that long."""

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                ctx.progress("still here\n")
        return ToolOutput.text("finished after all")

    return work


def obeying(delay_s: float, output: ToolOutput) -> Run:
    """A tool that returns ``output`` so long after the token was set."""

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        await ctx.cancel.wait()
        await asyncio.sleep(delay_s)
        return output

    return work


def play(
    world: World,
    *,
    at: Callable[[], bool] = lambda: False,
    force_at: Callable[[], bool] = lambda: False,
    text: str | None = "go",
) -> Any:
    """A turn in virtual time; the token is set at the first tick where ``at`` holds."""

    def hook(tick: int, task: asyncio.Task[Any]) -> None:
        if at():
            world.token.cancel()
        if force_at():
            world.token.cancel(force=True)

    result, _ = run_ticks(lambda: world.run(text), hook)
    if isinstance(result, BaseException):
        raise result
    assert list(world.history.messages) == world.store.disk
    assert not world.history.pending
    kinds = world.types()
    assert [k for k in kinds if k in {"done", "cancelled", "error"}] == kinds[-1:]
    return result


def started(world: World, count: int = 1) -> Callable[[], bool]:
    return lambda: sum(isinstance(e, ToolStarted) for e in world.events) >= count


def second(result: ToolResult) -> str:
    part = result.parts[1]
    assert isinstance(part, TextPart)
    return part.text


def one_call(work: Run, effect: Asks = Asks.NOTHING, **settings: Any) -> World:
    tool = FakeTool("look", work, effect)
    return World(
        PlayedProvider(calls(("a", "look", "{}")), says("x"), says("y")), [tool], **settings
    )


# --- cancel ----------------------------------------------------------------------------------


@pytest.mark.spec("CAN-1")
def test_a_batch_that_ignores_the_token_is_cancelled_call_by_call_with_the_truth_beside_it() -> (
    None
):
    tools = [FakeTool("look", for_ever), FakeTool("change", ok, Asks.EDIT)]
    wanted = calls(("r1", "look", "{}"), ("r2", "look", "{}"), ("w", "change", "{}"))
    world = World(PlayedProvider(wanted), tools)

    timer: list[asyncio.TimerHandle] = []

    def arm(event: AgentEvent) -> None:
        if isinstance(event, ToolStarted) and not timer:
            loop = asyncio.get_running_loop()
            timer.append(loop.call_later(5, world.token.cancel))

    world.on_event = arm
    assert play(world).outcome is Outcome.CANCELLED
    assert world.types()[-1] == "cancelled"
    assert [result.call_id for result in world.results] == ["r1", "r2", "w"]
    for result in world.results:
        assert result.parts[0] == CANCELLED
        assert result.is_error
        assert result.status is ResultStatus.CANCELLED
        assert "refus" not in result.text.lower()
    for result in world.results[:2]:
        assert re.search(r"after [05]\.\d s", second(result))
        assert "begun" in second(result)
        assert "side effects are possible" in second(result)
    assert "had not started" in second(world.results[2])


@pytest.mark.spec("CAN-6")
@pytest.mark.parametrize("delay_s", [0.0, 0.1, 0.149])
def test_a_tool_that_returns_within_the_grace_keeps_its_own_result(delay_s: float) -> None:
    world = one_call(obeying(delay_s, ToolOutput.text("my own words")))
    assert play(world, at=started(world)).outcome is Outcome.CANCELLED
    assert world.results[0].text == "my own words"
    assert world.results[0].status is ResultStatus.OK


@pytest.mark.spec("CAN-6")
def test_an_error_within_the_grace_is_kept_as_the_error_it_is() -> None:
    world = one_call(obeying(0.01, ToolOutput.error("could not finish")))
    play(world, at=started(world))
    assert world.results[0].text == "could not finish"
    assert world.results[0].status is ResultStatus.ERROR


@pytest.mark.spec("CAN-6", "CAN-1")
def test_a_tool_that_returns_after_the_grace_is_cancelled() -> None:
    world = one_call(obeying(0.2, ToolOutput.text("too late")))
    play(world, at=started(world))
    assert world.results[0].parts[0] == CANCELLED
    assert "too late" not in world.results[0].text


@pytest.mark.spec("CAN-1", "CAN-6")
def test_a_tool_that_says_it_stopped_for_the_token_tells_what_it_had_printed() -> None:
    world = one_call(obeying(0.01, ToolOutput.cancelled("line 1\nline 2")))
    play(world, at=started(world))
    assert world.results[0].parts[0] == CANCELLED
    assert "line 1\nline 2" in second(world.results[0])


@pytest.mark.spec("CAN-6")
def test_a_tool_that_speaks_of_cancelling_without_a_cancel_is_an_error_and_the_turn_goes_on() -> (
    None
):
    async def confused(args: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.cancelled("I stopped")

    world = one_call(confused)
    assert play(world).outcome is Outcome.DONE
    assert world.results[0].status is ResultStatus.ERROR
    assert CANCELLED not in world.results[0].parts


@pytest.mark.spec("CAN-13")
def test_a_forced_cancel_skips_the_grace() -> None:
    world = one_call(obeying(0.1, ToolOutput.text("polite")))
    play(world, at=started(world), force_at=started(world))
    assert world.results[0].parts[0] == CANCELLED


@pytest.mark.spec("CAN-13")
def test_a_second_ctrl_c_within_the_grace_ends_it() -> None:
    world = one_call(obeying(0.14, ToolOutput.text("polite")))
    ends: list[float] = []

    def arm(event: AgentEvent) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(event, ToolStarted):
            loop.call_later(1.0, world.token.cancel)
            loop.call_later(1.05, lambda: world.token.cancel(force=True))
        if event.type == "cancelled":
            ends.append(loop.time())

    world.on_event = arm
    play(world)
    assert world.results[0].parts[0] == CANCELLED
    assert ends[0] < 1001.1


@pytest.mark.spec("CAN-10", "CAN-6")
def test_a_tool_that_swallows_the_cancel_is_not_waited_for_and_is_not_heard_again() -> None:
    world = one_call(swallowing(60))
    ends: list[float] = []
    world.on_event = lambda event: ends.append(asyncio.get_running_loop().time())

    async def two_turns() -> None:
        asyncio.get_running_loop().call_later(1, world.token.cancel)
        await world.run()
        assert ends[-1] < 1001.2 + 0.1
        assert len(world.conversation.parts.reaper._tasks) == 1
        count = len(world.events)
        await asyncio.sleep(5)
        world.conversation.parts.reaper.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(world.events) == count
        assert await world.conversation.parts.reaper.join(100) == 0
        assert len(world.events) == count

    result, _ = run_ticks(two_turns, lambda tick, task: None)
    assert result is None
    assert world.types()[-1] == "cancelled"
    assert world.results[0].parts[0] == CANCELLED
    assert "finished after all" not in world.results[0].text


@pytest.mark.spec("CAN-10", "CAN-4")
def test_the_next_dispatch_waits_a_bounded_time_for_a_straggler_and_says_so_once() -> None:
    tools = [FakeTool("stuck", swallowing(1e6)), FakeTool("change", ok, Asks.EDIT)]
    two = calls(("b", "change", "{}"), ("c", "change", "{}"))
    world = World(PlayedProvider(calls(("a", "stuck", "{}")), two, says("x")), tools)

    async def two_turns() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1, world.token.cancel)
        await world.run()
        began = loop.time()
        assert (await world.next_turn()).outcome is Outcome.DONE
        return loop.time() - began

    took, _ = run_ticks(two_turns, lambda tick, task: None)
    assert isinstance(took, float)
    assert 2.9 < took < 3.2
    notices = [event.text for event in world.events if isinstance(event, Notice)]
    assert len(notices) == 1
    assert "has not ended" in notices[0]
    assert [result.text for result in world.results[1:]] == ["ran b", "ran c"]


@pytest.mark.spec("CAN-9", "CAN-10")
def test_a_cancel_while_waiting_for_a_straggler_is_immediate() -> None:
    tools = [FakeTool("stuck", swallowing(1e6)), FakeTool("change", ok, Asks.EDIT)]
    world = World(PlayedProvider(calls(("a", "stuck", "{}")), calls(("b", "change", "{}"))), tools)

    async def two_turns() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1, world.token.cancel)
        await world.run()
        began = loop.time()
        loop.call_later(0.5, lambda: world.token.cancel())
        assert (await world.next_turn()).outcome is Outcome.CANCELLED
        return loop.time() - began

    took, _ = run_ticks(two_turns, lambda tick, task: None)
    assert isinstance(took, float)
    assert took < 0.6
    assert "had not started" in second(world.results[1])


@pytest.mark.spec("CAN-6")
def test_calls_that_had_finished_keep_their_truth_when_an_earlier_one_is_cancelled() -> None:
    tools = [FakeTool("look", for_ever), FakeTool("quick", ok)]
    wanted = calls(("slow", "look", "{}"), ("q1", "quick", "{}"), ("q2", "quick", "{}"))
    world = World(PlayedProvider(wanted), tools)
    play(world, at=lambda: world.store.commits.count("result") == 2)
    assert [result.text for result in world.results[1:]] == ["ran q1", "ran q2"]
    assert world.results[0].parts[0] == CANCELLED
    finished = [event.call.id for event in world.events if isinstance(event, ToolFinished)]
    assert finished == ["slow", "q1", "q2"]


@pytest.mark.spec("CAN-1", "LOOP-4")
def test_a_hundred_parallel_calls_are_all_answered_with_and_without_a_cancel() -> None:
    wanted = calls(*((f"c{n}", "look", "{}") for n in range(100)))
    world = World(PlayedProvider(wanted, says("x")), [FakeTool("look", ok)])
    assert play(world).outcome is Outcome.DONE
    assert [result.text for result in world.results] == [f"ran c{n}" for n in range(100)]
    world = World(PlayedProvider(wanted), [FakeTool("look", for_ever)])
    play(world, at=started(world, 50))
    assert [result.call_id for result in world.results] == [f"c{n}" for n in range(100)]
    assert all(result.parts[0] == CANCELLED for result in world.results)


@pytest.mark.spec("CAN-6")
def test_the_token_reaches_every_running_tool() -> None:
    seen: list[str] = []

    async def listens(args: Any, ctx: ToolContext) -> ToolOutput:
        await ctx.cancel.wait()
        seen.append(ctx.call_id)
        return ToolOutput.text("heard")

    wanted = calls(("a", "look", "{}"), ("b", "look", "{}"))
    world = World(PlayedProvider(wanted), [FakeTool("look", listens)])
    play(world, at=started(world, 2))
    assert seen == ["a", "b"]
    assert [result.text for result in world.results] == ["heard", "heard"]


# --- approval --------------------------------------------------------------------------------


def asking(*verdicts: Verdict, tool: FakeTool | None = None) -> World:
    tool = tool or FakeTool("change", ok, Asks.EDIT)
    wanted = calls(("a", "change", "{}"), ("b", "change", "{}"))
    provider = PlayedProvider(wanted, says("x"), says("y"))
    return World(provider, [tool], Answers(*verdicts), PermissionMode.DEFAULT)


@pytest.mark.spec("CAN-9", "UI-7")
def test_a_cancel_while_a_person_is_asked_leaves_nothing_done() -> None:
    world = asking()
    play(world, at=lambda: "approval_waiting" in world.types())
    assert [second(result) for result in world.results] == [
        "It had not started: nothing was done."
    ] * 2
    assert "running" not in world.store.commits
    assert "tool_started" not in world.types()
    assert "tool_refused" not in world.types()


@pytest.mark.spec("UI-7")
def test_a_yes_for_the_session_holds_in_the_next_turn_and_a_yes_once_does_not() -> None:
    world = asking(Verdict.SESSION)
    world.provider._replies[2:2] = [calls(("c", "change", "{}"))]
    assert play(world).outcome is Outcome.DONE
    assert run_ticks(world.next_turn, lambda tick, task: None)[0].outcome is Outcome.DONE  # type: ignore[union-attr]
    assert len(world.approver.requests) == 1
    once = asking(Verdict.ONCE, Verdict.NO)
    play(once)
    assert [result.status for result in once.results] == [ResultStatus.OK, ResultStatus.REFUSED]


@pytest.mark.spec("CAN-9", "UI-7")
def test_a_late_yes_for_the_session_after_the_cancel_grants_nothing() -> None:
    class Late(Answers):
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(0.5)
            return ApprovalAnswer(Verdict.SESSION)

    world = asking()
    world.set(approver=Late())

    async def scenario() -> None:
        asyncio.get_running_loop().call_later(1, world.token.cancel)
        await world.run()
        await asyncio.sleep(5)

    run_ticks(scenario, lambda tick, task: None)
    assert world.types()[-1] == "cancelled"
    assert world.conversation.parts.policy.granted == []


@pytest.mark.spec("CLI-7", "LOOP-5")
def test_an_approver_that_fails_has_not_said_yes_and_the_turn_goes_on() -> None:
    class Broken(Answers):
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            raise EOFError

    world = asking()
    world.set(approver=Broken())
    assert play(world).outcome is Outcome.DONE
    assert [result.status for result in world.results] == [ResultStatus.REFUSED] * 2
    assert [e.unattended for e in world.events if isinstance(e, ToolRefused)] == [True, True]


@pytest.mark.spec("UI-7")
def test_a_no_carries_its_reason_to_the_model() -> None:
    class Says(Answers):
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            assert request.detail == "preview"
            assert request.summary == "change {}"
            return ApprovalAnswer(Verdict.NO, "use the other file")

    world = asking()
    world.set(approver=Says())
    play(world)
    assert "use the other file" in world.results[0].text


@pytest.mark.spec("UI-7")
def test_two_reads_that_ask_are_asked_one_after_the_other(tmp_path: Path) -> None:
    asked: list[str] = []
    open_questions = 0

    class OneAtATime(Answers):
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            nonlocal open_questions
            open_questions += 1
            assert open_questions == 1
            asked.append(request.call.id)
            await asyncio.sleep(1)
            open_questions -= 1
            return ApprovalAnswer(Verdict.ONCE)

    class Outside(FakeTool):
        def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
            return (tmp_path,)

    wanted = calls(("a", "look", "{}"), ("b", "look", "{}"))
    world = World(
        PlayedProvider(wanted, says("x")), [Outside("look", ok)], mode=PermissionMode.DEFAULT
    )
    world.set(approver=OneAtATime())
    assert play(world).outcome is Outcome.DONE
    assert asked == ["a", "b"]


# --- wrong calls -----------------------------------------------------------------------------


@pytest.mark.spec("LOOP-5", "HIS-8", "TOOL-4")
@pytest.mark.parametrize("name", ["", "lo ok", "x" * 300, "lök", "look\n", "\x1b[31m", "l/ook"])
def test_an_unknown_name_of_any_shape_is_answered_and_can_be_sent_back(name: str) -> None:
    wanted = calls(("a", name, "{}"), ("b", "look", "{}"))
    world = World(PlayedProvider(wanted, says("x")), [FakeTool("look", ok)])
    world.conversation.parts.toolbox.near = lambda name: ()  # type: ignore[method-assign]
    assert play(world).outcome is Outcome.DONE
    assert world.results[0].status is ResultStatus.ERROR
    assert "no tool named" in world.results[0].text
    assert world.results[1].text == "ran b"
    assert world.history.messages[1].tool_calls[0].name == name[:256]  # type: ignore[union-attr]
    for message in world.provider.requests[1].messages:
        for call in getattr(message, "tool_calls", ()):
            assert call.name.replace("_", "").isalnum()
            assert len(call.name) <= 64


class Picky(FakeTool):
    def parse(self, arguments: Any) -> Any:
        raise InvalidArguments(tuple(ArgumentProblem(f"f{n}", "wrong" * 50) for n in range(99)))


@pytest.mark.spec("LOOP-5", "LOOP-11")
def test_invalid_arguments_are_a_bounded_result_and_the_tool_does_not_run() -> None:
    arguments = '{"content": "' + "x" * 20_000 + '"}'
    world = World(PlayedProvider(calls(("a", "look", arguments)), says("x")), [Picky("look", ok)])
    assert play(world).outcome is Outcome.DONE
    text = world.results[0].text
    assert len(text) <= 2_000
    assert "content: string (20000 chars)" in text
    assert "tool_started" not in world.types()


def broken_tool(where: str) -> FakeTool:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("inside " + where)

    async def afail(*args: Any) -> Any:
        raise ZeroDivisionError("inside " + where)

    tool = FakeTool("change", ok, Asks.EDIT)
    setattr(tool, where, afail if where in {"preview", "run"} else fail)
    return tool


@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize("where", ["parse", "summary", "paths", "run"])
def test_a_fault_anywhere_in_a_tool_is_a_generic_result_and_the_turn_goes_on(where: str) -> None:
    world = asking(Verdict.ONCE, Verdict.ONCE, tool=broken_tool(where))
    assert play(world).outcome is Outcome.DONE
    for result in world.results:
        assert result.status is ResultStatus.ERROR
        assert "internal error" in result.text
        assert "inside" not in result.text
    told = [event.text for event in world.events if isinstance(event, Notice)]
    assert any(f"inside {where}" in text for text in told)


@pytest.mark.spec("LOOP-5", "SEC-3")
def test_a_call_that_cannot_be_judged_is_not_run_and_the_turn_goes_on() -> None:
    tool = FakeTool("change", ok, Asks.EDIT)
    setattr(tool, "paths", lambda args, workspace: (Path("a\0b"),))
    world = asking(Verdict.ONCE, Verdict.ONCE, tool=tool)
    assert play(world).outcome is Outcome.DONE
    assert all("internal error" in result.text for result in world.results)
    assert not any(isinstance(event, ToolStarted) for event in world.events)


@pytest.mark.spec("LOOP-5", "UI-7")
def test_a_fault_in_the_preview_is_shown_to_the_person_who_is_asked() -> None:
    world = asking(Verdict.ONCE, Verdict.NO, tool=broken_tool("preview"))
    assert play(world).outcome is Outcome.DONE
    first = world.approver.requests[0]
    assert "no preview" in first.detail
    assert json.loads(first.detail.partition("\n")[2]) == first.call.arguments
    assert world.results[0].text == "ran a"


@pytest.mark.spec("UI-7", "UI-13")
@pytest.mark.parametrize(("place", "asked"), [("f.txt", 0), ("/etc/f.txt", 2)])
def test_nobody_is_asked_about_what_would_fail_unless_that_tells_more_than_reading(
    place: str, asked: int
) -> None:
    async def preview(args: Any, ctx: Any) -> str:
        raise WouldFail("there is no such text in it")

    tool = FakeTool("change", ok, Asks.EDIT)
    setattr(tool, "paths", lambda args, workspace: (workspace.root / place,))
    setattr(tool, "preview", preview)
    world = asking(Verdict.NO, Verdict.NO, tool=tool)
    world.set(toolbox=Box(tool, FakeTool("read_file", ok)))
    assert play(world).outcome is Outcome.DONE
    assert len(world.approver.requests) == asked
    assert all("such text" not in request.detail for request in world.approver.requests)
    told = {result.text: result.status for result in world.results}
    assert asked or told == {"there is no such text in it": ResultStatus.ERROR}


@pytest.mark.spec("LOOP-5")
def test_a_tool_that_cannot_be_loaded_is_an_internal_error() -> None:
    world = one_call(ok)

    def get(name: str) -> Any:
        raise ImportError("half installed")

    world.conversation.parts.toolbox.get = get  # type: ignore[method-assign]
    assert play(world).outcome is Outcome.DONE
    assert "internal error" in world.results[0].text


@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize("method", ["get", "parse", "summary"])
def test_a_tool_cannot_end_the_program_before_it_runs(method: str) -> None:
    world = one_call(ok)

    def leave(*_: Any) -> Any:
        raise SystemExit(9)

    toolbox = world.conversation.parts.toolbox
    setattr(toolbox if method == "get" else toolbox.get("look"), method, leave)
    assert play(world).outcome is Outcome.DONE
    assert "internal error" in world.results[0].text


@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize(
    "fault",
    [
        TimeoutError(), StopAsyncIteration(), KeyboardInterrupt(),
        SystemExit(1), BaseExceptionGroup("g", [KeyboardInterrupt()]), RecursionError(),
        asyncio.CancelledError(), BaseException("bare"), MemoryError(),
    ],
)  # fmt: skip
def test_whatever_a_tool_raises_is_an_error_result(fault: BaseException) -> None:
    async def raises(args: Any, ctx: ToolContext) -> ToolOutput:
        raise fault

    world = one_call(raises)
    assert play(world).outcome is Outcome.DONE
    assert world.results[0].status is ResultStatus.ERROR
    assert "internal error" in world.results[0].text


@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize("output", [None, "text", ToolOutput(OutputKind.SUCCESS, ())])
def test_a_tool_that_returns_no_output_is_an_error_result(output: Any) -> None:
    async def returns(args: Any, ctx: ToolContext) -> ToolOutput:
        return output  # type: ignore[no-any-return]

    world = one_call(returns)
    assert play(world).outcome is Outcome.DONE
    assert "internal error" in world.results[0].text


@pytest.mark.spec("LOOP-5")
def test_a_time_out_is_not_a_cancel_and_the_straggler_is_owned() -> None:
    tool = FakeTool("look", swallowing(1.0), timeout_s=0.5)
    world = World(
        PlayedProvider(calls(("a", "look", "{}"), ("b", "look", "{}")), says("x")), [tool]
    )
    assert play(world).outcome is Outcome.DONE
    assert "time-out of 0.5 s" in world.results[0].text
    assert all(result.status is ResultStatus.ERROR for result in world.results)


@pytest.mark.spec("LOOP-5")
def test_progress_after_the_result_is_not_shown() -> None:
    world = World(
        PlayedProvider(calls(("a", "look", "{}")), calls(("b", "change", "{}")), says("x")),
        [FakeTool("look", swallowing(2.0), timeout_s=0.5), FakeTool("change", ok, Asks.EDIT)],
    )
    play(world)
    events = world.events
    finished = next(i for i, e in enumerate(events) if isinstance(e, ToolFinished))
    late = [e for e in events[finished:] if isinstance(e, ToolProgress) and e.call_id == "a"]
    assert late == []


# --- where the shell is ----------------------------------------------------------------------


class Bash(FakeTool):
    """A stand-in named ``bash``: ``cd`` moves the session's shell, as the real one does."""

    @property
    def definition(self) -> ToolDefinition:
        return replace(super().definition, name="bash", asks=Asks.ANYTHING, concurrent=False)


@pytest.mark.spec("SEC-3", "SEC-5", "LOOP-4")
def test_a_command_is_judged_where_the_one_before_it_has_left_the_shell(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    ran: list[str] = []

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        ran.append(args["command"])
        if args["command"].startswith("cd "):
            await ctx.state.set("shell", {"outside": {"cwd": args["command"][3:]}})
        return ToolOutput.text("done")

    wanted = calls(
        ("a", "bash", '{"command": "cat hosts"}'),
        ("b", "bash", '{"command": "cd /etc"}'),
        ("c", "bash", '{"command": "cat hosts"}'),
        ("d", "bash", '{"command": "ls"}'),
    )
    world = World(
        PlayedProvider(wanted, says("x")), [Bash("bash", work)],
        Answers(Verdict.ONCE, Verdict.NO, Verdict.NO), PermissionMode.DEFAULT,
    )  # fmt: skip
    world.set(workspace=Workspace(root, root))
    assert play(world).outcome is Outcome.DONE
    assert ran == ["cat hosts", "cd /etc"]
    assert [request.call.id for request in world.approver.requests] == ["b", "c", "d"]


class Beside(FakeTool):
    """A tool that runs beside others, whatever it asks."""

    @property
    def definition(self) -> ToolDefinition:
        return replace(super().definition, concurrent=True)


class Alone(FakeTool):
    """A tool that runs alone, although it asks nothing."""

    @property
    def definition(self) -> ToolDefinition:
        return replace(super().definition, concurrent=False)


@pytest.mark.spec("LOOP-4")
@pytest.mark.parametrize(
    ("kind", "asks", "together"),
    [(Alone, Asks.NOTHING, 1), (Beside, Asks.NOTHING, 2), (Beside, Asks.EDIT, 2)],
)
def test_what_a_tool_asks_says_nothing_of_what_runs_beside_it(
    kind: type[FakeTool], asks: Asks, together: int
) -> None:
    running, most = 0, 0

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return ToolOutput.text("done")

    wanted = calls(("a", "it", "{}"), ("b", "it", "{}"))
    play(World(PlayedProvider(wanted, says("x")), [kind("it", work, asks)]))
    assert most == together


@pytest.mark.spec("SEC-3", "SEC-5")
def test_a_call_is_judged_by_what_any_call_beside_others_has_left(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()

    async def moves(args: Any, ctx: ToolContext) -> ToolOutput:
        await ctx.state.set("shell", {"outside": {"cwd": str(tmp_path / ".git")}})
        return ToolOutput.text("done")

    wanted = calls(
        ("r", "look", "{}"), ("m", "move", "{}"), ("c", "bash", '{"command": "echo x > config"}')
    )
    tools = [FakeTool("look", ok), Beside("move", moves, Asks.ANYTHING), Bash("bash", ok)]
    world = World(
        PlayedProvider(wanted, says("x")), tools, Answers(Verdict.NO), PermissionMode.YOLO
    )
    world.set(workspace=Workspace(tmp_path, tmp_path))
    play(world)
    assert [request.call.id for request in world.approver.requests] == ["c"]


@pytest.mark.spec("SEC-4", "SEC-6", "UI-7")
@pytest.mark.parametrize(("answer", "told"), [(Verdict.ONCE, "in another place"), (None, "ran c")])
def test_a_command_runs_where_it_was_judged_or_not_at_all(
    tmp_path: Path, answer: Verdict | None, told: str
) -> None:
    """Also where a command that is known to only read has moved the shell all the same."""
    elsewhere = {"outside": {"cwd": str(tmp_path / "sub")}}

    class Moves(Answers):
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
            world.store.state["shell"] = elsewhere
            return await super().approve(request)

    async def runs(args: Any, ctx: ToolContext) -> ToolOutput:
        world.store.state["shell"] = elsewhere
        return await ok(args, ctx)

    command = ("c", "bash", '{"command": "touch x"}')
    wanted = calls(command) if answer else calls(("r", "bash", '{"command": "cat x"}'), command)
    approver = Moves(answer) if answer else Answers(Verdict.ONCE)
    played, mode = PlayedProvider(wanted, says("x")), PermissionMode.DEFAULT
    world = World(played, [Bash("bash", runs)], approver, mode)
    (tmp_path / "sub").mkdir()
    world.set(workspace=Workspace(tmp_path, tmp_path))
    if answer is None:  # a grant for the directory that it was asked about in
        rule = Rule("bash", "touch x", exact=True, directory=tmp_path)
        world.conversation.parts.policy.granted.append(rule)
    play(world)
    assert [request.call.id for request in world.approver.requests] == ["c"]
    assert told in world.results[-1].text


@pytest.mark.spec("SEC-13", "LOOP-4")
def test_many_calls_are_judged_a_few_times_each() -> None:
    looks = 0

    class Counted(Bash):
        def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
            nonlocal looks
            looks += 1
            return super().paths(args, workspace)

    count = 120
    wanted = calls(*((f"c{n}", "bash", f'{{"command": "touch {n}"}}') for n in range(count)))
    play(World(PlayedProvider(wanted, says("x")), [Counted("bash", ok)]))
    assert count <= looks <= 5 * count


@pytest.mark.spec("LOOP-4")
def test_all_calls_are_announced_in_the_models_order_before_any_starts() -> None:
    tools = [FakeTool("look", ok), FakeTool("change", ok, Asks.EDIT)]
    wanted = calls(
        ("1", "change", "{}"), ("2", "look", "{}"), ("3", "nope", "{}"), ("4", "look", "{}")
    )
    world = World(PlayedProvider(wanted, says("x")), tools)
    play(world)
    order = [
        (type(e).__name__, e.call.id)
        for e in world.events
        if isinstance(e, ToolAnnounced | ToolStarted)
    ]
    assert order[:4] == [("ToolAnnounced", n) for n in "1234"]
    finished = [e.call.id for e in world.events if isinstance(e, ToolFinished)]
    assert finished == ["1", "2", "3", "4"]


@pytest.mark.spec("SEC-2", "TOOL-11")
def test_a_changed_path_of_the_shell_makes_known_commands_ask(tmp_path: Path) -> None:
    async def runs(args: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.text("ran")

    bash = FakeTool("bash", runs, Asks.ANYTHING)
    (tmp_path / "ls").write_text("#!/bin/sh\n")
    (tmp_path / "ls").chmod(0o755)
    for path, asked in ((None, 0), (str(tmp_path), 1)):
        world = World(
            PlayedProvider(calls(("a", "bash", '{"command": "ls"}')), says("x")),
            [bash],
            Answers(Verdict.NO),
            PermissionMode.DEFAULT,
        )
        world.set(workspace=Workspace(tmp_path, tmp_path))
        variables = {} if path is None else {"PATH": path}
        left = {"cwd": str(tmp_path), "set": variables, "unset": []}
        world.store.state["shell"] = {"outside": left}
        asyncio.run(world.run())
        assert len(world.approver.requests) == asked


@pytest.mark.spec("SEC-13")
def test_what_a_tool_has_printed_is_not_held_once_it_is_recorded() -> None:
    jobs = [
        Job(ToolCall(name, "t", {}), output=ToolOutput.text("x", raw=b"y" * 9, display="d"))
        for name in ("a", "b")
    ]
    events: list[AgentEvent] = []
    history = History(
        [UserMessage((TextPart("go"),)), AssistantMessage(tuple(j.call for j in jobs))]
    )
    writer = ResultWriter(MemoryStore(), history, events.append, jobs)

    async def finish() -> None:
        await writer.finish(1, 0.0)
        await writer.finish(0, 0.0)

    asyncio.run(finish())
    assert [job.output and job.output.raw for job in jobs] == [None, None]
    shown = [(e.call.id, e.display) for e in events if isinstance(e, ToolFinished)]
    assert shown == [("a", "d"), ("b", "d")]


@pytest.mark.spec("SEC-17", "CAN-1")
def test_what_may_take_long_is_looked_for_off_the_loop_and_only_before_a_write() -> None:
    class Edits(FakeTool):
        def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
            return (workspace.cwd / "a.txt",)

    looked: list[threading.Thread] = []
    for tool in (
        Edits("t", ok, Asks.EDIT),
        Edits("t", ok),
        FakeTool("t", ok, Asks.EDIT),
        FakeTool("bash", ok, Asks.ANYTHING),
    ):
        call = ("a", tool.name, '{"command": "touch x"}')
        world = World(PlayedProvider(calls(call), says("x")), [tool])
        world.conversation.parts.policy.look_around = lambda _: looked.append(
            threading.current_thread()
        )
        asyncio.run(world.run())
        assert [result.text for result in world.results] == ["ran a"]
    assert len(looked) == 2 and threading.main_thread() not in looked
