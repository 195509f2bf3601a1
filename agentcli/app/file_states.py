"""What stands at a path, and making it stand there again: for snapshots and for going back (TT-1).

Laws: reading is bounded and never waits (no pipe, no device); a link is itself and is never
followed; several files are put back all together or not at all. These functions block.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from agentcli.domain.rewind import ABSENT, FileKind, FileState

MAX_FILE_BYTES = 8 * 1024 * 1024
_GONE = {errno.ENOENT, errno.ENOTDIR}


def read_state(path: Path, is_secret: Callable[[bytes], bool] = lambda _: False) -> FileState:
    """What stands at ``path``; what is too large, no file or unreadable is unkept, with why.

    ``is_secret`` looks at contents that must not be kept (SEC-9).
    """
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return FileState(FileKind.LINK, os.fsencode(os.readlink(path)))  # noqa: PTH115 - bytes
        data = _content(path) if stat.S_ISREG(found.st_mode) else None
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


def _content(path: Path) -> bytes | None:
    """A regular file's bytes, one more than may be kept at most."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def is_same(one: FileState, other: FileState) -> bool:
    """Whether both are known to be the same."""
    return one == other and one.kind is not FileKind.UNKEPT


def put_back(wanted: Mapping[Path, FileState], now: Mapping[Path, FileState]) -> None:
    """Make each path what ``wanted`` says, from what it is ``now``; all or nothing.

    Raises ``OSError`` when one cannot be written; those before it are then as they were.
    """
    done: list[Path] = []
    try:
        for path, state in wanted.items():
            _put(path, state)
            done.append(path)
    except OSError:
        for path in reversed(done):
            with contextlib.suppress(OSError):
                _put(path, now[path])
        raise


def _put(path: Path, state: FileState) -> None:
    if state.kind is FileKind.ABSENT:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = tempfile.mkdtemp(prefix=".agentcli-", dir=path.parent)
    temporary = Path(directory) / "file"
    try:
        if state.kind is FileKind.LINK:
            temporary.symlink_to(os.fsdecode(state.data))
        else:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(state.data)
                file.flush()
                os.fchmod(handle, state.mode)
                os.fsync(handle)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        Path(directory).rmdir()
