"""What stands at a path, and making it stand there again: for snapshots and for going back (TT-1).

Laws: reading is bounded and never waits (no pipe, no device); a link is itself and is never
followed, nor is one that has come into the place of a directory (SEC-5); several files are put back
all together or not at all. These functions block.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from agentcli.domain.no_follow import directory_of, lstat_at, open_at
from agentcli.domain.rewind import ABSENT, FileKind, FileState

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
