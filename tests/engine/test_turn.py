"""The loop: order, outcomes, faults, write-ahead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentcli.domain.errors import CannotContinue, ErrorKind, ProviderError, StoreError
from agentcli.domain.events import Failed, Notice, Outcome, ToolFinished, ToolRefused
from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    StopReason,
    TextPart,
    ThinkingPart,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import PermissionMode, Verdict
from agentcli.domain.stream import (
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from tests.support.turns import Answers, FakeTool, PlayedProvider, World, calls, disk_full, says


async def ok(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text(f"ran {ctx.call_id}")


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


@pytest.mark.spec("CAN-12", "LOOP-2")
def test_a_turn_of_text_ends_done_with_its_events_in_order() -> None:
    world = World(PlayedProvider(says("hello there")))
    summary = run(world.run())
    assert summary.outcome is Outcome.DONE
    assert summary.text == "hello there"
    assert world.types()[0] == "turn_start"
    assert world.types()[-1] == "done"
    assert world.types().count("done") == 1


@pytest.mark.spec("CAN-8", "FAIL-5")
def test_commits_of_a_step_are_fixed_and_in_write_ahead_order() -> None:
    tool = FakeTool("look", ok)
    world = World(
        PlayedProvider(calls(("a", "look", "{}"), ("b", "look", "{}")), says("x")), [tool]
    )
    run(world.run())
    assert world.store.commits == [
        "prompt", "assistant", "running", "running", "result", "result", "assistant",
    ]  # fmt: skip


@pytest.mark.spec("CAN-8")
def test_the_prompt_is_durable_before_the_request() -> None:
    seen: list[list[str]] = []
    world = World(
        PlayedProvider(lambda request: seen.append(list(world.store.commits)) or says("x"))
    )
    run(world.run())
    assert seen == [["prompt"]]


@pytest.mark.spec("LOOP-4")
def test_reads_run_together_and_writes_alone_in_order() -> None:
    running: set[str] = set()
    seen: list[tuple[str, frozenset[str]]] = []

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        running.add(ctx.call_id)
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append((ctx.call_id, frozenset(running)))
        running.discard(ctx.call_id)
        return ToolOutput.text("done")

    tools = [FakeTool("look", work), FakeTool("change", work, Asks.EDIT)]
    wanted = [
        ("1", "look", "{}"),
        ("2", "look", "{}"),
        ("3", "change", "{}"),
        ("4", "change", "{}"),
    ]
    world = World(PlayedProvider(calls(*wanted), says("x")), tools)
    run(world.run())
    together = dict(seen)
    assert together["1"] == {"1", "2"}
    assert together["3"] == {"3"}
    assert together["4"] == {"4"}
    assert [result.call_id for result in world.results] == ["1", "2", "3", "4"]


@pytest.mark.spec("LOOP-4")
def test_results_are_recorded_in_the_models_order_when_a_later_call_is_faster() -> None:
    gate = asyncio.Event()

    async def slow(args: Any, ctx: ToolContext) -> ToolOutput:
        await gate.wait()
        return ToolOutput.text("slow")

    async def fast(args: Any, ctx: ToolContext) -> ToolOutput:
        gate.set()
        return ToolOutput.text("fast")

    world = World(
        PlayedProvider(calls(("1", "slow", "{}"), ("2", "fast", "{}")), says("x")),
        [FakeTool("slow", slow), FakeTool("fast", fast)],
    )
    run(world.run())
    assert [result.text for result in world.results] == ["slow", "fast"]
    finished = [event.call.id for event in world.events if isinstance(event, ToolFinished)]
    assert finished == ["1", "2"]


@pytest.mark.spec("LOOP-1", "LOOP-2")
def test_the_step_cap_ends_the_turn_balanced() -> None:
    tool = FakeTool("look", ok)
    endless = [calls((f"c{i}", "look", "{}")) for i in range(5)]
    world = World(PlayedProvider(*endless), [tool])
    summary = run(world.run(max_steps=2))
    assert summary.outcome is Outcome.MAX_STEPS
    assert summary.steps == 2
    assert summary.limit == "steps"
    assert not world.history.pending
    assert world.store.status is Outcome.MAX_STEPS


@pytest.mark.spec("LOOP-5", "TOOL-4")
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("lok", "{}", "Did you mean look?"),
        ("look", "[1]", "not a JSON object"),
        ("look", "{bad", "not a JSON object"),
    ],
)
def test_a_wrong_call_is_a_result_and_the_turn_goes_on(
    name: str, arguments: str, expected: str
) -> None:
    world = World(PlayedProvider(calls(("a", name, arguments)), says("x")), [FakeTool("look", ok)])
    assert run(world.run()).outcome is Outcome.DONE
    (result,) = world.results
    assert result.is_error
    assert expected in result.text


@pytest.mark.spec("LOOP-5")
def test_a_fault_of_ours_is_generic_to_the_model_and_told_to_the_user() -> None:
    async def broken(args: Any, ctx: ToolContext) -> ToolOutput:
        raise ZeroDivisionError("secret detail")

    world = World(PlayedProvider(calls(("a", "look", "{}")), says("x")), [FakeTool("look", broken)])
    assert run(world.run()).outcome is Outcome.DONE
    assert "secret detail" not in world.results[0].text
    notices = [event.text for event in world.events if isinstance(event, Notice)]
    assert any("secret detail" in text for text in notices)


@pytest.mark.spec("LOOP-5")
def test_a_tool_that_exits_the_interpreter_is_contained() -> None:
    async def leaves(args: Any, ctx: ToolContext) -> ToolOutput:
        raise SystemExit(3)

    world = World(PlayedProvider(calls(("a", "look", "{}")), says("x")), [FakeTool("look", leaves)])
    assert run(world.run()).outcome is Outcome.DONE
    assert world.results[0].is_error


@pytest.mark.spec("LOOP-5")
def test_a_tool_that_is_too_slow_is_an_error_result() -> None:
    async def slow(args: Any, ctx: ToolContext) -> ToolOutput:
        ctx.progress("half way")
        await asyncio.Event().wait()
        raise AssertionError

    tool = FakeTool("look", slow, timeout_s=0.01)
    world = World(PlayedProvider(calls(("a", "look", "{}")), says("x")), [tool])
    assert run(world.run()).outcome is Outcome.DONE
    assert "time-out of 0.01 s" in world.results[0].text
    assert "half way" in world.results[0].text


@pytest.mark.spec("LOOP-6")
def test_usage_is_summed_and_unknown_stays_unknown() -> None:
    first = [UsageReport(Usage(10, 5)), *calls(("a", "look", "{}"))]
    second = [UsageReport(Usage(20, 7, cache_read_tokens=3)), *says("x")]
    world = World(PlayedProvider(first, second), [FakeTool("look", ok)])
    usage = run(world.run()).usage
    assert usage == Usage(30, 12, cache_read_tokens=3)
    assert usage.reasoning_tokens is None


@pytest.mark.spec("LOOP-7", "HIS-4")
def test_thinking_is_kept_with_its_signature_and_a_bare_signature_shows_nothing() -> None:
    reply = [
        ThinkingDelta(0, "hm"), ThinkingSeal(0, signature="s1"), ThinkingSeal(1, signature="s2"),
        TextDelta(2, "x"), StreamEnd(StopReason.END_TURN),
    ]  # fmt: skip
    world = World(PlayedProvider(reply, says("y")))
    run(world.run())
    run(world.next_turn())
    message = world.provider.requests[1].messages[1]
    assert isinstance(message, AssistantMessage)
    assert message.parts[:2] == (ThinkingPart("hm", "s1"), ThinkingPart("", "s2"))
    assert world.types().count("thinking_delta") == 0


@pytest.mark.spec("LOOP-8")
def test_text_beside_calls_does_not_stop_the_calls() -> None:
    world = World(
        PlayedProvider(calls(("a", "look", "{}"), text="let me see"), says("x")),
        [FakeTool("look", ok)],
    )
    run(world.run())
    assert [result.status for result in world.results] == [ResultStatus.OK]


@pytest.mark.spec("LOOP-12")
@pytest.mark.parametrize("arguments", ["", '{"path": "a', '{"path": "a"'])
def test_a_call_cut_by_max_tokens_is_never_executed(arguments: str) -> None:
    ran: list[str] = []

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        ran.append(ctx.call_id)
        return ToolOutput.text("x")

    cut = [
        ToolCallStart(0, "a", "look"), ToolCallDelta(0, arguments), StreamEnd(StopReason.MAX_TOKENS),
    ]  # fmt: skip
    world = World(PlayedProvider(cut, says("x")), [FakeTool("look", work)])
    assert run(world.run()).outcome is Outcome.DONE
    assert ran == []
    assert "cut off by the output limit" in world.results[0].text


@pytest.mark.spec("LOOP-12", "LOOP-11")
def test_a_broken_call_before_the_cut_one_is_not_told_that_it_was_cut() -> None:
    async def ok(args: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.text("x")

    cut = [
        ToolCallStart(0, "a", "look"), ToolCallDelta(0, "{]["),
        ToolCallStart(1, "b", "look"), ToolCallDelta(1, '{"path": "a'),
        StreamEnd(StopReason.MAX_TOKENS),
    ]  # fmt: skip
    world = World(PlayedProvider(cut, says("x")), [FakeTool("look", ok)])
    assert run(world.run()).outcome is Outcome.DONE
    broken, last = world.results
    assert "not a JSON object" in broken.text and "output limit" not in broken.text
    assert "cut off by the output limit" in last.text


@pytest.mark.spec("CLI-7")
def test_an_unattended_refusal_is_told_and_the_turn_goes_on() -> None:
    tool = FakeTool("change", ok, Asks.EDIT)
    world = World(
        PlayedProvider(calls(("a", "change", "{}")), says("x")),
        [tool],
        Answers(Verdict.UNATTENDED),
        PermissionMode.DEFAULT,
    )
    assert run(world.run()).outcome is Outcome.DONE
    assert world.results[0].status is ResultStatus.REFUSED
    assert "--allow-tool" in world.results[0].text
    assert any(isinstance(e, ToolRefused) and e.unattended for e in world.events)


@pytest.mark.spec("UI-7")
def test_yes_for_this_session_is_asked_once() -> None:
    tool = FakeTool("change", ok, Asks.EDIT)
    world = World(
        PlayedProvider(calls(("a", "change", "{}"), ("b", "change", "{}")), says("x")),
        [tool],
        Answers(Verdict.SESSION),
        PermissionMode.DEFAULT,
    )
    run(world.run())
    assert len(world.approver.requests) == 1
    assert [result.is_error for result in world.results] == [False, False]


@pytest.mark.spec("FAIL-1", "FAIL-4")
@pytest.mark.parametrize("point", ["prompt", "assistant", "running", "result"])
@pytest.mark.parametrize("error", [disk_full(), RuntimeError("anything")])
def test_a_failed_write_ends_the_turn_before_any_further_effect(
    point: str, error: Exception
) -> None:
    ran: list[str] = []

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        ran.append(ctx.call_id)
        return ToolOutput.text("x")

    tool = FakeTool("change", work, Asks.EDIT)
    wanted = calls(("a", "change", "{}"), ("b", "change", "{}"))
    world = World(PlayedProvider(wanted, says("x"), says("y")), [tool])
    world.store.fail_on[point] = error
    assert run(world.run()).outcome is Outcome.ERROR
    assert isinstance(world.events[-1], Failed)
    assert ran == ([] if point != "result" else ["a"])
    assert list(world.history.messages) == world.store.disk
    del world.store.fail_on[point]
    world.provider._replies[len(world.provider.requests)] = says("again")
    assert run(world.next_turn()).outcome is Outcome.DONE
    assert not world.history.pending


@pytest.mark.spec("FAIL-1")
@pytest.mark.parametrize("rescue_works", [True, False])
def test_what_the_user_typed_is_rescued_or_handed_back(rescue_works: bool) -> None:
    world = World(PlayedProvider())
    world.store.fail_on["prompt"] = disk_full()
    world.store.rescue_works = rescue_works
    run(world.run("precious words"))
    failed = world.events[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, StoreError)
    if rescue_works:
        assert world.store.rescued == ["precious words"]
    else:
        assert failed.unsaved == "precious words"


@pytest.mark.spec("REC-5")
def test_continuing_needs_something_to_continue() -> None:
    world = World(PlayedProvider(says("x"), says("y")))
    run(world.run(None))
    assert isinstance(world.events[-1].error, CannotContinue)
    run(world.next_turn("hi"))
    run(world.next_turn(None))
    assert isinstance(world.events[-1].error, CannotContinue)
    assert world.store.status is Outcome.DONE


@pytest.mark.spec("REC-5")
def test_a_turn_that_failed_can_be_continued_without_new_input() -> None:
    error = ProviderError("bad", kind=ErrorKind.AUTH)
    world = World(PlayedProvider([error], says("fine")))
    assert run(world.run()).outcome is Outcome.ERROR
    assert run(world.next_turn(None)).text == "fine"
    assert [type(m) for m in world.history.messages] == [UserMessage, AssistantMessage]


@pytest.mark.spec("CAN-5", "STR-4")
def test_a_stream_that_breaks_after_output_keeps_the_partial_for_display_only() -> None:
    broken = [TextDelta(0, "half an ans"), ProviderError("reset", kind=ErrorKind.NETWORK)]
    world = World(PlayedProvider(broken, says("whole")))
    assert run(world.run()).outcome is Outcome.ERROR
    assert world.store.partials == ["half an ans"]
    assert len(world.history) == 1
    run(world.next_turn())
    sent = "".join(
        part.text
        for message in world.provider.requests[1].messages
        for part in message.parts
        if isinstance(part, TextPart)
    )
    assert "half an ans" not in sent


@pytest.mark.spec("HIS-1")
def test_call_ids_used_before_are_made_unique() -> None:
    world = World(
        PlayedProvider(calls(("x", "look", "{}")), calls(("x", "look", "{}")), says("z")),
        [FakeTool("look", ok)],
    )
    assert run(world.run()).outcome is Outcome.DONE
    ids = [result.call_id for result in world.results]
    assert len(set(ids)) == 2


@pytest.mark.spec("LOOP-6", "COST-1")
def test_what_a_cut_reply_has_cost_counts() -> None:
    broken = [
        UsageReport(Usage(input_tokens=40)),
        TextDelta(0, "half"),
        ProviderError("reset", kind=ErrorKind.NETWORK),
    ]
    world = World(PlayedProvider(broken))
    assert run(world.run()).usage == Usage(input_tokens=40)
    assert world.store.partial_usages == [("test/model", Usage(input_tokens=40))]
