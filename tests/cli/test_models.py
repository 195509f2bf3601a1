"""``agent models``."""

from __future__ import annotations

import json
import signal
import socket

import pytest

from tests.support.cli import KEY, agent_env, run_agent, spawn_agent
from tests.support.model_server import ModelServer


@pytest.mark.spec("CLI-9", "CTX-3")
def test_the_default_is_marked_and_a_key_makes_a_provider_ready() -> None:
    env = agent_env(ANTHROPIC_API_KEY="k", AGENTCLI_MODEL="anthropic/claude-sonnet-4-5")
    found = json.loads(run_agent("models", "--offline", "--format", "json", env=env).stdout)
    assert {m["listed"] for m in found} == {None}
    assert [m["id"] for m in found if m["default"]] == ["anthropic/claude-sonnet-4-5"]
    ready = {m["id"].split("/")[0]: m["ready"] for m in found}
    assert ready["anthropic"]
    assert not ready["openai"]
    table = run_agent("models", "sonnet-4-5", "--offline", env=env).stdout.splitlines()
    assert table[0].split() == ["MODEL", "WINDOW", "OUTPUT", "$/M", "IN", "$/M", "OUT", "READY"]
    assert any(line.startswith("*") and "claude-sonnet-4-5" in line for line in table)


@pytest.mark.spec("COST-1", "CTX-3")
def test_a_model_that_is_not_in_the_table_is_listed_with_unknown_prices(tmp_path: object) -> None:
    env = agent_env(AGENTCLI_MODEL="openrouter/some/model", OPENROUTER_API_KEY="k")
    table = run_agent("models", "some/model", "--offline", env=env).stdout.splitlines()
    assert len(table) == 2
    assert "unknown" in table[1]


@pytest.mark.spec("CTX-3")
def test_figures_of_the_settings_win() -> None:
    assert run_agent("config", "set", 'models."ollama/mine".context_tokens', "4096").code == 0
    found = json.loads(run_agent("models", "mine", "--format", "json").stdout)
    assert found[0]["context_tokens"] == 4096


def test_an_unusable_default_is_a_warning() -> None:
    done = run_agent("models", env=agent_env(AGENTCLI_MODEL="nonsense/x"))
    assert done.code == 0
    assert "nonsense" in done.stderr


@pytest.mark.spec("CLI-9", "CTX-3")
def test_servers_are_asked_and_their_lists_are_merged_with_the_table() -> None:
    names = ["claude-sonnet-4-5-20250929", "claude-new"]
    with ModelServer(models=names, api_key="k") as claude, ModelServer() as ollama:
        ollama.routes["GET", "/api/tags"] = (200, {"models": [{"name": "qwen3:8b"}]})
        ollama.routes["POST", "/api/show"] = (200, {"parameters": "num_ctx 8192"})
        env = agent_env(
            ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL=claude.url, OLLAMA_HOST=ollama.url
        )
        done = run_agent("models", "--format", "json", env=env)
        lines = run_agent("models", "claude", env=env).stdout.splitlines()
        only = run_agent("models", "qwen3:8b", "--offline", env=env).stdout.splitlines()
    assert done.code == 0
    assert done.stderr == ""
    found = {m["id"]: m for m in json.loads(done.stdout)}
    dated = found["anthropic/claude-sonnet-4-5-20250929"]
    assert (dated["listed"], dated["context_tokens"], dated["input_price"]) == (True, 200_000, 3.0)
    assert found["anthropic/claude-sonnet-4-5"]["listed"] is True
    assert found["anthropic/claude-new"]["listed"] is True
    assert found["anthropic/claude-3-haiku"]["listed"] is False
    assert found["openai/gpt-4.1"]["listed"] is None
    assert found["ollama/qwen3:8b"]["context_tokens"] == 8192
    assert any("claude-3-haiku" in line and line.endswith("not listed") for line in lines)
    assert len(only) == 1


@pytest.mark.spec("CLI-9", "STR-9")
def test_a_provider_that_fails_is_one_warning_and_its_table_is_shown_all_the_same() -> None:
    with ModelServer(api_key="another") as server:
        env = agent_env(server)
        done = run_agent("models", "claude-sonnet-4-5", env=env)
    assert done.code == 0
    assert "claude-sonnet-4-5" in done.stdout
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2  # anthropic and openai, one line each
    assert "ANTHROPIC_API_KEY" in warnings[0]
    assert KEY not in done.stderr


@pytest.mark.spec("SEC-12")
def test_offline_asks_nobody() -> None:
    with ModelServer() as server:
        assert run_agent("models", "--offline", env=agent_env(server)).code == 0
        assert not server.others


@pytest.mark.spec("CLI-6", "CAN-13")
def test_ctrl_c_ends_the_wait_for_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(10)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = agent_env(ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL=url)
        with spawn_agent("models", env=env) as running:
            connection, _ = silent.accept()
            running.signal(signal.SIGINT)
            done = running.wait()
            connection.close()
    assert (done.code, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr
