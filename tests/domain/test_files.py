"""Files that anyone may have put there."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.domain.files import (
    NoRegularFile,
    open_named,
    open_regular,
    read_start,
    small_file,
    walk,
)
from tests.support.deep import deep_directory


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "nothing", "no path"])
def test_what_is_no_regular_file_is_empty_and_not_waited_for(kind: str, tmp_path: Path) -> None:
    path: str | Path = tmp_path / "it"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        os.mkdir(path)
    elif kind == "device":
        path = "/dev/zero"
    elif kind == "no path":
        path = "a\0b"
    before = len(os.listdir("/proc/self/fd"))
    assert read_start(path) == small_file(path) == b""
    assert len(os.listdir("/proc/self/fd")) == before
    if kind in {"pipe", "directory", "device"}:
        with pytest.raises(NoRegularFile, match="regular file"):
            open_regular(path)


def test_of_a_large_file_there_is_a_beginning_and_no_whole(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(b"abc")
    assert (read_start(path, 2), small_file(path, 3), small_file(path, 2)) == (b"ab", b"abc", b"")


def test_a_link_is_followed_unless_it_is_said_not_to_be(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"abc")
    (link := tmp_path / "link").symlink_to("it")
    assert read_start(link) == b"abc"
    assert read_start(link, flags=os.O_NOFOLLOW) == b""


@pytest.mark.parametrize("follow_links", [False, True])
def test_a_walk_is_that_of_os(tmp_path: Path, follow_links: bool) -> None:
    for name in ("b/c/d", "b/e", "a", "skipped/below"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "link").symlink_to("b")
    (tmp_path / "nowhere").symlink_to("gone")
    told: list[OSError] = []

    def found(walked: Iterator[tuple[str, list[str], list[str]]]) -> Iterator[object]:
        for place, below, files in walked:
            below[:] = sorted(set(below) - {"skipped"})
            yield place, list(below), sorted(files)

    ours = list(found(walk(tmp_path, told.append, follow_links=follow_links)))
    assert ours == list(found(os.walk(str(tmp_path), followlinks=follow_links)))
    assert len(ours) == (10 if follow_links else 6) and not told
    assert list(walk(tmp_path / "gone", told.append)) == [] and len(told) == 1


@pytest.mark.spec("SEC-13")
def test_a_walk_goes_to_the_bottom(tmp_path: Path) -> None:
    with deep_directory(tmp_path, 1_200):
        assert sum(1 for _ in walk(tmp_path)) == 1_201


@pytest.mark.spec("SEC-13")
def test_a_pipe_that_the_user_names_is_waited_for_while_somebody_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.domain.files._WRITER_S", 0.2)
    os.mkfifo(pipe := tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NoRegularFile, match="nobody writes to that pipe"):
        open_named(pipe)
    with pytest.raises(NoRegularFile, match="neither a file nor a pipe"):
        open_named(Path("/dev/zero"))
    assert len(os.listdir("/proc/self/fd")) == before

    def write_late() -> None:
        late = pipe.open("wb")  # comes with the reader, and has nothing to say at first
        opened.wait()
        late.write(b"late")
        late.close()

    opened = threading.Event()
    writing = threading.Thread(target=write_late)
    writing.start()
    with open_named(pipe) as file:
        opened.set()
        assert file.read() == b"late"
    writing.join()
    ours, theirs = os.pipe()  # as the shell makes it
    os.write(theirs, b"said")
    os.close(theirs)
    with open_named(Path(f"/dev/fd/{ours}")) as file:
        assert file.read() == b"said"
    os.close(ours)
