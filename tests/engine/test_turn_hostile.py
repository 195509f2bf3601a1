"""The turn among listeners that raise, stores that fail in the repair, and neighbours (CAN-11)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import AgentError, StoreError, UsageError
from agentcli.domain.events import AgentEvent, Failed, Outcome
from agentcli.domain.history import CRASHED_TEXT, History
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    StopReason,
    TextPart,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import ModelRequest
from agentcli.domain.stream import StreamEnd, StreamEvent, TextDelta
from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.engine.turn import Turn
from tests.support.ticks import run_ticks
from tests.support.turns import FakeTool, PlayedProvider, World, calls, disk_full, says

TERMINAL = {"done", "cancelled", "error"}
CANCELLED = TextPart("Cancelled by user")


async def ok(args: Any, ctx: ToolContext) -> ToolOutput:
    await asyncio.sleep(0)
    return ToolOutput.text(f"ran {ctx.call_id}")


async def for_ever(args: Any, ctx: ToolContext) -> ToolOutput:
    await asyncio.Event().wait()
    raise AssertionError


def world_of(*replies: Any, look: Any = ok) -> World:
    tools = [FakeTool("look", look), FakeTool("change", ok, Asks.EDIT)]
    return World(PlayedProvider(*replies), tools)


def a_world(look: Any = ok) -> World:
    first = calls(("a", "look", "{}"), ("b", "look", "{}"), ("c", "change", "{}"), text="see")
    return world_of(first, says("done"), says("spare"), says("spare"), look=look)


def is_sound(world: World) -> None:
    assert list(world.history.messages) == world.store.disk
    assert not History(world.store.disk).pending
    kinds = world.types()
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:]


def goes_on(world: World) -> None:
    """The next turn runs to its end and sends a balanced request (the provider checks it)."""
    world.on_event = lambda event: None
    world.provider._replies = [*world.provider._replies[: len(world.provider.requests)]]
    world.provider._replies.append(says("went on"))
    summary, _ = run_ticks(world.next_turn, lambda tick, task: None)
    assert not isinstance(summary, BaseException), summary
    assert summary.outcome is Outcome.DONE
    is_sound(world)


def play(world: World, at: Callable[[], bool] = lambda: False, text: str | None = "go") -> Any:
    def hook(tick: int, task: asyncio.Task[Any]) -> None:
        if at():
            world.token.cancel()

    return run_ticks(lambda: world.run(text), hook)[0]


# --- listeners -------------------------------------------------------------------------------


def events_of_a_turn() -> int:
    world = a_world()
    play(world)
    return len(world.events)


def run_through_interrupts(start: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run to the end of all tasks; an interrupt leaves the loop, which is then gone on with."""
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(start())
        while left := asyncio.all_tasks(loop):
            with contextlib.suppress(KeyboardInterrupt, RuntimeError):
                loop.run_until_complete(asyncio.wait(left))
        assert task.done()
        task.exception()
    finally:
        loop.close()


@pytest.mark.slow
@pytest.mark.spec("CAN-7", "CAN-12")
@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_listener_that_raises_at_any_event_never_parts_memory_from_disk(
    fault: type[BaseException], cancelled: bool
) -> None:
    for k in range(events_of_a_turn()):
        world = a_world(for_ever if cancelled else ok)
        seen = 0

        def raises(event: AgentEvent, k: int = k) -> None:
            nonlocal seen
            seen += 1
            if seen == k + 1:
                raise fault("listener")

        world.on_event = raises

        async def turn(world: World = world) -> Any:
            if cancelled:
                asyncio.get_running_loop().call_later(0.02, world.token.cancel)
            return await world.run()

        run_through_interrupts(turn)
        assert list(world.history.messages) == world.store.disk
        assert sum(kind in TERMINAL for kind in world.types()) <= 1
        if fault is not KeyboardInterrupt:
            is_sound(world)
        goes_on(world)


# --- stores that fail in the repair ----------------------------------------------------------


@pytest.mark.spec("FAIL-4", "CAN-4", "CAN-7")
@pytest.mark.parametrize("error", [disk_full(), RuntimeError("anything"), OSError("io")])
def test_a_repair_that_cannot_be_stored_is_an_error_and_the_next_turn_repairs_first(
    error: Exception,
) -> None:
    world = a_world(for_ever)
    world.store.fail_on["end"] = error
    summary = play(world, at=lambda: "tool_started" in world.types())
    assert summary.outcome is Outcome.ERROR
    assert isinstance(world.events[-1], Failed)
    assert len(world.history.pending) == 3
    assert list(world.history.messages) == world.store.disk
    again, _ = run_ticks(world.next_turn, lambda tick, task: None)
    assert again.outcome is Outcome.ERROR  # type: ignore[union-attr]
    assert world.store.rescued[-1:] == ["next"]
    del world.store.fail_on["end"]
    goes_on(world)
    assert all(result.parts[0] == CANCELLED for result in world.results)


