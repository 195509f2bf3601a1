"""``agent sessions import``: coming from another program, with the sessions held there."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.cli.test_sessions import listed
from tests.store.imports.made import (
    CLAUDE_ID,
    CODEX_ID,
    claude_session,
    codex_session,
    jsonl,
    opencode_session,
)
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.rivals import PROTOCOLS
from tests.support.wire_facts import facts_of


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a session of each program; returns it."""
    work = tmp_path / "work.dir"
    work.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    name = "".join(c if c.isalnum() and c.isascii() else "-" for c in str(work))
    held = json.dumps("/home/her/project").encode(), json.dumps(str(work)).encode()
    claude = tmp_path / "claude/projects" / name / f"{CLAUDE_ID}.jsonl"
    codex = tmp_path / f"codex/sessions/2026/01/02/rollout-2026-01-02T03-04-01-{CODEX_ID}.jsonl"
    for path, records in ((claude, claude_session()), (codex, codex_session())):
        path.parent.mkdir(parents=True)
        path.write_bytes(jsonl(records).replace(*held))
    old = time.time() - 1000
    os.utime(claude, (old, old))
    elsewhere = codex.with_name("rollout-elsewhere.jsonl")
    elsewhere.write_bytes(jsonl(codex_session()))
    return work


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_a_file_becomes_a_session_that_says_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "anything.txt"
    path.write_bytes(jsonl(claude_session()))
    done = run_agent("sessions", "import", str(path), cwd=tmp_path)
    assert done.code == 0, done.stderr
    session_id = done.stdout.strip()
    assert f"agent resume {session_id}" in done.stderr
    assert "\x1b" not in done.stderr
    (entry,) = listed()
    assert entry["id"] == session_id
    origin = entry["imported_from"]
    assert (origin["format"], origin["id"]) == ("claude", CLAUDE_ID)
    assert entry["created_at"] == "2026-01-02T03:04:01.000Z"
    assert "[from Claude Code]" in run_agent("sessions", "list").stdout
    shown = run_agent("sessions", "show", session_id).stdout
    assert f"from Claude Code · {CLAUDE_ID}" in shown
    again = run_agent("sessions", "import", str(path))
    assert (again.code, again.stdout) == (0, done.stdout)
    assert "imported before" in again.stderr
    assert json.loads(run_agent("stats", "--format", "json").stdout)["total_cost_usd"] == 0


@pytest.mark.slow
@pytest.mark.spec("CLI-8", "HIS-7")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("program", ["claude", "codex", "opencode"])
@pytest.mark.sampled
def test_an_imported_session_goes_on_with_any_provider(
    model_server: ModelServer, tmp_path: Path, program: str, protocol: str
) -> None:
    made = {
        "claude": jsonl(claude_session()),
        "codex": jsonl(codex_session()),
        "opencode": json.dumps(opencode_session()).encode(),
    }
    done = run_agent("sessions", "import", "-", input=made[program])
    model_server.add("Here I am.")
    on = run_agent(
        "run", "--session", done.stdout.strip(), "go on",
        env=agent_env(model_server, protocol), cwd=tmp_path,
    )  # fmt: skip
    assert (on.code, on.stdout.strip()) == (0, "Here I am."), on.stderr
    assert len(model_server.requests) == 1
    assert facts_of(model_server.requests[0]).prompts[-1] == "go on"


@pytest.mark.slow
@pytest.mark.spec("CLI-8")
def test_what_others_hold_of_this_directory_is_found(there: Path) -> None:
    found = json.loads(
        run_agent("sessions", "import", "--list", "--format", "json", cwd=there).stdout
    )
    assert [(each["from"], each["id"]) for each in found] == [
        ("codex", CODEX_ID),
        ("claude", CLAUDE_ID),
    ]
    one = run_agent("sessions", "import", "--from", "claude", CLAUDE_ID[:8], cwd=there)
    assert one.code == 0, one.stderr
    both = run_agent("sessions", "import", "--from", "codex", cwd=there)
    assert len(both.stdout.split()) == 1
    assert {each["imported_from"]["format"] for each in listed()} == {"claude", "codex"}
    none = run_agent("sessions", "import", "--list", cwd=there.parent)
    assert (none.code, none.stdout) == (0, "")
    wrong = run_agent("sessions", "import", "--from", "codex", "nothing", cwd=there)
    assert wrong.code == 2 and "--list" in wrong.stderr


@pytest.mark.spec("CLI-8")
def test_a_directory_is_imported_file_by_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "a/subagents").mkdir(parents=True)
    (store / "a/one.jsonl").write_bytes(jsonl(codex_session()))
    (store / "a/subagents/agent-x.jsonl").write_bytes(jsonl(claude_session()))
    (store / "two.json").write_text(json.dumps(opencode_session()))
    (store / "other.json").write_text('{"no": "session"}')
    (store / "link.jsonl").symlink_to("/etc/passwd")
    done = run_agent("sessions", "import", "--format", "json", str(store))
    assert done.code == 0
    assert {each["from"] for each in json.loads(done.stdout)} == {"codex", "opencode"}
    assert "left alone:" in done.stderr and "passwd" not in done.stderr


@pytest.mark.sampled
@pytest.mark.spec("CLI-8", "CLI-11")
@pytest.mark.parametrize(
    "arguments",
    [(), ("nothing.jsonl",), ("/dev/zero",), ("-",), ("--from", "cursor")],
)
def test_what_cannot_be_imported_is_one_line_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    done = run_agent("sessions", "import", *arguments)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert listed() == []


@pytest.mark.spec("CLI-8", "SEC-13")
@pytest.mark.parametrize("command", [("sessions", "import"), ("batch",), ("pipeline", "run")])
def test_a_pipe_that_nobody_writes_to_is_given_up(command: tuple[str, ...], tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    done = run_agent(*command, str(pipe), cwd=tmp_path)
    assert done.code == 2
    assert f"cannot read {pipe}: nobody writes to that pipe" in done.stderr


@pytest.mark.spec("CLI-8")
def test_a_trajectory_holds_those_of_sub_agents(tmp_path: Path) -> None:
    done = run_agent("sessions", "import", "-", input=jsonl(claude_session()))
    exported = run_agent("sessions", "export", done.stdout.strip(), "--format", "atif")
    whole = json.loads(exported.stdout)
    assert whole["schema_version"] == "ATIF-v1.8"
    (agent,) = whole["subagent_trajectories"]
    refs = [
        ref["trajectory_id"]
        for step in whole["steps"]
        for result in step.get("observation", {}).get("results", ())
        for ref in result.get("subagent_trajectory_ref", ())
    ]
    assert refs == [agent["trajectory_id"]]
    assert agent["agent"]["name"] == "Explore"
