"""``agent models``."""

from __future__ import annotations

import json

import pytest

from tests.support.cli import agent_env, run_agent


@pytest.mark.spec("CLI-9", "CTX-3")
def test_the_default_is_marked_and_a_key_makes_a_provider_ready() -> None:
    env = agent_env(ANTHROPIC_API_KEY="k", AGENTCLI_MODEL="anthropic/claude-sonnet-4-5")
    found = json.loads(run_agent("models", "--format", "json", env=env).stdout)
    assert [m["id"] for m in found if m["default"]] == ["anthropic/claude-sonnet-4-5"]
    ready = {m["id"].split("/")[0]: m["ready"] for m in found}
    assert ready["anthropic"]
    assert not ready["openai"]
    table = run_agent("models", "sonnet-4-5", env=env).stdout.splitlines()
    assert table[0].split() == ["MODEL", "WINDOW", "OUTPUT", "$/M", "IN", "$/M", "OUT", "READY"]
    assert any(line.startswith("*") and "claude-sonnet-4-5" in line for line in table)


@pytest.mark.spec("COST-1", "CTX-3")
def test_a_model_that_is_not_in_the_table_is_listed_with_unknown_prices(tmp_path: object) -> None:
    env = agent_env(AGENTCLI_MODEL="openrouter/some/model", OPENROUTER_API_KEY="k")
    table = run_agent("models", "some/model", env=env).stdout.splitlines()
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