@pytest.mark.spec("CAN-1", "REC-1", "FAIL-1")
def test_what_failed_is_not_said_to_have_been_cancelled_by_the_user() -> None:
    world = a_world()
    world.store.fail_on["result"] = disk_full()
    assert play(world).outcome is Outcome.ERROR
    is_sound(world)
    assert [result.parts[0] for result in world.results] == [TextPart(CRASHED_TEXT)] * 3
    del world.store.fail_on["result"]
    goes_on(world)


@pytest.mark.spec("FAIL-1", "FAIL-4")
@pytest.mark.parametrize("rescue", ["works", "finds no place", "raises"])
def test_an_answer_that_cannot_be_stored_is_rescued_or_handed_back(rescue: str) -> None:
    world = world_of(says("a precious answer"))
    world.store.fail_on.update(assistant=disk_full(), end=disk_full())
    world.store.rescue_works = rescue == "works"
    if rescue == "raises":

        async def broken(text: str) -> str | None:
            raise OSError

        world.store.rescue = broken
    assert play(world).outcome is Outcome.ERROR
    failed = world.events[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, StoreError)
    if rescue == "works":
        assert world.store.rescued == ["a precious answer"]
        assert failed.unsaved == ""
    else:
        assert failed.unsaved == "a precious answer"


@pytest.mark.spec("FAIL-4")
def test_a_prompt_is_rescued_whatever_the_store_raised() -> None:
    world = world_of()
    world.store.fail_on["prompt"] = KeyError("anything at all")
    play(world, text="precious words")
    assert world.store.rescued == ["precious words"]


@pytest.mark.spec("CAN-5", "FAIL-1")
def test_an_answer_refused_by_the_store_once_is_kept_as_what_was_seen() -> None:
    world = world_of(says("a precious answer"))
    world.store.fail_on["assistant"] = disk_full()
    play(world)
    assert world.store.partials == ["a precious answer"]
    assert world.store.rescued == []
    is_sound(world)


@pytest.mark.spec("CAN-5", "CAN-9")
def test_a_cancel_that_beats_a_whole_reply_keeps_what_was_seen_for_display() -> None:
    world = world_of(says("seen by the user"), says("x"))

    def cancel_at_the_last_chunk(event: AgentEvent) -> None:
        texts = "".join(getattr(e, "text", "") for e in world.events if e.type == "text_delta")
        if texts == "seen by the user":
            asyncio.get_running_loop().call_soon(
                lambda: asyncio.get_running_loop().call_soon(world.token.cancel)
            )

    world.on_event = cancel_at_the_last_chunk
    assert play(world).outcome is Outcome.CANCELLED
    assert world.store.partials == ["seen by the user"]
    is_sound(world)


# --- cancelled from outside ------------------------------------------------------------------


@pytest.mark.spec("CAN-7")
def test_an_outer_cancel_of_an_earlier_time_is_not_taken_for_one_of_this_turn() -> None:
    world = world_of(says("x"))

    async def scenario() -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        world.token.cancel()
        return (await world.run()).outcome

    assert run_ticks(scenario, lambda tick, task: None)[0] is Outcome.CANCELLED


@pytest.mark.spec("CAN-7")
def test_a_time_limit_around_a_turn_ends_it_balanced_and_is_a_time_out() -> None:
    world = a_world(for_ever)

    async def scenario() -> str:
        try:
            async with asyncio.timeout(5):
                await world.run()
        except TimeoutError:
            return "timed out"
        return "?"

    assert run_ticks(scenario, lambda tick, task: None)[0] == "timed out"
    assert world.types()[-1] == "cancelled"
    is_sound(world)
    goes_on(world)


# --- prompts and refusals --------------------------------------------------------------------


@pytest.mark.spec("HIS-2", "HIS-6")
@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_prompt_is_refused_before_anything_is_recorded(text: str) -> None:
    world = world_of(says("hello"))
    play(world, text="hi")
    count = len(world.history)
    run_ticks(lambda: world.next_turn(text), lambda tick, task: None)
    failed = world.events[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, UsageError)
    assert len(world.history) == count
    assert world.store.status is Outcome.DONE
    goes_on(world)


