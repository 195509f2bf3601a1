"""What is typed while the agent works: delivered in order, in its own commits, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agentcli.app.queue import DurableQueue
from agentcli.domain.events import Outcome, PromptRecorded, QueueChanged
from agentcli.domain.messages import ATTACHED, TextPart, UserMessage
from agentcli.domain.ports import QueuedInput, QueueKind
from agentcli.domain.tools import ToolContext, ToolOutput
from tests.support.turns import FakeTool, PlayedProvider, World, calls, says


class MemoryQueueFile:
    """Rows of a queue in memory."""

    def __init__(self) -> None:
        self.rows: dict[int, QueuedInput] = {}

    async def queue_add(self, kind: QueueKind, text: str) -> QueuedInput:
        row = QueuedInput(len(self.rows) + 1, kind, text, 0.0)
        self.rows[row.id] = row
        return row

    async def queue_edit(self, row_id: int, text: str) -> str | None:
        return text if row_id in self.rows else None

    async def queue_drop(self, row_id: int) -> bool:
        return self.rows.pop(row_id, None) is not None

    async def queue_waiting(self) -> Sequence[QueuedInput]:
        return tuple(self.rows.values())


def with_queue(world: World) -> DurableQueue:
    queue = DurableQueue(MemoryQueueFile())
    world.set(queue=queue)
    return queue


def said(world: World) -> list[str]:
    return [m.text for m in world.history.messages if isinstance(m, UserMessage)]


@pytest.mark.spec("CTRL-1")
def test_steering_is_delivered_after_the_batch_in_order_before_the_next_request() -> None:
    async def body() -> None:
        async def look(args: Any, ctx: ToolContext) -> ToolOutput:
            await queue.add(QueueKind.STEERING, "first")
            await queue.add(QueueKind.STEERING, "second")
            return ToolOutput.text("seen")

        provider = PlayedProvider(calls(("a", "look", "{}")), says("done"))
        world = World(provider, [FakeTool("look", look)])
        queue = with_queue(world)
        summary = await world.run("go")
        assert summary.outcome is Outcome.DONE
        assert said(world) == ["go", "first", "second"]
        kinds = [type(message).__name__ for message in provider.requests[1].messages]
        assert kinds == ["UserMessage", "AssistantMessage", "ToolResult", *["UserMessage"] * 2]
        assert world.store.delivered == [1, 2] and not queue.waiting()
        assert world.store.begun == 1
        assert [e.waiting for e in world.events if isinstance(e, QueueChanged)] == [1, 0]
        assert [e.message.text for e in world.events if isinstance(e, PromptRecorded)] == said(
            world
        )

    asyncio.run(body())


@pytest.mark.spec("CTRL-1")
def test_what_was_queued_before_the_first_step_goes_with_the_first_request() -> None:
    async def body() -> None:
        provider = PlayedProvider(says("done"))
        world = World(provider)
        queue = with_queue(world)
        await queue.add(QueueKind.STEERING, "and this")
        await world.run("go")
        assert [m.text for m in provider.requests[0].messages] == ["go", "and this"]  # type: ignore[union-attr]  # both are the user's

    asyncio.run(body())


@pytest.mark.spec("CTRL-1")
def test_follow_ups_are_taken_one_by_one_when_the_loop_would_stop() -> None:
    async def body() -> None:
        provider = PlayedProvider(says("one"), says("two"), says("three"))
        world = World(provider)
        queue = with_queue(world)
        await queue.add(QueueKind.FOLLOW_UP, "then this")
        await queue.add(QueueKind.FOLLOW_UP, "then that")
        summary = await world.run("go")
        assert (summary.outcome, summary.text, summary.steps) == (Outcome.DONE, "three", 3)
        assert said(world) == ["go", "then this", "then that"]
        assert len(provider.requests[0].messages) == 1

    asyncio.run(body())


@pytest.mark.spec("CTRL-1")
def test_steering_that_comes_with_the_last_answer_keeps_the_turn_going() -> None:
    async def body() -> None:
        provider = PlayedProvider(says("one"), says("two"))
        world = World(provider)
        queue = with_queue(world)
        task = asyncio.create_task(world.run("go"))
        while not provider.requests:
            await asyncio.sleep(0)
        await queue.add(QueueKind.STEERING, "wait, also")
        assert (await task).text == "two"
        assert said(world) == ["go", "wait, also"]

    asyncio.run(body())


@pytest.mark.spec("CTRL-3")
def test_at_the_step_cap_follow_ups_are_recorded_and_not_run() -> None:
    async def body() -> None:
        async def look(args: Any, ctx: ToolContext) -> ToolOutput:
            return ToolOutput.text("seen")

        provider = PlayedProvider(calls(("a", "look", "{}")), says("after"))
        world = World(provider, [FakeTool("look", look)])
        queue = with_queue(world)
        await queue.add(QueueKind.FOLLOW_UP, "later")
        summary = await world.run("go", max_steps=1)
        assert (summary.outcome, len(provider.requests)) == (Outcome.MAX_STEPS, 1)
        assert said(world) == ["go", "later"] and not queue.waiting()

    asyncio.run(body())


@pytest.mark.spec("CTRL-2")
def test_a_result_that_ends_the_turn_leaves_everything_queued() -> None:
    async def body() -> None:
        async def finish(args: Any, ctx: ToolContext) -> ToolOutput:
            await queue.add(QueueKind.STEERING, "too late")
            output = ToolOutput.text("finished")
            return ToolOutput(output.kind, output.parts, ends_turn=True)

        provider = PlayedProvider(calls(("a", "finish", "{}")))
        world = World(provider, [FakeTool("finish", finish)])
        queue = with_queue(world)
        await queue.add(QueueKind.FOLLOW_UP, "later")
        summary = await world.run("go")
        assert (summary.outcome, len(provider.requests)) == (Outcome.DONE, 1)
        assert [item.text for item in queue.waiting()] == ["later", "too late"]
        assert world.types()[-1] == "done" and world.store.status is Outcome.DONE

    asyncio.run(body())


def test_what_is_taken_back_at_the_last_moment_ends_the_turn_all_the_same() -> None:
    async def body() -> None:
        provider = PlayedProvider(says("one"))
        world = World(provider)
        queue = with_queue(world)
        row = await queue.add(QueueKind.FOLLOW_UP, "never mind")
        world.on_event = lambda event: (
            queue.delivered((row.id,)) if event.type == "assistant_recorded" else None
        )
        summary = await world.run("go")
        assert summary.outcome is Outcome.DONE and world.store.status is Outcome.DONE
        assert said(world) == ["go"]

    asyncio.run(body())


@pytest.mark.spec("UI-4", "CTRL-1")
def test_what_waits_attaches_the_files_that_it_names_when_it_is_delivered() -> None:
    async def body() -> None:
        async def look(args: Any, ctx: ToolContext) -> ToolOutput:
            await queue.add(QueueKind.STEERING, "see @a.py")
            return ToolOutput.text("seen")

        async def attach(text: str, *, only_inside: bool) -> UserMessage:
            return UserMessage((TextPart(text), TextPart(f"{ATTACHED}file>x</attached>")))

        world = World(
            PlayedProvider(calls(("a", "look", "{}")), says("done")), [FakeTool("look", look)]
        )
        world.set(attach=attach)
        queue = with_queue(world)
        await world.run("go")
        message = [m for m in world.history.messages if isinstance(m, UserMessage)][-1]
        assert message.typed == "see @a.py"
        assert message.text.endswith("x</attached>")

    asyncio.run(body())
