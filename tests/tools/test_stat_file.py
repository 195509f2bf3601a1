"""Facts about paths."""

from __future__ import annotations

import os

import pytest

from agentcli.tools.stat_file import TOOL
from tests.tools.in_a_room import Room, failed, ok, room

__all__ = ["room"]


@pytest.mark.spec("TOOL-5")
def test_kind_size_time_and_mode_are_told(room: Room) -> None:
    path = room.write("a.txt", "x" * 2048)
    path.chmod(0o640)
    os.utime(path, (0, 86_400))
    output = room.run(TOOL, path="a.txt")
    assert ok(output).split("\n") == [
        f"path: {path}",
        "kind: a regular file",
        "size: 2.0 KB (2,048 bytes)",
        "modified: 1970-01-02T00:00:00+00:00",
        "mode: -rw-r----- (0640)",
    ]
    assert output.summary == "a regular file, 2.0 KB"


def test_links_are_followed_and_said_to_be_links(room: Room) -> None:
    room.write("dir/a.txt", "x")
    (room.root / "link").symlink_to("dir")
    (room.root / "broken").symlink_to("nowhere")
    text = ok(room.run(TOOL, path="link"))
    assert f"symbolic link to: dir ({room.root}/dir)" in text
    assert "kind: a directory" in text
    assert "broken" in ok(room.run(TOOL, path="broken"))


def test_what_does_not_exist_is_an_error(room: Room) -> None:
    assert "does not exist" in failed(room.run(TOOL, path="gone"))
    assert TOOL.summary(TOOL.parse({"path": "gone"})) == "Stat gone"
    assert room.paths(TOOL, path="gone") == (room.root / "gone",)