def test_an_image_alone_is_a_prompt() -> None:
    world = world_of(says("a cat"))
    prompt = UserMessage((ImagePart("image/png", b"x"),))
    turn = Turn(world.conversation, world.token, world.emit)
    result, _ = run_ticks(lambda: turn.run(prompt), lambda tick, task: None)
    assert result.outcome is Outcome.DONE  # type: ignore[union-attr]


@pytest.mark.spec("HIS-2", "LOOP-2")
def test_a_refusal_without_words_ends_the_turn_and_does_not_poison_the_next() -> None:
    world = world_of([StreamEnd(StopReason.REFUSAL)], says("x"))
    assert play(world).outcome is Outcome.DONE
    assert any("declined" in getattr(event, "text", "") for event in world.events)
    goes_on(world)


# --- providers -------------------------------------------------------------------------------


class Fault(PlayedProvider):
    def __init__(self, fault: BaseException) -> None:
        super().__init__()
        self.fault = fault

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        yield TextDelta(0, "half")
        raise self.fault


@pytest.mark.spec("CAN-5", "FAIL-6")
@pytest.mark.parametrize(
    "fault",
    [
        asyncio.CancelledError(), TimeoutError(), StopAsyncIteration(), RuntimeError("x"),
        BaseExceptionGroup("g", [ValueError()]), AgentError("plain"),
    ],
)  # fmt: skip
def test_whatever_a_provider_raises_ends_the_turn_with_an_error_and_the_partial_is_kept(
    fault: BaseException,
) -> None:
    world = world_of()
    world.provider = world.conversation.provider = Fault(fault)
    assert play(world).outcome is Outcome.ERROR
    is_sound(world)
    assert world.store.partials == ["half"]
    world.conversation.provider = world.provider = PlayedProvider(says("x"))
    goes_on(world)


@pytest.mark.spec("CAN-12")
def test_a_provider_that_swallows_the_cancel_is_not_heard_after_the_end() -> None:
    class Zombie(PlayedProvider):
        async def stream(
            self, request: ModelRequest, cancel: CancelToken
        ) -> AsyncIterator[StreamEvent]:
            self.requests.append(request)
            yield TextDelta(0, "half")
            for n in range(20):
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    continue
                yield TextDelta(0, f" late {n}")
            yield StreamEnd(StopReason.END_TURN)

    world = world_of()
    world.conversation.provider = Zombie()

    async def scenario() -> None:
        asyncio.get_running_loop().call_later(2.5, world.token.cancel)
        await world.run()
        await asyncio.sleep(100)
        assert await world.conversation.parts.reaper.join(1) == 0

    assert run_ticks(scenario, lambda tick, task: None)[0] is None
    assert world.types()[-1] == "cancelled"
    assert world.store.partials == ["half late 0 late 1"]


# --- two conversations -----------------------------------------------------------------------


@pytest.mark.spec("CAN-11")
@pytest.mark.parametrize("when", range(2, 40, 3))
def test_cancelling_one_of_two_conversations_never_touches_the_other(when: int) -> None:
    left, right = a_world(), a_world()
    right_alone = a_world()
    play(right_alone)

    async def both() -> list[Any]:
        return await asyncio.gather(left.run("left"), right.run("right"))

    def hook(tick: int, task: asyncio.Task[Any]) -> None:
        if tick == when:
            left.token.cancel(force=True)

    result, _ = run_ticks(both, hook)
    assert isinstance(result, list)
    assert result[1].outcome is Outcome.DONE
    assert right.types() == right_alone.types()
    assert not right.token.cancelled
    assert [m for m in right.history.messages if isinstance(m, UserMessage)] == [user_text("right")]
    assert [m for m in left.history.messages if isinstance(m, UserMessage)] == [user_text("left")]
    assert all(result.text.startswith("ran") for result in right.results)
    is_sound(left)
    is_sound(right)
    goes_on(left)


@pytest.mark.spec("CAN-11")
def test_a_straggler_of_one_conversation_does_not_hold_up_another() -> None:
    async def stubborn(args: Any, ctx: ToolContext) -> ToolOutput:
        for _ in range(200):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
        return ToolOutput.text("x")

    left, right = a_world(stubborn), a_world()

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1, left.token.cancel)
        await left.run()
        began = loop.time()
        await right.run()
        return loop.time() - began

    took, _ = run_ticks(scenario, lambda tick, task: None)
    assert took == 0
    assert right.types()[-1] == "done"
    assert any(isinstance(m, AssistantMessage) for m in right.history.messages)
