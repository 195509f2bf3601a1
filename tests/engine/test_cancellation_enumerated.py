"""Cancel at every scheduler tick of a turn of several steps, and nothing is lost or torn.

Once and twice, by the token and by cancelling the task, and from inside at every event. The
negative controls break the engine on purpose and prove that the sweep notices.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agentcli.domain.cancel import CancelReason
from agentcli.domain.events import AgentEvent, Outcome
from agentcli.domain.history import CANCELLED_TEXT, History
from agentcli.domain.messages import AssistantMessage, TextPart, ToolResult
from agentcli.domain.ports import RunStatus
from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.engine import tool_calls, turn
from tests.support.ticks import run_ticks
from tests.support.turns import FakeTool, PlayedProvider, World, calls, says

pytestmark = pytest.mark.sampled

TERMINAL = {"done", "cancelled", "error"}
Strike = Callable[[int, "asyncio.Task[Any]"], None]


class Scenario:
    """Three steps: reads together (one swallows cancellation), a write, a command, an answer."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self.completed: set[str] = set()
        self.faults: list[str] = []
        self.cancelled = False
        self.completed_before_cancel: set[str] = set()
        self.world = World(
            PlayedProvider(
                calls(
                    ("r1", "look", "{}"), ("r2", "stubborn", "{}"), ("r3", "look", "{}"),
                    ("w1", "change", "{}"), text="let me see",
                ),
                calls(("e1", "execute", "{}"), ("r4", "look", "{}")),
                says("all done"),
                says("spare"), says("spare"), says("spare"),
            ),
            [
                FakeTool("look", self.look),
                FakeTool("stubborn", self.stubborn),
                FakeTool("change", self.look, Asks.EDIT),
                FakeTool("execute", self.look, Asks.ANYTHING),
            ],
        )  # fmt: skip

    def _enter(self, ctx: ToolContext) -> None:
        self.started[ctx.call_id] += 1
        if self.world.store.runs[ctx.call_id].status is not RunStatus.RUNNING:
            self.faults.append(f"{ctx.call_id} took effect without its intent on disk")

    def _leave(self, ctx: ToolContext) -> None:
        self.completed.add(ctx.call_id)
        if not self.world.token.cancelled and not self.cancelled:
            self.completed_before_cancel.add(ctx.call_id)

    async def look(self, args: Any, ctx: ToolContext) -> ToolOutput:
        self._enter(ctx)
        for _ in range(3):
            await asyncio.sleep(0)
        self._leave(ctx)
        return ToolOutput.text(f"true result of {ctx.call_id}")

    async def stubborn(self, args: Any, ctx: ToolContext) -> ToolOutput:
        self._enter(ctx)
        for _ in range(6):
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        self._leave(ctx)
        return ToolOutput.text(f"true result of {ctx.call_id}")


def broken_laws(scenario: Scenario, result: object) -> list[str]:
    """Every invariant that does not hold after the first turn."""
    world = scenario.world
    faults = list(scenario.faults)
    kinds = world.types()
    if not kinds:
        return [] if isinstance(result, asyncio.CancelledError) else ["it never started"]
    if sum(kind in TERMINAL for kind in kinds) != 1 or kinds[-1] not in TERMINAL:
        faults.append(f"not exactly one terminal event at the end: {kinds[-3:]}")
    if list(world.history.messages) != world.store.disk:
        faults.append("memory and disk differ")
    try:
        if History(world.store.disk).pending:
            faults.append("the stored history has calls without results")
    except Exception as error:
        faults.append(f"the stored history breaks the law: {error}")
    faults += [f"{call} ran {n} times" for call, n in scenario.started.items() if n > 1]
    results = {m.call_id: m for m in world.history.messages if isinstance(m, ToolResult)}
    for call_id, stored in results.items():
        first = stored.parts[0]
        truth = isinstance(first, TextPart) and first.text == f"true result of {call_id}"
        cancelled = isinstance(first, TextPart) and first.text == CANCELLED_TEXT
        if not truth and not cancelled:
            faults.append(f"{call_id} has neither its result nor a cancelled one")
        if call_id in scenario.completed_before_cancel and not truth:
            faults.append(f"{call_id} had finished and is reported as cancelled")
        if truth and call_id not in scenario.completed:
            faults.append(f"{call_id} never finished and has a result")
    if kinds[-1] == "done" and world.store.status is not Outcome.DONE:
        faults.append("said done but the store does not")
    return faults


def play(strike: Strike, on_event: Callable[[Scenario, AgentEvent], None] | None = None) -> int:
    """One run with ``strike`` at every tick, then a next turn; the number of ticks it took."""
    scenario = Scenario()
    world = scenario.world
    if on_event is not None:
        world.on_event = lambda event: on_event(scenario, event)

    def hook(tick: int, task: asyncio.Task[Any]) -> None:
        strike.scenario = scenario  # type: ignore[attr-defined]
        strike(tick, task)

    result, ticks = run_ticks(world.run, hook)
    faults = broken_laws(scenario, result)
    if isinstance(result, asyncio.CancelledError):
        if world.events and world.types()[-1] not in TERMINAL:
            faults.append("an outer cancel left no terminal event")
    elif isinstance(result, BaseException):
        faults.append(f"raised {result!r}")
    assert not faults, faults
    before = len(world.history)
    world.on_event = lambda event: None
    world.provider.requests.clear()
    world.provider._replies = [says("went on")]
    second, _ = run_ticks(world.next_turn, lambda tick, task: None)
    assert not isinstance(second, BaseException), second
    assert second.outcome is Outcome.DONE
    assert len(world.history) == before + 2
    assert list(world.history.messages) == world.store.disk
    assert all(count == 1 for count in scenario.started.values())
    return ticks


