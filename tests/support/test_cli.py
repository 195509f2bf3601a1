"""The process helpers: environment, whole runs, runs under way."""

from __future__ import annotations

import signal

import pytest

from tests.support import cli
from tests.support.cli import KEY, agent_env, run_agent, spawn_agent
from tests.support.model_server import OPENAI, ModelServer


def test_the_environment_points_to_the_server_and_to_the_tests_home(
    model_server: ModelServer, home: object
) -> None:
    env = agent_env(model_server, OPENAI, NO_COLOR="1", ANTHROPIC_API_KEY=None)
    assert env["AGENTCLI_HOME"] == f"{home}/agentcli"
    assert env["OPENAI_BASE_URL"] == f"http://127.0.0.1:{model_server.port}/v1"
    assert env["OPENAI_API_KEY"] == KEY and env["NO_COLOR"] == "1"
    assert env["AGENTCLI_MODEL"].startswith("openai/") and "ANTHROPIC_API_KEY" not in env


def test_a_whole_run_gives_code_and_output() -> None:
    done = run_agent("--version")
    assert done.code == 0 and done.stdout.startswith("agentcli ") and done.stderr == ""


def test_a_run_under_way_can_be_read_signalled_and_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    program = 'i=0; echo "{\\"n\\": 1}"; echo oops >&2; echo "{\\"n\\": 2}"; exec sleep 60'
    monkeypatch.setattr(cli, "AGENT", ("/bin/sh", "-c", program))
    with spawn_agent() as running:
        assert running.wait_for(lambda event: event["n"] == 2)
        running.signal(signal.SIGKILL)
        done = running.wait()
    assert done.code == -signal.SIGKILL
    assert done.result == {"n": 2} and len(done.lines) == 2 and done.stderr == "oops\n"


def test_a_line_that_never_comes_is_a_failure_with_the_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "AGENT", ("/bin/sh", "-c", 'echo "{}"; echo why >&2'))
    with spawn_agent() as running, pytest.raises(AssertionError, match="why"):
        running.wait_for(lambda event: "n" in event)
