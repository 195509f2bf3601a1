"""What a command has changed in the workspace: looked at before and after it (TT-1).

Laws: bounded in files, bytes and time: a workspace beyond them is not watched, which is said; the
person's git is asked what there is and never touched, and none of its code runs (SEC-2); contents
are kept packed and in memory, so that only what changes is written. These functions block.
"""

from __future__ import annotations

import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from agentcli.app.file_states import is_same, read_state
from agentcli.app.safe_git import find_git
from agentcli.domain.rewind import ABSENT, FileKind, FileState
from agentcli.domain.tools import real_path

MAX_FILES = 5_000
MAX_BYTES = 32 * 1024 * 1024
MAX_FILE_BYTES = 1024 * 1024
LOOK_S = 2.0
_PACKED_FROM = 512
_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"})
MAX_LISTED = 4 * 1024 * 1024
_Mark = tuple[int, int, int, int]


class WorkspaceWatch:
    """Remembers the files below ``root``."""

    def __init__(self, root: Path, is_secret: Callable[[bytes], bool]) -> None:
        self._root = real_path(root)
        self._is_secret = is_secret
        self._known: dict[Path, tuple[_Mark, FileState]] = {}
        self._too_large = ""

    def look(self) -> str:
        """Learn what there is now; why the workspace is not watched, if it is not."""
        if self._too_large:
            return self._too_large
        until = time.monotonic() + LOOK_S
        known: dict[Path, tuple[_Mark, FileState]] = {}
        total = 0
        for path in self._files():
            mark = _mark_of(path)
            if mark is None:
                continue
            total += mark[2]
            old = self._known.get(path)
            known[path] = old if old is not None and old[0] == mark else (mark, self._state(path))
            if len(known) > MAX_FILES or total > MAX_BYTES or time.monotonic() > until:
                self._known = {}
                self._too_large = (
                    "/undo does not know what commands change here: the workspace is too large"
                )
                return self._too_large
        self._known = known
        return ""

    def compare(self) -> tuple[dict[Path, FileState], dict[Path, FileState]]:
        """What was changed since ``look``: as it was, and as it is now."""
        if self._too_large:
            return {}, {}
        before = self._known
        if self.look():
            return {}, {}
        was: dict[Path, FileState] = {}
        now: dict[Path, FileState] = {}
        for path in dict.fromkeys((*before, *self._known)):
            old, new = before.get(path), self._known.get(path)
            if old is not None and new is not None and old[0] == new[0]:
                continue
            states = (_unpacked(old), _unpacked(new))
            if new is None:
                states = (states[0], read_state(path, self._is_secret))  # ignored by now, or gone
            if not is_same(*states):
                was[path], now[path] = states
        return was, now

    def _state(self, path: Path) -> FileState:
        state = read_state(path, self._is_secret)
        if state.kind is FileKind.FILE and len(state.data) > MAX_FILE_BYTES:
            return FileState(FileKind.UNKEPT, why=f"it is larger than {MAX_FILE_BYTES} bytes")
        return _packed(state)

    def _files(self) -> Iterator[Path]:
        names = _names_by_git(self._root)
        if names is not None:
            yield from (self._root / name for name in names)
            return
        for directory, below, files in os.walk(self._root):
            below[:] = sorted(name for name in below if name not in _SKIPPED)
            for name in files:
                yield Path(directory) / name


def _mark_of(path: Path) -> _Mark | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode


def _packed(state: FileState) -> FileState:
    if state.kind is not FileKind.FILE or len(state.data) < _PACKED_FROM:
        return state
    return FileState(state.kind, zlib.compress(state.data, 1), state.mode, "packed")


def _unpacked(known: tuple[_Mark, FileState] | None) -> FileState:
    if known is None:
        return ABSENT
    state = known[1]
    if state.why != "packed":
        return state
    return FileState(state.kind, zlib.decompress(state.data), state.mode)


def _names_by_git(root: Path) -> list[str] | None:
    """What git knows or would add, below ``root``; ``None`` where there is no git."""
    git = find_git(root)
    if git is None:
        return None
    listed = git.output("ls-files", "-z", "-c", "-o", "--exclude-standard", limit=MAX_LISTED)
    if listed is None:
        return None
    return [os.fsdecode(name) for name in dict.fromkeys(listed.split(b"\0")) if name]
