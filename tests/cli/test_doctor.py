"""``agent doctor``: every check, how it fails, and that it says how to mend it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.user_files import Finding, Status
from agentcli.cli.setup.checks import check_other_agents, check_programs
from agentcli.cli.setup.doctor import check_telemetry, side_by_side
from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings
from tests.support.cli import agent_env, run_agent
from tests.support.keyrings import fake_keyring
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
    wanted = (
        "program terminal encoding home disk private settings trust keys keyring model bash git rg"
        " sandbox sessions agent"
    )
    assert set(wanted.split()) <= set(checks)
    for check in checks.values():
        assert check["status"] in {"ok", "warn", "fail"}
        assert check["status"] == "ok" or check["fix"]


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.spec("OPS-3")
def test_a_damaged_session_fails_with_the_command_that_mends_it(home: Path, tmp_path: Path) -> None:
    directory = home / "agentcli" / "sessions"
    directory.mkdir(parents=True)
    (directory / "abc.db").write_bytes(b"garbage" * 1000)
    code, checks = report()
    assert code == 1
    assert checks["session"]["fix"] == "agent sessions repair abc"


@pytest.mark.slow
@pytest.mark.spec("OPS-3")
def test_broken_settings_do_not_stop_the_other_checks(home: Path) -> None:
    (home / "agentcli").mkdir()
    (home / "agentcli" / "config.toml").write_text("model = \n")
    code, checks = report()
    assert code == 1
    assert "config.toml:1:9" in checks["settings"]["detail"]
    assert "sessions" in checks


@pytest.mark.slow
@pytest.mark.spec("OPS-3", "CLI-12")
def test_a_home_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = agent_env(AGENTCLI_HOME="/proc/agentcli")
    code, checks = report(env)
    assert code == 1
    assert "AGENTCLI_HOME" in checks["home"]["fix"]


@pytest.mark.slow
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
        "import os, sys; from pathlib import Path; from agentcli.cli.setup import checks;"
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
    assert f"{foreign}/agent, {ours}/agent (this program)" in found.detail
    [found] = check_other_agents({"PATH": os.pathsep.join(map(str, (ours, foreign)))})
    assert found.status == "ok"
    for without in ({"PATH": str(foreign)}, {"PATH": str(tmp_path)}):
        [found] = check_other_agents(without)
        assert found.status == "warn"
        assert f"add its directory to PATH: {Path(sys.executable).parent}" in found.advice


@pytest.mark.spec("OPS-3")
def test_a_missing_program_says_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {finding.name: finding for finding in check_programs()}
    assert found["bash"].status == "fail"
    assert found["rg"].status == "warn"
    assert "ripgrep" in found["rg"].advice


@pytest.mark.spec("OPS-3")
def test_checks_stand_in_their_order_and_one_that_hangs_or_breaks_costs_no_other() -> None:
    never = threading.Event()

    def breaks() -> list[Finding]:
        raise RuntimeError("no such thing")

    def hangs() -> list[Finding]:
        never.wait()
        return []

    found = side_by_side(
        [
            ("hangs", hangs),
            ("breaks", breaks),
            ("works", lambda: [Finding("works", Status.OK, "yes")]),
        ],
        0.2,
    )
    never.set()
    assert [(f.name, f.status) for f in found] == [
        ("hangs", "warn"), ("breaks", "warn"), ("works", "ok"),
    ]  # fmt: skip
    assert "0.2 s" in found[0].detail and "no such thing" in found[1].detail
    assert all(f.advice for f in found[:2])


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.spec("OPS-3", "SEC-9")
@pytest.mark.parametrize("kind", ["works", "fail", "missing"])
def test_keys_in_a_keyring_that_is_there_or_gone(tmp_path: Path, kind: str) -> None:
    with ModelServer() as server:
        env = agent_env(server, ANTHROPIC_API_KEY=None, **fake_keyring(tmp_path, "works"))
        login = run_agent("auth", "login", "anthropic", "--stdin", input="sk-x-0123456789", env=env)
        assert login.code == 0
        (tmp_path / "now").mkdir()
        code, checks = report({**env, **fake_keyring(tmp_path / "now", kind)})
    assert "anthropic (keyring)" in checks["keys"]["detail"]
    assert "key" not in checks
    assert code == 0
    if kind == "works":
        assert checks["keyring"]["status"] == "ok"
        assert checks["keyring"]["detail"].endswith("Keyring")
    else:
        assert checks["keyring"]["status"] == "warn"
        assert "anthropic" in checks["keyring"]["detail"] and checks["keyring"]["fix"]


@pytest.mark.slow
@pytest.mark.spec("OPS-3", "SEC-1")
def test_how_this_directory_stands_is_told(tmp_path: Path) -> None:
    (tmp_path / ".agents" / "commands").mkdir(parents=True)
    (tmp_path / ".agents" / "commands" / "do.md").write_text("do it")
    done = run_agent("doctor", "--format", "json", env=agent_env(), cwd=tmp_path)
    (trust,) = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "trust"]
    assert trust["status"] == "warn" and str(tmp_path) in trust["detail"]
    assert "start agent there" in trust["fix"]


@pytest.mark.spec("OPS-3")
def test_the_collector_is_tried_where_telemetry_is_on() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="no extra otel")
    paths = Paths.from_env(os.environ)
    with ModelServer() as server:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.port}"}
        assert check_telemetry(load_settings(paths, env), env) == []
        on = load_settings(paths, {"AGENTCLI_ENABLE_TELEMETRY": "1"})
        (found,) = check_telemetry(on, env)
        assert (found.status, found.detail) == (Status.OK, "to 127.0.0.1, without content")
    (found,) = check_telemetry(on, env)
    assert found.status is Status.WARN and "OTEL_EXPORTER_OTLP_ENDPOINT" in found.advice
    (found,) = check_telemetry(on, env | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert found.advice == "correct OTEL_EXPORTER_OTLP_PROTOCOL"
    (found,) = check_telemetry(on, {"OTEL_SDK_DISABLED": "true"})
    assert (found.status, found.detail) == (Status.OK, "off")
