"""Servers that people use, from the npm registry; skipped where they cannot be installed."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from agentcli.domain.extensions.mcp import McpError
from agentcli.domain.messages import ImagePart, TextPart
from agentcli.mcp.client import connected
from tests.mcp.servers import Answers, server, setup

pytestmark = [pytest.mark.slow, pytest.mark.spec("MCP-1"), pytest.mark.timeout(180)]
PACKAGES = (
    "@modelcontextprotocol/server-everything@2026",
    "@modelcontextprotocol/server-filesystem@2026",
)


@pytest.fixture(scope="module")
def programs() -> Path:
    """Where their programs are, installed once for this machine's user."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")
    place = Path(tempfile.gettempdir()) / f"agentcli-servers-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_uid != os.getuid():
        pytest.skip(f"{place} is somebody else's")
    programs = place / "node_modules/.bin"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (programs / "mcp-server-filesystem").exists():
            line = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), *PACKAGES]
            try:
                subprocess.run(line, check=True, capture_output=True, timeout=150)
            except (OSError, subprocess.SubprocessError):
                pytest.skip("the servers cannot be installed from the npm registry")
    return programs


def test_the_server_with_everything_is_used(programs: Path, tmp_path: Path) -> None:
    configured = server("all", {"command": str(programs / "mcp-server-everything")})
    progress: list[str] = []

    async def play() -> None:
        async with connected(configured, setup(tmp_path, Answers())) as client:
            tools = {tool.name for tool in await client.tools()}
            assert {"echo", "get-sum", "get-tiny-image"} <= tools
            output = await client.call("echo", {"message": "hi"}, progress.append)
            assert output.parts == (TextPart("Echo: hi"),)
            image = await client.call("get-tiny-image", {}, progress.append)
            assert any(isinstance(part, ImagePart) for part in image.parts)
            arguments = {"duration": 1, "steps": 2}
            await client.call("trigger-long-running-operation", arguments, progress.append)
            assert any(line.startswith("2/2") for line in progress)
            resources = await client.resources()
            assert resources and await client.read(
                next(each.uri for each in resources if not each.is_template)
            )
            assert await client.prompts()

    asyncio.run(play())


def test_the_file_system_server_takes_the_roots_that_it_is_told(
    programs: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("what it holds")
    program = str(programs / "mcp-server-filesystem")
    configured = server("files", {"command": program, "args": [str(tmp_path)]})

    async def play() -> None:
        async with connected(configured, setup(tmp_path)) as client:
            assert "read_text_file" in {tool.name for tool in await client.tools()}
            path = {"path": str(tmp_path / "a.txt")}
            output = await client.call("read_text_file", path, lambda _: None)
            assert "what it holds" in str(output.parts)
            outside = await client.call("read_text_file", {"path": "/etc/passwd"}, lambda _: None)
            assert "denied" in str(outside.parts)
            with pytest.raises(McpError):
                await client.request("no/such", {})

    asyncio.run(play())
