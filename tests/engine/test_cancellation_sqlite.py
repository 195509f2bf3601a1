"""The enumerated scenario over real session files: what the screen said is what the file holds.

The cancel comes at an iteration of a real loop or at an event, once and twice, by the token
and by the task; the file is then opened again as a next process would open it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import StoreError
from agentcli.domain.events import AgentEvent, Outcome
from agentcli.domain.history import CANCELLED_TEXT, History
from agentcli.domain.messages import TextPart, ToolResult
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.session import LoadedSession, SessionInfo, SessionStatus
from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.engine import tool_calls, turn
from agentcli.engine.context.outgoing import Outgoing
from agentcli.store.sqlite import SqliteStore, recover
from tests.support.turns import FakeTool, PlayedProvider, World, calls, says

pytestmark = pytest.mark.sampled

TERMINAL = {"done", "cancelled", "error"}
STATUS = {
    "done": SessionStatus.DONE, "cancelled": SessionStatus.CANCELLED, "error": SessionStatus.FAILED,
}  # fmt: skip
INFO = SessionInfo("s", "", "/w", 0.0, 0.0, SessionStatus.NEW, 0, "test/model")


class CountingLoop(asyncio.SelectorEventLoop):
    """A real loop that counts its iterations and calls a hook before each."""

    def __init__(self) -> None:
        super().__init__()
        self.iterations = 0
        self.hook: Callable[[int], None] = lambda iteration: None

    def _run_once(self) -> None:
        self.iterations += 1
        self.hook(self.iterations)
        super()._run_once()  # type: ignore[misc]


class Scenario:
    """Reads together (one ignores the cancel), a write, a command, an answer; a real file."""

    def __init__(self, path: Path) -> None:
        self.completed: set[str] = set()
        self.started: list[str] = []
        self.faults: list[str] = []
        self.store = SqliteStore.new(path, INFO)
        self.path = path
        tools = [
            FakeTool("look", self.look),
            FakeTool("stubborn", self.stubborn),
            FakeTool("change", self.look, Asks.EDIT),
        ]
        first = calls(
            ("r1", "look", "{}"), ("r2", "stubborn", "{}"), ("r3", "look", "{}"),
            ("w1", "change", "{}"), text="let me see",
        )  # fmt: skip
        provider = PlayedProvider(first, calls(("r4", "look", "{}")), says("all done"))
        self.world = World(provider, tools, store=self.store)

    async def look(self, args: Any, ctx: ToolContext) -> ToolOutput:
        self.started.append(ctx.call_id)
        runs: dict[str, ToolRun] = dict(await self.store.tool_runs())
        if runs[ctx.call_id].status is not RunStatus.RUNNING:
            self.faults.append(f"{ctx.call_id} took effect without its intent on disk")
        await asyncio.sleep(0)
        self.completed.add(ctx.call_id)
        return ToolOutput.text(f"true result of {ctx.call_id}")

    async def stubborn(self, args: Any, ctx: ToolContext) -> ToolOutput:
        self.started.append(ctx.call_id)
        for _ in range(20):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue
        self.completed.add(ctx.call_id)
        return ToolOutput.text(f"true result of {ctx.call_id}")


def faults_of(scenario: Scenario, loaded: LoadedSession, said: list[str]) -> list[str]:
    """Every law that does not hold between the events, memory and the file."""
    world, faults = scenario.world, list(scenario.faults)
    stored = [message.message for message in loaded.messages]
    if [kind for kind in said if kind in TERMINAL] != said[-1:]:
        faults.append(f"not exactly one terminal event, last: {said[-3:]}")
    if list(world.history.messages) != stored:
        faults.append("memory and disk differ")
    if History(stored).pending:
        faults.append("the stored history has calls without results")
    open_runs = {RunStatus.PENDING, RunStatus.RUNNING}
    faults += [
        f"{run.call_id} is {run.status}" for run in loaded.runs.values() if run.status in open_runs
    ]
    if said and loaded.info.status is not STATUS[said[-1]]:
        faults.append(f"said {said[-1]}, the file says {loaded.info.status}")
    for message in stored:
        if not isinstance(message, ToolResult):
            continue
        first = message.parts[0]
        true = first == TextPart(f"true result of {message.call_id}")
        if true and message.call_id not in scenario.completed:
            faults.append(f"{message.call_id} never finished and has a result")
        if not true and first != TextPart(CANCELLED_TEXT):
            faults.append(f"{message.call_id} has neither its result nor a cancelled one")
    if len(set(scenario.started)) != len(scenario.started):
        faults.append(f"a call ran twice: {scenario.started}")
    return faults


async def reopened(path: Path) -> LoadedSession:
    store = await SqliteStore.open(path)
    try:
        return await store.load(hidden=True)
    finally:
        await store.aclose()


Strike = Callable[[int, "Scenario", "asyncio.Task[Any]"], None]


def play(path: Path, strike: Strike, *, at_events: bool = False) -> int:
    """One cancelled turn, what a next process finds, and a next turn; how long it could be."""
    loop = CountingLoop()
    positions = 0

    async def whole() -> None:
        nonlocal positions
        scenario = Scenario(path)
        world = scenario.world
        task = asyncio.create_task(world.run())

        def at_event(event: AgentEvent) -> None:
            nonlocal positions
            positions += 1
            strike(positions, scenario, task)

        began = loop.iterations
        if at_events:
            world.on_event = at_event
        else:
            loop.hook = lambda n: None if task.done() else strike(n - began, scenario, task)
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        loop.hook = lambda n: None
        world.on_event = lambda event: None
        if not at_events:
            positions = loop.iterations - began
        assert isinstance(outcome, asyncio.CancelledError) or not isinstance(
            outcome, BaseException
        ), outcome
        said = world.types()
        await world.conversation.parts.reaper.join(5)
        if not said:
            await scenario.store.aclose()
            return
        await scenario.store.aclose()
        faults = faults_of(scenario, await reopened(path), said)
        assert not faults, faults

        store = await SqliteStore.open(path)
        loaded, repaired = await recover(store)
        assert repaired == ()
        world.store = store
        world.set(store=store, state=store, outputs=store)
        world.conversation.outgoing = Outgoing(store)
        world.conversation.history = History(m.message for m in loaded.messages)
        world.conversation.provider = world.provider = PlayedProvider(says("went on"))
        summary = await world.next_turn()
        assert summary.outcome is Outcome.DONE
        await store.aclose()
        again = await reopened(path)
        assert [m.message for m in again.messages] == list(world.history.messages)
        assert again.info.status is SessionStatus.DONE

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(whole())
    return positions


def never(position: int, scenario: Scenario, task: asyncio.Task[Any]) -> None:
    return None


def by_token(*at: int) -> Strike:
    def strike(position: int, scenario: Scenario, task: asyncio.Task[Any]) -> None:
        if position in at:
            scenario.world.token.cancel(force=position != at[0])

    return strike


def by_task(*at: int) -> Strike:
    def strike(position: int, scenario: Scenario, task: asyncio.Task[Any]) -> None:
        if position in at and task is not asyncio.current_task():
            task.cancel()

    return strike


SWEEPS: dict[str, Callable[[int], Strike]] = {
    "token": lambda k: by_token(k),
    "token twice": lambda k: by_token(k, k + 1),
    "task": lambda k: by_task(k),
    "task twice": lambda k: by_task(k, k + 2),
}


@pytest.mark.slow
@pytest.mark.spec("CAN-1", "CAN-2", "CAN-4", "CAN-6", "CAN-7", "CAN-8")
@pytest.mark.parametrize("sweep", SWEEPS)
def test_cancel_at_an_iteration_of_a_real_loop_leaves_file_memory_and_screen_agreed(
    sweep: str, tmp_path: Path
) -> None:
    total = play(tmp_path / "whole.db", never)
    assert total > 40
    for k in range(1 + list(SWEEPS).index(sweep), total + 5, 5):
        try:
            play(tmp_path / f"{k}.db", SWEEPS[sweep](k))
        except AssertionError as error:
            raise AssertionError(f"{sweep} at iteration {k} of {total}: {error}") from error


@pytest.mark.spec("CAN-1", "CAN-7", "CAN-12")
@pytest.mark.parametrize("sweep", ["token", "token twice", "task"])
def test_cancel_at_every_event_leaves_file_memory_and_screen_agreed(
    sweep: str, tmp_path: Path
) -> None:
    total = play(tmp_path / "whole.db", never, at_events=True)
    assert total > 20
    for k in range(1, total):
        try:
            play(tmp_path / f"{k}.db", SWEEPS[sweep](k), at_events=True)
        except AssertionError as error:
            raise AssertionError(f"{sweep} at event {k} of {total}: {error}") from error


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_negative_control_without_the_join_file_and_memory_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unjoined(work: Any, on_cancel: Any = None) -> Any:
        return await asyncio.shield(asyncio.ensure_future(work))

    for module in (tool_calls, turn):
        monkeypatch.setattr(module, "uninterruptible", unjoined)
    with pytest.raises((AssertionError, StoreError)):
        for k in range(1, 200, 2):
            play(tmp_path / f"{k}.db", by_task(k))


@pytest.mark.spec("CAN-5", "CAN-7")
def test_what_was_seen_of_a_cut_answer_is_in_the_file_and_not_in_the_history(
    tmp_path: Path,
) -> None:
    async def whole() -> None:
        scenario = Scenario(tmp_path / "s.db")
        world = scenario.world
        world.provider._replies = [says("half an answer", pieces=2)]
        world.on_event = lambda event: world.token.cancel() if event.type == "text_delta" else None
        assert (await world.run()).outcome is Outcome.CANCELLED
        await scenario.store.aclose()
        loaded = await reopened(tmp_path / "s.db")
        assert [note.text for note in loaded.notes] == ["half an"]
        assert len(loaded.messages) == 1

    asyncio.run(whole())


@pytest.mark.spec("CAN-6", "CAN-7")
def test_a_parked_result_keeps_its_truth_in_the_file(tmp_path: Path) -> None:
    async def stuck(args: Any, ctx: ToolContext) -> ToolOutput:
        await asyncio.Event().wait()
        raise AssertionError

    async def whole() -> None:
        scenario = Scenario(tmp_path / "s.db")
        world = scenario.world
        world.conversation.parts.toolbox._tools["stubborn"].work = stuck  # type: ignore[attr-defined]
        running = asyncio.create_task(world.run())
        while scenario.completed != {"r1", "r3"} or scenario.store.commits < 7:
            await asyncio.sleep(0.001)
        world.token.cancel()
        assert (await running).outcome is Outcome.CANCELLED
        await scenario.store.aclose()
        loaded = await reopened(tmp_path / "s.db")
        results = [m.message for m in loaded.messages if isinstance(m.message, ToolResult)]
        assert [result.parts[0] for result in results] == [
            TextPart("true result of r1"), TextPart(CANCELLED_TEXT),
            TextPart("true result of r3"), TextPart(CANCELLED_TEXT),
        ]  # fmt: skip

    asyncio.run(whole())
