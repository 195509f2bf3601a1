"""``agent doctor``: every check, how it fails, and that it says how to mend it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcli.cli.checks import check_other_agents, check_programs
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer


def report(env: dict[str, str] | None = None) -> tuple[int, dict[str, dict[str, Any]]]:
    done = run_agent("doctor", "--format", "json", env=env)
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] == (done.code == 0)
    return done.code, {check["name"]: check for check in found["checks"]}


@pytest.mark.spec("OPS-3")
def test_every_check_is_there_and_what_is_not_ok_has_advice() -> None:
    _, checks = report()
    wanted = "program terminal encoding home disk settings keys model bash git rg sandbox sessions"
    assert set(wanted.split()) <= set(checks)
    for check in checks.values():
        assert check["status"] in {"ok", "warn", "fail"}
        assert check["status"] == "ok" or check["fix"]


@pytest.mark.spec("OPS-3")
def test_the_endpoint_in_use_is_tried(tmp_path: Path) -> None:
    with ModelServer() as server:
        code, checks = report(agent_env(server))
        assert checks["endpoint"]["status"] == "ok"
    code, checks = report(agent_env(server))
    assert code == 1
    assert checks["endpoint"]["status"] == "fail"
    assert checks["endpoint"]["fix"]


@pytest.mark.spec("OPS-3")
def test_a_model_without_its_key_fails() -> None:
    env = agent_env(
        AGENTCLI_MODEL="anthropic/claude-sonnet-4-5", ANTHROPIC_BASE_URL="http://127.0.0.1:1"
    )
    code, checks = report(env)
    assert code == 1
    assert "ANTHROPIC_API_KEY" in checks["key"]["fix"]


@pytest.mark.spec("OPS-3")
def test_a_damaged_session_fails_with_the_command_that_mends_it(home: Path, tmp_path: Path) -> None:
    directory = home / "agentcli" / "sessions"
    directory.mkdir(parents=True)
    (directory / "abc.db").write_bytes(b"garbage" * 1000)
    code, checks = report()
    assert code == 1
    assert checks["session"]["fix"] == "agent sessions repair abc"


@pytest.mark.spec("OPS-3")
def test_broken_settings_do_not_stop_the_other_checks(home: Path) -> None:
    (home / "agentcli").mkdir()
    (home / "agentcli" / "config.toml").write_text("model = \n")
    code, checks = report()
    assert code == 1
    assert "config.toml:1:9" in checks["settings"]["detail"]
    assert "sessions" in checks


@pytest.mark.spec("OPS-3", "CLI-12")
def test_a_home_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = agent_env(AGENTCLI_HOME="/proc/agentcli")
    code, checks = report(env)
    assert code == 1
    assert "AGENTCLI_HOME" in checks["home"]["fix"]


@pytest.mark.spec("OPS-3")
def test_an_address_that_is_none_fails_beside_all_other_checks() -> None:
    code, checks = report(agent_env(OPENAI_API_KEY="k", OPENAI_BASE_URL="http://[::1"))
    assert code == 1
    assert "OPENAI_BASE_URL" in checks["keys"]["fix"]
    assert "sandbox" in checks


@pytest.mark.spec("OPS-3")
def test_a_directory_that_may_not_be_looked_into_stops_no_check(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    (locked / "home").mkdir(parents=True)
    program = (
        "import os, sys; from pathlib import Path; from agentcli.cli import checks;"
        " from agentcli.config.paths import Paths;"
        " os.getuid() or os.setuid(65534); home = Path(sys.argv[1]);"
        " print(*{found.status for found in checks.check_home(Paths(home, home, home))"
        " if found.name == 'home'});"
        " print(checks.check_other_agents({'PATH': sys.argv[1]})[0].detail)"
    )
    locked.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(locked / "home")],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        locked.chmod(0o700)
    assert (done.stdout, done.stderr) == ("fail\nno agent on PATH\n", "")


@pytest.mark.spec("CLI-1", "OPS-3")
def test_every_agent_on_path_is_listed_and_a_foreign_one_in_front_is_warned_of(
    tmp_path: Path,
) -> None:
    foreign, ours = tmp_path / "a", tmp_path / "b"
    for directory, text in ((foreign, "#!/bin/sh\n"), (ours, "#!/x\nfrom agentcli.cli.entry\n")):
        directory.mkdir()
        (directory / "agent").write_text(text)
        (directory / "agent").chmod(0o755)
    [found] = check_other_agents({"PATH": os.pathsep.join(map(str, (foreign, ours)))})
    assert found.status == "warn"
    assert f"{foreign}/agent, {ours}/agent (ours)" in found.detail
    [found] = check_other_agents({"PATH": os.pathsep.join(map(str, (ours, foreign)))})
    assert found.status == "ok"


@pytest.mark.spec("OPS-3")
def test_a_missing_program_says_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {finding.name: finding for finding in check_programs()}
    assert found["bash"].status == "fail"
    assert found["rg"].status == "warn"
    assert "ripgrep" in found["rg"].advice
