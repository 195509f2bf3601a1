"""Hooks as a home and a repository of Claude Code have them, around the real program."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chat import IDLE, Chat
from tests.e2e.one_shot import check_sessions, one_shot
from tests.support.model_server import ModelServer
from tests.support.replies import Call, call, calls, say
from tests.support.wire_facts import facts_of

NOTE = """#!/bin/sh
# as such scripts are: they know the fields of Claude Code alone
python3 -c '
import json, sys
told = json.load(sys.stdin)
with open(sys.argv[1], "a") as log: log.write(json.dumps(told) + "\\n")
path = told.get("tool_input", {}).get("file_path", "")
if told["hook_event_name"] == "PreToolUse" and path.endswith("locked.txt"):
    print("locked.txt is not to be touched", file=sys.stderr)
    sys.exit(2)
' "$HOME/told"
"""
GRANT = {
    "hookSpecificOutput": {
        "hookEventName": "PermissionRequest",
        "decision": {"behavior": "allow"},
    }
}
EVENTS = (
    "SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse",
    "PostToolUseFailure", "SubagentStart", "SubagentStop", "Stop", "SessionEnd",
)  # fmt: skip


def home() -> Path:
    return Path(os.environ["HOME"])


def settings(**hooks: str) -> dict[str, Any]:
    return {
        "hooks": {
            event: [{"hooks": [{"type": "command", "command": command, "timeout": 20}]}]
            for event, command in hooks.items()
        }
    }


def put(directory: Path, document: dict[str, Any]) -> None:
    (directory / ".claude").mkdir(parents=True, exist_ok=True)
    (directory / ".claude/settings.json").write_text(json.dumps(document))


def told(event: str) -> list[dict[str, Any]]:
    lines = (home() / "told").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["hook_event_name"] == event]


@pytest.fixture
def script() -> str:
    home().mkdir(exist_ok=True)
    file = home() / "note.sh"
    file.write_text(NOTE)
    file.chmod(0o755)
    return str(file)


@pytest.mark.slow
@pytest.mark.spec("EXT-9")
def test_hooks_of_a_claude_code_home_work_without_a_change(
    model_server: ModelServer, work: Path, script: str
) -> None:
    document = settings(**dict.fromkeys(EVENTS, script))
    document["hooks"]["PostToolUse"][0]["matcher"] = "Write|Edit"
    put(home(), document)
    (work / "locked.txt").write_text("keep\n")
    patch = "*** Begin Patch\n*** Update File: locked.txt\n@@\n-keep\n+gone\n*** End Patch"
    model_server.add(
        calls(
            Call("write_file", {"path": "a.txt", "content": "x"}, id="w"),
            Call("apply_patch", {"patch": patch}, id="p"),
            Call("read_file", {"path": "none.txt"}, id="r"),
        ),
        call("task", {"description": "look", "prompt": "look around"}, id="t"),
        say("sub answer"),
        say("Done."),
    )
    done = one_shot(model_server, "--permission-mode", "accept-edits", "go", cwd=work)
    assert done.code == 0, done.stderr
    assert (work / "locked.txt").read_text() == "keep\n"
    assert "locked.txt is not to be touched" in facts_of(model_server.requests[1]).results["p"]
    write, patched, read, _ = told("PreToolUse")
    assert (write["tool_name"], write["tool_input"]) == (
        "Write", {"file_path": str(work / "a.txt"), "content": "x"},
    )  # fmt: skip
    assert (patched["tool_name"], read["tool_name"]) == ("Edit", "Read")
    assert [each["tool_response"]["filePath"] for each in told("PostToolUse")] == [
        str(work / "a.txt")
    ]
    (failed,) = told("PostToolUseFailure")
    assert failed["tool_input"]["file_path"] == str(work / "none.txt") and failed["error"]
    (begun,), (stopped,) = told("SubagentStart"), told("SubagentStop")
    assert begun["agent_id"] == stopped["agent_id"] and stopped["agent_type"] == "task"
    assert stopped["last_assistant_message"] == "sub answer"
    assert len(told("Stop")) == len(told("SessionEnd")) == len(told("UserPromptSubmit")) == 1
    assert told("SessionStart")[0]["model"]
    check_sessions()


@pytest.mark.spec("EXT-9", "SEC-3")
def test_a_permission_hook_answers_for_you_but_passes_no_rule_and_no_protected_place(
    model_server: ModelServer, work: Path
) -> None:
    home().mkdir(exist_ok=True)
    (home() / "grant.json").write_text(json.dumps(GRANT))
    document = settings(PermissionRequest=f"cat {home() / 'grant.json'}")
    document["permissions"] = {"deny": ["Bash(rm:*)"], "allow": ["Bash"]}
    put(home(), document)
    model_server.add(
        calls(
            Call("bash", {"command": "touch made"}, id="ok"),
            Call("bash", {"command": "rm -f made"}, id="denied"),
            Call("write_file", {"path": ".git/hooks/pre-commit", "content": "x"}, id="protected"),
        ),
        say("Done."),
    )
    done = one_shot(model_server, "--sandbox", "off", "go", cwd=work)
    assert (work / "made").exists(), done.stderr
    assert not (work / ".git/hooks/pre-commit").exists()
    results = facts_of(model_server.requests[1]).results
    assert "bash(rm" in results["denied"] or "deny" in results["denied"]


@pytest.mark.slow
@pytest.mark.spec("EXT-9", "SEC-1", "SEC-17")
def test_hooks_of_a_repository_are_shown_and_asked_about_once(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    document = settings(SessionStart="touch ran")
    document["hooks"]["Stop"] = [{"hooks": [{"type": "prompt", "prompt": "ok?"}]}]
    document["permissions"] = {"deny": ["WebFetch"], "allow": ["Bash(curl *)"]}
    put(work, document)
    model_server.add("Hello.", "Again.")
    done = one_shot(model_server, "hi", cwd=work)
    assert done.code == 0 and ".claude is ignored" in done.stderr
    assert not (work / "ran").exists()
    terminal = chat(until="Do you trust this directory?", rows=40, cols=100)
    terminal.wait_for("Enter confirms")
    shown = terminal.text()
    for part in ("hook on SessionStart: touch ran", "permissions.deny = web_fetch", "'prompt'"):
        assert part in shown
    assert "curl" not in shown
    terminal.confirm("y")
    terminal.wait_for(IDLE)
    terminal.wait_until(lambda: (work / "ran").exists(), what="the hook")
    document["hooks"]["SessionStart"][0]["hooks"][0]["command"] = "touch other"
    put(work, document)
    changed = one_shot(model_server, "hi", cwd=work)
    assert "has changed since you trusted it" in changed.stderr
    assert not (work / "other").exists()


@pytest.mark.spec("MCP-3", "SEC-1")
def test_servers_of_a_repository_start_only_where_it_is_trusted(
    model_server: ModelServer, work: Path
) -> None:
    started = work / "started"
    servers = {"mcpServers": {"x": {"command": "touch", "args": [str(started)]}}}
    (work / ".mcp.json").write_text(json.dumps(servers))
    model_server.add("Hello.", call("mcp_call", {"server": "x", "tool": "t"}), "Done.")

    assert one_shot(model_server, "hi", cwd=work).code == 0
    assert not started.exists()
    assert one_shot(model_server, "hi", "--trust", "--yolo", cwd=work).code == 0
    assert started.exists()
