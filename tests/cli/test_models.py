"""``agent models``."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest

from agentcli.config.paths import Paths
from tests.support.cli import KEY, agent_env, run_agent, spawn_agent
from tests.support.json_server import Asked, JsonServer
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
    none = run_agent("models", "list", "--offline", env=env)
    assert not none.stdout and "no known model has 'list' in its name" in none.stderr
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


@pytest.mark.slow
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
    assert not only


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


CATALOGUE = {
    "anthropic": {
        "models": {
            "claude-sonnet-4-5": {
                "tool_call": True,
                "reasoning": True,
                "modalities": {"input": ["text", "image"]},
                "limit": {"context": 300000, "output": 64000},
                "cost": {
                    "input": 7,
                    "output": 21.5,
                    "tiers": [
                        {"tier": {"type": "context", "size": 200000}, "input": 14, "output": 43}
                    ],
                },
            },
            "claude-next-1": {"tool_call": True, "limit": {"context": 5000, "output": 10**30}},
            "claude-next-2": {"tool_call": True, "limit": {"context": 5000, "output": 9000}},
            "no-tools": {"limit": {"context": 5000, "output": 9000}},
            "[evil]\x1b[31m": {"tool_call": True, "limit": {"context": 5000, "output": 9000}},
            "a b": {"tool_call": True, "limit": {"context": 5000, "output": 9000}},
            "odd": [1],
            "odd-price": {
                "tool_call": True,
                "limit": {"context": 8000, "output": 9000},
                "cost": {"input": "9; DROP", "output": float("inf"), "tiers": [3, {"tier": []}]},
            },
        }
    },
    "openrouter": {"models": {"x/y": {"tool_call": True, "limit": {"context": 9, "output": 9}}}},
    "nobody": {"models": {}},
}


@pytest.mark.slow
@pytest.mark.spec("EXT-7", "SEC-12", "CTX-3")
def test_windows_and_prices_are_fetched_when_asked_and_then_used() -> None:
    tags: list[str] = []

    def catalogue(asked: Asked) -> tuple[int, object]:
        tags.append(asked.headers.get("if-none-match", ""))
        assert not {"authorization", "x-api-key"} & asked.headers.keys()
        return (304, {}) if tags[-1] == '"one"' else (200, CATALOGUE)

    with JsonServer({"GET /api.json": catalogue}) as server:
        server.headers = {"etag": '"one"'}
        assert run_agent("config", "set", "models_url", f"{server.url}/api.json").code == 0
        env = agent_env(ANTHROPIC_API_KEY="k", AGENTCLI_MODEL="anthropic/claude-sonnet-4-5")
        args = ("models", "anthropic/", "--offline", "--format", "json")
        before = run_agent(*args, env=env)
        assert not server.asked  # never by itself
        first = run_agent(*args, "--refresh", env=env)
        again = run_agent(*args, "--refresh", env=env)
    assert tags == ["", '"one"']
    assert "4 models" in first.stderr
    assert "has not changed" in again.stderr
    assert before.stdout != first.stdout == again.stdout == run_agent(*args, env=env).stdout
    found = {row["id"].partition("/")[2]: row for row in json.loads(first.stdout)}
    known = found["claude-sonnet-4-5"]
    assert (known["context_tokens"], known["input_price"]) == (300_000, 7)
    assert [tier["input_price"] for tier in known["long_prompts"]] == [14]
    assert found["claude-next-2"]["max_output_tokens"] == 5000
    assert found["odd-price"]["output_price"] is None
    assert {"claude-next-1", "no-tools", "a b", "odd"}.isdisjoint(found)
    assert "claude-opus-4-5" in found  # what the catalogue does not have stays


@pytest.mark.sampled
@pytest.mark.spec("EXT-7", "SEC-13")
@pytest.mark.parametrize(
    "answer", [b"<html>", b"[" * 100_000, {}, {"anthropic": 3}, b"x" * 9_000_000]
)
def test_a_catalogue_that_is_none_changes_nothing(answer: object) -> None:
    with JsonServer({"GET /api.json": answer}) as server:
        run_agent("config", "set", "models_url", f"{server.url}/api.json")
        done = run_agent("models", "--offline", "--refresh")
    assert done.code != 0
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert not Paths.from_env(os.environ).models_file.exists()


@pytest.mark.spec("EXT-7")
def test_a_damaged_file_of_models_is_passed_over() -> None:
    path = Paths.from_env(os.environ).models_file
    path.parent.mkdir(parents=True)
    rows = "claude-sonnet-4-5 x y\nclaude-opus-4-5 1 1 1.2.3 - - - it\n[\nm 7 7 1 1 - - -\n"
    path.write_text(f"# 2099-01-01: from here\n[anthropic]\n{rows}")
    done = run_agent("models", "anthropic/", "--offline", "--format", "json")
    found = {row["id"]: row["context_tokens"] for row in json.loads(done.stdout)}
    assert (found["anthropic/claude-sonnet-4-5"], found["anthropic/m"]) == (200_000, 7)
