"""Listing directories."""

from __future__ import annotations

import os

import pytest

from agentcli.domain.tools import Asks
from agentcli.tools.common.base import MAX_CHARS
from agentcli.tools.list_directory import TOOL
from agentcli.tools.read_file import TOOL as READ
from tests.tools.in_a_room import Room, failed, ok, room

__all__ = ["room"]


@pytest.mark.spec("TOOL-5")
def test_directories_come_first_and_every_kind_is_told(room: Room) -> None:
    room.write("b.txt", "x" * 1536)
    room.write("zdir/inner", "x")
    room.write(".hidden", "")
    room.write(".gitignore", "b.txt\n")
    (room.root / "link").symlink_to("b.txt")
    os.mkfifo(room.root / "pipe")
    output = room.run(TOOL)
    assert ok(output).split("\n") == [
        "./ (6 entries)",
        "zdir/",
        ".gitignore  6 bytes",
        ".hidden  0 bytes",
        "b.txt  1.5 KB",
        "link -> b.txt",
        "pipe  (a named pipe)",
    ]
    assert output.summary == "6 entries"


def test_odd_names_are_shown_escaped_and_can_be_typed_back(room: Room) -> None:
    names = [b"caf\xe9", b"two\nlines", b"esc\x1b[31m", b" blank ", b"back\\slash", b"lit\\x41"]
    for name in names:
        with open(os.fsencode(room.root) + b"/" + name, "wb") as file:
            file.write(name)
    shown = [row.rpartition("  ")[0] for row in ok(room.run(TOOL)).split("\n")[1:]]
    assert "caf\\xe9" in shown
    assert "two\\nlines" in shown
    assert len(shown) == len(names)
    for name in shown:
        ok(room.run(READ, path=name))
    ok(room.run(READ, path=os.fsdecode(b"caf\xe9")))


@pytest.mark.spec("TOOL-6")
def test_a_long_listing_is_cut_and_says_so(room: Room) -> None:
    for number in range(1100):
        (room.root / f"{'n' * 100}{number:04}").touch()
    text = ok(room.run(TOOL))
    assert len(text) <= MAX_CHARS
    assert "more not shown" in text
    assert text.startswith("./ (1,100 entries)")


def test_empty_missing_and_no_directory(room: Room) -> None:
    room.write("a.txt", "x")
    (room.root / "empty").mkdir()
    assert "is empty" in ok(room.run(TOOL, path="empty"))
    assert "is a file, not a directory" in failed(room.run(TOOL, path="a.txt"))
    assert "Did you mean empty?" in failed(room.run(TOOL, path="emty"))
    assert TOOL.summary(TOOL.parse({"path": "src"})) == "List src"
    assert TOOL.asks is Asks.NOTHING
    assert room.paths(TOOL) == (room.root,)
