"""A server as a process: what it does to the sandbox that it runs in."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from agentcli.mcp.servers import McpServer, ServerScope, Transport
from agentcli.mcp.stdio import StdioPlace, stdio_channel
from tests.support.sandboxes import BOTH, Sandboxed

OBEDIENT = 'while read -r line; do eval "$line"; echo done; done'
MINE = "mkdir -p .git/hooks; echo mine > .git/hooks/pre-commit"


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.spec("SEC-17", "MCP-2")
def test_a_server_that_waits_takes_nothing_of_the_users_away_and_its_own_work_is_set_aside(
    tmp_path: Path, kind: str
) -> None:
    work = (tmp_path / "work").resolve()
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    place = (ServerScope.USER, "", Transport.STDIO, "")
    server = McpServer("s", *place, command="sh", args=("-c", OBEDIENT), sandboxed=True)
    hook = work / ".git" / "hooks" / "pre-commit"

    async def run() -> None:
        async with (
            Sandboxed(work, kind) as inside,
            stdio_channel(server, StdioPlace(work, "", inside.sandbox)) as channel,
        ):
            lines = channel.lines()
            await channel.send(b"true")
            assert await anext(lines) == b"done"
            for _ in range(100):  # until the server has come to rest
                await inside.say(MINE, access="outside")
                await inside.say("echo next")
                if hook.exists():
                    break
            assert hook.read_text() == "mine\n"
            await channel.send(b"echo evil > .envrc")
            assert await anext(lines) == b"done"
            assert ".envrc.set-aside" in await inside.say("echo next")
            await channel.send(b"echo evil > .exrc")
            assert await anext(lines) == b"done"
        assert hook.read_text() == "mine\n"

    asyncio.run(run())
    assert not (work / ".envrc").exists() and not (work / ".exrc").exists()
