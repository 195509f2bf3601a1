"""``agent config`` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcli.app.setting import set_setting
from agentcli.config.paths import Paths
from agentcli.domain.errors import AgentError
from tests.support.cli import agent_env, run_agent


@pytest.fixture
def file(home: Path) -> Path:
    return home / "agentcli" / "config.toml"


@pytest.mark.slow
@pytest.mark.spec("CLI-9")
def test_path_set_get_and_show_tell_the_same(file: Path) -> None:
    assert run_agent("config", "path").stdout == f"{file}\n"
    assert run_agent("config", "set", "model", "a/b").code == 0
    assert run_agent("config", "get", "model").stdout == "a/b\n"
    got = json.loads(run_agent("config", "get", "model", "--format", "json").stdout)
    assert got == {"key": "model", "value": "a/b", "source": f"{file}:1"}
    rows = {
        row["key"]: row
        for row in json.loads(run_agent("config", "show", "--format", "json").stdout)
    }
    assert rows["model"]["source"] == f"{file}:1"
    assert rows["max_steps"] == {"key": "max_steps", "value": 200, "source": "default"}
    assert f"{file}:1" in run_agent("config").stdout
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.spec("CLI-9", "SEC-9")
def test_show_names_keys_and_never_prints_them(file: Path) -> None:
    env = agent_env(OPENAI_API_KEY="sk-canary-0123456789", OPENAI_BASE_URL="http://h:1/v1")
    for args in (("config", "show"), ("config", "show", "--format", "json"), ("doctor",)):
        shown = run_agent(*args, env=env).stdout
        assert "canary" not in shown
        assert "OPENAI_API_KEY" in shown
    assert "OPENAI_BASE_URL (environment)" in run_agent("config", "show", env=env).stdout


@pytest.mark.spec("CLI-9")
def test_set_warns_when_the_environment_wins() -> None:
    env = agent_env(AGENTCLI_MODEL="c/d")
    done = run_agent("config", "set", "model", "a/b", env=env)
    assert done.code == 0
    assert "AGENTCLI_MODEL" in done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("modle", "x"), "did you mean model?"),
        (("theme", "pink"), "one of auto"),
        (("keys.mode", "zz"), "zz is not a key - write ctrl-g"),
        (("keys.mode", "ctrl-c"), "choose another key"),
        (("permissions.allow", "bash(git *), bash("), "not a permission rule: 'bash('"),
        (("providers.x.kind", "telepathy"), "one of: anthropic"),
        (('models."p/m".input_price', "nan"), "a number of at least 0"),
        (('models."p/m".input_price', "inf"), "a number of at least 0"),
    ],
)
def test_set_refuses_with_what_is_valid(args: tuple[str, ...], told: str, file: Path) -> None:
    done = run_agent("config", "set", *args)
    assert done.code == 2
    assert told in done.stderr
    assert not file.exists()


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("model", "sonet", "did you mean claude-sonnet-"),
        ("fallback_models", "openai/gpt-6-sol,sonet", "did you mean claude-sonnet-"),
        (
            "tools.off",
            "webb",
            "tools.off: there is no tool or tool group 'webb' - did you mean web",
        ),
    ],
)
def test_a_model_or_tool_that_nobody_has_is_not_set(
    key: str, value: str, told: str, tmp_path: Path
) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path)
    with pytest.raises(AgentError) as caught:
        set_setting(paths, key, value)
    assert told in str(caught.value)
    assert not paths.config_file.exists()


def test_a_model_of_no_provider_is_set_with_a_warning_and_its_start_names_the_file(
    file: Path, tmp_path: Path
) -> None:
    done = run_agent("config", "set", "model", "mine/x")
    assert done.code == 0
    assert "there is no provider 'mine' - known: anthropic," in done.stderr
    assert file.read_text() == 'model = "mine/x"\n'
    done = run_agent("run", "hi", cwd=tmp_path)
    assert (done.code, done.stdout) == (78, "")
    assert done.stderr.startswith(f"error: there is no provider 'mine' ({file}:1) - ")


@pytest.mark.slow
@pytest.mark.spec("CLI-9")
def test_set_repairs_a_broken_file(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('model = "ab\ntheme = dark\n')
    refused = run_agent("config", "show")
    assert refused.code == 78
    assert "  line 1: the quote after `model =` is not closed\n" in refused.stderr
    half = run_agent("config", "set", "theme", "dark")
    assert half.code == 0
    assert "warning: still to be repaired: line 1: the quote" in half.stderr
    assert run_agent("config", "set", "model", "offline").code == 0
    assert run_agent("run", "hi").code == 0


@pytest.mark.slow
def test_edit_opens_the_editor_and_checks_what_it_left(file: Path, tmp_path: Path) -> None:
    good = agent_env(EDITOR="sed -i '1i theme = \"dark\"'")
    assert run_agent("config", "edit", env=good).code == 0
    assert run_agent("config", "get", "theme").stdout == "dark\n"
    bad = run_agent("config", "edit", env=agent_env(EDITOR="sed -i s/dark/pink/"))
    assert bad.code == 78
    assert f"{file}:1:1" in bad.stderr
    seen = tmp_path / "seen"
    keys = {"COHERE_API_KEY": "coh-5Lk9Xz4Pv8Nb1Mt6Rj3aa", "WORK_LLM": "k-5Lk9Xz4Pv8Nb1Mt6Rj3"}
    file.write_text('[providers.openai]\napi_key_env = "WORK_LLM"\n')
    run_agent("config", "edit", env=agent_env(EDITOR=f"sh -c 'env >{seen}'", **keys))
    assert "PATH=" in seen.read_text()
    assert not any(key in seen.read_text() for key in keys.values())
    assert run_agent("config", "edit", env=agent_env(EDITOR="no-such-editor")).code == 2
    assert run_agent("config", "edit", env=agent_env(EDITOR="false")).code == 1
    for unreadable in (" ", "vi '"):
        done = run_agent("config", "edit", env=agent_env(EDITOR=unreadable))
        assert (done.code, "set EDITOR" in done.stderr) == (2, True), done
    assert run_agent("config", "edit").code == 2


@pytest.mark.spec("CLI-9", "SEC-3")
def test_a_rule_with_which_nothing_starts_is_told_with_its_place(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text('theme = "dark"\n\n[permissions]\ndeny = ["Bash(rm:*)"]\n')
    told = f"{file}:4: 'Bash(rm:*)' is a rule for another program"
    for args in (("run", "hi"), ("config", "edit")):
        done = run_agent(*args, env=agent_env(EDITOR="true"))
        assert (done.code, told in done.stderr) == (2, True), done
    assert told in run_agent("doctor").stdout


@pytest.mark.slow
def test_a_broken_file_is_one_line_for_every_command(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text('model = "a/b"\ntheme = \n')
    for args in (("config", "show"), ("config", "get", "model"), ("models",), ("run", "hi")):
        done = run_agent(*args)
        assert done.code == 78, done
        assert done.stderr.startswith(f"error: {file}:2:9: ")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.sampled
@pytest.mark.spec("CLI-9", "UI-10")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("theme", "daltonized"),
        ("screen_reader", "true"),
        ("keys.todos", "alt-l"),
        ("max_steps", "7"),
    ],
)
def test_what_is_set_has_an_effect(key: str, value: str) -> None:
    done = run_agent("config", "set", key, value)
    assert done.code == 0
    assert "no effect" not in done.stderr


@pytest.mark.spec("CLI-9")
def test_fallback_models_are_a_list_that_has_an_effect() -> None:
    done = run_agent("config", "set", "fallback_models", "openai/gpt-4.1, ollama/qwen3")
    assert "no effect" not in done.stderr
    shown = json.loads(run_agent("config", "show", "--format", "json").stdout)
    row = next(row for row in shown if row["key"] == "fallback_models")
    assert row["value"] == ["openai/gpt-4.1", "ollama/qwen3"]
    assert "config.toml" in row["source"]
