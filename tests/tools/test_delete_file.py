"""Deleting files, and only files."""

from __future__ import annotations

import os

import pytest

from agentcli.tools.delete_file import TOOL
from agentcli.tools.read_file import TOOL as READ
from tests.tools.in_a_room import Room, failed, ok, room

__all__ = ["room"]


@pytest.mark.spec("TOOL-5")
def test_a_file_is_deleted_and_its_content_shown(room: Room) -> None:
    room.write("a.txt", "one\n")
    assert "-one" in room.preview(TOOL, path="a.txt")
    output = room.run(TOOL, path="a.txt")
    assert ok(output) == "Deleted a.txt."
    assert output.display == "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"
    assert room.tree() == {}
    assert "does not exist" in failed(room.run(TOOL, path="a.txt"))
    assert TOOL.summary(TOOL.parse({"path": "a.txt"})) == "Delete a.txt"
    assert TOOL.hints.destructive


def test_a_link_goes_and_its_target_stays(room: Room) -> None:
    room.write("real/a.txt", "x")
    for name in ("link", "real/self"):
        (room.root / name).symlink_to(room.root / "real")
        assert room.paths(TOOL, path=name) == (room.root / name,)
        ok(room.run(TOOL, path=name))
    os.mkfifo(room.root / "pipe")
    ok(room.run(TOOL, path="pipe"))
    assert room.tree() == {"real/a.txt": b"x"}
    assert sorted(path.name for path in room.root.iterdir()) == ["real"]


@pytest.mark.parametrize("path", ["dir", "empty", ".", "/", "dir/", "dir/.."])
def test_directories_are_refused(room: Room, path: str) -> None:
    room.write("dir/a", "x")
    (room.root / "empty").mkdir()
    assert "is a directory" in failed(room.run(TOOL, path=path))
    assert (room.root / "empty").is_dir()
    assert room.tree() == {"dir/a": b"x"}


@pytest.mark.spec("TOOL-8")
def test_a_file_that_changed_since_it_was_read_is_kept(room: Room) -> None:
    path = room.write("a.txt", "x\n")
    ok(room.run(READ, path="a.txt"))
    path.write_text("changed\n")
    assert "changed since" in failed(room.run(TOOL, path="a.txt"))
    assert path.exists()
