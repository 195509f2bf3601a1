"""The servers of these tests as configured ones, and hubs of them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentcli.domain.tools import McpServers
from agentcli.mcp.client import ClientSetup
from agentcli.mcp.hub import ServerHub
from agentcli.mcp.remembered import Remembered
from agentcli.mcp.servers import McpServer, ServerPlace, ServerScope, read_server
from agentcli.mcp.stdio import StdioPlace
from agentcli.process.run import end_processes

SUPPORT = Path(__file__).resolve().parent.parent / "support"


def server(name: str, entry: dict[str, Any]) -> McpServer:
    return read_server(name, entry, ServerPlace(ServerScope.USER, "settings", {}))


def sdk_server(name: str = "ex", **more: Any) -> McpServer:
    script = str(SUPPORT / "mcp_sdk_server.py")
    return server(name, {"command": sys.executable, "args": [script], **more})


def hostile(mode: str, name: str = "", **more: Any) -> McpServer:
    script = str(SUPPORT / "mcp_hostile.py")
    return server(name or mode, {"command": sys.executable, "args": ["-S", script, mode], **more})


class Answers:
    """A user who says what the test says."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Sequence[str]]] = []

    async def ask(self, question: str, options: Sequence[str]) -> str:
        self.asked.append((question, options))
        return self.answers.pop(0)


def setup(cwd: Path, ask: Answers | None = None) -> ClientSetup:
    return ClientSetup(StdioPlace(cwd, f"test {cwd}"), (cwd,), ask)


@asynccontextmanager
async def hub_of(
    cwd: Path, *servers: McpServer, remembered: Remembered | None = None
) -> AsyncIterator[McpServers]:
    hub = ServerHub(servers, setup(cwd), remembered)
    try:
        yield hub
    finally:
        await hub.aclose()
        await end_processes(f"test {cwd}")
