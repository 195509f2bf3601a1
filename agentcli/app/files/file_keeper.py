"""Keeps what files were before a call changes them; satisfies ``domain.tools.FileKeeper`` (TT-1).

Laws: the snapshot is in the session's file before the change (write-ahead); a file that cannot be
kept holds up no call: the user is told, once for each session (FAIL-2). Calls of sub-agents run
beside each other: what is found while commands run is kept once, in its order, as done by one of
them. A cancel waits for nothing here: looking is stopped, what is being stored is stored.

Reading is bounded and never waits (no pipe, no device); a link is itself and is never followed,
nor is one that has come into the place of a directory (SEC-5); several files are put back all
together or not at all.

What a command changes is found by comparing the workspace before and after it, bounded in files,
bytes and time: a workspace beyond them is not watched, which is said; the user's git is asked what
there is and never touched, and none of its code runs (SEC-2); contents are kept packed and in
memory, so that only what changes is written; what stood there before, and was only not listed, is
never taken for new. What reads files blocks; one look at a time is at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from agentcli.app.files.safe_git import find_git
from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import AgentError
from agentcli.domain.files import directory_of, lstat_at, open_at
from agentcli.domain.rewind import ABSENT, FileKind, FileState
from agentcli.domain.tools import Workspace, real_path
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.store.rewinds import RewindTable

# --- what stands at a path, and making it stand there again ---------------------------------------


MAX_FILE_BYTES = 8 * 1024 * 1024
Mark = tuple[int, int, int, int, int]
_GONE = {errno.ENOENT, errno.ENOTDIR}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def read_state(path: Path, is_secret: Callable[[bytes], bool] = lambda _: False) -> FileState:
    """What stands at ``path``; what is too large, no file or unreadable is unkept, with why.

    ``is_secret`` looks at contents that must not be kept (SEC-9).
    """
    try:
        with directory_of(path) as directory:
            found = lstat_at(path.name, directory)
            if stat.S_ISLNK(found.st_mode):
                target = os.readlink(path.name, dir_fd=directory)
                return FileState(FileKind.LINK, os.fsencode(target))
            data = _content(path.name, directory) if stat.S_ISREG(found.st_mode) else None
    except ValueError as error:
        return FileState(FileKind.UNKEPT, why=f"it cannot be read: {error}")
    except OSError as error:
        if error.errno in _GONE:
            return ABSENT
        return FileState(FileKind.UNKEPT, why=f"it cannot be read: {error.strerror}")
    why = ""
    if data is None:
        why = "it is no regular file"
    elif len(data) > MAX_FILE_BYTES:
        why = f"it is larger than {MAX_FILE_BYTES} bytes"
    elif is_secret(data):
        why = "it holds a key of yours"
    if why or data is None:
        return FileState(FileKind.UNKEPT, why=why)
    return FileState(FileKind.FILE, data, stat.S_IMODE(found.st_mode))


def _content(name: str, directory: int) -> bytes | None:
    """A regular file's bytes, one more than may be kept at most."""
    handle = open_at(name, directory)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def mark_of(path: str | Path) -> Mark | None:
    """What changes when a file or link does, without reading it; ``None`` for all else."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size, found.st_mode


def is_same(one: FileState, other: FileState) -> bool:
    """Whether both are known to be the same."""
    return one == other and one.kind is not FileKind.UNKEPT


def put_back(wanted: Mapping[Path, FileState], now: Mapping[Path, FileState]) -> None:
    """Make each path what ``wanted`` says, from what it is ``now``; all or nothing.

    Raises ``OSError`` when one cannot be written or is no longer what it was; those before it are
    then as they were.
    """
    done: list[Path] = []
    try:
        for path, state in wanted.items():
            _check(path, now[path])
            _put(path, state)
            done.append(path)
    except OSError:
        for path in reversed(done):
            with contextlib.suppress(OSError):
                _put(path, now[path])
        raise


def _check(path: Path, state: FileState) -> None:
    if read_state(path) != state:
        raise OSError(errno.EBUSY, "it is being changed by somebody else", str(path))


def _put(path: Path, state: FileState) -> None:
    made: list[Path] = []
    wanted = None if state.kind is FileKind.ABSENT else made
    try:
        with directory_of(path, wanted) as directory:
            _put_at(path.name, directory, state)
    except OSError as error:
        if state.kind is FileKind.ABSENT and error.errno in _GONE:
            return
        error.filename = str(path)
        raise


def _put_at(name: str, directory: int, state: FileState) -> None:
    """Make the entry of an open directory what ``state`` says, at one moment."""
    if state.kind is FileKind.ABSENT:
        os.unlink(name, dir_fd=directory)
        return
    temporary = f".agentcli-{secrets.token_hex(8)}"
    try:
        if state.kind is FileKind.LINK:
            os.symlink(os.fsdecode(state.data), temporary, dir_fd=directory)
        else:
            handle = os.open(temporary, _NEW, 0o600, dir_fd=directory)
            with os.fdopen(handle, "wb") as file:
                file.write(state.data)
                file.flush()
                os.fchmod(handle, state.mode)
                os.fsync(handle)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


# --- what a command has changed in the workspace --------------------------------------------------


MAX_FILES = 5_000
MAX_BYTES = 64 * 1024 * 1024
MAX_WATCHED_BYTES = 1024 * 1024
LOOK_S = 2.0
MAX_SLOW_LOOKS = 3
PAUSE_S = 60.0  # after so many slow ones; what made them slow may pass
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
        self._slow, self._again_at = 0, 0.0
        self._too_large = False
        self._turn = threading.Lock()

    def look(self, stop: threading.Event) -> str:
        """Learn what there is now; why the workspace is not watched, if it is not.

        ``stop`` ends it early: what was known stays.
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
        if self._too_large:
            return TOO_LARGE
        if self._slow >= MAX_SLOW_LOOKS and time.monotonic() < self._again_at:
            return TOO_SLOW
        began_ns, problem = time.time_ns(), ""
        try:
            known = self._seen(stop, time.monotonic() + LOOK_S, began_ns)
            self._slow = 0
        except _Unseen as error:
            known, began_ns, problem = {}, 0, str(error)
        if stop.is_set():  # nobody asks any more, and others may have looked meanwhile
            return ""
        self._known, self._looked_ns = known, began_ns
        return problem

    def _seen(self, stop: threading.Event, until: float, began_ns: int) -> dict[str, _Seen]:
        known: dict[str, _Seen] = {}
        total = 0
        for name in self._names(stop):
            if stop.is_set():
                break
            if time.monotonic() > until:
                self._slow, self._again_at = self._slow + 1, time.monotonic() + PAUSE_S
                raise _Unseen(TOO_SLOW)
            mark = mark_of(name) if name else None
            if mark is None:
                continue
            seen = self._known.get(name)
            if seen is None or seen.is_young or seen.mark != mark:
                is_young = max(mark[0], mark[1]) > began_ns - _TICK_NS
                seen = _Seen(mark, self._state(name, mark), is_young)
            known[name] = seen
            total += mark[3] if mark[3] <= MAX_WATCHED_BYTES else 0
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
        if mark is not None and mark[3] > MAX_WATCHED_BYTES:
            return FileState(FileKind.UNKEPT, why=f"it is larger than {MAX_FILE_BYTES} bytes")
        return _packed(read_state(Path(name), self._is_secret))

    def _names(self, stop: threading.Event) -> Iterator[str]:
        """The paths to look at; an empty one is no path, only a moment to see whether to go on."""
        git = find_git(Path(self._root))
        listed = None
        if git is not None:
            arguments = ("ls-files", "-z", "-c", "-o", "--exclude-standard")
            listed = git.output(*arguments, limit=MAX_LISTED, timeout_s=LOOK_S, stop=stop)
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


