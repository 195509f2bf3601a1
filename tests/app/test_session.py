"""One conversation: one turn at a time, events for all, sums, nothing shared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.queue import DurableQueue
from agentcli.app.session import Session
from agentcli.domain.cancel import CancelReason
from agentcli.domain.errors import PersistenceError, ProviderError, UsageError
from agentcli.domain.events import AgentEvent, Interrupt, Outcome, Prompt, TextChunk
from agentcli.domain.messages import Usage, user_text
from agentcli.domain.ports import ModelInfo, Provider
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus
from agentcli.domain.stream import UsageReport
from agentcli.domain.tools import ToolContext, ToolOutput
from agentcli.store.files import new_session_id
from agentcli.store.sqlite import SqliteStore
from tests.support.turns import MODEL, FakeTool, PlayedProvider, World, calls, says


class Made:
    """A session on a real file, with a played provider."""

    def __init__(self, directory: Path, world: World, **parts: Any) -> None:
        now = 1_700_000_000.0
        session_id = new_session_id()
        info = SessionInfo(session_id, "", "/w", now, now, SessionStatus.NEW, 0, MODEL.id)
        self.store = SqliteStore.new(directory / f"{session_id}.db", info)
        self.told = 0
        queue = DurableQueue(self.store)
        parts.setdefault("choose", self.choose)
        parts.setdefault("update_catalogue", self.update_catalogue)
        world.set(store=self.store, state=self.store, outputs=self.store, queue=queue, **parts)
        loaded = LoadedSession(info, ())
        self.session = Session(loaded, self.store, queue, world.conversation)
        self.events: list[AgentEvent] = []
        self.session.add_listener(self.events.append)

    def choose(self, name: str) -> tuple[Provider, ModelInfo]:
        return PlayedProvider(says(f"I am {name}")), ModelInfo("test", name)

    async def update_catalogue(self) -> None:
        self.told += 1

    async def say(self, text: str = "go") -> Any:
        return await self.session.run(Prompt(user_text(text)))

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextChunk))


def used(*reports: Usage) -> PlayedProvider:
    return PlayedProvider(*([UsageReport(usage), *says("x")] for usage in reports))


def test_usage_and_cost_are_summed_over_turns(tmp_path: Path) -> None:
    async def body() -> None:
        made = Made(tmp_path, World(used(Usage(1_000_000, 0), Usage(0, 1_000_000))))
        await made.say("first words\nmore")
        await made.say()
        session = made.session
        assert (session.turns, session.title) == (2, "first words")
        assert session.usage == Usage(1_000_000, 1_000_000)
        assert session.cost_usd == pytest.approx(3.0)
        assert made.told == 2
        await session.aclose()

    asyncio.run(body())


@pytest.mark.spec("COST-1")
def test_a_cost_that_is_unknown_once_stays_unknown(tmp_path: Path) -> None:
    async def body() -> None:
        made = Made(tmp_path, World(used(Usage(5), Usage(5, 5))))
        await made.say()
        await made.say()
        assert made.session.cost_usd is None
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("COST-2")
def test_a_budget_ends_the_turn_before_another_request(tmp_path: Path) -> None:
    async def look(args: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput.text("seen")

    async def body() -> None:
        provider = PlayedProvider(
            [UsageReport(Usage(2_000_000, 0)), *calls(("a", "look", "{}"))], says("never")
        )
        world = World(provider, [FakeTool("look", look)])
        world.set(max_budget_usd=1.0)
        made = Made(tmp_path, world)
        summary = await made.say()
        assert (summary.outcome, summary.limit) == (Outcome.MAX_STEPS, "budget")
        assert len(provider.requests) == 1
        await made.session.aclose()

    asyncio.run(body())


def test_only_one_turn_runs_at_a_time_and_an_idle_session_has_nothing_to_interrupt(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        made = Made(tmp_path, World(PlayedProvider(says("x"))))
        assert not made.session.interrupt()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(made.say())
            await asyncio.sleep(0)
            assert made.session.is_running
            with pytest.raises(UsageError):
                await made.say()
            with pytest.raises(UsageError):
                await made.session.switch_model("other")
        assert first.result().outcome is Outcome.DONE
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("CAN-12")
def test_events_can_be_read_while_the_turn_runs(tmp_path: Path) -> None:
    async def body() -> None:
        made = Made(tmp_path, World(PlayedProvider(says("some words here", pieces=3))))
        kinds = []

        async def read() -> None:
            async for event in made.session.events():
                kinds.append(event.type)
                if event.type == "text_delta":
                    assert made.session.is_running or kinds

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            await asyncio.sleep(0)
            group.create_task(made.say())
        assert kinds[0] == "turn_start"
        assert kinds[-1] == "done"
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("CAN-11")
def test_cancelling_one_session_never_touches_another(tmp_path: Path) -> None:
    async def body() -> None:
        release = asyncio.Event()

        async def wait(args: Any, ctx: ToolContext) -> ToolOutput:
            await release.wait()
            return ToolOutput.text("done waiting")

        def made() -> Made:
            provider = PlayedProvider(calls(("a", "wait", "{}")), says("finished"))
            return Made(tmp_path, World(provider, [FakeTool("wait", wait)]))

        one, two = made(), made()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(one.say("apples"))
            second = group.create_task(two.say("pears"))
            started = asyncio.Event()
            two.session.add_listener(
                lambda event: started.set() if event.type == "tool_started" else None
            )
            await started.wait()
            assert one.session.interrupt(CancelReason.USER)
            await asyncio.wait({first})
            assert not second.done()
            release.set()
        assert first.result().outcome is Outcome.CANCELLED
        assert second.result().outcome is Outcome.DONE
        assert two.text == "finished"
        assert one.text == ""
        stored = await two.store.load()
        assert "apples" not in str(stored.messages)
        await one.session.aclose()
        await two.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("CAN-7", "CAN-4")
def test_a_cancelled_turn_is_balanced_on_disk_when_run_returns(tmp_path: Path) -> None:
    async def body() -> None:
        async def wait(args: Any, ctx: ToolContext) -> ToolOutput:
            await asyncio.Event().wait()
            raise AssertionError

        provider = PlayedProvider(calls(("a", "wait", "{}")), says("went on"))
        made = Made(tmp_path, World(provider, [FakeTool("wait", wait)]))
        made.session.add_listener(
            lambda event: made.session.interrupt() if event.type == "tool_started" else None
        )
        assert (await made.say()).outcome is Outcome.CANCELLED
        reader = await SqliteStore.open(made.store.path, writable=False)
        loaded = await reader.load()
        await reader.aclose()
        assert [m.message for m in loaded.messages] == list(made.session.history.messages)
        assert loaded.info.status is SessionStatus.CANCELLED
        assert (await made.say("again")).outcome is Outcome.DONE
        await made.session.aclose()

    asyncio.run(body())


def test_an_op_may_interrupt_and_a_failing_listener_disturbs_nobody(tmp_path: Path) -> None:
    async def body() -> None:
        made = Made(tmp_path, World(PlayedProvider(says("x"))))

        def broken(event: AgentEvent) -> None:
            raise RuntimeError("a bug in a screen")

        made.session.add_listener(broken)
        assert await made.session.submit(Interrupt()) is None
        summary = await made.session.submit(Prompt(user_text("hi")))
        assert summary is not None
        assert summary.outcome is Outcome.DONE
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("FAIL-2")
def test_a_catalogue_that_fails_is_no_failure_of_the_turn(tmp_path: Path) -> None:
    async def fails() -> None:
        raise PersistenceError("no catalogue")

    async def body() -> None:
        made = Made(tmp_path, World(PlayedProvider(says("x"))), update_catalogue=fails)
        assert (await made.say()).outcome is Outcome.DONE
        await made.session.aclose()

    asyncio.run(body())


@pytest.mark.spec("REC-6")
def test_a_closer_that_fails_keeps_nothing_open(tmp_path: Path) -> None:
    async def fails() -> None:
        raise OSError("no more processes")

    async def body() -> None:
        made = Made(tmp_path, World(PlayedProvider(says("x"))), on_close=(fails,))
        await made.say()
        with pytest.raises(OSError, match="no more processes"):
            await made.session.aclose()
        again = await SqliteStore.open(made.store.path)  # its lock was given up
        await again.aclose()

    asyncio.run(body())


@pytest.mark.spec("TOOL-3", "UI-2")
def test_the_whole_output_of_a_call_can_be_had(tmp_path: Path) -> None:
    async def play(_: Any, __: ToolContext) -> ToolOutput:
        return ToolOutput.text("short", raw=b"the whole")

    provider = PlayedProvider(calls(("c1", "big", "{}")), says("done"))
    world = World(provider, [FakeTool("big", play)])
    made = Made(tmp_path, world)

    async def scene() -> None:
        await made.say()
        assert await made.session.raw_output("c1") == b"the whole"
        assert await made.session.raw_output("c2") is None
        await made.session.aclose()

    asyncio.run(scene())


def test_another_model_answers_after_a_switch_and_the_file_knows(tmp_path: Path) -> None:
    async def body() -> None:
        made = Made(tmp_path, World(PlayedProvider(says("old"))))
        await made.say()
        await made.session.switch_model("newer")
        assert (await made.say()).text == "I am newer"
        await made.session.rename("  a  good name ")
        info = (await made.store.load()).info
        assert (info.model, info.title) == ("test/newer", "a good name")
        with pytest.raises(UsageError):
            await made.session.rename("  ")
        await made.session.aclose()

    asyncio.run(body())


def test_a_provider_error_is_an_outcome_and_not_an_exception(tmp_path: Path) -> None:
    from agentcli.domain.errors import ErrorKind

    async def body() -> None:
        made = Made(
            tmp_path, World(PlayedProvider([ProviderError("no", kind=ErrorKind.AUTH)], says("x")))
        )
        assert (await made.say()).outcome is Outcome.ERROR
        assert (await made.store.load()).info.status is SessionStatus.FAILED
        await made.session.aclose()

    asyncio.run(body())
