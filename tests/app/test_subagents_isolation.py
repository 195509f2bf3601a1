"""``isolation: worktree``: sub-agents that write, each in a working tree of its own (EXT-3)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.domain.events import AgentEvent, Outcome, Prompt, ToolProgress
from agentcli.domain.messages import ResultStatus, ToolResult, user_text
from agentcli.domain.ports import PermissionMode
from tests.app.test_subagents import children, go, in_session, is_child, settings_for, task
from tests.extensions.places import write
from tests.support.cli import agent_env, run_agent, spawn_agent
from tests.support.model_server import ModelServer, Recorded
from tests.support.replies import Reply, call, calls, say
from tests.support.repositories import git, make_repository, traces
from tests.support.sandboxes import needs

WORK = {
    "one": "echo uno > a.txt && git add -A && git commit -qm one",
    "two": "echo two > a.txt && echo two > new.txt",
    "three": "cat a.txt",
    "four": "git checkout -q --detach && git commit -q --allow-empty -m four",
}

FAILS_IN_WORKTREES = """#!/bin/sh
case "$*" in */worktrees/*) echo "no more namespaces" >&2; exit 1 ;; esac
exec {real} "$@"
"""


@pytest.fixture
def root(tmp_path: Path, home: Path) -> Path:
    head = "---\nname: writer\ndescription: Writes\nisolation: worktree\n---\n"
    write(home, ".agents/agents/writer.md", f"{head}Be short.")
    return make_repository(tmp_path / "project")


def answer(recorded: Recorded) -> Reply | str:
    """Each child runs its own command, then says what it saw."""
    if not is_child(recorded):
        return "thanks"
    asked = json.dumps(recorded.body["messages"])
    word = next(word for word in WORK if f"{word}!" in asked)
    if "tool_result" in asked:
        return f"{word} done"
    return call("bash", {"command": WORK[word]})


@pytest.mark.slow
@pytest.mark.spec("EXT-3", "SCALE-1")
def test_several_at_once_do_not_collide_and_say_where_their_work_is(root: Path, home: Path) -> None:
    tasks = [task(f"{word}!", agent="writer") for word in WORK]
    with ModelServer([Reply(blocks=tuple(tasks))], default=answer) as server:
        settings = settings_for(server)
        summary, events, results = go(settings, root, mode=PermissionMode.YOLO)
        assert not server.violations
        system = next(json.dumps(each.body["system"]) for each in server.requests if is_child(each))
    del events
    assert summary.outcome is Outcome.DONE
    assert "You work in a git worktree of your own" in system
    one, two, three, four = (result.text for result in results)
    assert "1 commit" in one and "git merge agent/" in one
    assert "1 changed file, 1 untracked file" in two and "not committed" in two
    assert "left nothing there" in three and "1 commit" in four
    assert "git merge agent/" not in four and "git merge" in four
    assert (root / "a.txt").read_text() == "one\n" and git(root, "status", "--short") == ""
    kept = traces(root, home / "agentcli")
    assert len(kept["trees"]) == len(kept["branches"]) == 3
    places = {info.cwd for info in children(settings)}
    assert len(places) == 4 and all(str(home / "agentcli/worktrees") in each for each in places)
    branch = next(word.rstrip(".") for word in one.split() if word.startswith("agent/"))
    git(root, "merge", "-q", branch)
    assert "removed" in run_agent("worktrees", "prune", cwd=root).stdout
    assert len(traces(root, home / "agentcli")["trees"]) == 2


@pytest.mark.sampled
@pytest.mark.spec("SEC-3", "SEC-7")
@pytest.mark.parametrize("mode", ["yolo", "auto"])
def test_where_the_named_sandbox_does_not_work_in_its_worktree_it_does_not_start(
    root: Path, tmp_path: Path, mode: str
) -> None:
    needs("bwrap")
    write(tmp_path, "bin/bwrap", FAILS_IN_WORKTREES.format(real=shutil.which("bwrap")))
    (tmp_path / "bin" / "bwrap").chmod(0o755)
    outside = tmp_path / "outside"
    reach_out = call("bash", {"command": f"touch {outside}"})
    script = [Reply(blocks=(task(agent="writer"),))]
    path = f"{tmp_path}/bin:{os.environ['PATH']}"

    def reply(recorded: Recorded) -> Reply | str:
        asked = json.dumps(recorded.body["messages"])
        return reach_out if is_child(recorded) and "tool_result" not in asked else "done"

    args = ("run", "--permission-mode", mode, "--sandbox", "bwrap", "go")
    with ModelServer(script, default=reply) as server:
        run_agent(*args, env=agent_env(server, PATH=path), cwd=root)
        assert not outside.exists()
        assert not any(map(is_child, server.requests))
        told = json.dumps(server.requests[-1].body["messages"])
    assert "The agent could not start: --sandbox bwrap" in told


@pytest.mark.spec("SEC-17")
def test_what_others_run_is_protected_in_its_worktree_as_in_the_directory_of_the_session(
    root: Path,
) -> None:
    write(root, "services/api/.envrc", "source ../../common.sh\n")
    write(root, "common.sh", "true\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "direnv")
    edit = call("write_file", {"path": "common.sh", "content": "x\n"})
    script = [Reply(blocks=(task("go!", agent="writer"),)), edit, "did", "thanks"]
    with ModelServer(script) as server:
        args = ("run", "--permission-mode", "accept-edits", "go", "-o", "json")
        done = run_agent(*args, env=agent_env(server), cwd=root)
    (denied,) = done.result["permission_denials"]
    assert "common.sh (run by .envrc) is protected" in denied["reason"]


ALLOWS_ONE_FILE = """import json, sys
told = json.load(sys.stdin)
name = told["tool_input"].get("file_path", "")
print(told["hook_event_name"], name, file=open({log!r}, "a"))
if name == {allowed!r}:
    said = {{"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    print(json.dumps({{"hookSpecificOutput": said}}))
"""


@pytest.mark.spec("SEC-3", "EXT-9")
def test_hooks_are_told_of_the_file_in_its_worktree(root: Path, home: Path) -> None:
    log = home / "log"
    text = ALLOWS_ONE_FILE.format(log=str(log), allowed=str(root / "a.txt"))
    write(home, "hook.py", text)
    hooks = [{"hooks": [{"type": "command", "command": f"python3 {home}/hook.py"}]}]
    settings = {"hooks": {"PreToolUse": hooks, "PostToolUse": hooks}}
    write(home, ".claude/settings.json", json.dumps(settings))
    edit = call("write_file", {"path": "a.txt", "content": "x\n"})
    script = [Reply(blocks=(task("go!", agent="writer"),)), call("read_file", {"path": "a.txt"})]
    with ModelServer([*script, edit, "did", "thanks"]) as server:
        done = run_agent("run", "go", "-o", "json", env=agent_env(server), cwd=root)
    assert [each["tool_name"] for each in done.result["permission_denials"]] == ["write_file"]
    told = [line.split(" ", 1) for line in log.read_text().splitlines() if "a.txt" in line]
    assert [event for event, _ in told] == ["PreToolUse", "PostToolUse", "PreToolUse"]
    assert all("/worktrees/" in name for _, name in told)


@pytest.mark.spec("EXT-3")
def test_where_there_is_no_repository_it_works_beside_the_others(
    root: Path, tmp_path: Path
) -> None:
    del root
    plain = tmp_path / "plain"
    plain.mkdir()
    script = [Reply(blocks=(task(agent="writer"),)), "seen", "thanks"]
    with ModelServer(script) as server:
        _, events, (result,) = go(settings_for(server), plain)
    assert result.text.startswith("seen")
    said = [event for event in events if "in no git repository" in str(event)]
    assert len(said) == 1 and "works in the session's directory" in str(said[0])


@pytest.mark.spec("EXT-3", "CAN-10")
def test_a_cancelled_one_keeps_its_work_and_leaves_nothing_else(root: Path, home: Path) -> None:
    slow = call("bash", {"command": "echo x > new.txt; sleep 60"})
    clean = call("bash", {"command": "sleep 61"})

    def reply(recorded: Recorded) -> Reply | str:
        return slow if "dirty!" in json.dumps(recorded.body["messages"]) else clean

    first = Reply(blocks=(task("dirty!", agent="writer"), task("clean!", agent="writer")))
    with ModelServer([first], default=reply) as server:

        async def body(session: Session) -> Any:
            running: set[str] = set()
            both = asyncio.Event()

            def heard(event: AgentEvent) -> None:
                if isinstance(event, ToolProgress) and "sleep" in event.text:
                    running.add(event.text)
                    if len(running) > 1:
                        both.set()

            session.add_listener(heard)
            turn = asyncio.ensure_future(session.run(Prompt(user_text("go"))))
            await asyncio.wait_for(both.wait(), 10)
            state = home / "agentcli/worktrees"
            while not any(state.glob("*/*/new.txt")):
                await asyncio.sleep(0.01)
            session.interrupt()
            await turn
            return [m for m in session.history.messages if isinstance(m, ToolResult)]

        options = SessionOptions(cwd=root, mode=PermissionMode.YOLO)
        results = in_session(settings_for(server), options, body)
    assert {result.status for result in results} == {ResultStatus.CANCELLED}
    assert len(traces(root, home / "agentcli")["trees"]) == 1


@pytest.mark.slow
@pytest.mark.spec("EXT-3", "SCALE-1")
def test_what_a_kill_leaves_is_found_by_prune(root: Path, home: Path) -> None:
    first = calls(*(task(f"{number}!", agent="writer") for number in range(3)))
    for kill_after in (2, 4):
        with ModelServer([first], default=lambda _: say("held", stall_at="text")) as server:
            env = agent_env(server)
            with spawn_agent("run", "--yolo", "go", env=env, cwd=root) as running:
                server.wait_for_requests(kill_after)
                running.signal(signal.SIGKILL)
                running.wait()
        assert traces(root, home / "agentcli")
        assert run_agent("worktrees", "prune", cwd=root).code == 0
        assert traces(root, home / "agentcli") == {}
