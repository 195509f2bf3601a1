"""Changing files: at the moment of use, in places that resist, all or nothing."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentcli.tools.files.disk import Transaction, read_state, sweep
from agentcli.tools.files.paths import FileProblem
from tests.tools.in_a_room import Room, room

pytestmark = pytest.mark.sampled

__all__ = ["room"]

NOBODY = 65_534


@pytest.fixture
def plain_room() -> Iterator[Room]:
    """A room of a person who is not root, so that permissions count."""
    root = Path(tempfile.mkdtemp(prefix="agentcli-test-")).resolve()
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(root, NOBODY, NOBODY)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    try:
        yield Room(root)
    finally:
        if is_root:
            os.seteuid(0)
            os.setegid(0)
        for path in (root, *root.rglob("*")):
            path.chmod(0o700)
        shutil.rmtree(root)


def change(room: Room, path: Path, data: bytes) -> list[str]:
    before = read_state(path, room.workspace)
    with Transaction(room.workspace, room.ledger) as transaction:
        transaction.write(path, data, before)
        transaction.commit()
        return transaction.notes


def test_a_read_only_file_is_refused(plain_room: Room) -> None:
    path = plain_room.write("a.txt", "a\n")
    path.chmod(0o444)
    with pytest.raises(FileProblem, match="read-only"):
        change(plain_room, path, b"b\n")
    assert plain_room.tree() == {"a.txt": b"a\n"}


def test_a_file_in_a_directory_that_admits_no_new_file_is_written_in_place(
    plain_room: Room,
) -> None:
    path = plain_room.write("dir/a.txt", "a long first line\n")
    before = path.stat().st_ino
    path.parent.chmod(0o555)
    notes = change(plain_room, path, b"b\n")
    assert "in place" in notes[0]
    assert path.read_bytes() == b"b\n"
    assert path.stat().st_ino == before


def test_a_new_file_in_such_a_directory_is_a_clear_error(plain_room: Room) -> None:
    plain_room.root.chmod(0o555)
    with (
        Transaction(plain_room.workspace, plain_room.ledger) as transaction,
        pytest.raises(FileProblem, match=r"Cannot write a\.txt: permission denied"),
    ):
        transaction.write(plain_room.root / "a.txt", b"x", None)


@pytest.mark.spec("SEC-5")
def test_a_file_swapped_for_a_link_after_it_was_judged_is_refused(room: Room) -> None:
    path = room.write("a.txt", "a\n")
    victim = room.write("victim", "precious\n")
    before = read_state(path, room.workspace)
    path.unlink()
    path.symlink_to(victim)
    with (
        Transaction(room.workspace, room.ledger) as transaction,
        pytest.raises(FileProblem, match="changed while"),
    ):
        transaction.write(path, b"evil\n", before)
    assert victim.read_text() == "precious\n"


@pytest.mark.spec("SEC-5")
def test_a_directory_swapped_for_a_link_between_staging_and_commit_is_refused(
    room: Room,
) -> None:
    path = room.write("dir/a.txt", "a\n")
    victim = room.write("other/a.txt", "precious\n")
    before = read_state(path, room.workspace)
    with Transaction(room.workspace, room.ledger) as transaction:
        transaction.write(path, b"evil\n", before)
        path.parent.rename(room.root / "moved")
        (room.root / "dir").symlink_to("other")
        with pytest.raises(FileProblem):
            transaction.commit()
    assert victim.read_text() == "precious\n"


@pytest.mark.spec("TOOL-8")
def test_a_file_that_changes_between_reading_and_committing_is_refused(room: Room) -> None:
    path = room.write("a.txt", "a\n")
    before = read_state(path, room.workspace)
    with Transaction(room.workspace, room.ledger) as transaction:
        transaction.write(path, b"mine\n", before)
        path.write_text("theirs, longer\n")
        with pytest.raises(FileProblem, match="changed while"):
            transaction.commit()
    assert room.tree() == {"a.txt": b"theirs, longer\n"}


def test_a_file_created_by_someone_else_meanwhile_is_not_clobbered(room: Room) -> None:
    path = room.root / "a.txt"
    with Transaction(room.workspace, room.ledger) as transaction:
        transaction.write(path, b"mine\n", None)
        path.write_text("theirs\n")
        with pytest.raises(FileProblem, match="just been created"):
            transaction.commit()
    assert room.tree() == {"a.txt": b"theirs\n"}


def test_what_was_staged_and_not_committed_leaves_nothing_behind(room: Room) -> None:
    with Transaction(room.workspace, room.ledger) as transaction:
        transaction.write(room.root / "new/deep/a.txt", b"x", None)
    assert list(room.root.iterdir()) == []
    assert room.ledger.seen == {}


def test_temporary_files_are_private_and_not_to_be_guessed(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)  # as where new content needs a name
    path = room.write("a.txt", "a\n")
    path.chmod(0o640)
    names = set()
    for _ in range(2):
        with Transaction(room.workspace, room.ledger) as transaction:
            transaction.write(path, b"x", read_state(path, room.workspace))
            (staged,) = (p for p in room.root.iterdir() if p != path)
            assert stat.S_IMODE(staged.stat().st_mode) == 0o640
            names.add(staged.name)
    assert len(names) == 2


def test_extended_attributes_are_kept(room: Room) -> None:
    path = room.write("a.txt", "a\n")
    try:
        os.setxattr(path, "user.note", b"kept")
    except (OSError, AttributeError):
        pytest.skip("this file system keeps no extended attributes")
    change(room, path, b"b\n")
    assert os.getxattr(path, "user.note") == b"kept"


# --- killed in the middle ------------------------------------------------------------------------

_KILLED = """
import json, os, signal, sys
from pathlib import Path
from agentcli.domain.tools import FileLedger, Workspace
from agentcli.tools.files.disk import Transaction, read_state, sweep

