"""Where our files live, and how their directories are made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.config.paths import Paths, ensure_dir
from agentcli.domain.errors import PersistenceError


@pytest.mark.spec("CLI-10")
def test_agentcli_home_moves_everything(tmp_path: Path) -> None:
    paths = Paths.from_env({"AGENTCLI_HOME": str(tmp_path), "HOME": "/elsewhere"})
    ours = (
        paths.config_file,
        paths.sessions_dir,
        paths.catalogue_file,
        paths.log_file,
        paths.history_file,
        paths.instructions_file,
    )
    assert all(path.is_relative_to(tmp_path) for path in ours)


@pytest.mark.spec("CLI-10")
def test_without_it_the_xdg_directories_are_used() -> None:
    env = {"HOME": "/h", "XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}
    paths = Paths.from_env(env)
    assert paths.config_file == Path("/c/agentcli/config.toml")
    assert paths.sessions_dir == Path("/d/agentcli/sessions")
    assert paths.log_file == Path("/s/agentcli/agentcli.log")


@pytest.mark.spec("CLI-10")
def test_relative_xdg_directories_are_ignored_as_their_specification_says() -> None:
    paths = Paths.from_env({"HOME": "/h", "XDG_DATA_HOME": "data"})
    assert paths.data_dir == Path("/h/.local/share/agentcli")


@pytest.mark.spec("CLI-12")
def test_without_home_the_user_database_is_asked() -> None:
    import pwd

    expected = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert Paths.from_env({}).config_file == expected / ".config/agentcli/config.toml"


def test_a_relative_home_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Paths.from_env({"AGENTCLI_HOME": "here"}).data_dir == tmp_path / "here"


@pytest.mark.spec("SEC-9")
def test_directories_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = ensure_dir(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.spec("CLI-12")
def test_a_directory_that_cannot_be_made_is_one_line_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PersistenceError) as caught:
        ensure_dir(tmp_path / "file" / "sub")
    assert "file" in caught.value.message
    assert "AGENTCLI_HOME" in caught.value.advice


@pytest.mark.spec("SEC-3")
def test_a_workspace_inside_our_home_is_not_ours_but_our_files_are(tmp_path: Path) -> None:
    paths = Paths.from_env({"AGENTCLI_HOME": str(tmp_path)})
    elsewhere = paths.own_places(tmp_path.parent / "elsewhere")
    assert tmp_path in elsewhere
    inside = paths.own_places(tmp_path / "work")
    assert tmp_path not in inside
    for own in (paths.config_file, paths.sessions_dir, paths.catalogue_file, paths.log_file):
        assert own in inside
