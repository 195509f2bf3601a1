"""Putting files back: no link is followed, all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.app.files.file_keeper import put_back, read_state
from agentcli.domain.rewind import ABSENT, FileKind, FileState

NEW = FileState(FileKind.FILE, b"new", 0o644)


@pytest.mark.spec("SEC-5", "TT-2")
@pytest.mark.parametrize("state", [NEW, ABSENT, FileState(FileKind.LINK, b"x")])
def test_a_directory_that_has_become_a_link_is_not_written_through(
    tmp_path: Path, state: FileState
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("theirs")
    (tmp_path / "work").symlink_to("outside")
    path = tmp_path / "work/f"
    assert read_state(path).kind is FileKind.UNKEPT
    with pytest.raises(OSError, match="symbolic"):
        put_back({path: state}, {path: read_state(path)})
    assert (outside / "f").read_text() == "theirs"
    assert os.listdir(outside) == ["f"]


@pytest.mark.spec("TT-2")
def test_what_changed_in_the_last_moment_is_not_overwritten(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_text("old")
    now = {path: read_state(path) for path in paths}
    paths[1].write_text("theirs")
    with pytest.raises(OSError, match="somebody else"):
        put_back(dict.fromkeys(paths, NEW), now)
    assert [path.read_text() for path in paths] == ["old", "theirs"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.spec("TT-2")
def test_missing_directories_are_made_and_a_missing_file_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "d/e/f"
    put_back({path: NEW}, {path: ABSENT})
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o644
    put_back({path: ABSENT}, {path: NEW})
    assert read_state(path) == ABSENT and os.listdir(path.parent) == []
    put_back({tmp_path / "no/f": ABSENT}, {tmp_path / "no/f": ABSENT})


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        assert read_state(tmp_path / name).kind is FileKind.UNKEPT
    assert read_state(Path("/bad\0name")).kind is FileKind.UNKEPT
