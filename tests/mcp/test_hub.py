"""The servers of a session: what waits for them, what their ends do, what is left (MCP-2)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.extensions.mcp import McpError, ServerStatus
from agentcli.domain.messages import TextPart
from agentcli.domain.tools import McpServers, OutputKind, ToolOutput
from agentcli.mcp.remembered import Remembered
from tests.mcp.servers import hostile, hub_of, sdk_server

pytestmark = pytest.mark.spec("MCP-2")


async def call(hub: McpServers, server: str, tool: str = "echo", **arguments: Any) -> ToolOutput:
    found = hub.tool(hub.full_name(server, tool))
    assert found is not None
    return await hub.call(found, arguments, CancelToken(), lambda _: None)


def text_of(output: ToolOutput) -> str:
    return "".join(part.text for part in output.parts if isinstance(part, TextPart))


def test_a_server_that_dies_is_an_error_and_is_started_again_at_the_next_use(
    tmp_path: Path,
) -> None:
    seen = tmp_path / "seen"

    async def play() -> None:
        async with hub_of(tmp_path, hostile("dies", env={"SEEN_FILE": str(seen)})) as hub:
            for _ in range(2):
                with pytest.raises(McpError, match=r"exited with code 7; .*I cannot go on"):
                    await call(hub, "dies")
            (facts,) = hub.facts()
            assert facts.status is ServerStatus.FAILED
            assert "exited with code 7" in facts.problem

    asyncio.run(play())
    assert seen.read_text().split().count("initialize") == 2


def test_a_server_that_hangs_is_an_error_of_its_own_call_and_of_no_other(tmp_path: Path) -> None:
    async def play() -> None:
        async with hub_of(
            tmp_path, hostile("hangs", timeout=300), hostile("silent"), hostile("echo")
        ) as hub:
            hub.begin()
            output = await call(hub, "echo", a=1)
            assert text_of(output) == '{"a": 1}'
            with pytest.raises(McpError, match="did not answer in time"):
                await call(hub, "hangs")
            hanging, silent, good = hub.facts()
            assert hanging.status is ServerStatus.FAILED
            assert silent.status is ServerStatus.STARTING
            assert good.status is ServerStatus.READY

    asyncio.run(play())


@pytest.mark.slow
@pytest.mark.spec("CAN-6")
def test_a_cancel_reaches_the_server_and_tells_what_it_had_said(tmp_path: Path) -> None:
    pytest.importorskip("mcp_types")
    told = tmp_path / "cancelled"

    async def play() -> None:
        async with hub_of(tmp_path, sdk_server(env={"CANCELLED_FILE": str(told)})) as hub:
            token = CancelToken()
            tool = hub.tool("mcp__ex__forever")
            assert tool is not None
            output = await hub.call(
                tool, {}, token, lambda text: "begun" in text and token.cancel()
            )
            assert output.kind is OutputKind.CANCELLED
            assert "begun" in text_of(output)
            for _ in range(500):
                if told.exists():
                    break
                await asyncio.sleep(0.01)
            assert told.exists()
            assert text_of(await call(hub, "ex", "add", a=1, b=2)) == "3"

    asyncio.run(play())


def test_a_cancel_does_not_wait_for_a_server_that_is_starting(tmp_path: Path) -> None:
    async def play() -> None:
        async with hub_of(tmp_path, hostile("silent")) as hub:
            token = CancelToken()
            tool = hub.tool("mcp__silent__echo")
            assert tool is not None
            with pytest.raises(McpError, match="still starting"):
                await hub.call(tool, {}, token, lambda _: token.cancel())

    asyncio.run(play())


@pytest.mark.spec("MCP-4")
def test_what_a_server_has_is_remembered_for_the_next_session(tmp_path: Path) -> None:
    kept: dict[str, str] = {}
    remembered = Remembered(kept.get, kept.__setitem__)

    async def play() -> None:
        async with hub_of(tmp_path, hostile("odd"), remembered=remembered) as hub:
            assert hub.facts()[0].tools == ()
            assert await hub.tools(CancelToken(), lambda _: None) == []
        async with hub_of(tmp_path, hostile("odd"), remembered=remembered) as hub:
            (facts,) = hub.facts()
            assert facts.status is ServerStatus.IDLE
            assert facts.protocol == "2025-06-18"
            assert [tool.name for tool in facts.tools][:2] == ["bash", "loop"]
        for key in kept:
            kept[key] = "{damaged"
        async with hub_of(tmp_path, hostile("odd"), remembered=remembered) as hub:
            assert hub.facts()[0].tools == ()

    asyncio.run(play())


def test_names_lead_to_tools_and_an_unknown_one_is_told_with_what_there_is(tmp_path: Path) -> None:
    async def play() -> None:
        async with hub_of(tmp_path, hostile("echo", name="my.server")) as hub:
            assert hub.full_name("my.server", "echo") == "mcp__my_server__echo"
            assert hub.full_name("other", "echo") == ""
            assert hub.tool("bash") is None
            with pytest.raises(McpError, match="has no tool 'nothing' - it has: echo"):
                await call(hub, "my.server", "nothing")
            assert hub.tool("mcp__my_server__nothing") is None
            assert hub.tool("mcp__my_server__echo") is not None

    asyncio.run(play())


def test_nothing_is_left_of_servers_when_a_session_ends(tmp_path: Path) -> None:
    def alive() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(tmp_path).encode() in environment:
                found.append(entry.name)
        return [pid for pid in found if pid != str(os.getpid())]

    async def play() -> None:
        mine = {"SEEN_FILE": str(tmp_path / "seen")}
        servers = [hostile(mode, env=mine) for mode in ("silent", "echo", "hangs")]
        async with hub_of(tmp_path, *servers) as hub:
            await call(hub, "echo")
            assert len(alive()) >= 1

    asyncio.run(play())
    assert alive() == []