root, journals, left, unnamed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if unnamed == "no" and hasattr(os, "O_TMPFILE"):
    del os.O_TMPFILE

def hook(event, args):
    global left
    if event in {"os.link", "os.rename", "os.remove"} or (event == "open" and ".agentcli-" in str(args[0])):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

workspace = Workspace(root, root, (), journals)
states = {name: read_state(root / name, workspace) for name in ("a", "b", "gone")}
sys.addaudithook(hook)
with Transaction(workspace, FileLedger()) as change:
    change.write(root / "a", b"A", states["a"])
    change.delete(root / "gone", states["gone"])
    change.write(root / "b", b"B", states["b"])
    change.write(root / "new", b"N", None)
    change.commit()
"""


@pytest.mark.slow
@pytest.mark.spec("REC-8", "TOOL-9")
@pytest.mark.parametrize("unnamed", ["yes", "no"])
def test_what_a_kill_leaves_is_cleared_away_and_no_file_is_lost(
    tmp_path: Path, unnamed: str
) -> None:
    """Killed before each link, rename and removal in turn, until one process comes through."""
    old, new = {"a": b"a", "b": b"b", "gone": b"g"}, {"a": b"A", "b": b"B", "new": b"N"}
    for number in range(1, 40):
        root, journals = tmp_path / f"{number}", tmp_path / f"{number}.changes"
        root.mkdir()
        journals.mkdir()
        for name, data in old.items():
            (root / name).write_bytes(data)
        command = [sys.executable, "-c", _KILLED, str(root), str(journals), str(number), unnamed]
        code = subprocess.run(command, check=False).returncode
        before = sorted(path.name for path in root.iterdir())
        if any(path.name.startswith(".agentcli-") for path in root.iterdir()):
            assert code and list(journals.iterdir())
        sweep(journals)
        assert list(journals.iterdir()) == []
        found = {path.name: path.read_bytes() for path in root.iterdir()}
        assert not [name for name in found if name.startswith(".")], before
        assert all(data in (old.get(name), new.get(name)) for name, data in found.items())
        assert {"a", "b"} <= found.keys()
        if not code:
            assert found == new
            return
        assert code == -signal.SIGKILL
    pytest.fail("it never came through")


def test_a_change_that_is_under_way_is_left_alone(room: Room, tmp_path: Path) -> None:
    workspace = replace(room.workspace, journals=tmp_path / "changes")
    path = room.write("a.txt", "a\n")
    with Transaction(workspace, room.ledger) as transaction:
        transaction.write(path, b"x", read_state(path, room.workspace))
        transaction.delete(room.write("b.txt", "b\n"), read_state(room.root / "b.txt", workspace))
        sweep(tmp_path / "changes") if (tmp_path / "changes").exists() else None
        transaction.commit()
    assert room.tree() == {"a.txt": b"x"}
    assert list((tmp_path / "changes").iterdir()) == []
