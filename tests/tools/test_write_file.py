"""Writing whole files."""

from __future__ import annotations

import os
import stat

import pytest

from agentcli.domain.cancel import CancelReason
from agentcli.domain.tools import OutputKind
from agentcli.tools.read_file import TOOL as READ
from agentcli.tools.write_file import TOOL
from tests.tools.in_a_room import Room, failed, ok, room

__all__ = ["room"]


@pytest.mark.spec("TOOL-5")
def test_a_file_is_created_with_its_directories(room: Room) -> None:
    output = room.run(TOOL, path="new/deep/a.txt", content="one\ntwo")
    assert ok(output) == "Created new/deep/a.txt (2 lines)."
    assert room.tree() == {"new/deep/a.txt": b"one\ntwo"}
    assert output.display.startswith("--- /dev/null\n+++ b/new/deep/a.txt\n@@ -0,0 +1,2 @@\n+one")
    assert output.summary == "+2 -0"


def test_a_new_file_has_the_mode_that_the_umask_leaves(room: Room) -> None:
    before = os.umask(0o027)
    try:
        ok(room.run(TOOL, path="a.txt", content="x"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((room.root / "a.txt").stat().st_mode) == 0o640


@pytest.mark.spec("TOOL-8")
def test_overwriting_keeps_mode_encoding_and_byte_order_mark(room: Room) -> None:
    path = room.write("a.txt", "\ufeffold\n".encode("utf-16-le"))
    path.chmod(0o600)
    text = ok(room.run(TOOL, path="a.txt", content="n\u00e9w\n"))
    assert "Overwrote a.txt (1 line, +1 -1)." in text
    assert "UTF-16-LE" in text
    assert path.read_bytes() == "\ufeffn\u00e9w\n".encode("utf-16-le")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ok(room.run(TOOL, path="a.txt", content="\ufeffagain\n"))
    assert path.read_bytes() == "\ufeffagain\n".encode("utf-16-le")


def test_content_that_the_old_encoding_lacks_makes_the_file_utf8(room: Room) -> None:
    path = room.write("a.txt", "caf\u00e9 au lait\n".encode("latin-1"))
    assert "is now UTF-8" in ok(room.run(TOOL, path="a.txt", content="\u4e16\n"))
    assert path.read_text(encoding="utf-8") == "\u4e16\n"


def test_the_content_is_law_and_changed_line_ends_are_told(room: Room) -> None:
    path = room.write("a.txt", "a\r\nb\r\n")
    assert "line ends were CRLF" in ok(room.run(TOOL, path="a.txt", content="a\nb\n"))
    assert path.read_bytes() == b"a\nb\n"


def test_the_same_content_is_not_written_again(room: Room) -> None:
    path = room.write("a.txt", "a\n")
    before = path.stat()
    output = room.run(TOOL, path="a.txt", content="a\n")
    assert "already has this content" in ok(output)
    assert path.stat().st_ino == before.st_ino


@pytest.mark.spec("TOOL-8")
def test_a_file_that_changed_since_it_was_read_is_not_overwritten(room: Room) -> None:
    path = room.write("a.txt", "a\n")
    ok(room.run(READ, path="a.txt"))
    path.write_text("theirs\n")
    assert "changed since" in failed(room.run(TOOL, path="a.txt", content="mine\n"))
    assert path.read_text() == "theirs\n"
    path.unlink()
    assert "Created" in ok(room.run(TOOL, path="a.txt", content="mine\n"))


@pytest.mark.parametrize(
    "path",
    ["dir", "dir/", "new/", "a.txt/b", "pipe", "", "a\0b", "file:///tmp/x", "~nobody-here-4711/x"],
)
def test_targets_that_can_be_no_file_are_refused(room: Room, path: str) -> None:
    room.write("dir/a", "x")
    room.write("a.txt", "x")
    os.mkfifo(room.root / "pipe")
    before = room.tree()
    assert failed(room.run(TOOL, path=path, content="y")).strip()
    assert room.tree() == before


def test_binary_content_may_be_replaced(room: Room) -> None:
    room.write("a.bin", b"\x00\x01\x02\xff")
    output = room.run(TOOL, path="a.bin", content="text\n")
    assert output.display == "--- a/a.bin (binary)\n+++ b/a.bin\n@@ -0,0 +1 @@\n+text\n"
    assert room.tree() == {"a.bin": b"text\n"}


def test_home_and_absolute_paths_are_understood(room: Room, home) -> None:
    ok(room.run(TOOL, path="~/a.txt", content="x"))
    assert (home / "a.txt").read_text() == "x"
    ok(room.run(TOOL, path=str(room.root / "b.txt"), content="x"))
    assert room.tree() == {"b.txt": b"x"}


def test_a_cancelled_write_writes_nothing(room: Room) -> None:
    room.cancel.cancel(CancelReason.USER)
    output = room.run(TOOL, path="deep/a.txt", content="x")
    assert output.kind is OutputKind.CANCELLED
    assert list(room.root.iterdir()) == []


@pytest.mark.spec("TOOL-1", "UI-7")
def test_a_write_reads_in_a_line_and_previews_as_a_diff(room: Room) -> None:
    args = TOOL.parse({"path": "a.txt", "content": "x\ny\n"})
    assert TOOL.summary(args) == "Write a.txt (2 lines)"
    room.write("a.txt", "x\n")
    assert "+y" in room.preview(TOOL, path="a.txt", content="x\ny\n")
    assert room.tree() == {"a.txt": b"x\n"}
