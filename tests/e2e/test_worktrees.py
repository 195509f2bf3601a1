"""``agent -w`` from its start to its end: in a run, in a chat, and back again (SCALE-1, CLI-14)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.e2e.one_shot import assert_one_line_error
from tests.support.cli import Finished, Running, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.processes import alive, wait_until
from tests.support.replies import Call, calls, say
from tests.support.repositories import git, make_repository, traces


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def agent(root: Path, *args: str) -> Finished:
    return run_agent(*args, env=dict(os.environ), cwd=root)


@pytest.mark.slow
@pytest.mark.spec("SCALE-1", "CLI-9", "CLI-14")
def test_a_run_in_a_worktree_and_the_way_back(root: Path, home: Path) -> None:
    state = home / "agentcli"
    edits = ("--permission-mode", "accept-edits")
    first = agent(root / "sub", "run", "-w", "fix", *edits, "write new.txt: hello")
    assert first.code == 0 and "agent -w fix --continue" in first.stderr.splitlines()[-1]
    (row,) = json.loads(agent(root, "worktrees", "list", "--format", "json").stdout)
    path = Path(row["path"])
    assert (path / "sub/new.txt").read_text().strip() == "hello"
    assert not (root / "sub/new.txt").exists() and git(root, "status", "--short") == ""
    assert (row["name"], row["branch"], row["untracked"], row["clean"], row["in_use"]) == (
        *("fix", "agent/fix", 1, False, False),
    )
    back = agent(root / "sub", "run", "-c", "read new.txt", "-o", "json")
    assert "hello" in back.result["result"] and "is kept" in back.stderr

    refused = agent(root, "worktrees", "remove", "fix")
    assert refused.code == 2
    assert_one_line_error(refused, "1 untracked file", "--force")
    (path / "sub/new.txt").unlink()
    assert "removed fix" in agent(root, "worktrees", "prune").stdout
    assert traces(root, state) == {}

    session = ("run", "--session", back.result["session_id"], "read b.txt")
    again = agent(root, *session)
    assert again.code == 0 and "two" in again.stdout and "made again from HEAD" in again.stderr
    assert traces(root, state) == {}
    lost = agent(home, *session)
    assert lost.code == 2
    assert_one_line_error(lost, "worktree fix of this session was removed")


@pytest.mark.slow
@pytest.mark.spec("SEC-16")
@pytest.mark.parametrize("how", ["--session", "--continue"])
def test_a_session_of_another_home_chooses_and_makes_no_worktree(
    root: Path, home: Path, how: str
) -> None:
    state = home / "agentcli"
    made = agent(root, "run", "-w", "fix", "hello", "-o", "json")
    path = state / "sessions" / f"{made.result['session_id']}.db"
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE session SET seal = ''")
    which = ("--session", path.stem) if how == "--session" else ("--continue",)
    done = agent(root, "run", *which, "go on")
    assert "worktree fix" not in done.stderr and traces(root, state) == {}, done.stderr
    if how == "--session":
        assert done.code == 0 and f"its directory {state}" in done.stderr


@pytest.mark.slow
@pytest.mark.spec("SCALE-1")
def test_a_run_that_is_interrupted_leaves_nothing_clean(
    root: Path, home: Path, model_server: ModelServer
) -> None:
    model_server.add(say("Half", piece=20, stall_at="text"))
    with Running("run", "--worktree", "--", "go on", env=agent_env(model_server), cwd=root) as run:
        wait_until(lambda: bool(model_server.requests), "the request")
        assert "trees" in traces(root, home / "agentcli")
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(15) == 130
    assert traces(root, home / "agentcli") == {}


_SLOW_GIT = """#!/bin/sh
{git} "$@" || exit
case "$*" in *" reset "*) echo $$ > {pid}; exec sleep 60 ;; esac
"""


@pytest.mark.slow
@pytest.mark.spec("SCALE-1")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_start_that_is_interrupted_while_git_works(
    root: Path, home: Path, tmp_path: Path, how: signal.Signals
) -> None:
    programs, pid = tmp_path / "programs", tmp_path / "pid"
    programs.mkdir()
    (programs / "git").write_text(_SLOW_GIT.format(git=shutil.which("git"), pid=pid))
    (programs / "git").chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    with Running("run", "-w", "slow", "hello", env=env, cwd=root) as run:
        wait_until(lambda: pid.exists() and bool(pid.read_text()), "git at work")
        run.process.send_signal(how)
        assert run.process.wait(15) == (130 if how == signal.SIGINT else -9)
    worker = int(pid.read_text())
    if how == signal.SIGKILL:  # git goes on without us, and is not disturbed
        kept = agent(root, "worktrees", "prune")
        assert "in use" in kept.stderr and alive(worker)
        os.kill(worker, signal.SIGTERM)
        wait_until(lambda: not alive(worker), "the end of git")
        assert "removed slow" in agent(root, "worktrees", "prune").stdout
    assert not alive(worker)
    assert traces(root, home / "agentcli") == {}


@pytest.mark.slow
@pytest.mark.spec("CLI-14", "SCALE-1")
def test_a_chat_in_a_worktree(
    work: Path, home: Path, chat: Chat, model_server: ModelServer
) -> None:
    make_repository(work)
    model_server.add("Here.")
    terminal = chat("-w", "talk", cols=300)
    assert "branch agent/talk" in terminal.text()
    terminal.line("where are you?")
    terminal.wait_for("Here.")
    terminal.wait_for(IDLE)
    (tree,) = (home / "agentcli/worktrees").glob("*/*")
    (tree / "new.txt").write_text("work")
    leave(terminal)
    assert "the worktree talk is kept (1 untracked file" in terminal.text()

    picked = chat("-r", cols=300, until="where are you?")
    picked.key("enter")
    picked.wait_for(IDLE)
    assert "branch agent/talk" in picked.text()
    (tree / "new.txt").unlink()
    leave(picked)
    assert traces(work, home / "agentcli") == {}

    again = chat("--new", cols=300)
    assert "branch agent" not in again.text()
    again.line("/resume where are you?")
    again.wait_for("branch agent/talk")
    leave(again)
    assert traces(work, home / "agentcli") == {}


@pytest.mark.slow
@pytest.mark.spec("CLI-14", "SCALE-1")
def test_a_picked_worktree_that_cannot_be_opened_leaves_the_chat_open(
    root: Path, chat: Chat, model_server: ModelServer
) -> None:
    made = agent(root, "run", "-w", "gone", "hello", "-o", "json")  # clean: removed at its end
    model_server.add("Here.", "Still here.")
    terminal = chat(cols=300)
    terminal.line("where are you?")
    terminal.wait_for("Here.")
    terminal.wait_for(IDLE)
    terminal.line(f"/resume {made.result['session_id']}")
    terminal.wait_for("error: the worktree gone of this session was removed")
    terminal.wait_for(IDLE)
    terminal.line("and now?")
    terminal.wait_for("Still here.")
    assert len(model_server.requests[-1].messages) == 3
    leave(terminal)


@pytest.mark.sampled
@pytest.mark.spec("SCALE-1", "SEC-3")
@pytest.mark.parametrize("mode", ["accept-edits", "auto"])
def test_nothing_leaks_into_the_main_checkout(
    root: Path, home: Path, model_server: ModelServer, mode: str
) -> None:
    """By absolute path, by a link, by ``cd``, by git's options; whether a sandbox works or not."""
    commands = (
        f"cd {root} && echo x > a.txt",
        f"git -C {root} checkout -q -b leaked",
        f"git --git-dir={root}/.git --work-tree={root} reset -q --hard",
        f"GIT_WORK_TREE={root} git checkout -f HEAD -- .",
        f"ln -s {root} link && echo x > link/a.txt",
    )
    (root / "a.txt").write_text("the user's own change\n")
    model_server.add(
        calls(
            Call("write_file", {"path": f"{root}/a.txt", "content": "x"}),
            *(Call("bash", {"command": command}) for command in commands),
            Call("write_file", {"path": "link/a.txt", "content": "x"}),
        ),
        "Done.",
    )
    done = run_agent(
        *("run", "-w", "fix", "--permission-mode", mode, "leak"), env=agent_env(model_server),
        cwd=root,
    )  # fmt: skip
    assert done.code in {0, 4}, done.stderr
    assert git(root, "status", "--short") == " M a.txt\n"
    assert (root / "a.txt").read_text() == "the user's own change\n"
    assert git(root, "branch", "--show-current").strip() in {"main", "master"}


