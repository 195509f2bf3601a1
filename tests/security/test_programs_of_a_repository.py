"""No program of a repository is run for us, wherever in it the session works (SEC-2)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import Call, call, calls, say
from tests.support.repositories import git, make_repository

NAMES = ("bash", "bwrap", "env", "git", "less", "ls", "nice", "pdftotext", "rg", "sh", "own-server")


@pytest.fixture
def ran(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a program of the repository leaves its name; its programs come first on PATH."""
    ran, programs = tmp_path / "ran", tmp_path / "work/bin"
    ran.mkdir()
    make_repository(tmp_path / "work")
    programs.mkdir()
    for name in NAMES:
        text = f'#!/bin/sh\n: >{ran}/{name}\nPATH=/usr/bin:/bin exec {name} "$@"\n'
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "work/sub/a.py").write_text("x = 1\n")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (home / "agentcli").mkdir()
    (home / "agentcli/config.toml").write_text(
        f"[[hooks.PreToolUse]]\ncommand = 'sh {home}/hook.sh'\n"
        "[mcp.servers.own]\ncommand = 'own-server'\n"
    )
    (home / "hook.sh").write_text("exit 0\n")
    return ran


@pytest.mark.sampled
@pytest.mark.spec("SEC-2", "SEC-1")
@pytest.mark.parametrize("where", ["work", "work/sub", "link"])
@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_no_program_of_a_repository_runs_for_a_session_in_it(
    tmp_path: Path, ran: Path, where: str, sandbox: str
) -> None:
    (tmp_path / "link").symlink_to("work/sub")
    replies = [
        calls(Call("grep_files", {"pattern": "x"}), Call("bash", {"command": "ls"})),
        call("tool_search", {"query": "x"}),
        say("done"),
    ]
    with ModelServer(replies, default=say("done"), strict=False) as server:
        env, cwd = agent_env(server), tmp_path / where
        done = run_agent("run", "--sandbox", sandbox, "go", env=env, cwd=cwd, timeout=30)
        assert len(server.requests) == len(replies), done.stderr
        for args in (("doctor",), ("map",), ("run", "-w", "one", "go"), ("review",)):
            server.restart(call("grep_files", {"pattern": "x"}), say("done"))
            run_agent(*args, env=env, cwd=cwd)
    assert sorted(each.name for each in ran.iterdir()) == []


@pytest.mark.spec("SEC-2", "MCP-3")
def test_a_server_for_this_project_may_be_a_program_of_it(tmp_path: Path, ran: Path) -> None:
    (tmp_path / "work/.mcp.json").write_text(json.dumps({"own": {"command": "own-server"}}))
    env, cwd = agent_env(), tmp_path / "work/sub"
    (Path(env["AGENTCLI_HOME"]) / "config.toml").write_text("")
    with ModelServer([call("tool_search", {"query": "x"}), say("done")], strict=False) as server:
        run_agent("run", "--trust", "go", env=agent_env(server), cwd=cwd)
    assert (ran / "own-server").exists()


@pytest.mark.spec("SEC-2")
def test_git_that_knows_no_word_against_it_fetches_nothing_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git before 2.39.4 does not know ``GIT_NO_LAZY_FETCH``."""
    work, ran, older = make_repository(tmp_path / "work"), tmp_path / "ran", tmp_path / "older"
    blob = git(work, "rev-parse", "HEAD:a.txt").strip()
    (work / "a.txt").write_text("two\n")
    git(work, "commit", "-qam", "second")
    (work / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "o",
        "remote.o.promisor": "true",
        "remote.o.url": f"ext::touch {ran}",
        "protocol.ext.allow": "always",
    }.items():
        git(work, "config", key, value)
    older.mkdir()
    text = f'#!/bin/sh\nunset GIT_NO_LAZY_FETCH\nexec {shutil.which("git")} "$@"\n'
    (older / "git").write_text(text)
    (older / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{older}:{os.environ['PATH']}")
    done = run_agent("review", "--base", "HEAD~1", env=agent_env(), cwd=work)
    assert done.code and "git could not list the changes" in done.stderr
    assert not ran.exists()
