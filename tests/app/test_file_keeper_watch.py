"""The workspace compared with itself: real files, a real git."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from pathlib import Path

import pytest

from agentcli.app.files import file_keeper
from agentcli.app.files.file_keeper import TOO_SLOW, WorkspaceWatch
from agentcli.domain.rewind import ABSENT, FileKind, FileState

STOP = threading.Event()


def watched(root: Path) -> WorkspaceWatch:
    watch = WorkspaceWatch(root, lambda data: b"secret" in data)
    assert watch.look(STOP) == ""
    return watch


def changes(watch: WorkspaceWatch, root: Path) -> dict[str, tuple[FileState, FileState]]:
    (was, now), problem = watch.compare(STOP)
    assert problem == ""
    return {str(path.relative_to(root)): (was[path], now[path]) for path in was}


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


@pytest.mark.spec("TT-1")
def test_a_change_that_leaves_size_and_time_as_they_were_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one")
    watch = watched(tmp_path)
    before = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    ((was, now),) = changes(watch, tmp_path).values()
    assert (was.data, now.data) == (b"one", b"two")
    assert changes(watch, tmp_path) == {}


@pytest.mark.spec("TT-1")
def test_what_git_ignored_until_now_is_not_taken_for_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_keeper, "_CLOCKS_DIFFER_NS", -1)
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("kept.env\n")
    (tmp_path / "kept.env").write_text("mine")
    watch = watched(tmp_path)
    git(tmp_path, "add", "-f", "kept.env")
    (tmp_path / "new").write_text("x")
    assert list(changes(watch, tmp_path)) == ["new"]


@pytest.mark.spec("TT-1")
def test_where_an_ignore_file_changed_nothing_new_is_sure_to_be_new(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("kept.env\n")
    (tmp_path / "kept.env").write_text("mine")
    watch = watched(tmp_path)
    (tmp_path / ".gitignore").unlink()
    (tmp_path / "kept.env").write_text("mine, touched")
    found = changes(watch, tmp_path)
    assert found[".gitignore"][1] == ABSENT
    assert found["kept.env"][0].kind is FileKind.UNKEPT


@pytest.mark.spec("TT-1")
def test_what_is_ignored_from_now_on_is_no_change_unless_it_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("same", "other"):
        (tmp_path / name).write_text("x" * 1000)
    watch = watched(tmp_path)
    (tmp_path / ".gitignore").write_text("same\nother\n")
    (tmp_path / "other").write_text("y")
    found = changes(watch, tmp_path)
    assert sorted(found) == [".gitignore", "other"]
    assert found["other"][0].data == b"x" * 1000 and found["other"][1].data == b"y"


@pytest.mark.spec("TT-1", "SEC-13")
def test_a_large_file_is_not_read_and_keeps_nothing_else_from_being_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_keeper, "MAX_WATCHED_BYTES", 100)
    monkeypatch.setattr(file_keeper, "MAX_BYTES", 1000)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10_000_000_000)
    (tmp_path / "a").write_text("one")
    watch = watched(tmp_path)
    (tmp_path / "a").write_text("two")
    os.link(tmp_path / "large", tmp_path.parent / f"{tmp_path.name}-link")
    assert list(changes(watch, tmp_path)) == ["a"]
    (tmp_path / "large").unlink()
    was, now = changes(watch, tmp_path)["large"]
    assert was.kind is FileKind.UNKEPT and now == ABSENT


@pytest.mark.spec("TT-1")
def test_what_a_call_has_kept_itself_is_not_found_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    watch = watched(tmp_path)
    (tmp_path / "a").write_text("two")
    (tmp_path / "b").write_text("new")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("z")
    watch.learn(
        {
            tmp_path / "a": FileState(FileKind.FILE, b"two", 0o644),
            tmp_path / "b": FileState(FileKind.FILE, b"new", 0o644),
            outside: FileState(FileKind.FILE, b"z", 0o644),
        }
    )
    (tmp_path / "a").write_text("three")
    found = changes(watch, tmp_path)
    assert [(name, was.data) for name, (was, _) in found.items()] == [("a", b"two")]


@pytest.mark.spec("TT-1", "SEC-13")
def test_a_slow_look_is_said_and_tried_again_a_few_times_and_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").touch()
    watch = WorkspaceWatch(tmp_path, lambda _: False)
    monkeypatch.setattr(file_keeper, "LOOK_S", -1.0)
    assert watch.look(STOP) == TOO_SLOW
    assert watch.compare(STOP) == (({}, {}), "")
    monkeypatch.setattr(file_keeper, "LOOK_S", 60.0)
    assert watch.look(STOP) == ""
    monkeypatch.setattr(file_keeper, "LOOK_S", -1.0)
    assert [watch.look(STOP) for _ in range(3)] == [TOO_SLOW] * 3
    monkeypatch.setattr(file_keeper, "LOOK_S", 60.0)
    assert watch.look(STOP) == TOO_SLOW
    monkeypatch.setattr(file_keeper, "PAUSE_S", 0.0)
    monkeypatch.setattr(file_keeper, "LOOK_S", -1.0)
    rested = WorkspaceWatch(tmp_path, lambda _: False)
    assert [rested.look(STOP) for _ in range(4)] == [TOO_SLOW] * 4
    monkeypatch.setattr(file_keeper, "LOOK_S", 60.0)
    assert rested.look(STOP) == ""


@pytest.mark.spec("CAN-9")
def test_a_look_can_be_stopped(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    watch = watched(tmp_path)
    stop = threading.Event()
    stop.set()
    (tmp_path / "a").write_text("x")
    assert watch.compare(stop) == (({}, {}), "")
    assert watch.look(stop) == ""
    # one that is stopped may get its turn after one that counts
    assert list(changes(watch, tmp_path)) == ["a"]


@pytest.mark.spec("SEC-9")
def test_a_secret_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("my secret")
    watch = watched(tmp_path)
    (tmp_path / "a").write_text("nothing")
    ((was, now),) = changes(watch, tmp_path).values()
    assert was.kind is FileKind.UNKEPT and now.data == b"nothing"


@pytest.mark.spec("SEC-2", "SEC-5")
def test_an_index_that_names_files_elsewhere_has_none_of_them_read(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "w", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "key").write_text("mine")
    (tmp_path / "key").write_text("mine")
    for name in ("xx/key", "door/key", "inner/a"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("x")
    git(root, "init", "-q")
    git(root, "add", "xx", "door", "inner")
    (root / "door/key").unlink()
    (root / "door").rmdir()
    (root / "door").symlink_to(elsewhere)
    index = root / ".git/index"
    data = index.read_bytes().replace(b"xx/key", b"../key")[:-20]
    index.write_bytes(data + hashlib.sha1(data).digest())
    listed = subprocess.run(
        ["git", "ls-files", "-c"], cwd=root, check=True, capture_output=True, text=True
    )
    assert {"../key", "door/key"} <= set(listed.stdout.split())
    watch = watched(root)
    for file in (tmp_path / "key", elsewhere / "key", root / "inner/a"):
        file.write_text("changed")
    assert changes(watch, root).keys() == {"inner/a"}
