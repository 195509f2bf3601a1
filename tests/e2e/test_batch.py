"""``agent batch``: killed and started again, drained, refused by its provider, out of money."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import agentcli.fleet
from agentcli.store.files import SessionFiles
from agentcli.ui.export import mark_of
from tests.support.batches import (
    Service,
    answers_in,
    numbered_tasks,
    processes_of,
    rows_of,
    write_tasks,
)
from tests.support.cli import Running, agent_env, run_agent
from tests.support.memory import children_peak_kib
from tests.support.model_server import ModelServer
from tests.support.processes import wait_until
from tests.support.replies import call, fails, say
from tests.support.repositories import make_repository
from tests.support.sandboxes import BOTH, needs

ROW = Path(agentcli.fleet.__file__).with_name("results.schema.json")


def check_rows(rows: list[dict[str, object]]) -> None:
    validator = Draft202012Validator(json.loads(ROW.read_text()))
    for row in rows:
        validator.validate(row)


@pytest.mark.slow
@pytest.mark.spec("SCALE-2")
def test_a_batch_that_is_killed_goes_on_and_no_task_is_done_twice(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    Service(model_server, fault_each=9, command_each=6)
    tasks = write_tasks(work / "tasks.jsonl", numbered_tasks(12))
    words = ("batch", "tasks.jsonl", "-j", "4", "-o", "out", "--yolo")
    env = agent_env(model_server)
    with Running(*words, env=env, cwd=work) as running:
        model_server.wait_for_requests(6)
        running.process.kill()
        running.process.wait()
    wait_until(lambda: not processes_of(home), "the tasks end with their batch")
    done = run_agent(*words, env=env, cwd=work, timeout=60)
    assert done.code == 0, done.stdout + done.stderr
    rows = rows_of(work / "out")
    check_rows(rows)
    assert [row["id"] for row in rows] == [f"t{number}" for number in range(12)]
    assert all(row["state"] == "done" and row["exit_code"] == 0 for row in rows)
    assert [row["result"] for row in rows] == [f"done with {number}" for number in range(12)]
    assert all(row["cost_usd"] > 0 for row in rows)
    assert answers_in(home) == {row["session_id"]: 1 for row in rows}
    for marks in work.glob("marks-*.txt"):
        assert len(marks.read_text().splitlines()) <= 1
    asked = len(model_server.requests)
    again = run_agent(*words, "--format", "json", env=env, cwd=work)
    assert again.code == 0 and again.result["skipped"] == 12
    assert len(model_server.requests) == asked and rows_of(work / "out") == rows
    assert tasks.exists() and not processes_of(home)


@pytest.mark.slow
@pytest.mark.spec("SCALE-2", "REC-4")
def test_tasks_do_not_come_between_a_user_and_the_sessions_of_their_own(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    env = agent_env(model_server)
    model_server.default = say("said")
    mine = run_agent("run", "-o", "json", "mine", env=env, cwd=work).result["session_id"]
    write_tasks(work / "t.jsonl", [{"id": "a", "prompt": "theirs"}, {"id": "b", "prompt": "too"}])
    words = ("batch", "t.jsonl", "-j", "2", "-o", "out")
    assert run_agent(*words, env=env, cwd=work).code == 0
    tasks = {row["session_id"] for row in rows_of(work / "out")}
    files = SessionFiles(home / "agentcli" / "sessions", home / "agentcli" / "catalogue.db")

    def listed(*, everything: bool = False) -> dict[str, str]:
        found = asyncio.run(files.newest(9, agents=everything))
        return {info.id: mark_of(info) for info in found}

    assert listed() == {mine: ""}
    assert listed(everything=True) == {mine: "", **dict.fromkeys(tasks, "[batch] ")}
    more = run_agent("run", "-c", "-o", "json", "go on", env=env, cwd=work).result["session_id"]
    assert more == mine
    taken = min(tasks)  # what a user goes on with is theirs
    run_agent("run", "--session", taken, "and then?", env=env, cwd=work)
    assert listed() == {taken: "", mine: ""}
    latest = asyncio.run(files.latest(str(work)))
    assert latest is not None and latest.id == taken


@pytest.mark.slow
@pytest.mark.spec("SCALE-1", "SCALE-2")
def test_who_names_the_worktree_of_a_task_goes_on_with_that_task(
    model_server: ModelServer, work: Path
) -> None:
    make_repository(work)
    env = agent_env(model_server)
    Service(model_server)
    write_tasks(work.parent / "t.jsonl", numbered_tasks(1))
    words = ("batch", "../t.jsonl", "-w", "--yolo", "-o", "../out")
    assert run_agent(*words, env=env, cwd=work).code == 0
    (row,) = rows_of(work.parent / "out")
    model_server.default = say("said")
    again = ("run", "-w", row["worktree"], "-c", "-o", "json", "and then?")
    for _ in range(2):  # as the task's, then as the user's
        assert run_agent(*again, env=env, cwd=work).result["session_id"] == row["session_id"]
    assert run_agent("run", "-c", "hi", env=env, cwd=work).code == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("SCALE-2")
@pytest.mark.parametrize(
    ("count", "kills"), [(20, 3), pytest.param(200, 10, marks=pytest.mark.campaign)]
)
def test_tasks_in_worktrees_killed_at_any_moment_are_all_done_once(
    model_server: ModelServer, work: Path, home: Path, count: int, kills: int
) -> None:
    chance = random.Random(count)
    Service(model_server, fault_each=20, command_each=1)
    for line in (
        "git init -q .",
        "git config user.name me",
        "git config user.email me@example.org",
        "echo one > file.txt",
        "git add .",
        "git commit -qm one",
    ):
        subprocess.run(line, shell=True, check=True, cwd=work)
    tasks = write_tasks(work.parent / "tasks.jsonl", numbered_tasks(count))
    budget = "--max-budget-usd=1000"
    words = ("batch", str(tasks), "-j", "8", "-o", "../out", "--yolo", "-w", budget)
    env = agent_env(model_server)
    for _ in range(kills):
        requests = len(model_server.requests) + chance.randint(1, 2 * count // kills)
        with Running(*words, env=env, cwd=work) as running:
            with suppress(AssertionError):  # all may be done by then
                model_server.wait_for_requests(requests, timeout=60)
            time.sleep(chance.random() * 0.5)
            running.process.kill()
            running.process.wait()
        wait_until(lambda: not processes_of(home), "the tasks end with their batch")
        check_rows(
            rows_of(work.parent / "out") if (work.parent / "out/results.jsonl").exists() else []
        )
    done = run_agent(*words, env=env, cwd=work, timeout=600)
    rows = rows_of(work.parent / "out")
    check_rows(rows)
    assert [row["result"] for row in rows if row["state"] != "done"] == []
    assert done.code == 0, done.stderr
    assert [row["id"] for row in rows] == [f"t{number}" for number in range(count)]
    assert {row["state"] for row in rows} == {"done"}
    assert answers_in(home) == {row["session_id"]: 1 for row in rows}
    assert not processes_of(home)
    dirty = run_agent("worktrees", "list", "--format", "json", env=env, cwd=work).stdout
    names = {tree["name"] for tree in json.loads(dirty)}
    assert names <= {row["worktree"] for row in rows} and len(names) <= count
    pruned = run_agent("worktrees", "prune", env=env, cwd=work)
    assert (
        pruned.code == 0
        and subprocess.run(
            ["git", "status", "--porcelain"], cwd=work, capture_output=True, check=True
        ).stdout
        == b""
    )


@pytest.mark.slow
@pytest.mark.spec("SCALE-2")
def test_ctrl_c_lets_tasks_end_and_again_stops_them_to_go_on_later(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    held = threading.Event()
    model_server.default = say("never said", hold=held)
    write_tasks(work / "tasks.jsonl", numbered_tasks(4))
    words = ("batch", "tasks.jsonl", "-j", "2", "-o", "out")
    env = agent_env(model_server)
    with Running(*words, env=env, cwd=work) as running:
        model_server.wait_for_requests(2)
        running.signal(signal.SIGINT)
        wait_until(lambda: "no more tasks are started" in running.stderr, "the first Ctrl-C")
        running.signal(signal.SIGINT)
        stopped = running.wait(20)
    assert stopped.code == 130 and "stopping" in stopped.stderr
    assert "\x1b" not in stopped.stdout + stopped.stderr
    assert not processes_of(home)
    states = [row["state"] for row in rows_of(work / "out")]
    assert states == ["interrupted", "interrupted", "pending", "pending"]
    assert (work / "out" / "report.html").read_text().count("interrupted") >= 2
    model_server.default = say("said")
    held.set()
    again = run_agent(*words, env=env, cwd=work)
    assert again.code == 0, again.stderr
    rows = rows_of(work / "out")
    check_rows(rows)
    assert [row["attempts"] for row in rows] == [2, 2, 1, 1]
    assert answers_in(home) == {row["session_id"]: 1 for row in rows}


@pytest.mark.slow
@pytest.mark.spec("SCALE-2")
def test_with_a_refused_key_a_batch_stops_itself_and_goes_on_with_a_good_one(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    model_server.default = fails(401)
    write_tasks(work / "tasks.jsonl", numbered_tasks(6))
    words = ("batch", "tasks.jsonl", "-j", "2", "-o", "out", "--format", "json")
    env = agent_env(model_server)
    stopped = run_agent(*words, env=env, cwd=work)
    first, *rest = stopped.stderr.splitlines()
    assert stopped.code == 78 and stopped.result["stopped_by"] == "provider"
    assert first.startswith("no more tasks of anthropic/") and "refused access (401)" in first
    assert not any("refused access" in line for line in rest)
    assert rest[-1] == "start again with the same TASKS and -o to go on"
    assert stopped.result["states"] == {"interrupted": 2, "pending": 4}
    assert len(model_server.requests) == 2
    model_server.default = say("said")
    assert run_agent(*words, env=env, cwd=work).code == 0
    assert answers_in(home) == {row["session_id"]: 1 for row in rows_of(work / "out")}


BUSY_GIT = """#!/bin/sh
case " $* " in
*" worktree add "*)
    if mkdir "{mark}"; then
        echo "fatal: Unable to create '{mark}/packed-refs.lock': File exists." >&2
        exit 128
    fi ;;
