"""Cancels while files are remembered: the turn does not wait, nothing is left open (TT-1, CAN-9)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.engine.parts import Lazy
from tests.support.turns import FakeTool, PlayedProvider, World, calls, says


async def ok(args: Any, ctx: ToolContext) -> ToolOutput:
    return ToolOutput.text("done")


class Slow:
    """A keeper on a disk that never answers, in ``begin`` or in ``end``."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.reached = asyncio.Event()
        self.log: list[str] = []

    async def begin(self, call_id: str, paths: Sequence[Path]) -> None:
        await self._pass("begin")

    async def end(self, call_id: str) -> None:
        await self._pass("end")

    async def settled(self) -> None:
        pass

    async def _pass(self, where: str) -> None:
        self.log.append(where)
        if where == self.where:
            self.reached.set()
            await asyncio.Event().wait()


async def cancelled_at(where: str) -> tuple[World, Slow, list[str]]:
    ran: list[str] = []

    async def work(args: Any, ctx: ToolContext) -> ToolOutput:
        ran.append(ctx.call_id)
        return ToolOutput.text("done")

    world = World(
        PlayedProvider(calls(("a", "change", "{}"))), [FakeTool("change", work, Asks.EDIT)]
    )
    keeper = Slow(where)
    world.set(keeper=Lazy(lambda: keeper))
    turn = asyncio.ensure_future(world.run())
    await keeper.reached.wait()
    world.token.cancel()
    await turn
    world.conversation.parts.reaper.cancel()
    await world.conversation.parts.reaper.join(1)
    return world, keeper, ran


@pytest.mark.spec("TT-1", "CAN-1", "CAN-9")
def test_a_cancel_while_files_are_looked_at_ends_the_turn_and_runs_nothing() -> None:
    world, keeper, ran = asyncio.run(cancelled_at("begin"))
    assert world.types()[-1] == "cancelled" and ran == []
    assert "had not started" in world.conversation.history.messages[-1].parts[1].text
    assert keeper.log == ["begin", "end"]


@pytest.mark.spec("TT-1", "CAN-6")
def test_a_cancel_while_changes_are_looked_for_keeps_the_true_result() -> None:
    world, _, ran = asyncio.run(cancelled_at("end"))
    assert world.types()[-1] == "cancelled" and ran == ["a"]
    assert world.conversation.history.messages[-1].text == "done"


@pytest.mark.spec("TT-1")
def test_reads_are_not_kept() -> None:
    async def scenario() -> list[str]:
        world = World(PlayedProvider(calls(("a", "look", "{}")), says("x")), [FakeTool("look", ok)])
        keeper = Slow("begin")
        world.set(keeper=Lazy(lambda: keeper))
        await world.run()
        return keeper.log

    assert asyncio.run(scenario()) == []
