"""Checks as they are written: what is wrong is refused in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.app.trust import project_lines
from agentcli.config.edit import set_value
from agentcli.config.paths import Paths
from agentcli.config.project import read_project
from agentcli.config.settings import load_settings
from agentcli.domain.errors import ConfigError, UsageError

OWN = '[[checks]]\nglob = ["*.py", "*.pyi"]\ncheck = "uv run ruff check"\n'


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path, tmp_path, tmp_path)


@pytest.mark.spec("EXT-6")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("check = 'ruff'", "needs a glob"),
        ("glob = 3\ncheck = 'ruff'", "needs a glob"),
        ("glob = '*.py'", "needs a format or a check"),
        ("glob = '*.py'\ncheck = ''", "are command lines"),
        ("glob = '*.py'\ncheck = 'x'\ntimeout_s = 0", "timeout_s is a number"),
        ("glob = '*.py'\ncheck = 'x'\nrun = 1", "unknown field run"),
    ],
)
def test_what_is_no_check_is_refused_with_the_reason(paths: Paths, text: str, said: str) -> None:
    paths.config_file.write_text(f"[[checks]]\n{text}\n")
    with pytest.raises(ConfigError, match=said):
        load_settings(paths, {})


@pytest.mark.spec("EXT-6")
def test_tables_are_checks_of_their_own_and_a_word_does_not_replace_them(paths: Paths) -> None:
    paths.config_file.write_text(OWN)
    (check,) = load_settings(paths, {}).own_checks
    assert (check.globs, check.name) == (("*.py", "*.pyi"), "ruff")
    with pytest.raises(ConfigError, match="of its own"):
        set_value(paths, "checks", "auto")
    with pytest.raises(UsageError, match="one by one"):
        set_value(paths, "checks.glob", "*")
    assert paths.config_file.read_text() == OWN


@pytest.mark.spec("EXT-6", "SEC-1", "SEC-6")
def test_checks_of_a_project_are_shown_whole_and_the_users_off_wins(paths: Paths) -> None:
    root = paths.config_dir / "work"
    (root / ".agents").mkdir(parents=True)
    (root / ".agents/config.toml").write_text(OWN)
    project = read_project(root, "")
    assert project is not None
    assert "  check after edits on *.py, *.pyi: check: uv run ruff check (10 s)" in project_lines(
        project
    )
    assert len(load_settings(paths, {}, project=project).own_checks) == 1
    paths.config_file.write_text('checks = "off"\n')
    assert load_settings(paths, {}, project=project).own_checks == ()


@pytest.mark.spec("SEC-17")
def test_a_script_that_a_check_of_the_project_runs_counts_as_content(paths: Paths) -> None:
    root = paths.config_dir / "work"
    (root / ".agents").mkdir(parents=True)
    (root / ".agents/config.toml").write_text("[[checks]]\nglob = '*'\ncheck = './lint.sh'\n")
    prints = set()
    for text in ("true\n", "false\n"):
        (root / "lint.sh").write_text(text)
        project = read_project(root, "")
        assert project is not None
        prints.add(project.fingerprint)
    assert len(prints) == 2
