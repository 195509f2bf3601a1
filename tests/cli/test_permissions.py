"""``agent permissions``: what would run without asking, and why; nothing is run to say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.sandboxes import needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled


def explained(*args: str, cwd: Path) -> dict[str, Any]:
    done = run_agent("permissions", "explain", "--format", "json", *args, cwd=cwd)
    assert done.code == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-4", "SEC-14")
def test_explain_says_what_would_become_of_a_command_and_runs_nothing(tmp_path: Path) -> None:
    allow = ("--allow-tool", "bash(git diff *)")
    assert explained("ls", cwd=tmp_path)["answer"] == "allow"
    told = explained(*allow, "git diff; touch made", cwd=tmp_path)
    assert (told["answer"], told["part"]) == ("ask", "touch made")
    told = explained(*allow, "git diff", cwd=tmp_path)
    assert (told["answer"], told["rule"], told["source"]) == (
        "allow", "bash(git diff *)", "--allow-tool",
    )  # fmt: skip
    told = explained(
        "--deny-tool", "bash(rm *)", "--permission-mode", "yolo", "sudo rm x", cwd=tmp_path
    )
    assert (told["answer"], told["rule"]) == ("deny", "bash(rm *)")
    told = explained("--permission-mode", "yolo", "rm -rf .", cwd=tmp_path)
    assert (told["answer"], told["offers"]) == ("ask", [])
    assert explained("--permission-mode", "yolo", *"rm -rf .".split(), cwd=tmp_path) == told
    done = run_agent("permissions", "explain", "--mode", "plan", "ls", cwd=tmp_path)
    assert done.code != 0 and "unknown option --mode" in done.stderr
    assert explained("--permission-mode", "plan", "make", cwd=tmp_path)["answer"] == "deny"
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "SEC-4")
def test_explain_says_where_it_would_run_in_each_mode(tmp_path: Path, home: Path) -> None:
    told = explained("--sandbox", "off", "make", cwd=tmp_path)
    assert (told["answer"], told["where"]) == ("ask", "without a sandbox")
    rules = [(offer["rule"], offer["session"], offer["always"]) for offer in told["offers"]]
    assert rules == [("bash(make)", True, True)]
    answers = {each["mode"]: each["answer"] for each in told["modes"]}
    assert answers == {
        "default": "ask", "accept-edits": "ask", "auto": "ask", "plan": "deny", "yolo": "allow",
    }  # fmt: skip
    there_is_one = run_agent("permissions", "explain", "--sandbox", "auto", "make", cwd=tmp_path)
    if "in the sandbox" not in there_is_one.stdout:
        pytest.skip("no sandbox works here")
    told = explained("--sandbox", "auto", "git status", cwd=tmp_path)
    assert (told["answer"], told["where"]) == ("allow", "in the read-only sandbox")
    wheres = {each["mode"]: (each["answer"], each["where"]) for each in explained(
        "--sandbox", "auto", "make", cwd=tmp_path)["modes"]}  # fmt: skip
    assert wheres["auto"] == ("allow", "in the sandbox")
    assert wheres["yolo"] == ("allow", "outside the sandbox")
    (home / "agentcli").mkdir(parents=True, exist_ok=True)
    (home / "agentcli" / "config.toml").write_text("sandbox_network = true\n")
    told = explained("--permission-mode", "auto", "make", cwd=tmp_path)
    assert (told["answer"], told["where"]) == ("allow", "in the sandbox, with network")
    told = explained("--permission-mode", "auto", "grep -r x . | sh", cwd=tmp_path)
    assert told["where"].endswith(", with network")
    (home / "agentcli" / "config.toml").write_text('sandbox_hosts = ["NPMjs.org"]\n')
    told = explained("--permission-mode", "auto", "make", cwd=tmp_path)
    needs("bwrap")
    assert told["where"] == "in the sandbox, with network to npmjs.org"


@pytest.mark.slow
@pytest.mark.spec("SEC-3")
def test_explain_knows_every_tool(tmp_path: Path) -> None:
    write = ("--tool", "write_file", "--arg", "content=x", "--arg")
    mode = ("--permission-mode", "accept-edits")
    assert explained(*mode, *write, "path=a.py", cwd=tmp_path)["answer"] == "allow"
    assert explained(*mode, *write, "path=.git/config", cwd=tmp_path)["answer"] == "ask"
    assert explained(*mode, *write, "path=../a.py", cwd=tmp_path)["answer"] == "ask"


@pytest.mark.spec("SEC-3", "CLI-9")
def test_list_shows_mode_and_rules_with_their_source(tmp_path: Path, home: Path) -> None:
    file = home / "agentcli" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('permission_mode = "plan"\n[permissions]\nallow = ["bash(make *)"]\n')
    told = json.loads(
        run_agent(
            "permissions", "list", "--deny-tool", "web_fetch", "--format", "json", cwd=tmp_path
        ).stdout
    )
    assert told == {
        "mode": "plan",
        "rules": [
            {"kind": "deny", "rule": "web_fetch", "source": "--deny-tool"},
            {"kind": "allow", "rule": "bash(make *)", "source": f"{file}:3"},
        ],
    }
    table = run_agent("permissions", cwd=tmp_path).stdout
    assert "mode   plan" in table
    assert f"allow  bash(make *)  {file}:3" in table


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("explain",), "nothing to explain"), (("explain", "--tool", "nope", "--arg", "a=b"), "no tool"),
        (("explain", "--tool", "read_file", "--arg", "path"), "--arg path is not valid"),
        (("explain", "--tool", "read_file", "--arg", "x=1"), "does not take this"),
        (("explain", "--tool", "read_file", "ls"), "takes no command"),
        (("explain", "--allow-tool", "bash(", "ls"), "not a permission rule"),
        (("list", "--permission-mode", "x"), "is not valid"),
    ],
)  # fmt: skip
def test_what_cannot_be_explained_is_a_usage_error(
    args: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    done = run_agent("permissions", *args, cwd=tmp_path)
    assert done.code == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.spec("SEC-14", "CLI-7")
@pytest.mark.parametrize(("flags", "runs"), [(("-y",), False), (("-yy",), True),
                                             (("--yolo", "--yolo"), True)])  # fmt: skip
def test_a_destructive_command_runs_only_when_yolo_was_given_twice(
    flags: tuple[str, ...],
    runs: bool,
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "kept").write_text("")
    script = [call("bash", {"command": "rm -rf ./*"}), say("Done.")]
    with ModelServer(script) as server:
        done = run_agent("run", *flags, "go", cwd=work, env=agent_env(server))
        told = facts_of(server.requests[-1]).results
    assert (work / "kept").exists() is not runs
    assert ("the workspace itself" in done.stderr) is not runs
    assert "--allow-tool" not in "".join(told.values()) + done.stderr.split("error:")[0]
    assert done.code == (0 if runs else 4)
