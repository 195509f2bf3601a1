"""The GitHub Action: what it is given is never a command, and its script does what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.app.test_changes import git
from tests.support.cli import AGENT, KEY, agent_env
from tests.support.docs import ROOT, blocks
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.wire_facts import facts_of

ACTION = ROOT / ".github" / "actions" / "agent"
HOSTILE = "$(touch pwned) `touch pwned`; touch pwned '\" ${{ github.token }} --yolo @notes.txt"


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """What a runner gives a step: a checkout, places to write, ``agent`` on PATH."""
    for name in ("work", "temp", "bin"):
        (tmp_path / name).mkdir()
    agent = tmp_path / "bin" / "agent"
    agent.write_text(f'#!/bin/sh\nexec "{AGENT[0]}" {" ".join(AGENT[1:])} "$@"\n')
    agent.chmod(0o755)
    work = tmp_path / "work"
    git(work, "init", "-q", "-b", "main")
    (work / "notes.txt").write_text("secret notes\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "first")
    git(work, "checkout", "-qb", "topic")
    (work / "pip.py").write_text("open('pwned', 'w')\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "second")
    return tmp_path


def step(
    runner: Path, server: ModelServer, what: str = "run", **inputs: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """One step of the action; its outputs."""
    output = runner / "output"
    output.write_text("")
    env = agent_env(server) | {
        "PATH": f"{runner / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(runner / "temp"),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(runner / "summary"),
        "INPUT_VERSION": "installed",
        **inputs,
    }
    done = subprocess.run(
        [shutil.which("bash") or "bash", str(ACTION / "agent.sh"), what],
        cwd=runner / "work",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    return done, dict(line.split("=", 1) for line in output.read_text().splitlines())


@pytest.mark.spec("CLI-17")
def test_nothing_that_is_given_stands_in_a_command() -> None:
    action: dict[str, Any] = yaml.safe_load((ACTION / "action.yml").read_text())
    script = (ACTION / "agent.sh").read_text()
    assert action["runs"]["using"] == "composite"
    passed = set()
    for each in action["runs"]["steps"]:
        assert "uses" not in each  # no other action, so none to pin
        assert "${{" not in each["run"] and each["shell"] == "bash"
        for name, value in each["env"].items():
            assert name in script
            passed |= set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", value))
    assert passed == set(action["inputs"])
    assert "${{" not in script and os.access(ACTION / "agent.sh", os.X_OK)
    outputs = {value["value"] for value in action["outputs"].values()}
    assert outputs == {f"${{{{ steps.agent.outputs.{name} }}}}" for name in action["outputs"]}


def test_the_documented_workflow_gives_what_the_action_takes() -> None:
    (text,) = blocks("yaml", "a workflow")
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    (job,) = yaml.safe_load(text)["jobs"].values()
    checkout, review, upload = job["steps"]
    assert re.fullmatch(r"actions/checkout@[0-9a-f]{40}", checkout["uses"])
    assert set(review["with"]) <= set(action["inputs"])
    assert f"steps.{review['id']}.outputs.sarif" in upload["if"]


@pytest.mark.slow
@pytest.mark.spec("CLI-17", "SEC-9")
def test_a_pull_request_is_reviewed_and_its_findings_are_files(
    model_server: ModelServer, runner: Path
) -> None:
    found = {"file": "pip.py", "line": 1, "severity": "critical", "confidence": 0.9,
             "title": "::set-env name=PATH::evil", "body": "</pre><script>\n::add-path::/evil"}  # fmt: skip
    model_server.add(call("final_result", {"summary": "It is evil.", "findings": [found]}))
    done, outputs = step(
        runner, model_server, GITHUB_BASE_REF="main", INPUT_FAIL_ON="high", INPUT_FOCUS=HOSTILE
    )
    assert (done.returncode, outputs["exit-code"]) == (1, "1"), done.stderr
    log = done.stdout
    start, end = log.index("::stop-commands::"), log.rindex("::")
    token = log[start:].splitlines()[0].removeprefix("::stop-commands::")
    assert len(token) == 32 and log[:end].rstrip().endswith(f"::{token}")
    assert start < log.index("::set-env") < end and KEY not in log + done.stderr
    value = json.loads(Path(outputs["findings"]).read_text())
    assert [each["file"] for each in value["findings"]] == ["pip.py"]
    assert json.loads(Path(outputs["sarif"]).read_text())["version"] == "2.1.0"
    summary = (runner / "summary").read_text().splitlines()
    assert summary[0] == "### Review" and all(line[:4] in {"", "    "} for line in summary[1:])
    prompt, *_ = facts_of(model_server.requests[0]).prompts
    assert HOSTILE in prompt and "secret notes" not in json.dumps(model_server.requests[0].body)
    assert not (runner / "work" / "pwned").exists()


@pytest.mark.slow
@pytest.mark.spec("CLI-17")
def test_a_prompt_is_text_and_mistakes_are_told(model_server: ModelServer, runner: Path) -> None:
    model_server.add(say("Done."))
    done, outputs = step(runner, model_server, INPUT_PROMPT=HOSTILE, INPUT_MODEL="")
    assert done.returncode == 0, done.stderr
    assert json.loads(Path(outputs["result"]).read_text())["result"] == "Done."
    prompt, *_ = facts_of(model_server.requests[0]).prompts
    assert HOSTILE in prompt and "secret notes" not in json.dumps(model_server.requests[0].body)
    assert not (runner / "work" / "pwned").exists()
    for what, inputs, text in (
        ("run", {"INPUT_BASE": "--output=/x"}, "no branch or commit --output=/x"),
        ("run", {"INPUT_WORKING_DIRECTORY": "nope"}, "no such working-directory"),
        ("install", {"INPUT_VERSION": "1; touch pwned"}, "version is not valid"),
        ("install", {"INPUT_VERSION": "@ git+https://x"}, "version is not valid"),
    ):
        done, _ = step(runner, model_server, what, **inputs)
        assert done.returncode == 2 and text in done.stderr, done.stderr
    assert not (runner / "work" / "pwned").exists()


@pytest.mark.spec("CLI-17")
def test_what_is_installed_is_the_commit_of_the_action(
    model_server: ModelServer, runner: Path
) -> None:
    python = runner / "bin" / "python3"
    python.write_text(
        "#!/bin/sh\n"
        f'echo "$PWD: $*" >> "{runner}/ran"\n'
        'case "$*" in *"-m venv"*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;; esac\n'
    )
    python.chmod(0o755)
    for version, wanted in (("", str(ROOT)), ("1.2.3", "agentcli==1.2.3")):
        done, _ = step(runner, model_server, "install", INPUT_VERSION=version)
        assert done.returncode == 0, done.stderr
        *_, last = (runner / "ran").read_text().splitlines()
        assert last.startswith(f"{runner / 'temp'}: -I -m pip install")
        assert last.endswith(f" {wanted}")
