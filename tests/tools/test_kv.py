"""What the model keeps for itself: durable, bounded, one change at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import InvalidArguments
from agentcli.domain.tools import Asks, OutputKind, ToolContext, ToolOutput
from agentcli.tools import kv
from agentcli.tools.kv import MAX_KEYS, MAX_VALUE_CHARS, read_memory
from tests.support.tool_context import MemoryState, text_of, tool_context

TOOLS = {tool.name: tool for tool in kv.TOOLS}


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return tool_context(tmp_path, state=MemoryState())


async def call(ctx: ToolContext, name: str, **arguments: Any) -> ToolOutput:
    tool: Any = TOOLS[name]
    return await tool.run(tool.parse(arguments), ctx)


@pytest.mark.spec("TOOL-5")
def test_what_was_set_is_got_listed_and_deleted(ctx: ToolContext) -> None:
    async def run() -> None:
        assert "kept" in text_of(await call(ctx, "kv_set", key="build", value="make -j4"))
        assert "replaced" in text_of(await call(ctx, "kv_set", key="build", value="make"))
        await call(ctx, "kv_set", key="other", value="x\ny")
        assert text_of(await call(ctx, "kv_get", key="build")) == "make"
        listed = text_of(await call(ctx, "kv_list"))
        assert listed.splitlines() == [
            "build: make (4 characters)",
            "other: x\\ny (3 characters)",
        ]
        assert "deleted" in text_of(await call(ctx, "kv_delete", key="build"))
        assert (await call(ctx, "kv_get", key="build")).kind is OutputKind.TOOL_ERROR

    asyncio.run(run())


@pytest.mark.spec("TOOL-5")
def test_an_unknown_key_names_near_ones(ctx: ToolContext) -> None:
    async def run() -> None:
        nothing = await call(ctx, "kv_get", key="build")
        assert "nothing is kept" in text_of(nothing)
        await call(ctx, "kv_set", key="builds", value="make")
        for name in ("kv_get", "kv_delete"):
            missing = await call(ctx, name, key="build")
            assert missing.kind is OutputKind.TOOL_ERROR and "builds" in text_of(missing)

    asyncio.run(run())


@pytest.mark.spec("TOOL-5", "LOOP-4")
def test_changes_that_run_together_lose_nothing(ctx: ToolContext) -> None:
    async def run() -> None:
        await asyncio.gather(
            *(call(ctx, "kv_set", key=f"key {n}", value=str(n)) for n in range(50))
        )
        assert len(await read_memory(ctx.state)) == 50

    asyncio.run(run())


@pytest.mark.spec("TOOL-5", "SEC-13")
def test_it_is_bounded_and_too_much_changes_nothing(ctx: ToolContext) -> None:
    async def run() -> None:
        for number in range(MAX_KEYS):
            await call(ctx, "kv_set", key=str(number), value="x")
        full = await call(ctx, "kv_set", key="one more", value="x")
        assert full.kind is OutputKind.TOOL_ERROR and "kv_delete" in text_of(full)
        assert (await call(ctx, "kv_set", key="7", value="y")).kind is OutputKind.SUCCESS
        big = "x" * MAX_VALUE_CHARS
        outputs = [await call(ctx, "kv_set", key=str(n), value=big) for n in range(20)]
        assert outputs[0].kind is OutputKind.SUCCESS
        assert outputs[-1].kind is OutputKind.TOOL_ERROR
        assert (await read_memory(ctx.state))["19"] == "x"
        longer = await call(ctx, "kv_set", key="19", value=big + "x")
        assert "characters at most" in text_of(longer)

    asyncio.run(run())


@pytest.mark.parametrize(
    "arguments",
    [{"key": "", "value": "x"}, {"key": "k" * 201, "value": ""}, {"key": "k"}, {"value": "x"}],
)
def test_wrong_arguments_are_refused(arguments: dict[str, str]) -> None:
    with pytest.raises(InvalidArguments):
        TOOLS["kv_set"].parse(arguments)


@pytest.mark.spec("SEC-3")
def test_they_touch_nothing_but_the_session_so_nobody_is_asked() -> None:
    for tool in TOOLS.values():
        assert tool.definition.asks is Asks.NOTHING and tool.definition.group == "memory"
        assert tool.paths is not None


@pytest.mark.parametrize("value", [None, [], "text", {"a": 1}])
def test_a_state_of_another_shape_is_no_error(tmp_path: Path, value: object) -> None:
    async def run() -> None:
        state = MemoryState()
        await state.set("memory", value)
        found = await read_memory(state)
        assert all(isinstance(text, str) for text in found.values())

    asyncio.run(run())
