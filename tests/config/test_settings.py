"""Settings: who wins, where each value comes from, and what is said about mistakes."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agentcli.config.keys import KEYS, split_key
from agentcli.config.paths import Paths
from agentcli.config.redaction import Redactor
from agentcli.config.settings import Settings, dotted, load_settings
from agentcli.config.toml_file import parse_leniently
from agentcli.domain.errors import ConfigError
from agentcli.domain.ports import Effort, PermissionMode


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path, tmp_path, tmp_path)


def load(paths: Paths, text: str, env: dict[str, str] | None = None, **flags: object) -> Settings:
    paths.config_file.write_text(text)
    return load_settings(paths, env or {}, flags)


def error(paths: Paths, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(paths, text)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.spec("CLI-9")
def test_without_a_file_everything_is_the_default(paths: Paths) -> None:
    settings = load_settings(paths, {})
    assert settings.model is None
    assert settings.max_steps == 200
    assert settings.permission_mode is PermissionMode.DEFAULT
    assert set(settings.sources.values()) == {"default"}


@pytest.mark.spec("CLI-10")
def test_flags_win_over_the_environment_and_the_environment_over_the_file(paths: Paths) -> None:
    text = 'effort = "low"\nmodel = "a/file"\n'
    assert load(paths, text).model == "a/file"
    env = {"AGENTCLI_MODEL": "a/env"}
    from_env = load(paths, text, env)
    assert (from_env.model, from_env.effort) == ("a/env", Effort.LOW)
    assert load(paths, text, env, model="a/flag").model == "a/flag"


@pytest.mark.spec("CLI-9")
def test_each_value_says_where_it_comes_from(paths: Paths) -> None:
    settings = load(paths, 'theme = "dark"\n\n[tools]\noff = ["web"]\n', {"AGENTCLI_MODEL": "m"})
    assert settings.sources["theme"] == f"{paths.config_file}:1"
    assert settings.sources["tools.off"] == f"{paths.config_file}:4"
    assert settings.sources["model"] == "AGENTCLI_MODEL (environment)"
    assert settings.sources["max_steps"] == "default"


@pytest.mark.spec("SCALE-7")
def test_only_the_user_switches_telemetry_on(paths: Paths) -> None:
    assert not load(paths, "").telemetry
    assert load(paths, "telemetry = true\n").telemetry
    assert not load(paths, "telemetry = true\n", {"AGENTCLI_ENABLE_TELEMETRY": "0"}).telemetry
    assert not any(KEYS[name].shared for name in ("telemetry", "telemetry_content"))
    content = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    says = {"true": True, "SPAN_ONLY": True, "NO_CONTENT": False, "EVENT_ONLY": False, "?": False}
    assert {text: load(paths, "", {content: text}).telemetry_content for text in says} == says
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20k3y-9fA7xQz81LmPq02RtVb,a=b"}
    assert "k3y-9fA7xQz81LmPq02RtVb" in load(paths, "", headers).secrets


@pytest.mark.spec("SEC-1")
def test_a_project_file_has_no_effect(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    project = paths.data_dir / "project"
    (project / ".agentcli").mkdir(parents=True)
    (project / ".agentcli/config.toml").write_text('permission_mode = "yolo"\n')
    monkeypatch.chdir(project)
    assert load_settings(paths, {}).permission_mode is PermissionMode.DEFAULT


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('model = "x"\ntheme = dark\n', 2, 9),
        ("model = \n", 1, 9),
        ('a = "unclosed', 1, 14),
        ("[tools\n", 1, 7),
    ],
)
def test_a_syntax_error_names_file_line_and_column(
    paths: Paths, text: str, line: int, column: int
) -> None:
    assert error(paths, text).message.startswith(f"{paths.config_file}:{line}:{column}: ")


@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('model = "abc\n', "1:13: the quote after `model =` is not closed"),
        ("model = 'abc\n", "1:13: the quote after `model =` is not closed"),
        ("model = abc\n", "1:9: the text after `model =` needs quotes"),
        ('model "abc"\n', "1:7: there is no = after `model`"),
        ("model =\n", "1:8: there is no value after `model =`"),
        ("screen_reader = True\n", "1:17: write true in small letters after `screen_reader =`"),
        ("model = \u201cabc\u201d\n", "1:9: write straight quotes after `model =`"),
        ('model = "a"\nmodel = "b"\n', "2:12: `model` stands here twice"),
        ("[tools]\n[tools]\noff = []\n", "2:7: the table [tools] stands here twice"),
        ('[tools\noff = ["web"]\n', "1:7: the bracket of [tools is not closed"),
        ('plugins = ["a",\ntheme = "dark"\n', "1:11: the [ after `plugins =` is not closed"),
        ('theme = "a" b\n', "1:13: there is something behind the value of `theme`"),
        ('theme = "\\q"\n', "write \\\\ for a backslash after `theme =`"),
        ("sk-live-1234567\n", "this line is no `key = value` and no [table]"),
    ],
)
def test_a_mistake_in_the_file_is_said_in_plain_words(paths: Paths, text: str, said: str) -> None:
    found = error(paths, text)
    assert said in found.message
    assert "agent config edit" in found.advice
    assert "1234567" not in str(found)  # SEC-9: what stands there may be a key


@pytest.mark.spec("CLI-9")
def test_all_mistakes_of_a_file_are_listed_at_once(paths: Paths) -> None:
    text = (
        'model = "abc\ntheme = dark\nplugins = [\n  "a\n]\nmax_steps = "many"\n'
        '[tools\noff = "web"\n[[hooks.Stop]]\nmatcher = "x"\n'
    )
    paths.config_file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(paths, {})
    assert caught.value.headline == f"{paths.config_file} has 7 mistakes"
    assert list(caught.value.details) == [
        "line 1: the quote after `model =` is not closed",
        "line 2: the text after `theme =` needs quotes",
        "line 4: something in the value of `plugins` cannot be read",
        'line 6: max_steps: expected a whole number of at least 0, not "many"',
        "line 7: the bracket of [tools is not closed",
        'line 8: tools.off: expected a list of texts, not "web"',
        "line 9: hooks.Stop: a hook needs a command, as a text",
    ]


@given(st.text(alphabet="am=[]{}\"'\\#.,\n 1\u201c", max_size=60))
def test_whatever_the_file_holds_it_is_read_or_refused(text: str) -> None:
    _, mistakes, _ = parse_leniently(text, Path("config.toml"))
    assert bool(mistakes) == _is_refused(text)


def _is_refused(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return True
    return False


def test_bytes_that_are_no_text_are_named_with_line_and_column(paths: Paths) -> None:
    paths.config_file.write_bytes(b'theme = "dark"\nmodel = "\xff"\n')
    with pytest.raises(ConfigError, match=r"config.toml:2:10: not UTF-8"):
        load_settings(paths, {})


@pytest.mark.spec("SEC-13")
def test_a_named_pipe_in_the_place_of_the_file_is_refused_and_not_waited_for(paths: Paths) -> None:
    paths.config_dir.mkdir(parents=True, exist_ok=True)
    os.mkfifo(paths.config_file)
    with pytest.raises(ConfigError, match="no regular file"):
        load_settings(paths, {})


def test_an_unreadable_file_is_an_error_not_an_empty_one(paths: Paths) -> None:
    paths.config_file.mkdir()
    with pytest.raises(ConfigError, match="cannot read"):
        load_settings(paths, {})


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ('# first\nmax_steps = "many"\n', 2, 1, "max_steps: expected a whole number"),
        ("max_steps = true\n", 1, 1, "expected a whole number"),
        ("max_steps = -1\n", 1, 1, "at least 0"),
        ('permission_mode = "root"\n', 1, 1, "one of default, accept-edits, auto, plan, yolo"),
        ("[permissions]\nallow = 5\n", 2, 1, "expected a list of texts"),
        ("permissions = 5\n", 1, 1, "expected a table"),
        ("  model = 3\n", 1, 3, "expected a text"),
        ('[providers.x]\nkind = "openai"\nbase_url = "ftp://x"\n', 3, 1, "http"),
        ('[models."a/b"]\ninput_price = "cheap"\n', 2, 1, "expected a number"),
        ('[providers."A B"]\nkind = "openai"\n', 1, 2, "small letters"),
    ],
)
def test_a_wrong_value_names_its_place_and_what_was_expected(
    paths: Paths, text: str, line: int, column: int, expected: str
) -> None:
    found = error(paths, text)
    assert found.message.startswith(f"{paths.config_file}:{line}:{column}: ")
    assert expected in found.message


def test_a_key_in_the_file_is_refused_with_advice_and_not_repeated(paths: Paths) -> None:
    found = error(paths, '[providers.x]\napi_key = "sk-123456"\n')
    assert "api_key_env" in found.advice
    assert "sk-123456" not in str(found)


@pytest.mark.spec("SEC-9")
def test_what_is_said_of_a_key_in_the_file_is_no_secret_to_be_taken_out(paths: Paths) -> None:
    said = str(error(paths, '[providers.x]\napi_key = "sk-123456"\n'))
    assert Redactor().redact(said) == said


def test_an_unknown_key_is_a_warning_with_near_names(paths: Paths) -> None:
    settings = load(paths, 'modle = "x/y"\n[providers.x]\nbase_ur = "http://x"\n')
    assert "1:1: unknown key modle - did you mean model?" in settings.warnings[0]
    assert "did you mean providers.x.base_url?" in settings.warnings[1]


def test_a_provider_of_ones_own_takes_its_key_from_the_named_variable(paths: Paths) -> None:
    text = (
        '[providers.mine]\nkind = "openai"\nbase_url = "http://h:1/v1/"\napi_key_env = "MINE"\n'
        '[providers.open]\nkind = "openai"\nbase_url = "http://h:2/v1"\n'
    )
    providers = load(paths, text, {"MINE": " k-123456 "}).providers
    assert providers["mine"].base_url == "http://h:1/v1"
    assert providers["mine"].api_key == "k-123456"
    assert providers["mine"].needs_key
    assert not providers["open"].needs_key
    assert "k-123456" not in repr(providers["mine"])


@pytest.mark.spec("SEC-9")
def test_secrets_are_known_by_their_names_and_never_in_a_repr(paths: Paths) -> None:
    env = {
        "OPENAI_API_KEY": "k1-Secret-4f8a2c9d",
        "GH_TOKEN": "t1-Secret-4f8a2c9d",
        "MINE": "m1-Secret-4f8a2c9d",
        "PATH": "/bin",
    }
    text = '[providers.x]\nkind = "openai"\nbase_url = "http://x.example"\napi_key_env = "MINE"\n'
    settings = load(paths, text, env)
    assert set(settings.secrets) == {
        "k1-Secret-4f8a2c9d",
        "t1-Secret-4f8a2c9d",
        "m1-Secret-4f8a2c9d",
    }
    assert "1-Secret" not in repr(settings)


@pytest.mark.spec("SEC-9")
def test_a_secret_is_known_as_it_is_sent_without_the_space_around_it(paths: Paths) -> None:
    assert load(paths, "", {"OPENAI_API_KEY": " k1-Secret-4f8a2c9d\n"}).secrets == (
        "k1-Secret-4f8a2c9d",
    )


def test_prices_and_limits_of_a_model_can_be_set(paths: Paths) -> None:
    text = '[models."ollama/qwen3:8b"]\ncontext_tokens = 40960\ninput_price = 0.5\n'
    found = load(paths, text).models["ollama/qwen3:8b"]
    assert found == {"context_tokens": 40960, "input_price": 0.5}


def test_a_wrong_flag_or_variable_names_itself(paths: Paths) -> None:
    with pytest.raises(ConfigError, match="command line: effort: expected one of"):
        load_settings(paths, {}, {"effort": "huge"})


@hypothesis_settings(max_examples=50, deadline=None)
@given(st.lists(st.text("abc_-./: \"'", min_size=1).filter(lambda t: '"' not in t), min_size=1))
def test_a_dotted_key_is_read_back_as_it_was_written(parts: list[str]) -> None:
    assert split_key(dotted(tuple(parts))) == tuple(parts)