def token_at(*ticks: int) -> Strike:
    def strike(tick: int, task: asyncio.Task[Any]) -> None:
        if tick in ticks:
            strike.scenario.world.token.cancel(CancelReason.USER, force=tick != ticks[0])  # type: ignore[attr-defined]

    return strike


def task_at(*ticks: int) -> Strike:
    def strike(tick: int, task: asyncio.Task[Any]) -> None:
        if tick in ticks:
            strike.scenario.cancelled = True  # type: ignore[attr-defined]
            task.cancel()

    return strike


def both_at(first: int, second: int) -> Strike:
    def strike(tick: int, task: asyncio.Task[Any]) -> None:
        if tick == first:
            strike.scenario.world.token.cancel()  # type: ignore[attr-defined]
        if tick == second:
            task.cancel()

    return strike


def total_ticks() -> int:
    return play(lambda tick, task: None)


SWEEPS: dict[str, Callable[[int], Strike]] = {
    "token once": lambda k: token_at(k),
    "token twice": lambda k: token_at(k, k + 1),
    "token again later": lambda k: token_at(k, k + 7),
    "task once": lambda k: task_at(k),
    "task twice": lambda k: task_at(k, k + 1),
    "task again later": lambda k: task_at(k, k + 5),
    "token then task": lambda k: both_at(k, k + 2),
    "task then token": lambda k: both_at(k + 2, k),
}


@pytest.mark.spec("CAN-1", "CAN-2", "CAN-3", "CAN-4", "CAN-6", "CAN-7", "CAN-9")
@pytest.mark.parametrize("sweep", SWEEPS)
def test_cancel_at_every_tick_keeps_every_law(sweep: str) -> None:
    ticks = total_ticks()
    assert ticks > 60
    for k in range(1, ticks + 1):
        try:
            play(SWEEPS[sweep](k))
        except AssertionError as error:
            raise AssertionError(f"{sweep}, tick {k} of {ticks}: {error}") from error


@pytest.mark.spec("CAN-1", "CAN-2", "CAN-12")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("by", ["token", "task"])
def test_cancel_from_inside_at_every_event_keeps_every_law(times: int, by: str) -> None:
    seen = 0

    def count(scenario: Scenario, event: AgentEvent) -> None:
        nonlocal seen
        seen += 1

    play(lambda tick, task: None, count)
    assert seen > 20
    for k in range(seen):
        position = 0
        tasks: list[asyncio.Task[Any]] = []

        def remember(tick: int, task: asyncio.Task[Any], tasks: list[Any] = tasks) -> None:
            tasks[:] = [task]

        def strike(
            scenario: Scenario, event: AgentEvent, k: int = k, tasks: list[Any] = tasks
        ) -> None:
            nonlocal position
            if k <= position < k + times:
                if by == "token":
                    scenario.world.token.cancel()
                elif tasks and event.type not in TERMINAL:
                    scenario.cancelled = True
                    tasks[0].cancel()
            position += 1

        try:
            play(remember, strike)
        except AssertionError as error:
            raise AssertionError(f"{by} x{times} at event {k} of {seen}: {error}") from error


async def torn(work: Any, on_cancel: Any = None) -> Any:
    """A plain await in the place of shield-and-join."""
    return await work


async def unjoined(work: Any, on_cancel: Any = None) -> Any:
    """A bare shield: the work goes on, the caller does not wait for it."""
    return await asyncio.shield(asyncio.ensure_future(work))


def sweep_finds_a_fault() -> bool:
    for sweep in SWEEPS.values():
        for k in range(1, 140):
            try:
                play(sweep(k))
            except AssertionError:
                return True
    return False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("broken", [torn, unjoined])
def test_negative_control_without_joined_shields_the_sweep_fails(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "uninterruptible", broken)
    monkeypatch.setattr(tool_calls, "uninterruptible", broken)
    assert sweep_finds_a_fault()


def test_negative_control_without_the_repair_the_sweep_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(self: Any, *args: Any) -> None:
        return None

    monkeypatch.setattr(turn.Turn, "_balance", nothing)
    assert sweep_finds_a_fault()


def test_negative_control_without_the_intent_row_the_sweep_fails() -> None:
    scenario = Scenario()

    async def nothing(call: Any) -> None:
        return None

    scenario.world.store.record_running = nothing
    run_ticks(scenario.world.run, lambda tick, task: None)
    assert broken_laws(scenario, None)


def test_a_scenario_that_is_left_alone_ends_done() -> None:
    scenario = Scenario()
    result, _ = run_ticks(scenario.world.run, lambda tick, task: None)
    assert not isinstance(result, BaseException)
    assert result.outcome is Outcome.DONE
    assert [
        m.stop_reason for m in scenario.world.history.messages if isinstance(m, AssistantMessage)
    ]