T = TypeVar("T")
log = logging.getLogger(__name__)
MAX_PATHS = 2_000
MAX_CALL_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _OpenCall:
    """A call that runs: its rows, and what it found. ``marks`` are of what was not kept."""

    rows: Mapping[Path, int]
    before: Mapping[Path, FileState]
    marks: Mapping[Path, Mark | None]

    def is_untouched(self, path: Path, after: FileState) -> bool:
        """Whether the call left ``path`` as it was, as far as that can be told."""
        mark = self.marks.get(path)
        return is_same(after, self.before[path]) or (mark is not None and mark == mark_of(path))


@dataclass(slots=True)
class Keeper:
    """For one session. ``notify`` says a line to the user.

    ``is_secret`` looks at contents that are never kept (SEC-9).
    """

    store: RewindTable
    workspace: Workspace
    notify: Callable[[str], None] = lambda _: None
    is_secret: Callable[[bytes], bool] = lambda _: False
    _open: dict[str, _OpenCall] = field(default_factory=dict)
    _watch: WorkspaceWatch = field(init=False)
    _watching: list[str] = field(default_factory=list)
    _warned: set[str] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._watch = WorkspaceWatch(self.workspace.root, self.is_secret)

    async def begin(self, call_id: str, paths: Sequence[Path]) -> None:
        """Keep what a call may change: the files that it names, or look at the workspace."""
        try:
            async with self._turn:
                await self._begin(call_id, paths)
        except asyncio.CancelledError:
            if call_id in self._watching:
                self._watching.remove(call_id)
            if call_id in self._open:  # the call does not run: nothing becomes of the files
                await uninterruptible(self._settle(call_id, self._open[call_id].before))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the call goes on
            self._failed(error)

    async def end(self, call_id: str) -> None:
        """See what the call has made of it."""
        try:
            async with self._turn:
                await self._end(call_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, the call goes on
            self._failed(error)

    async def settled(self) -> None:
        """Return when all that has ended by now is stored."""
        async with self._turn:
            pass

    async def _begin(self, call_id: str, paths: Sequence[Path]) -> None:
        if self._watching:
            await self._keep_found()
        if paths:
            states = await asyncio.to_thread(self._read, paths)
            unkept = [path for path, state in states.items() if state.kind is FileKind.UNKEPT]
            marks = {path: mark_of(path) for path in unkept}
            await uninterruptible(self._keep(call_id, states, marks))
            return
        problem = "" if self._watching else await self._stoppable(self._watch.look)
        self._watching.append(call_id)
        if problem:
            self._warn(problem)

    async def _end(self, call_id: str) -> None:
        if call_id in self._watching:
            try:
                await self._keep_found()
            finally:
                self._watching.remove(call_id)
        elif call_id in self._open:
            after = await asyncio.to_thread(self._read, list(self._open[call_id].before))
            await uninterruptible(self._settle(call_id, after))
            if self._watching:
                await asyncio.to_thread(self._watch.learn, after)

    async def _keep_found(self) -> None:
        """Keep what the commands that run have changed since the workspace was looked at."""
        (was, now), problem = await self._stoppable(self._watch.compare)
        if problem:
            self._warn(problem)
        if was:
            await uninterruptible(self._keep_both(self._watching[0], was, now))

    async def _keep_both(
        self, call_id: str, was: Mapping[Path, FileState], now: Mapping[Path, FileState]
    ) -> None:
        await self._keep(call_id, was)
        await self._settle(call_id, now)

    async def _stoppable(self, work: Callable[[threading.Event], T]) -> T:
        """Run ``work`` in a thread, which stops soon when the wait for it is cancelled."""
        stop = threading.Event()
        try:
            return await asyncio.to_thread(work, stop)
        finally:
            stop.set()

    async def _settle(self, call_id: str, after: Mapping[Path, FileState]) -> None:
        if call_id not in self._open:
            return
        known = self._open.pop(call_id)
        changed = {
            row: None if known.is_untouched(path, after[path]) else after[path]
            for path, row in known.rows.items()
        }
        try:
            await self.store.settle(changed)
        except AgentError as error:
            self._failed(error)

    async def _keep(
        self,
        call_id: str,
        states: Mapping[Path, FileState],
        marks: Mapping[Path, Mark | None] = MappingProxyType({}),
    ) -> None:
        try:
            ids = await self.store.keep(call_id, states)
        except AgentError as error:
            self._failed(error)
            return
        self._open[call_id] = _OpenCall(ids, states, marks)
        for path, state in states.items():
            if state.kind is FileKind.UNKEPT:
                self._warn(f"/undo cannot bring back {path}: {state.why}")

    def _failed(self, error: Exception) -> None:
        """A snapshot is no reason to stop (FAIL-2)."""
        log.warning("snapshots could not be stored", exc_info=error)
        self._warn(f"what files were could not be kept, /undo will not know them: {error}")

    def _read(self, paths: Sequence[Path]) -> dict[Path, FileState]:
        states: dict[Path, FileState] = {}
        total = 0
        for named in paths:
            path = real_path(named.parent) / named.name
            if path in states:
                continue
            if len(states) >= MAX_PATHS or total > MAX_CALL_BYTES:
                states[path] = FileState(FileKind.UNKEPT, why="the call changes too much at once")
                continue
            states[path] = read_state(path, self.is_secret)
            total += len(states[path].data)
        return states

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.notify(text)
