"""What a command has changed in the workspace: looked at before and after it (TT-1).

Laws: bounded in files, bytes and time: a workspace beyond them is not watched, which is said; the
person's git is asked what there is and never touched, and none of its code runs (SEC-2); contents
are kept packed and in memory, so that only what changes is written; what stood there before, and
was only not listed, is never taken for new. These functions block; one at a time is at work.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from agentcli.app.file_states import Mark, is_same, mark_of, read_state
from agentcli.app.safe_git import find_git
from agentcli.domain.rewind import ABSENT, FileKind, FileState
from agentcli.domain.tools import real_path
from agentcli.domain.values import frozen

MAX_FILES = 5_000
MAX_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 1024 * 1024
LOOK_S = 2.0
MAX_SLOW_LOOKS = 3
MAX_LISTED = 4 * 1024 * 1024
_PACKED_FROM = 512
_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"})
# a clock of files ticks more coarsely than ours; a server's may also differ
_TICK_NS = 20_000_000
_CLOCKS_DIFFER_NS = 2_000_000_000
TOO_LARGE = "/undo does not know what commands change here: the workspace is too large"
TOO_SLOW = "/undo does not know what this command changes: looking at the workspace takes too long"
Changes = tuple[Mapping[Path, FileState], Mapping[Path, FileState]]


class _Unseen(Exception):
    """The workspace could not be looked at; the text says why."""


@frozen
class _Seen:
    """A path as it was when it was looked at; ``is_young``: it may change and look the same."""

    mark: Mark
    state: FileState
    is_young: bool


class WorkspaceWatch:
    """Remembers the files below ``root``."""

    def __init__(self, root: Path, is_secret: Callable[[bytes], bool]) -> None:
        self._root = str(real_path(root))
        self._is_secret = is_secret
        self._known: dict[str, _Seen] = {}
        self._looked_ns = 0
        self._slow = 0
        self._too_large = False
        self._turn = threading.Lock()

    def look(self, stop: threading.Event) -> str:
        """Learn what there is now; why the workspace is not watched, if it is not.

        ``stop`` ends it early.
        """
        with self._turn:
            return self._look(stop)

    def compare(self, stop: threading.Event) -> tuple[Changes, str]:
        """What was changed since ``look``, as it was and as it is now; why that is not known."""
        with self._turn:
            before, since_ns = self._known, self._looked_ns
            if not since_ns:
                return ({}, {}), ""
            problem = self._look(stop)
            return (self._changes(before, since_ns) if self._looked_ns else ({}, {})), problem

    def learn(self, paths: Mapping[Path, FileState]) -> None:
        """These were changed by a call that has kept them itself."""
        with self._turn:
            for path, state in paths.items():
                name = str(path)
                if not name.startswith(f"{self._root}/"):
                    continue
                mark = mark_of(name)
                if mark is None or state.kind is FileKind.ABSENT:
                    self._known.pop(name, None)
                else:
                    self._known[name] = _Seen(mark, _packed(state), is_young=True)

    def _look(self, stop: threading.Event) -> str:
        if self._too_large or self._slow >= MAX_SLOW_LOOKS:
            return TOO_LARGE
        began_ns = time.time_ns()
        try:
            known = self._seen(stop, time.monotonic() + LOOK_S, began_ns)
        except _Unseen as error:
            self._known, self._looked_ns = {}, 0
            return str(error)
        self._known, self._looked_ns = known, began_ns
        self._slow = 0
        return ""

    def _seen(self, stop: threading.Event, until: float, began_ns: int) -> dict[str, _Seen]:
        known: dict[str, _Seen] = {}
        total = 0
        for name in self._names():
            if stop.is_set():
                raise _Unseen("")
            if time.monotonic() > until:
                self._slow += 1
                raise _Unseen(TOO_SLOW)
            mark = mark_of(name) if name else None
            if mark is None:
                continue
            seen = self._known.get(name)
            if seen is None or seen.is_young or seen.mark != mark:
                is_young = max(mark[0], mark[1]) > began_ns - _TICK_NS
                seen = _Seen(mark, self._state(name, mark), is_young)
            known[name] = seen
            total += mark[3] if mark[3] <= MAX_FILE_BYTES else 0
            if len(known) > MAX_FILES or total > MAX_BYTES:
                self._too_large = True
                raise _Unseen(TOO_LARGE)
        return known

    def _changes(self, before: Mapping[str, _Seen], since_ns: int) -> Changes:
        was: dict[Path, FileState] = {}
        now: dict[Path, FileState] = {}
        new = []
        is_shown = False
        for name in dict.fromkeys((*before, *self._known)):
            old, seen = before.get(name), self._known.get(name)
            if old is None:
                new.append(name)
                continue
            mark = seen.mark if seen else mark_of(name)
            if mark == old.mark and not old.is_young:
                continue
            # no longer listed: ignored by now, or gone
            state = seen.state if seen else self._state(name, mark)
            states = _unpacked(old.state), _unpacked(state)
            if not _is_untouched(old, seen, *states):
                was[Path(name)], now[Path(name)] = states
                is_shown |= os.path.basename(name) == ".gitignore"  # noqa: PTH119 - many
        hidden = FileState(FileKind.UNKEPT, why="git may have ignored it before")
        for name in new:
            seen = self._known[name]
            if seen.mark[1] >= since_ns - _CLOCKS_DIFFER_NS:  # else it stood there, not listed
                was[Path(name)] = hidden if is_shown else ABSENT
                now[Path(name)] = _unpacked(seen.state)
        return was, now

    def _state(self, name: str, mark: Mark | None) -> FileState:
        if mark is not None and mark[3] > MAX_FILE_BYTES:
            return FileState(FileKind.UNKEPT, why=f"it is larger than {MAX_FILE_BYTES} bytes")
        return _packed(read_state(Path(name), self._is_secret))

    def _names(self) -> Iterator[str]:
        """The paths to look at; an empty one is no path, only a moment to see whether to go on."""
        git = find_git(Path(self._root))
        listed = None
        if git is not None:
            arguments = ("ls-files", "-z", "-c", "-o", "--exclude-standard")
            listed = git.output(*arguments, limit=MAX_LISTED, timeout_s=LOOK_S)
        yield ""
        if listed is None:
            yield from _walked(self._root)
            return
        is_inside: dict[str, bool] = {}
        for name in dict.fromkeys(listed.split(b"\0")):
            path = f"{self._root}/{os.fsdecode(name)}"
            directory = path.rpartition("/")[0]
            if directory not in is_inside:  # an index may hold any name: "..", or below a link
                real = Path(os.path.realpath(directory))
                is_inside[directory] = real.is_relative_to(self._root)
            if name:
                yield path if is_inside[directory] else ""


def _walked(root: str) -> Iterator[str]:
    """All that is below ``root`` but directories; see ``WorkspaceWatch._names``."""
    waiting = [root]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        yield entry.path
                        continue
                    yield ""
                    if entry.name not in _SKIPPED:
                        waiting.append(entry.path)
        except OSError:
            yield ""


def _is_untouched(
    old: _Seen, seen: _Seen | None, state_before: FileState, state_now: FileState
) -> bool:
    """Whether it is as it was; of what is not kept, as far as that can be told."""
    if seen is not None and old.state.kind is seen.state.kind is FileKind.UNKEPT:
        return (old.mark[0], *old.mark[2:]) == (seen.mark[0], *seen.mark[2:])
    return is_same(state_before, state_now)


def _packed(state: FileState) -> FileState:
    if state.kind is not FileKind.FILE or len(state.data) < _PACKED_FROM:
        return state
    return FileState(state.kind, zlib.compress(state.data, 1), state.mode, "packed")


def _unpacked(state: FileState) -> FileState:
    if state.why != "packed":
        return state
    return FileState(state.kind, zlib.decompress(state.data), state.mode)
