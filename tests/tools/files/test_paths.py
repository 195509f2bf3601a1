"""The path law."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.domain.tools import Workspace
from agentcli.tools.common.base import escaped, one_line
from agentcli.tools.files.paths import FileProblem, resolve, resolve_entry, shown
from agentcli.tools.read_file import TOOL as READ
from tests.tools.in_a_room import Room, failed, ok, room

__all__ = ["room"]


@pytest.mark.spec("SEC-5")
def test_paths_are_judged_with_every_link_followed(room: Room, tmp_path_factory) -> None:
    outside = tmp_path_factory.mktemp("outside").resolve()
    (outside / "secret").write_text("x")
    (room.root / "dir").mkdir()
    (room.root / "link").symlink_to(outside)
    (room.root / "file").symlink_to(outside / "secret")
    space = room.workspace
    for path in (
        "link/secret",
        "file",
        "link/../outside-nothing/../x",
        f"/proc/self/root{outside}/secret",
    ):
        assert not space.contains(resolve(space, path)), path
    for path in ("dir/../new", "./dir", str(room.root / "dir")):
        assert space.contains(resolve(space, path)), path
    assert resolve(space, "file") == outside / "secret"
    assert resolve_entry(space, "file") == room.root / "file"
    assert resolve_entry(space, "link/secret") == outside / "secret"
    assert resolve_entry(space, "link/") == outside


@pytest.mark.parametrize(
    "path", ["", "  ", "a\0b", "file:///etc/passwd", "~nobody-4711/x", "\ud800"]
)
def test_what_can_be_no_path_is_refused(room: Room, path: str) -> None:
    with pytest.raises(FileProblem):
        resolve(room.workspace, path)


@pytest.mark.spec("OPS-1")
def test_a_deleted_working_directory_is_a_clear_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    space = Workspace(gone, gone)
    with pytest.raises(FileProblem, match="no longer exists"):
        resolve(space, "a.txt")
    assert resolve(space, str(tmp_path)) == tmp_path.resolve()
    room = Room(gone)
    assert "no longer exists" in failed(room.run(READ, path="a.txt"))
    assert room.paths(READ, path="a.txt") == ()


def test_names_are_shown_on_one_line_and_relative_to_the_working_directory(room: Room) -> None:
    assert shown(room.root / "a/b", room.workspace) == "a/b"
    assert shown(Path("/etc/hosts"), room.workspace) == "/etc/hosts"
    assert escaped("a\tb\u202e" + os.fsdecode(b"\xff")) == "a\\x09b\\xe2\\x80\\xae\\xff"
    assert one_line("x" * 300)[-1] == "…"


@pytest.mark.parametrize(
    "name", ["two\nlines", " blank ", "tab\t", "caf\u00e9", "\u202egnp", "-rf", "'q\""]
)
def test_odd_names_work_everywhere(room: Room, name: str) -> None:
    from agentcli.tools.edit_file import TOOL as EDIT
    from agentcli.tools.write_file import TOOL as WRITE

    ok(room.run(WRITE, path=name, content="a\n"))
    ok(room.run(EDIT, path=name, old_string="a", new_string="b"))
    ok(room.run(READ, path=name))
    assert room.tree() == {name: b"b\n"}
