"""What a trusted project's MCP server runs: a change asks again before it runs (SEC-1, SEC-17)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.e2e.one_shot import last_result, one_shot
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import call
from tests.support.sandboxes import BOTH, needs

pytestmark = pytest.mark.slow
_QUESTION = re.compile(r"Do you trust this directory\?")


@pytest.mark.spec("SEC-1", "SEC-17")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "sh", "args": ["tools/serve.sh"]},
        {"command": ["sh", "serve.sh"], "cwd": "${workspaceFolder}/tools"},
        {"command": "bash", "args": ["-c", "true"], "env": {"BASH_ENV": "tools/serve.sh"}},
    ],
    ids=str,
)
def test_a_changed_script_of_a_server_is_not_run_before_it_was_asked_about(
    model_server: ModelServer, chat: Chat, work: Path, entry: dict[str, Any]
) -> None:
    script = work / "tools/serve.sh"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\ntouch $PWD/started\n")
    script.chmod(0o755)
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
    terminal = chat(until=_QUESTION)
    terminal.confirm("y")
    terminal.wait_for(IDLE)
    leave(terminal)
    look = call("tool_search", {"query": "notes"})
    model_server.add(look, "Hello.")
    assert "trust" not in one_shot(model_server, "hi", cwd=work).stderr
    assert list(work.rglob("started")), "the server never started"
    changed = {"path": "tools/serve.sh", "content": "touch $PWD/evil\n"}
    model_server.add(look, call("write_file", changed), look, "Done.")
    done = one_shot(model_server, "hi", "--permission-mode", "accept-edits", cwd=work)
    assert done.code == 0 and "evil" in script.read_text(), done.stderr
    assert not list(work.rglob("evil")), "in the same session"
    model_server.add(look, "Hello.")
    done = one_shot(model_server, "hi", cwd=work)
    assert "has changed since you trusted it" in done.stderr
    assert not list(work.rglob("evil"))


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_no_server_of_a_project_is_started_while_something_inside_could_change_what_it_runs(
    model_server: ModelServer, work: Path, kind: str
) -> None:
    needs(kind)
    (work / "tools").mkdir()
    (work / "tools/serve.sh").write_text("echo once >> started\n")
    entry = {"command": "sh", "args": ["tools/serve.sh"]}
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
    look = call("tool_search", {"query": "notes"})
    stays = call("bash", {"command": "cp started before; sleep 60 > /dev/null 2>&1 &"})
    model_server.add(look, stays, look, "Done.")
    options = ("--trust", "--sandbox", kind, "--permission-mode", "auto")
    done = one_shot(model_server, "hi", *options, cwd=work)
    assert done.code == 0, done.stderr
    assert (work / "started").read_text() == (work / "before").read_text()
    assert "end that first" in last_result(model_server)


@pytest.mark.spec("SEC-1", "SEC-17")
def test_a_changed_script_of_a_check_is_not_run_without_a_sandbox(
    model_server: ModelServer, work: Path, tmp_path: Path
) -> None:
    for name, text in {
        ".agents/config.toml": "[[checks]]\nglob = '*'\ncheck = 'sh tools/check.sh'\n",
        "tools/check.sh": f"touch {tmp_path}/ran\n",
    }.items():
        (work / name).parent.mkdir()
        (work / name).write_text(text)
    harmless = call("write_file", {"path": "a.txt", "content": "x"})
    changed = {"path": "tools/check.sh", "content": f"touch {tmp_path}/evil\n"}
    model_server.add(harmless, call("write_file", changed), "Done.")
    options = ("--trust", "--sandbox", "off", "--permission-mode", "accept-edits")
    done = one_shot(model_server, "hi", *options, cwd=work)
    assert done.code == 0 and (tmp_path / "ran").exists(), done.stderr
    assert "evil" in (work / "tools/check.sh").read_text()
    assert not (tmp_path / "evil").exists()


@pytest.mark.spec("SEC-3", "SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("how", ["settings", "local", "option"])
def test_a_script_that_a_server_of_the_user_s_own_runs_is_changed_by_nobody_unasked(
    model_server: ModelServer, work: Path, kind: str, how: str
) -> None:
    needs(kind)
    script = work / "tools/serve.py"
    script.parent.mkdir()
    script.write_text("print('was there')\n")
    whole = ["mcp", "add", "own", "-s", "local" if how == "local" else "user", "--"]
    options = ("--sandbox", kind, "--permission-mode", "auto")
    if how == "option":
        entry = {"command": "python3", "args": [str(script)]}
        options += ("--mcp-config", json.dumps({"mcpServers": {"own": entry}}))
    else:
        env = agent_env(model_server)
        assert not run_agent(*whole, "python3", str(script), env=env, cwd=work).code
    hidden = "import os; p = 'tools/se' + 'rve.py'; os.path.exists(p) and open(p, 'a').write('#')"
    model_server.add(
        call("write_file", {"path": "tools/serve.py", "content": "evil\n"}),
        call("bash", {"command": "echo evil > tools/serve.py"}),
        call("bash", {"command": f'python3 -c "{hidden}"'}),
        call("write_file", {"path": "tools/other.py", "content": "fine\n"}),
        "Done.",
    )
    one_shot(model_server, "hi", *options, cwd=work)
    assert script.read_text() == "print('was there')\n"
    assert (work / "tools/other.py").exists()