_BORROWS = """\
mkdir -p .git/objects/info; echo {there}/objects > .git/objects/info/alternates
case {how} in
  reference) ln -s {there}/refs/heads/main .git/refs/heads/other
    echo 'ref: refs/heads/other' > .git/HEAD ;;
  directory) mkdir .git/more; ln -s {there}/refs/heads .git/more/far; ln -s ../../more .git/refs/heads/near
    echo 'ref: refs/heads/near/far/main' > .git/HEAD ;;
  index) ln -sf {there}/index .git/index ;;
  common) echo {there} > .git/commondir ;;
  file) rm -r .git; echo gitdir: {there} > .git ;;
  link) rm -r .git; ln -s {there} .git ;;
  bare) git clone -q --bare {there} {there}.bare; rm -r .git; echo gitdir: {there}.bare > .git ;;
  tree) git -C {there} worktree add -q ../tree; rm -r .git; echo gitdir: {there}/worktrees/tree > .git ;;
esac
"""


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize(
    "how", ["reference", "directory", "index", "common", "file", "link", "bare", "tree"]
)
def test_no_link_that_came_along_has_another_repository_of_the_users_shown(
    model_server: ModelServer, root: Path, home: Path, how: str
) -> None:
    """Git finds its objects by ``alternates``, what they are called by a link."""
    private = make_repository(home / "private")
    (private / "plan.txt").write_text("alpha\n")
    git(private, "add", ".")
    git(private, "commit", "-qm", "plan")
    borrow = _BORROWS.format(there=private / ".git", how=how)
    subprocess.run(["sh", "-c", borrow], check=True, cwd=root)
    env = agent_env(model_server)
    model_server.default = say("Done.")
    begun, was = len(model_server.requests), traces(root, home / "agentcli")
    for command in (("run", "go", "-w", "other"), ("review",), ("review", "--staged")):
        done = run_agent(*command, env=env, cwd=root)
        says = "git does not read" if how == "bare" and "-w" not in command else "link to elsewhere"
        assert done.code == 2 and says in done.stderr, done.stderr
    assert len(model_server.requests) == begun and traces(root, home / "agentcli") == was


_APART = {
    "a submodule": "git -c protocol.file.allow=always submodule --quiet add ../project mod; cd mod",
    "a linked tree": "git worktree add -q ../tree; cd ../tree",
    "kept apart": "git init -q --separate-git-dir=../apart; cd sub",
    "a link": "mv .git ../project.git; ln -s ../project.git .git",
    "bare beside": "git clone -q --bare . all/.bare; cd all; echo gitdir: ./.bare > .git;"
    " git worktree add -q one; cd one",
    "bare": "git clone -q --bare . ../bare; cd ../bare",
}


@pytest.mark.slow
@pytest.mark.spec("SCALE-1")
@pytest.mark.parametrize("how", _APART.values(), ids=_APART)
def test_a_git_directory_may_lie_apart(root: Path, home: Path, how: str) -> None:
    there = subprocess.run(["sh", "-ec", f"{how}; pwd"], cwd=root, check=True, capture_output=True)
    done = run_agent(
        "run", "-w", "x", "go", env=dict(os.environ), cwd=Path(there.stdout.decode().strip())
    )
    assert done.code == 0, done.stderr
