"""Opening without following: a link anywhere on a resolved path is an error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain import files


def _enter(manager: Any) -> None:
    with manager:
        pass


WAYS: dict[str, Callable[[Path], Any]] = {
    "directory": lambda path: _enter(files.directory_of(path)),
    "new directory": lambda path: _enter(files.directory_of(path / "new/x", [])),
    "listing": lambda path: _enter(files.opened_directory(path.parent)),
    "status": files.lstat_of,
    "link": lambda path: files.readlink_of(path.parent / "link"),
}


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", ["l/f", "l/sub/f", "d/l/f", "d/l/sub/f"])
def test_a_directory_that_is_a_link_is_not_passed(tmp_path: Path, way: str, shape: str) -> None:
    (tmp_path / "outside/sub").mkdir(parents=True)
    for name in ("f", "sub/f"):
        (tmp_path / "outside" / name).write_text("")
        (tmp_path / "outside" / name).with_name("link").symlink_to("f")
    (tmp_path / "d").mkdir()
    for name in ("l", "d/l"):
        (tmp_path / name).symlink_to(tmp_path / "outside")
    with pytest.raises(OSError) as caught:
        WAYS[way](tmp_path.resolve() / shape)
    assert caught.value.errno in {errno.ELOOP, errno.ENOTDIR}
    assert sorted(os.listdir(tmp_path / "outside")) == ["f", "link", "sub"]


@pytest.mark.spec("SEC-5")
def test_a_descent_from_an_open_directory_keeps_to_it(tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/sub/f").write_text("x")
    with files.opened_directory(tmp_path.resolve() / "d") as directory:
        (tmp_path / "d").rename(tmp_path / "elsewhere")
        (tmp_path / "d").symlink_to("/etc")
        with files.below(directory, ["sub"]) as inner:
            descriptor = files.open_at("f", inner)
        assert os.read(descriptor, 9) == b"x"
        os.close(descriptor)
        (tmp_path / "elsewhere/sub").rename(tmp_path / "elsewhere/real")
        (tmp_path / "elsewhere/sub").symlink_to("real")
        with pytest.raises(OSError, match="symbolic links"), files.below(directory, ["sub"]):
            pass


def test_missing_directories_are_made_and_told(tmp_path: Path) -> None:
    made: list[Path] = []
    root = tmp_path.resolve()
    with files.directory_of(root / "a/b/f", made) as directory:
        assert os.fstat(directory).st_ino == (root / "a/b").stat().st_ino
    assert made == [root / "a", root / "a/b"]


def test_the_root_and_what_is_missing(tmp_path: Path) -> None:
    assert files.is_directory(Path("/"))
    with files.opened_directory(Path("/")) as directory:
        assert "tmp" in os.listdir(directory) or os.listdir(directory)
    assert not files.is_directory(tmp_path / "absent")
    before = set(os.listdir("/dev/fd"))
    with pytest.raises(FileNotFoundError):
        files.lstat_of(tmp_path / "absent/x")
    assert set(os.listdir("/dev/fd")) == before


def test_a_pipe_is_opened_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with files.opened_directory(tmp_path.resolve()) as directory:
        os.close(files.open_at("pipe", directory))
