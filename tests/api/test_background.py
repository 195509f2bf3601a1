"""Functions of a program as background runs: started, and taken up again after a crash (BG-10)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from agentcli import Agent, tool
from tests.support.cli import agent_env
from tests.support.model_server import ModelServer
from tests.support.replies import Call, Reply, Text

PROGRAM = """
import asyncio, sys
from pathlib import Path
from agentcli import Agent, tool

@tool(background=True, idempotent=IDEMPOTENT, effect="write")
async def index(name: str) -> str:
    "Index a directory."
    (Path(name) / "ran.txt").open("a").write("x")
    await asyncio.Event().wait()
    return "never"

async def main():
    async with Agent(cwd=sys.argv[1], tools=[index]) as agent:
        await agent.run_to_end("go")
        print(agent.session_id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.sampled
@pytest.mark.spec("BG-10", "BG-7")
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_run_of_an_idempotent_function_is_started_again_after_a_crash(
    tmp_path: Path, idempotent: bool
) -> None:
    ran = tmp_path / "ran.txt"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("IDEMPOTENT", str(idempotent)))
    spawn = Call("spawn_background", {"tool": "index", "args": {"name": str(tmp_path)}})
    with ModelServer([Reply(blocks=(spawn,)), Reply(blocks=(Text("started"),))]) as server:
        env = agent_env(server)
        first = subprocess.Popen(
            [sys.executable, str(program), str(tmp_path)],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert first.stdout is not None
        session_id = first.stdout.readline().strip()
        first.kill()
        first.wait()
        first.stdout.close()
        again = asyncio.Event()

        @tool(background=True, idempotent=idempotent, effect="write")
        async def index(name: str) -> str:
            """Index a directory."""
            with ran.open("a") as file:
                file.write("y")
            again.set()
            return "done"

        async def body() -> list[str]:
            agent = Agent(cwd=tmp_path, env=env, tools=[index], session=session_id)
            async with agent:
                if idempotent:
                    await again.wait()
                return list(agent.notices)

        notices = asyncio.run(body())
    assert ran.read_text().count("y") == idempotent
    expected = "started again (attempt 2)" if idempotent else "was interrupted"
    assert any(expected in line for line in notices)
