"""What each way of starting imports: asserted on ``sys.modules``, not on a clock (DESIGN)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE
from tests.support.cli import agent_env
from tests.support.model_server import ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import call, say

HEAVY = {"httpx", "pydantic", "prompt_toolkit", "aiosqlite", "rich", "pygments", "tomlkit"}
# notes which modules are there at the first connection, at the first prompt, and at the end
PROBE = """
import atexit, json, os, sys
def note(name):
    path = os.environ["PROBE"] + name
    if not os.path.exists(path):
        with open(path, "w") as file:
            json.dump(sorted(sys.modules), file)
def hook(event, args):
    if event == "socket.connect":
        note("connect")
sys.addaudithook(hook)
write = os.write
def watched(handle, data):
    if "Ask or tell it" in bytes(data).decode(errors="replace"):
        note("prompt")
    return write(handle, data)
os.write = watched
sys.argv = ["agent", *sys.argv[1:]]
from agentcli.cli.entry import main
atexit.register(note, "end")
main()
"""


def modules(tmp_path: Path, when: str, *args: str, env: dict[str, str] | None = None) -> set[str]:
    env = {**(env or agent_env()), "PROBE": str(tmp_path / "modules-")}
    subprocess.run(
        [sys.executable, "-c", PROBE, *args],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    return set(json.loads((tmp_path / f"modules-{when}").read_text()))


@pytest.mark.spec("CLI-1")
def test_version_imports_not_even_the_command_line(tmp_path: Path) -> None:
    found = modules(tmp_path, "end", "--version")
    assert not found & (HEAVY | {"typer", "asyncio", "agentcli.cli.main"})


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize(
    "args",
    [("--help",), ("run", "--help"), ("models", "--help"), ("completions", "bash")],
    ids=" ".join,
)
def test_help_and_completion_import_no_heavy_library(tmp_path: Path, args: tuple[str, ...]) -> None:
    found = modules(tmp_path, "end", *args) & (HEAVY | {"sqlite3"})
    assert not found


@pytest.mark.spec("CLI-11")
def test_a_usage_error_imports_no_heavy_library(tmp_path: Path) -> None:
    assert not modules(tmp_path, "end", "run", "--maxturns", "3") & (HEAVY | {"asyncio"})


@pytest.mark.spec("CLI-2")
def test_one_shot_sends_its_request_before_it_imports_what_only_the_answer_needs(
    tmp_path: Path,
) -> None:
    step = call("bash", {"command": "echo hi"})
    with ModelServer([step, say("hello")]) as server:
        env = {**agent_env(server), "HOME": str(tmp_path / "home")}
        (tmp_path / "home" / ".agents" / "skills").mkdir(parents=True)  # nothing in it
        found = modules(tmp_path, "connect", "run", "--yolo", "hi", env=env)
        assert "exit code 0" in json.dumps(server.requests[1].body)
    unwanted = found & (HEAVY - {"httpx"} | {"mcp", "tomllib", "click", "typer"})
    assert not unwanted
    assert not {name for name in found if "hooks" in name.split(".") or "plugins" in name}
    brought = {name for name in found if name.startswith("agentcli.extensions.")}
    assert "yaml" not in found and brought <= {
        "agentcli.extensions.places",
    }
    tools = {name for name in found if name.startswith("agentcli.tools.")}
    assert tools <= {"agentcli.tools.common", "agentcli.tools.common.registry"}
    after = set(json.loads((tmp_path / "modules-end").read_text()))
    assert "pydantic.main" in after
    assert "importlib.metadata" not in after  # by which pydantic would find plugins


@pytest.mark.spec("CLI-2", "UI-3")
def test_the_chat_shows_its_prompt_before_it_imports_what_only_an_answer_or_command_needs(
    tmp_path: Path,
) -> None:
    env = {**agent_env(), "PROBE": str(tmp_path / "modules-")}
    with Terminal([sys.executable, "-c", PROBE], env, tmp_path) as terminal:
        terminal.wait_for(IDLE)
    found = set(json.loads((tmp_path / "modules-prompt").read_text()))
    unwanted = found & (HEAVY - {"prompt_toolkit"} | {"tomllib", "yaml", "markdown_it", "ctypes"})
    assert not unwanted
    assert not {name for name in found if name.startswith(("prompt_toolkit.shortcuts", "pyexpat"))}
    ours = {name.removeprefix("agentcli.") for name in found}
    commands = {name for name in ours if name.startswith("repl.slash.")}
    assert commands <= {"repl.slash.todos"}
    assert not {name for name in ours if name.startswith(("process.", "tools."))} - {
        "process.sandbox",
        "tools.common",
        "tools.common.registry",
    }


@pytest.mark.spec("MCP-2")
def test_servers_of_a_session_are_imported_and_started_once_the_first_request_has_left(
    tmp_path: Path,
) -> None:
    script = Path(__file__).parent / "support" / "mcp_hostile.py"
    entry = {"command": sys.executable, "args": ["-S", str(script), "echo"]}
    config = json.dumps({"mcpServers": {"one": entry, "two": entry}})
    start = ("run", "hi", "--mcp-config", config)
    with ModelServer([call("tool_search", {"query": "echo"}), say("a"), say("b")]) as server:
        modules(tmp_path, "end", *start, env=agent_env(server))
        (tmp_path / "modules-connect").unlink()
        found = modules(tmp_path, "connect", *start, env=agent_env(server))
        assert "- two: Tools: echo" in json.dumps(server.requests[-1].body["system"])
        assert len(server.requests) == 3
    brought = {name for name in found if {"mcp", "rpc"} & set(name.split("."))}
    values = {"agentcli.domain.extensions.mcp", "agentcli.mcp.remembered", "agentcli.mcp.servers"}
    assert brought <= values | {"agentcli.mcp"}
    assert not found & {"agentcli.process.guard", "agentcli.process.run"}
    assert "agentcli.extensions.commands" not in found
