"""Commands where the surroundings are not what one expects: work, or one line of error (CLI-12)."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import AGENT, Finished, agent_env, run_agent
from tests.support.deep import deep_directory
from tests.support.docs import ROOT
from tests.support.model_server import ModelServer
from tests.support.replies import call
from tests.support.sandboxes import BOTH, needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.slow

COMMANDS = (
    "--help",
    "run hello",
    "sessions list",
    "tasks",
    "sessions show nothing",
    "config show",
    "models --offline",
    "doctor",
)
LATIN = {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def shell(line: str, cwd: Path, **env: str | None) -> Finished:
    """Run ``line`` with ``agent`` as the program."""
    done = subprocess.run(
        ["/bin/bash", "-c", f'agent() {{ {shlex.join(AGENT)} "$@"; }}; {line}'],
        env=agent_env(None, AGENTCLI_MODEL="offline", **env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=25,
        check=False,
    )
    text, errors = (data.decode("utf-8", "replace") for data in (done.stdout, done.stderr))
    return Finished((line,), done.returncode, text, errors)


def works_or_says_why(done: Finished) -> None:
    assert "Traceback" not in done.stderr + done.stdout, done
    assert "Broken pipe" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) <= 1, done
    assert done.code in {0, 1, 2, 74, 78}, done
    if errors:
        assert " - " in errors[0]
    elif "doctor" not in done.args[0]:  # whose findings are its output
        assert done.code == 0, done


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_deleted_working_directory(command: str, tmp_path: Path) -> None:
    done = shell(f"mkdir gone; cd gone; rmdir ../gone; agent {command}", tmp_path)
    works_or_says_why(done)
    assert "No such file" not in done.stderr  # what is gone is the directory


@pytest.mark.spec("CLI-12", "SEC-13")
@pytest.mark.parametrize("place", [".", ".claude/commands", ".claude/rules", ".agents/skills/one"])
def test_a_repository_of_more_levels_than_python_calls_itself(place: str, tmp_path: Path) -> None:
    with deep_directory(tmp_path / place, 1_200, "SKILL.md"):
        done = shell("agent run hello && agent permissions explain ls", tmp_path)
    works_or_says_why(done)
    assert done.code == 0, done


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_takes_one_line(command: str, tmp_path: Path) -> None:
    done = shell(f"agent {command} | head -1; exit ${{PIPESTATUS[0]}}", tmp_path)
    works_or_says_why(done)
    assert len(done.stdout.splitlines()) <= 1


@pytest.mark.spec("CLI-12", "FAIL-1")
@pytest.mark.parametrize("command", [*COMMANDS, "config set max_steps 3"])
def test_a_home_that_cannot_be_written(command: str, tmp_path: Path) -> None:
    works_or_says_why(shell(f"agent {command}", tmp_path, AGENTCLI_HOME=None, HOME="/proc"))


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("command", COMMANDS)
def test_twenty_columns_and_the_c_locale(command: str, tmp_path: Path) -> None:
    works_or_says_why(shell(f"agent {command}", tmp_path, COLUMNS="20", **LATIN))


@pytest.mark.spec("CLI-12")
@pytest.mark.parametrize("home", [None, "", "not there", "relative"])
def test_no_home_to_speak_of(home: str | None, tmp_path: Path) -> None:
    where = f"{tmp_path}/{home}" if home == "not there" else home
    done = shell("agent run hello", tmp_path, HOME=where)
    assert done.code == 0, done
    assert not (tmp_path / "relative").exists()


@pytest.mark.spec("CLI-11", "CLI-12")
@pytest.mark.parametrize("command", ["--help", "--version", "run hello", "models --offline"])
def test_an_output_that_cannot_be_written_is_named(command: str, tmp_path: Path) -> None:
    done = shell(f"agent {command} > /dev/full", tmp_path)
    assert done.code == 1, done
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "No space left" in errors[0], done
    assert "Traceback" not in done.stderr


@pytest.mark.spec("CLI-12", "LOOP-5")
def test_a_name_that_the_locale_has_no_bytes_for_is_the_models_error_not_ours(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add(call("read_file", {"path": "\u00e9.txt"}, id="one"), "I see.")
    done = run_agent("run", "go", env=agent_env(model_server, **LATIN), cwd=tmp_path)
    assert done.code == 0, done
    told = facts_of(model_server.requests[1]).results["one"]
    assert "ascii" in told and "PYTHONUTF8=1" in told
    assert "internal error" not in told


@pytest.mark.spec("CLI-2", "CLI-12")
@pytest.mark.parametrize("line", ["agent <&-", "agent < /dev/null", "agent >&- < /dev/null"])
def test_a_chat_without_a_terminal_and_without_a_prompt(line: str, tmp_path: Path) -> None:
    done = shell(line, tmp_path)
    assert done.code == 2, done
    assert done.stderr.startswith("error: there is no prompt")


@pytest.mark.spec("SEC-7")
@pytest.mark.parametrize("kind", BOTH)
def test_a_program_in_a_place_that_the_sandbox_hides(kind: str, tmp_path: Path) -> None:
    needs(kind)
    shutil.copytree(ROOT / "agentcli", tmp_path / "installed" / "agentcli")
    work = tmp_path / "work"
    work.mkdir()
    (work / "seen.txt").touch()
    env = agent_env(None, AGENTCLI_MODEL="offline", PYTHONPATH=str(tmp_path / "installed"))
    found = run_agent(
        *("run", "--sandbox", kind, "--permission-mode", "auto", "run ls"), env=env, cwd=work
    )
    assert "seen.txt" in found.stdout, found
