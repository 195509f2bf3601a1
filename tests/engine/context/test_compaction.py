"""Compaction in a turn: when, what, its texts; a failure or a cancel changes nothing (CMP)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.cancel import CancelReason
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.events import (
    AgentEvent,
    Compacted,
    CompactionStarted,
    CompactionTrigger,
    ContextTransformed,
    Failed,
    Notice,
    Outcome,
    TextChunk,
    WrappingUp,
)
from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import Effort, ModelInfo, ModelRequest
from agentcli.domain.stream import StreamEnd, StreamEvent, TextDelta, ThinkingDelta, UsageReport
from agentcli.domain.tools import ToolContext, ToolOutput
from agentcli.engine.context import compaction
from agentcli.engine.context import compaction as summary
from agentcli.engine.context.compaction import Compactor, plan
from agentcli.engine.context.outgoing import check_request
from agentcli.engine.context.window import is_prompt, of_message, of_text
from agentcli.engine.sample import RetryPolicy
from tests.support.turns import FakeTool, PlayedProvider, World, calls, disk_full, says

SMALL = ModelInfo("test", "model", 10_000, 1_000, input_price=1.0, output_price=1.0)
OVERFLOW = ProviderError("too long", "start anew", kind=ErrorKind.CONTEXT_OVERFLOW, status=400)
NOW = RetryPolicy(sleep=lambda _: asyncio.sleep(0))


def used(tokens: int, events: Sequence[StreamEvent]) -> list[StreamEvent]:
    return [UsageReport(Usage(tokens, 10)), *events]


def summaries(world: World) -> list[UserMessage]:
    found = [m for m in world.history.messages if isinstance(m, UserMessage) and m.is_summary]
    assert found == list(world.history.messages[: len(found)])
    return found


def is_asking_for_summary(request: ModelRequest) -> bool:
    first = request.messages[0]
    return isinstance(first, UserMessage) and first.text.startswith("<transcript>")


def of_kind(world: World, kind: type[Any]) -> list[Any]:
    return [event for event in world.events if isinstance(event, kind)]


async def look(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text("x" * 400)


async def talked(*replies: Any, turns: int = 4, words: int = 1_000) -> World:
    """A world after some turns, with ``replies`` to come; small window, little said so far."""
    opening = [says(f"answer {n} " + "y" * words) for n in range(turns)]
    world = World(PlayedProvider(*opening, *replies), [FakeTool("look", look)])
    world.conversation.model = SMALL
    world.set(retry=NOW)
    for number in range(turns):
        await world.next_turn(f"question {number} " + "x" * words)
    world.events.clear()
    return world


def fill(world: World, tokens: int = 9_000) -> None:
    """The provider has reported that the last request had so many tokens."""
    it = world.conversation
    it.context.look(it.history, it.parts.system, it.parts.toolbox.definitions)
    it.context.gauge.measured(Usage(tokens, 0))


# --- what is folded: a pure function -------------------------------------------------------


def history_of(shape: Sequence[tuple[str, int]]) -> list[Message]:
    """Messages of the kinds u(ser), s(tep with calls), a(nswer)."""
    messages: list[Message] = []
    for number, (kind, size) in enumerate(shape):
        text = "x" * size
        if kind == "u":
            messages.append(user_text(f"u{number} {text}"))
        elif kind == "a":
            messages.append(AssistantMessage((TextPart(f"a{number} {text}"),)))
        else:
            ids = [f"c{number}-{n}" for n in range(1 + size % 3)]
            messages.append(
                AssistantMessage(tuple(ToolCall(call_id, "look", {}) for call_id in ids))
            )
            messages += [ToolResult(call_id, "look", (TextPart(text + "."),)) for call_id in ids]
    return messages


shapes = st.lists(
    st.tuples(st.sampled_from("usssa"), st.integers(0, 3_000)), min_size=1, max_size=40
)


@pytest.mark.spec("CMP-4", "HIS-1")
@settings(max_examples=200, deadline=None)
@given(shapes, st.integers(0, 20_000), st.integers(0, 20_000), st.booleans())
def test_any_fold_keeps_calls_with_results_the_last_turns_and_the_newest_prompt(
    shape: list[tuple[str, int]], budget: int, newest_step: int, has_summary: bool
) -> None:
    before = history_of(shape)
    if has_summary:
        before.insert(0, UserMessage((TextPart("earlier"),), is_summary=True))
    sizes = [of_message(message) for message in before]
    chosen = plan(before, sizes, budget, newest_step)
    if chosen is None:
        return
    away = set(chosen.folded)
    kept = [message for at, message in enumerate(before) if at not in away]
    history = History(before)
    history.fold(UserMessage((TextPart("s"),), is_summary=True), chosen.folded)
    check_request(history.messages)
    assert list(history.messages[1:]) == kept
    prompts = [message for message in before if is_prompt(message)]
    assert not prompts or prompts[-1] in kept
    assert not any(isinstance(m, UserMessage) and m.is_summary for m in kept)
    prompt = of_message(prompts[-1]) if prompts else 0
    most = max(budget, prompt + max(budget // 2, newest_step))
    assert sum(map(of_message, kept)) <= most
    assert chosen.turns == sum(map(is_prompt, kept))
    assert any(not is_summary_of(before[at]) for at in away)


def is_summary_of(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.is_summary


def chosen_of(shape: str, budget: int, size: int = 396) -> list[int] | None:
    messages = history_of([(kind, size) for kind in shape])
    found = plan(messages, [of_message(m) for m in messages], budget)
    return None if found is None else list(found.folded)


def test_the_last_two_turns_stay_where_they_fit() -> None:
    assert chosen_of("uauaua", 10_000) == [0, 1]
    assert chosen_of("uauaua", 300) == [0, 1, 2, 3]


def test_of_a_turn_that_does_not_fit_the_prompt_and_the_newest_steps_stay() -> None:
    assert chosen_of("uaussss", 400, 399) == [0, 1, 3, 4, 5, 6]
    assert chosen_of("uaussss", 0, 399) == [0, 1, *range(3, 11)]


def test_the_newest_step_stays_where_it_is_not_too_large() -> None:
    messages = history_of([("u", 10), ("s", 3_000), ("s", 3_000)])
    sizes = [of_message(message) for message in messages]
    alone = plan(messages, sizes, 100)
    assert alone is not None and alone.folded == (1, 2, 3, 4)
    kept = plan(messages, sizes, 100, 1_000)
    assert kept is not None and kept.folded == (1, 2)


@pytest.mark.parametrize("shape", ["u", "ua", "uaua", ""])
def test_there_may_be_nothing_to_fold(shape: str) -> None:
    assert chosen_of(shape, 10_000) is None


# --- before a step -------------------------------------------------------------------------


@pytest.mark.spec("CMP-1", "CMP-2", "CMP-4", "LOOP-6")
def test_at_80_percent_the_history_is_folded_before_the_step_and_the_turn_goes_on() -> None:
    async def body() -> None:
        world = await talked(used(2_000, says("SUMMARY")), used(500, says("done")))
        before = world.history.messages
        fill(world, 8_200)
        summary = await world.next_turn("the last question")
        assert summary.outcome is Outcome.DONE
        assert (summary.text, summary.steps) == ("done", 1)
        asked, answered = world.provider.requests[-2:]
        assert is_asking_for_summary(asked) and asked.tools == ()
        assert "question 0" in asked.messages[0].text
        assert not is_asking_for_summary(answered)
        (record,) = summaries(world)
        assert "SUMMARY" in record.text and "question 0" in record.text
        assert answered.messages[0].text == record.text
        assert answered.messages[-1].text == "the last question"
        assert answered.system == world.conversation.parts.system
        (event,) = of_kind(world, Compacted)
        assert (event.trigger, event.messages_before) == (CompactionTrigger.WINDOW, len(before) + 1)
        assert event.messages_after == len(answered.messages)
        assert event.tokens_before >= 8_000 > event.tokens_after > 0
        assert event.usage == Usage(2_000, 10) == summary.compaction
        assert summary.usage == Usage(2_500, 20)
        assert "word for word" not in event.kept and "turn" in event.kept
        assert world.store.disk == list(world.history.messages)
        assert world.types().index("compacted") < world.types().index("text_delta")
        assert [e.text for e in of_kind(world, TextChunk)] == ["do", "ne"]

    asyncio.run(body())


@pytest.mark.spec("CMP-4")
def test_below_80_percent_nothing_is_asked_for() -> None:
    async def body() -> None:
        world = await talked(says("done"))
        fill(world, 7_000)
        await world.next_turn("more")
        assert len(world.provider.requests) == 5
        assert of_kind(world, CompactionStarted) == []

    asyncio.run(body())


@pytest.mark.spec("CMP-4")
def test_it_is_checked_before_each_step_of_a_turn() -> None:
    async def body() -> None:
        steps = [used(8_100, calls((f"k{n}", "look", "{}"))) for n in range(2)]
        world = await talked(steps[0], says("SUMMARY"), says("done"))
        summary = await world.next_turn("go")
        assert summary.outcome is Outcome.DONE and summary.steps == 2
        final = world.provider.requests[-1].messages
        assert [message.text for message in final if is_prompt(message)][-1] == "go"
        assert isinstance(final[-1], ToolResult)
        check_request(final)

    asyncio.run(body())


def test_one_huge_turn_is_folded_in_its_middle_and_its_prompt_stays() -> None:
    async def body() -> None:
        async def long(args: Any, ctx: ToolContext) -> ToolOutput:
            return ToolOutput.text("x" * 2_400)

        steps = [calls((f"k{n}", "look", f'{{"n": {n}}}'), text="y" * 2_000) for n in range(12)]

        def next_reply(request: ModelRequest) -> list[StreamEvent]:
            if is_asking_for_summary(request):
                return says("the summary")
            return steps.pop(0) if steps else says("done")

        world = World(PlayedProvider(*[next_reply] * 40), [FakeTool("look", long)])
        world.conversation.model = ModelInfo("test", "model", 6_000, 500)
        summary = await world.run("the one prompt", max_steps=0)
        assert (summary.outcome, summary.text) == (Outcome.DONE, "done")
        assert len(of_kind(world, Compacted)) >= 1
        prompts = [m for m in world.history.messages if is_prompt(m)]
        assert [m.text for m in prompts] == ["the one prompt"]
        assert len(summaries(world)) == 1
        for request in world.provider.requests:
            check_request(request.messages)
            if not is_asking_for_summary(request):
                assert "the one prompt" in "\n".join(m.text for m in request.messages[:2])

    asyncio.run(body())


def test_a_second_summary_takes_the_first_one_in() -> None:
    async def body() -> None:
        world = await talked(says("FIRST"), says("done"), says("SECOND"), says("done"))
        fill(world)
        await world.next_turn("q5 " + "z" * 1_000)
        fill(world)
        await world.next_turn("q6")
        (record,) = summaries(world)
        assert "SECOND" in record.text and "question 0" in record.text
        asked = world.provider.requests[-2]
        assert "SUMMARY OF WHAT CAME BEFORE:\nFIRST" in asked.messages[0].text
        assert len(world.store.folded) == 2

    asyncio.run(body())


@pytest.mark.spec("CTRL-8")
def test_old_tool_output_is_left_out_before_anything_is_summarised() -> None:
    async def body() -> None:
        async def long(args: Any, ctx: ToolContext) -> ToolOutput:
            return ToolOutput.text("x" * 3_600)

        steps = [calls((f"k{n}", "look", f'{{"n": {n}}}')) for n in range(9)]
        world = World(PlayedProvider(*steps, says("done")), [FakeTool("look", long)])
        world.conversation.model = SMALL
        await world.run("go")
        assert of_kind(world, CompactionStarted) == []
        (event, *_) = of_kind(world, ContextTransformed)
        assert event.characters_before > event.characters_after
        texts = [m.text for m in world.provider.requests[-1].messages if isinstance(m, ToolResult)]
        assert "left out" in texts[0] and texts[-1] == "x" * 3_600
        stored = [m.text for m in world.store.disk if isinstance(m, ToolResult)]
        assert set(stored) == {"x" * 3_600}

    asyncio.run(body())


# --- what goes wrong -----------------------------------------------------------------------

BROKEN = [
    pytest.param([ProviderError("no", kind=ErrorKind.BAD_REQUEST)], id="refused"),
    pytest.param([ProviderError("no", kind=ErrorKind.AUTH)], id="auth"),
    pytest.param([RuntimeError("a bug")], id="bug"),
    pytest.param([TextDelta(0, "  "), StreamEnd(stop_reason="end_turn")], id="blank"),
    pytest.param([ThinkingDelta(0, "hm"), StreamEnd(stop_reason="end_turn")], id="thinking only"),
]


@pytest.mark.spec("CMP-1")
@pytest.mark.parametrize("reply", BROKEN)
def test_a_summary_that_fails_leaves_the_history_as_it_was_says_so_and_the_turn_goes_on(
    reply: Any,
) -> None:
    async def body() -> None:
        def answer(request: ModelRequest) -> list[Any]:
            return reply if is_asking_for_summary(request) else says("done")

        world = await talked()
        world.provider._replies += [answer] * 12
        before = world.history.messages
        fill(world)
        summary = await world.next_turn("go")
        assert (summary.outcome, summary.text) == (Outcome.DONE, "done")
        assert world.history.messages[: len(before)] == before
        assert summaries(world) == [] and world.store.folded == []
        (notice,) = of_kind(world, Notice)
        assert "could not be compacted" in notice.text and "stays as it is" in notice.text
        assert "compaction" not in world.store.commits

    asyncio.run(body())


@pytest.mark.spec("CMP-1")
def test_a_summary_that_failed_is_not_asked_for_again_at_every_step() -> None:
    async def body() -> None:
        count = 0

        def answer(request: ModelRequest) -> list[Any]:
            nonlocal count
            if is_asking_for_summary(request):
                return [ProviderError("no", kind=ErrorKind.BAD_REQUEST)]
            count += 1
            return calls((f"k{count}", "look", f'{{"n": {count}}}')) if count < 30 else says("done")

        world = await talked()
        world.provider._replies += [answer] * 80
        fill(world, 9_900)
        await world.next_turn("go")
        asked = sum(is_asking_for_summary(request) for request in world.provider.requests)
        assert 2 <= asked <= 5

    asyncio.run(body())


@pytest.mark.spec("CTRL-7", "CMP-1", "LOOP-2")
def test_where_no_summary_makes_room_the_agent_is_told_to_finish() -> None:
    async def body() -> None:
        told: list[bool] = []

        def answer(request: ModelRequest) -> list[Any]:
            if is_asking_for_summary(request):
                return [ProviderError("no", kind=ErrorKind.BAD_REQUEST)]
            told.append("context window" in request.messages[-1].text)
            size = [8_500, 8_900, 9_200][len(told) - 1 : len(told)]
            if not size:
                return says("this is done, that is left")
            return used(size[0], calls((f"k{len(told)}", "look", f'{{"n": {len(told)}}}')))

        world = await talked()
        world.provider._replies += [answer] * 20
        fill(world, 9_500)  # the first step of a turn is never its last one
        summary = await world.next_turn("go")
        assert told == [False, False, True, True]
        assert summary.outcome is Outcome.WRAPPED_UP
        (wrapping,) = of_kind(world, WrappingUp)
        assert "of the 10,000 tokens of the context window" in wrapping.reason
        assert not any("Limit ahead" in m.text for m in world.history.messages)

    asyncio.run(body())


@pytest.mark.spec("CTRL-7", "CMP-4")
def test_a_summary_that_makes_room_takes_the_end_back() -> None:
    async def body() -> None:
        asked = 0

        def answer(request: ModelRequest) -> list[Any]:
            nonlocal asked
            if is_asking_for_summary(request):
                fails = [ProviderError("no", kind=ErrorKind.BAD_REQUEST)]
                return fails if len(of_kind(world, WrappingUp)) == 0 else says("short")
            asked += 1
            if asked == 12:
                return says("done")
            one_more = calls((f"k{asked}", "look", f'{{"n": {asked}}}'))
            return used(9_500, one_more) if not of_kind(world, Compacted) else one_more

        world = await talked()
        world.provider._replies += [answer] * 40
        fill(world, 9_500)
        summary = await world.next_turn("go")
        assert len(of_kind(world, WrappingUp)) == len(of_kind(world, Compacted)) == 1
        assert summary.outcome is Outcome.DONE

    asyncio.run(body())


@pytest.mark.spec("CMP-1")
def test_a_summary_that_cannot_be_stored_changes_nothing_either() -> None:
    async def body() -> None:
        world = await talked(used(900, says("SUMMARY")), says("done"))
        before = world.history.messages
        world.store.fail_on["compaction"] = disk_full()
        fill(world)
        summary = await world.next_turn("go")
        assert summary.outcome is Outcome.DONE
        assert world.history.messages[: len(before)] == before
        assert "disk is full" in of_kind(world, Notice)[0].text
        assert summary.compaction == Usage(900, 10)

    asyncio.run(body())


@pytest.mark.spec("CMP-1", "COST-1")
def test_a_summary_longer_than_what_it_stands_for_is_thrown_away_but_paid() -> None:
    async def body() -> None:
        world = await talked(used(900, says("long " * 8_000)), says("done"), words=400)
        fill(world)
        summary = await world.next_turn("go")
        assert summaries(world) == []
        assert "longer than" in of_kind(world, Notice)[0].text
        assert ("test/model", Usage(900, 10)) in world.store.other_usages
        assert summary.compaction == Usage(900, 10)

    asyncio.run(body())


@pytest.mark.spec("CMP-1")
def test_a_summary_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        world = await talked(says("done"))
        real = world.provider.stream

        async def stream(request: ModelRequest, cancel: Any) -> Any:
            if is_asking_for_summary(request):
                await asyncio.Event().wait()
            async for event in real(request, cancel):
                yield event

        monkeypatch.setattr(world.provider, "stream", stream)
        monkeypatch.setattr(compaction, "LIMIT_S", 0.01)
        fill(world)
        summary = await world.next_turn("go")
        assert summary.outcome is Outcome.DONE
        assert "took longer than" in of_kind(world, Notice)[0].text

    asyncio.run(body())


@pytest.mark.spec("CAN-9", "CMP-1")
@pytest.mark.parametrize("moment", range(12))
def test_a_cancel_at_any_moment_of_it_ends_the_turn_and_leaves_one_history(moment: int) -> None:
    async def body() -> None:
        world = await talked(used(900, says("SUMMARY", pieces=3)), says("done"))
        before = world.history.messages
        fill(world)

        def cancel_later(event: AgentEvent) -> None:
            if isinstance(event, CompactionStarted):
                asyncio.get_running_loop().create_task(after(moment))

        async def after(ticks: int) -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)
            world.cancel(CancelReason.USER)

        world.on_event = cancel_later
        summary = await world.next_turn("go")
        assert summary.outcome in {Outcome.CANCELLED, Outcome.DONE}
        assert world.store.disk == list(world.history.messages)
        check_request([*world.history.messages])
        if summaries(world):
            assert len(of_kind(world, Compacted)) == 1
        else:
            assert summary.outcome is Outcome.CANCELLED
            assert world.history.messages[: len(before)] == before
            assert world.store.folded == []
        assert world.types().count("cancelled") + world.types().count("done") == 1

    asyncio.run(body())


@pytest.mark.spec("CAN-9")
def test_an_outer_cancel_in_the_middle_of_it_is_raised_again_and_changes_nothing() -> None:
    async def body() -> None:
        world = await talked(says("SUMMARY"), says("done"))
        before = world.history.messages
        fill(world)
        task = asyncio.current_task()

        def cancel(event: AgentEvent) -> None:
            if isinstance(event, CompactionStarted) and task is not None:
                task.cancel()

        world.on_event = cancel
        with pytest.raises(asyncio.CancelledError):
            await world.next_turn("go")
        assert world.history.messages[: len(before)] == before
        assert world.types()[-1] == "cancelled"

    asyncio.run(body())


# --- an overflow ---------------------------------------------------------------------------


@pytest.mark.spec("CMP-4")
def test_an_overflow_is_folded_and_the_step_is_asked_again() -> None:
    async def body() -> None:
        world = await talked([OVERFLOW], says("SUMMARY"), says("done"))
        summary = await world.next_turn("go")
        assert (summary.outcome, summary.text, summary.steps) == (Outcome.DONE, "done", 1)
        (event,) = of_kind(world, Compacted)
        assert event.trigger is CompactionTrigger.OVERFLOW
        assert "SUMMARY" in world.provider.requests[-1].messages[0].text

    asyncio.run(body())


@pytest.mark.spec("CMP-4")
def test_an_overflow_after_the_fold_is_folded_down_to_the_prompt_and_then_an_error() -> None:
    async def body() -> None:
        replies: list[Any] = [[OVERFLOW], says("ONE"), [OVERFLOW], says("TWO"), [OVERFLOW]]
        world = await talked(*replies)
        summary = await world.next_turn("go")
        assert summary.outcome is Outcome.ERROR
        assert of_kind(world, Failed)[0].error is OVERFLOW
        assert len(of_kind(world, Compacted)) == 2
        assert [m.text for m in world.history.messages][1:] == ["go"]
        assert "TWO" in world.history.messages[0].text
        world.provider._replies.append(says("done"))
        again = await world.next_turn("shorter")
        assert again.outcome is Outcome.DONE

    asyncio.run(body())


@pytest.mark.spec("CMP-4")
def test_an_overflow_of_a_prompt_alone_is_the_providers_error_with_its_advice() -> None:
    async def body() -> None:
        world = World(PlayedProvider([OVERFLOW]))
        summary = await world.run("huge")
        assert summary.outcome is Outcome.ERROR
        assert of_kind(world, Failed)[0].error.advice == "start anew"
        assert of_kind(world, CompactionStarted) == []

    asyncio.run(body())


@pytest.mark.spec("STR-4", "CMP-4")
def test_an_overflow_after_output_is_not_asked_again() -> None:
    async def body() -> None:
        world = await talked([TextDelta(0, "so far"), OVERFLOW])
        summary = await world.next_turn("go")
        assert summary.outcome is Outcome.ERROR
        assert of_kind(world, CompactionStarted) == []

    asyncio.run(body())


def test_an_overflow_of_the_summary_itself_is_asked_again_with_less() -> None:
    async def body() -> None:
        world = await talked([OVERFLOW], [OVERFLOW], says("SUMMARY"), says("done"), words=3_500)
        summary = await world.next_turn("go")
        assert summary.outcome is Outcome.DONE
        asked = [r for r in world.provider.requests if is_asking_for_summary(r)]
        assert len(asked) == 2
        assert len(asked[1].messages[0].text) < len(asked[0].messages[0].text)

    asyncio.run(body())


def test_a_window_that_turned_out_smaller_is_remembered() -> None:
    async def body() -> None:
        world = await talked([OVERFLOW], says("SUMMARY"), says("done"))
        fill(world, 5_000)
        await world.next_turn("go")
        assert 4_700 <= world.conversation.context.window(SMALL) <= 4_800

    asyncio.run(body())


# --- by hand -------------------------------------------------------------------------------


@pytest.mark.spec("CMP-4")
def test_by_hand_it_folds_whatever_is_old_and_hears_what_to_keep() -> None:
    async def body() -> None:
        world = await talked(says("SUMMARY"), words=5)
        compactor = Compactor(world.conversation, world.token, world.emit)
        done = await compactor.run(CompactionTrigger.MANUAL, "the names")
        assert done is not None
        assert done.trigger is CompactionTrigger.MANUAL
        assert "above all: the names" in world.provider.requests[-1].messages[0].text
        assert world.types() == ["compaction_started", "compacted"]

    asyncio.run(body())


def test_by_hand_there_may_be_nothing_to_fold() -> None:
    async def body() -> None:
        world = World(PlayedProvider())
        compactor = Compactor(world.conversation, world.token, world.emit)
        assert await compactor.run(CompactionTrigger.MANUAL) is None
        assert world.events == [] and world.provider.requests == []

    asyncio.run(body())


def test_the_to_do_list_goes_into_the_record_and_a_hard_thinker_thinks_less() -> None:
    async def body() -> None:
        world = await talked(says("SUMMARY"))
        world.conversation.effort = Effort.HIGH
        await world.store.set("todos", [{"content": "open thing", "status": "pending"}])
        compactor = Compactor(world.conversation, world.token, world.emit)
        done = await compactor.run(CompactionTrigger.MANUAL)
        assert done is not None and "to-do list" in done.kept
        assert "[ ] open thing" in world.history.messages[0].text
        assert world.provider.requests[-1].effort is Effort.LOW

    asyncio.run(body())


@pytest.mark.spec("CTX-1")
def test_project_instructions_stay_word_for_word() -> None:
    async def body() -> None:
        world = await talked(says("SUMMARY"), says("done"))
        world.set(system='sys\n<document path="/w/AGENTS.md">\nuse tabs\n</document>')
        fill(world)
        await world.next_turn("go")
        asked, answered = world.provider.requests[-2:]
        assert answered.system == world.conversation.parts.system
        assert "use tabs" not in asked.messages[0].text

    asyncio.run(body())


@pytest.mark.spec("COST-2")
def test_a_summary_that_would_eat_the_budget_is_not_asked_for() -> None:
    async def body() -> None:
        world = await talked(says("done"))
        fill(world)
        summary = await world.run("go", max_budget_usd=0.02)
        assert summary.outcome is Outcome.DONE
        assert of_kind(world, CompactionStarted) == []

    asyncio.run(body())


def test_a_reply_may_not_be_longer_than_what_is_left_of_the_window() -> None:
    async def body() -> None:
        world = await talked(says("done"))
        world.conversation.model = ModelInfo("test", "model", 10_000, 4_000)
        fill(world, 7_000)
        await world.next_turn("go")
        cap = world.provider.requests[-1].max_output_tokens
        assert cap is not None and 2_500 <= cap < 3_000
        first = world.provider.requests[0].max_output_tokens
        assert first is None

    asyncio.run(body())


def step(
    call_id: str, name: str, status: ResultStatus = ResultStatus.OK, **arguments: object
) -> list[Message]:
    call = ToolCall(call_id, name, dict(arguments))
    result = ToolResult(call_id, name, (TextPart(f"output of {call_id}"),), status)
    return [AssistantMessage((TextPart("I do it."), call)), result]


CONVERSATION: list[Message] = [
    user_text("Rename the parser, never touch the docs"),
    *step("a", "read_file", path="src/a.py"),
    *step("b", "edit_file", path="src/a.py", old_string="x", new_string="y"),
    *step("c", "write_file", ResultStatus.ERROR, path="src/refused.py", content="z"),
    *step("d", "apply_patch", patch="*** Begin Patch\n*** Add File: src/new.py\n+x\n*** End Patch"),
    *step("e", "read_file", path="README.md"),
    user_text("and run the tests"),
    *step("f", "bash", command="pytest -q"),
]
TODOS = [
    {"content": "rename", "status": "completed"},
    {"content": "test", "status": "in_progress"},
    {"content": "release", "status": "pending"},
]


def parts(record: UserMessage) -> tuple[str, str]:
    first, second = (part.text for part in record.parts if isinstance(part, TextPart))
    return first, second


def test_the_transcript_tells_who_said_and_did_what_in_order() -> None:
    text = summary.transcript(CONVERSATION, 10_000)
    wanted = [
        "USER: Rename the parser, never touch the docs",
        'CALL of read_file: {"path": "src/a.py"}',
        "RESULT of read_file: output of a",
        "RESULT of write_file (error): output of c",
        "USER: and run the tests",
        'CALL of bash: {"command": "pytest -q"}',
        "RESULT of bash: output of f",
    ]
    places = [text.index(words) for words in wanted]
    assert places == sorted(places)


def test_thinking_is_left_out_and_images_are_named() -> None:
    messages = [
        UserMessage((TextPart("see"), ImagePart("image/png", b"x"))),
        AssistantMessage((ThinkingPart("secret thoughts", "s"), TextPart("I see."))),
        AssistantMessage((ThinkingPart("more", "s"),)),
    ]
    text = summary.transcript(messages, 1_000)
    assert "secret" not in text and "[1 image(s)]" in text and "AGENT: (nothing)" in text


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 60_000), min_size=1, max_size=60),
    st.integers(300, 50_000),
)
def test_a_transcript_fits_into_any_window(sizes: list[int], limit: int) -> None:
    messages = [
        user_text("u" * size) if number % 2 else AssistantMessage((TextPart("a" * size),))
        for number, size in enumerate(sizes)
    ]
    assert of_text(summary.transcript(messages, limit)) <= limit * 1.1 + 30


def test_what_is_cut_first_is_output_and_what_is_left_out_is_the_middle() -> None:
    big = [user_text("the goal"), *step("a", "bash", command="make")]
    big[2] = ToolResult("a", "bash", (TextPart("x" * 100_000),))
    text = summary.transcript(big, 700)
    assert "the goal" in text and "[… 98,800 characters …]" in text
    many = [user_text(f"message {number} " + "y" * 300) for number in range(200)]
    text = summary.transcript(many, 1_000)
    assert "message 0 " in text and "message 199 " in text and "message 100 " not in text
    assert "messages are left out here]" in text


@pytest.mark.spec("CMP-4")
def test_the_request_asks_for_all_that_matters_and_for_the_users_focus() -> None:
    text = summary.request_text(CONVERSATION, "  the API  ", 10_000)
    for word in ("instructions", "path", "Decisions", "Errors", "Open tasks", "next step"):
        assert word in text
    assert "above all: the API" in text
    assert "above all" not in summary.request_text(CONVERSATION, " ", 10_000)


def test_the_record_says_what_it_is_and_holds_what_the_program_knows() -> None:
    record = summary.record("## Goal\nrename", CONVERSATION, 12, TODOS)
    assert record.is_summary
    told, facts = parts(record)
    assert "12 older messages" in told and "AGENTS.md" in told and told.endswith("rename")
    assert "<said>\nRename the parser, never touch the docs\n</said>" in facts
    assert "<said>\nand run the tests\n</said>" in facts
    assert 'Files changed: ["src/a.py", "src/new.py"]' in facts
    assert 'Files read: ["README.md"]' in facts
    assert "[x] rename" in facts and "[>] test" in facts and "[ ] release" in facts
    assert summary.text_of_summary(record) == "## Goal\nrename"
    assert summary.stands_for(record) == 12


def test_a_record_of_nothing_in_particular_is_short() -> None:
    _, facts = parts(summary.record("text", [AssistantMessage((TextPart("x"),))], 1, []))
    assert "Files" not in facts and "said" not in facts and "To-do" not in facts


@pytest.mark.spec("CMP-3")
def test_words_and_files_of_an_earlier_summary_are_carried_on() -> None:
    first = summary.record("one", CONVERSATION, 12, TODOS)
    later = [first, user_text("third wish </said>"), *step("z", "write_file", path="z.py")]
    _, facts = parts(summary.record("two", later, 15, []))
    assert facts.count("<said>") == 3 == facts.count("</said>")
    assert facts.index("never touch the docs") < facts.index("third wish")
    assert 'Files changed: ["src/a.py", "src/new.py", "z.py"]' in facts
    assert "To-do" not in facts
    again = summary.record("three", [summary.record("two", later, 15, [])], 15, [])
    assert parts(again)[1] == facts


def test_many_and_long_words_are_bounded_and_the_first_and_newest_stay() -> None:
    said = [user_text("the very first")] + [user_text(f"{n} " + "x" * 3_000) for n in range(50)]
    _, facts = parts(summary.record("t", said, 51, []))
    assert len(facts) < 16_000
    assert "the very first" in facts and "\n49 x" in facts and "\n20 x" not in facts
    assert "more, see the summary]" in facts
    _, carried = parts(summary.record("t", [summary.record("t", said, 51, []), *said], 99, []))
    assert len(carried) < 16_000 and "the very first" in carried


def test_the_transcript_of_a_summary_has_the_models_words_only() -> None:
    record = summary.record("the models words", CONVERSATION, 12, TODOS)
    text = summary.transcript([record], 5_000)
    assert "SUMMARY OF WHAT CAME BEFORE:\nthe models words" in text
    assert "<said>" not in text and "older messages" not in text
