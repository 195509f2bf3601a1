"""``config set`` on the file: what stays, what is refused, how it is written."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from agentcli.config.edit import TEMPLATE, add_rule, remove_rule, set_value
from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings, validate
from agentcli.domain.errors import ConfigError, UsageError

TEXT = """\
# my settings
model = "a/b"   # the good one

[tools]
off = ["web"]  # no network
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "new", tmp_path, tmp_path)


def write(paths: Paths, text: str) -> None:
    paths.config_dir.mkdir()
    paths.config_file.write_text(text)


@pytest.mark.spec("CLI-9")
def test_comments_and_order_stay(paths: Paths) -> None:
    write(paths, TEXT)
    set_value(paths, "model", "c/d")
    set_value(paths, "max_steps", "7")
    after = paths.config_file.read_text()
    assert 'model = "c/d"   # the good one' in after
    assert after.startswith("# my settings\n")
    assert "# no network" in after
    assert tomllib.loads(after) == {"model": "c/d", "max_steps": 7, "tools": {"off": ["web"]}}


@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("permissions.allow", "bash(git log --format=a,b),read_file", None),
        ("tools.off", '["web", "x,y"]', ["web", "x,y"]),
        ("tools.off", "", []),
        ("providers.local.base_url", "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1"),
        ('models."ollama/qwen3:8b".context_tokens', "4096", 4096),
        ("models.x.input_price", "0.25", 0.25),
    ],
)
def test_values_of_every_kind_are_read_back(
    paths: Paths, key: str, text: str, value: object
) -> None:
    expected = ["bash(git log --format=a,b)", "read_file"] if value is None else value
    assert set_value(paths, key, text).value == expected
    settings = load_settings(paths, {})
    found = settings.values[key]
    assert (list(found) if isinstance(found, tuple) else found) == expected


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("modle", "x", "did you mean model?"),
        ("nothing.like.it", "x", "all keys: agent config show"),
        ("timeout", "3", "did you mean providers.NAME.first_token_timeout_s or"),
        ("keys.xx", "alt-x", "unknown key keys.xx - did you mean keys."),
        ("theme", "pink", "one of auto, dark, light"),
        ("max_steps", "many", "a whole number"),
        ("providers.x.base_url", "nowhere", "http://"),
    ],
)
def test_an_unknown_key_or_a_wrong_value_changes_nothing(
    paths: Paths, key: str, text: str, told: str
) -> None:
    write(paths, TEXT)
    with pytest.raises(UsageError) as caught:
        set_value(paths, key, text)
    assert told in str(caught.value)
    assert paths.config_file.read_text() == TEXT


def test_a_broken_file_is_not_touched(paths: Paths) -> None:
    write(paths, "model = \n")
    with pytest.raises(ConfigError, match=r"config\.toml:1:9"):
        set_value(paths, "theme", "dark")
    assert paths.config_file.read_text() == "model = \n"


@pytest.mark.spec("CLI-9")
@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        (
            '# mine\nmodel = "ab\ntheme = "dark"\n',
            "model",
            "c/d",
            '# mine\nmodel = "c/d"\ntheme = "dark"\n',
        ),
        (
            "max_steps = many\n\n[tools]\noff = []\n",
            "max_steps",
            "7",
            "max_steps = 7\n\n[tools]\noff = []\n",
        ),
        ('max_steps = "many"\n', "max_steps", "7", "max_steps = 7\n"),
        ('model = "a/b"\nmodel = "c/d"\n', "model", "e/f", 'model = "e/f"\n'),
        ('[tools]\noff = ["web"\n', "tools.off", "a", '[tools]\noff = ["a"]\n'),
    ],
)
def test_a_broken_key_is_repaired_by_setting_it(
    paths: Paths, before: str, key: str, value: str, after: str
) -> None:
    write(paths, before)
    assert set_value(paths, key, value).warnings == ()
    assert paths.config_file.read_text() == after


@pytest.mark.spec("CLI-9")
def test_of_several_mistakes_each_is_repaired_by_its_own_key(paths: Paths) -> None:
    broken = 'model = "ab\ntheme = dark\n[keys]\n# why\nmode = \n\n'
    write(paths, broken)
    with pytest.raises(ConfigError) as caught:
        set_value(paths, "effort", "low")
    assert "has 3 mistakes" in caught.value.message
    assert '"agent config set model VALUE"' in caught.value.advice
    assert paths.config_file.read_text() == broken
    left = set_value(paths, "theme", "dark").warnings
    assert left == (
        "still to be repaired: line 1: the quote after `model =` is not closed",
        "still to be repaired: line 5: there is no value after `mode =`",
    )
    assert paths.config_file.read_text() == broken.replace("= dark", '= "dark"')
    set_value(paths, "keys.mode", "ctrl-y")
    assert set_value(paths, "model", "a/b").warnings == ()
    assert load_settings(paths, {}).chat_keys["mode"] == "ctrl-y"
    assert "# why" in paths.config_file.read_text()


@pytest.mark.spec("SEC-9")
def test_the_file_is_private_and_a_link_to_it_is_kept(paths: Paths, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(TEXT)
    paths.config_dir.mkdir()
    paths.config_file.symlink_to(real)
    before = os.umask(0)
    try:
        set_value(paths, "theme", "dark")
    finally:
        os.umask(before)
    assert paths.config_file.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert 'theme = "dark"' in real.read_text()
    assert not list(tmp_path.glob(".config-*"))


def test_the_template_is_valid_and_sets_nothing(paths: Paths) -> None:
    assert validate(TEMPLATE, paths) == ()
    assert tomllib.loads(TEMPLATE) == {}
    told = "\n".join(
        line.removeprefix("# ") for line in TEMPLATE.splitlines()[1:] if "=" in line or "[" in line
    )
    assert validate(told, paths) == ()


@pytest.mark.spec("UI-7")
def test_a_rule_is_added_once_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path)
    add_rule(paths, "allow", "bash(git status)")
    paths.config_file.write_text("# mine\n" + paths.config_file.read_text())
    add_rule(paths, "allow", 'bash(echo "a, b")')
    add_rule(paths, "allow", "bash(git status)")
    assert paths.config_file.read_text().startswith("# mine\n")
    assert load_settings(paths, {}).allow == ("bash(git status)", 'bash(echo "a, b")')
    assert paths.config_file.stat().st_mode & 0o777 == 0o600
    wrong = "[permissions]\nallow = 7\n"
    paths.config_file.write_text(wrong)
    with pytest.raises(ConfigError):
        add_rule(paths, "allow", "bash(ls)")
    assert paths.config_file.read_text() == wrong


@pytest.mark.spec("SEC-3", "SEC-9")
def test_rules_of_every_kind_are_written_and_taken_out_again(paths: Paths) -> None:
    write(paths, '# mine\nmodel = "a/b"\n')
    for kind in ("allow", "ask", "deny"):
        add_rule(paths, kind, "bash(x)")
        add_rule(paths, kind, f"bash({kind} *)")
    assert remove_rule(paths, "bash(x)")
    assert not remove_rule(paths, "bash(x)")
    text = paths.config_file.read_text()
    assert text.startswith('# mine\nmodel = "a/b"\n')
    for kind in ("allow", "ask", "deny"):
        assert f'{kind} = ["bash({kind} *)"]' in text
    assert paths.config_file.stat().st_mode & 0o777 == 0o600
