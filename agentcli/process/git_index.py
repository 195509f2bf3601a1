"""What git's index says is tracked (SEC-3), and where git would write it (SEC-17).

Law: it is read as git reads it (gitformat-index(5)), by git itself where a doubt would do harm, or
not at all.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
import subprocess
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from agentcli.domain.files import small_file
from agentcli.domain.worktrees import common_of_worktree, is_of_submodule, named_by
from agentcli.process.environment import find_program

_MOST_BYTES = 16 * 1024 * 1024
_MOST_NAMED_BYTES = 64 * 1024 * 1024
_LIMIT_S = 4.0
# what no name in a working tree has: "git restore" checks none of them, as "git add" does
_ELSEWHERE = re.compile(rb"(?i)(?:\A|[\0/])(?:(?:\.\.?|\.git[. ]*)[\0/]|/)")
_HEADER = struct.Struct(">4sII")
_ENTRY = struct.Struct(">24xI32xH")  # of it the mode and the flags
_EXTENSION = struct.Struct(">4sI")
_DIGEST = 20
_PREFIXED = 4  # the version in which a name says how much of the one before it does not go on
_LONGEST_NAME = 4_096
# "assume-valid", extended, and the stage of a conflict
_ASSUMED, _EXTENDED, _STAGE = 0x8000, 0x4000, 0x3000


def index_of(tree: str) -> bytes:
    """That of the repository in ``tree``, or of the linked working tree or submodule that this is.

    Empty if it has none of its own, or too large a one.
    """
    entry = Path(tree, ".git")
    try:
        mode = os.lstat(entry).st_mode
        own = entry if stat.S_ISDIR(mode) else stat.S_ISREG(mode) and named_by(entry)
        if not own:
            return b""
        if own != entry and not (common_of_worktree(entry, own) or is_of_submodule(entry, own)):
            return b""
    except (OSError, ValueError):
        return b""
    return small_file(own / "index", _MOST_BYTES, os.O_NOFOLLOW)


def tracked_in(index: bytes, names: Collection[bytes]) -> frozenset[bytes]:
    """Those of ``names`` that are regular files there, and whose changes git shows.

    None where the index is not understood: split, sparse, of SHA-256, damaged.
    """
    try:
        return _tracked_in(index, names)
    except (struct.error, ValueError, IndexError):
        return frozenset()


def _tracked_in(index: bytes, names: Collection[bytes]) -> frozenset[bytes]:
    signature, version, count = _HEADER.unpack_from(index)
    if signature != b"DIRC" or version not in {2, 3, _PREFIXED}:
        return frozenset()
    at, before, found = _HEADER.size, b"", set[bytes]()
    for _ in range(count):
        mode, flags = _ENTRY.unpack_from(index, at)
        start = at + _ENTRY.size
        if flags & _EXTENDED:
            start += 2
        left, start = _number(index, start) if version == _PREFIXED else (len(before), start)
        end = index.index(b"\0", start)
        name = before[: max(0, len(before) - left)] + index[start:end]
        following = end + 1 if version == _PREFIXED else at + (end - at + 8) // 8 * 8
        is_odd = len(name) > _LONGEST_NAME or (name <= before and not flags & _STAGE)
        if is_odd or (version == 2 and flags & _EXTENDED) or index[end:following].strip(b"\0"):  # noqa: PLR2004
            return frozenset()
        # an extended one is new without content, or not in the working tree
        if name in names and stat.S_ISREG(mode) and not flags & (_ASSUMED | _EXTENDED | _STAGE):
            found.add(name)
        at, before = following, name
    while at < len(index) - _DIGEST:
        extension, size = _EXTENSION.unpack_from(index, at)
        if not extension[:1].isupper():  # what must be understood
            return frozenset()
        at += _EXTENSION.size + size
    return frozenset(found) if at == len(index) - _DIGEST else frozenset()


def _number(index: bytes, at: int) -> tuple[int, int]:
    """The number at ``at`` (``decode_varint`` of git's varint.c), and what follows it."""
    found = index[at] & 0x7F
    while index[at] & 0x80 and found < _LONGEST_NAME:
        at += 1
        found = (found + 1 << 7) + (index[at] & 0x7F)
    return found, at + 1


def indexes_in(git: str) -> list[str]:
    """Git's index in the git directory, and what that is split into."""
    try:
        names = os.listdir(git)  # noqa: PTH208 - names
    except OSError:
        return []
    return [f"{git}/{name}" for name in names if name == "index" or name[:12] == "sharedindex."]


def writes_elsewhere(git: str, outside: Sequence[str]) -> bool:
    """Whether "git restore" would write out of the working tree, or what git runs; or a doubt.

    ``git`` is the git directory; no program is taken from ``outside``.
    """
    program = find_program("git", map(Path, outside))
    if program is None:
        return False
    env = {"GIT_DIR": git, "GIT_WORK_TREE": "/", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.defpath}
    env |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    settings = ("-c", "core.fsmonitor=false", "-c", "core.bare=false")
    names, is_read = b"", False
    with (
        contextlib.suppress(OSError),
        subprocess.Popen(  # noqa: S603 - found outside of the workspace
            (program, *settings, "ls-files", "-z", "--cached"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd="/",
        ) as process,
    ):
        stop = threading.Timer(_LIMIT_S, process.kill)
        stop.start()
        try:
            names = process.stdout.read(_MOST_NAMED_BYTES + 1) if process.stdout else b""
            is_read = len(names) <= _MOST_NAMED_BYTES and not process.wait()
        finally:
            process.kill()
            stop.cancel()
    return not is_read or bool(_ELSEWHERE.search(names))