esac
exec {git} "$@"
"""


@pytest.mark.slow
@pytest.mark.spec("SCALE-2")
def test_a_task_that_another_git_was_in_the_way_of_is_run_again(
    model_server: ModelServer, work: Path, tmp_path: Path
) -> None:
    make_repository(work)
    tools, mark = tmp_path / "tools", tmp_path / "was-busy"
    tools.mkdir()
    (tools / "git").write_text(BUSY_GIT.format(mark=mark, git=shutil.which("git")))
    (tools / "git").chmod(0o755)
    write_tasks(tmp_path / "tasks.jsonl", numbered_tasks(1))
    model_server.default = say("said")
    env = agent_env(model_server, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    done = run_agent("batch", "../tasks.jsonl", "-w", "-o", "../out", env=env, cwd=work)
    assert done.code == 0, done.stdout + done.stderr
    (row,) = rows_of(work.parent / "out")
    assert mark.exists() and (row["state"], row["attempts"]) == ("done", 2)
    assert len(model_server.requests) == 1


@pytest.mark.slow
@pytest.mark.spec("SEC-1")
def test_what_fills_a_template_is_data_and_no_word_of_the_users(
    model_server: ModelServer, work: Path, home: Path
) -> None:
    secret = home / "secret.txt"
    secret.write_text("the text of a file elsewhere\n")
    rows = [
        {"body": f"see @{secret}", "permission_mode": "yolo"},
        {"body": "/nothing to call", "permission_mode": "bypass"},
    ]
    write_tasks(work / "issues.jsonl", rows)
    model_server.add(call("bash", {"command": "echo x > made.txt"}))
    model_server.default = say("read")
    words = ("batch", "issues.jsonl", "--prompt", "{body}", "-j", "1", "-o", "out")
    done = run_agent(*words, env=agent_env(model_server), cwd=work, timeout=60)
    assert done.code != 2, done.stderr
    first, second = rows_of(work / "out")
    assert (first["state"], second["result"]) == ("refused", "read")
    assert not (work / "made.txt").exists()
    sent = json.dumps([request.body for request in model_server.requests], default=str)
    assert f"see @{secret}" in sent and "/nothing to call" in sent
    assert "the text of a file elsewhere" not in sent
    write_tasks(work / "odd.jsonl", [{"prompt": "x"}, {"prompt": "y", "model": "nobody/x"}])
    asked = len(model_server.requests)
    odd = run_agent("batch", "odd.jsonl", env=agent_env(model_server), cwd=work)
    assert odd.code == 2 and odd.stderr.startswith("error: odd.jsonl, line 2: there is no provider")
    assert len(model_server.requests) == asked and not (work / "odd.batch").exists()


@pytest.mark.spec("CLI-7")
@pytest.mark.parametrize("flag", ["--allow-tool", "--deny-tool"])
def test_a_rule_that_is_none_is_one_line_before_any_task(work: Path, flag: str) -> None:
    (work / "tasks.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    done = run_agent("batch", "tasks.jsonl", flag, "bash(", cwd=work)
    assert done.code == 2 and done.stderr.count("\n") == 1
    assert f"{flag}: not a permission rule: 'bash('" in done.stderr
    assert not (work / "tasks.batch").exists()


@pytest.mark.spec("SCALE-2")
def test_a_directory_that_cannot_be_written_is_one_line(work: Path, home: Path) -> None:
    write_tasks(work / "t.jsonl", [{"prompt": "list files"}])
    (work / "out/results.jsonl").mkdir(parents=True)
    head = {"format": "agentcli-batch/1", "batch": "0" * 32, "created_ms": 1}
    (work / "out/journal.jsonl").write_text(json.dumps(head) + "\n")
    words = ("batch", "t.jsonl", "-o", "out", "--quiet", "-m", "offline")
    done = run_agent(*words, env=agent_env(), cwd=work)
    assert (done.code, done.stdout) == (74, "")
    assert done.stderr.startswith(f"error: cannot write {work}/out/results.jsonl: is a directory")
    assert "what is done stays done" in done.stderr and not processes_of(home)


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("trick", ["ln -s {} {}/sessions", "mv {1} x; ln -s {0} {1}"])
@pytest.mark.parametrize("command", ["batch", "pipeline"])
@pytest.mark.parametrize("named", [(), ("-o", "out")])
def test_a_task_in_the_sandbox_has_no_results_written_elsewhere(
    model_server: ModelServer,
    work: Path,
    tmp_path: Path,
    kind: str,
    trick: str,
    command: str,
    named: tuple[str, ...],
) -> None:
    needs(kind)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "report.html").write_text("mine")
    model_server.default = say("Done.")
    model_server.add(
        call("bash", {"command": trick.format(outside, named[-1] if named else f"it.{command}")})
    )
    write_tasks(work / "it.jsonl", [{"prompt": "go"}])
    (work / "it.toml").write_text(
        'name = "it"\n[defaults]\npermission_mode = "auto"\n[steps.a]\nprompt = "go"\n'
    )
    what = {
        "batch": ("batch", "it.jsonl", "--permission-mode", "auto"),
        "pipeline": ("pipeline", "run", "it.toml"),
    }
    done = run_agent(
        *what[command], *named, "--sandbox", kind, env=agent_env(model_server), cwd=work
    )
    assert done.code == 74 and "cannot write" in done.stderr, done.stderr
    assert os.listdir(outside) == ["report.html"]
    assert (outside / "report.html").read_text() == "mine"
    if not trick.startswith("ln"):  # as a repository may bring it
        again = run_agent(
            *what[command], *named, "--sandbox", kind, env=agent_env(model_server), cwd=work
        )
        assert again.code == 2 and "is a link" in again.stderr
        assert os.listdir(outside) == ["report.html"]


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("command", ["batch", "pipeline"])
def test_a_task_in_the_sandbox_moves_no_later_one_out_of_the_directory(
    model_server: ModelServer, work: Path, tmp_path: Path, kind: str, command: str
) -> None:
    needs(kind)
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "sub").mkdir()
    model_server.default = say("Done.")
    swap = call("bash", {"command": f"rmdir sub; ln -s {outside} sub"})
    model_server.add(swap, "Done.", call("write_file", {"path": "made", "content": "x"}))
    write_tasks(work / "it.jsonl", [{"prompt": "go"}, {"prompt": "on", "cwd": "sub"}])
    (work / "it.toml").write_text(
        'name = "it"\n[defaults]\npermission_mode = "auto"\n[steps.a]\nprompt = "go"\n'
        '[steps.b]\nneeds = ["a"]\nprompt = "on"\ncwd = "sub"\n'
    )
    what = {
        "batch": ("batch", "it.jsonl", "-j", "1", "--permission-mode", "auto"),
        "pipeline": ("pipeline", "run", "it.toml", "--trust"),
    }
    done = run_agent(*what[command], "--sandbox", kind, env=agent_env(model_server), cwd=work)
    assert (done.code, len(model_server.requests)) == (1, 2), done.stderr
    again = run_agent(*what[command], "--sandbox", kind, env=agent_env(model_server), cwd=work)
    assert again.code in {1, 2} and len(model_server.requests) == 2, again.stderr
    assert os.listdir(outside) == []


@pytest.mark.slow
@pytest.mark.spec("SEC-1", "SEC-3")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("tool", ["bash", "write_file"])
def test_no_task_changes_unasked_which_servers_a_later_one_starts(
    model_server: ModelServer, work: Path, tmp_path: Path, kind: str, tool: str
) -> None:
    needs(kind)
    server = {"command": "/bin/sh", "args": ["-c", f"touch {tmp_path}/ran; cat"]}
    other = json.dumps({"mcpServers": {"x": server}})
    (work / "servers.json").write_text('{"mcpServers": {}}')
    model_server.default = say("Done.")
    change = {
        "bash": {"command": f"printf %s '{other}' > new; mv new servers.json"},
        "write_file": {"path": "servers.json", "content": other},
    }
    model_server.add(call("read_file", {"path": "servers.json"}), call(tool, change[tool]), "Done.")
    model_server.add(call("tool_search", {"query": "x"}))
    write_tasks(work / "it.jsonl", [{"prompt": "go"}, {"prompt": "on"}])
    words = ("batch", "it.jsonl", "-j", "1", "--permission-mode", "auto", "--sandbox", kind)
    run_agent(*words, "--mcp-config", "servers.json", env=agent_env(model_server), cwd=work)
    assert len(model_server.requests) >= 4
    assert (work / "servers.json").read_text() == '{"mcpServers": {}}'
    assert not (tmp_path / "ran").exists()


@pytest.mark.spec("SEC-13")
def test_a_journal_without_end_is_read_to_a_bound(work: Path) -> None:
    write_tasks(work / "it.jsonl", [{"prompt": "go"}])
    line = ("batch", "it.jsonl", "--shard", "1/1", "-o", "out")
    env = agent_env(None, AGENTCLI_MODEL="offline")
    assert run_agent(*line, env=env, cwd=work).code == 0
    journal = work / "out/journal.jsonl"
    os.truncate(journal, 8 << 30)
    before = children_peak_kib()
    done = run_agent(*line, env=env, cwd=work)
    assert (done.code, "is damaged at byte" in done.stderr) == (2, True), done.stderr
    assert children_peak_kib() <= max(before, 300 * 1024)  # of all that this process has run
    (work / "new").mkdir()
    os.mkfifo(work / "new/shard.json")
    done = run_agent(*line[:-1], "new", env=env, cwd=work)
    assert (done.code, "no regular file" in done.stderr) == (2, True), done.stderr
