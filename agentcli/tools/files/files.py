"""Reading files as they are now: regular ones only, bounded, never blocking (SEC-13).

Law: a path is opened without following a link (``domain.no_follow``), so that one put in between
the judgement of the path and its use is refused (SEC-5). A file is known by a fingerprint of its
content; one that was read in this session and differs now is not changed unseen (TOOL-8).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentcli.domain.no_follow import directory_of, lstat_at, lstat_of, open_at
from agentcli.domain.tools import FileLedger, Workspace
from agentcli.tools.files.paths import FileProblem, not_found, os_problem, shown

MAX_WHOLE_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_ABSENT = "absent"

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


@dataclass(frozen=True, slots=True)
class FileState:
    """A regular file as it was at one moment. ``data`` is ``None`` when it is too large."""

    path: Path
    info: os.stat_result
    data: bytes | None
    fingerprint: str


def kind_of(mode: int) -> str:
    """``a regular file``, ``a directory``, ``a named pipe`` and so on."""
    return next((name for test, name in _KINDS if test(mode)), "a regular file")


def human_size(size_bytes: int) -> str:
    """``512 bytes``, ``1.5 KB``, ``10.0 GB``."""
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024:  # noqa: PLR2004 - the size of the next unit
            return f"{size_bytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def look(path: Path, workspace: Workspace) -> os.stat_result | None:
    """What stands at the resolved ``path``, links not followed; ``None`` when there is nothing.

    Raises ``FileProblem`` when that cannot be told.
    """
    try:
        return lstat_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise os_problem(error, "look at", shown(path, workspace)) from error


@contextmanager
def opened(path: Path, workspace: Workspace) -> Iterator[int]:
    """A descriptor of the regular file at the resolved ``path``, for reading.

    Raises ``FileProblem`` for what is missing, forbidden or no regular file; a pipe or a device
    is not opened at all.
    """
    name = shown(path, workspace)
    try:
        if not path.name:
            raise IsADirectoryError(errno.EISDIR, "")
        with directory_of(path) as directory:
            before = lstat_at(path.name, directory)
            _require_regular(before, name)
            descriptor = open_at(path.name, directory)
    except (FileNotFoundError, NotADirectoryError):
        raise not_found(path, workspace) from None
    except OSError as error:
        raise os_problem(error, "open", name) from error
    try:
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
            raise FileProblem(f"{name} was replaced while it was being opened. Try again.")
        yield descriptor
    except OSError as error:
        raise os_problem(error, "read", name) from error
    finally:
        os.close(descriptor)


def _require_regular(info: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise FileProblem(f"{name} is a directory, not a file. Use list_directory to see inside.")
    if stat.S_ISLNK(info.st_mode):
        raise FileProblem(
            f"{name} is a symbolic link that goes in a circle or was put there just now."
        )
    if not stat.S_ISREG(info.st_mode):
        raise FileProblem(f"{name} is {kind_of(info.st_mode)}, not a file that can be read.")


def chunks(descriptor: int, limit: int | None = None) -> Iterator[bytes]:
    """The file's bytes from its beginning, ``limit`` of them at most."""
    position = 0
    while limit is None or position < limit:
        wanted = _CHUNK_BYTES if limit is None else min(_CHUNK_BYTES, limit - position)
        chunk = os.pread(descriptor, wanted, position)
        if not chunk:
            return
        position += len(chunk)
        yield chunk


def read_state(path: Path, workspace: Workspace) -> FileState:
    """The regular file at the resolved ``path`` with its content, if that is not too large."""
    with opened(path, workspace) as descriptor:
        info = os.fstat(descriptor)
        data = b"".join(chunks(descriptor, MAX_WHOLE_BYTES + 1))
    if len(data) > MAX_WHOLE_BYTES:
        return FileState(path, info, None, _stat_fingerprint(info))
    return FileState(path, info, data, fingerprint_of(data))


def state_if_any(path: Path, workspace: Workspace) -> FileState | None:
    """Like ``read_state``, but ``None`` when nothing is there."""
    return None if look(path, workspace) is None else read_state(path, workspace)


def fingerprint_of(data: bytes) -> str:
    """What a file of this content is recorded as in the ledger."""
    if len(data) > MAX_WHOLE_BYTES:
        return ""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def fingerprint(descriptor: int) -> str:
    """The same for an open file, without holding its content; by its times when it is large."""
    info = os.fstat(descriptor)
    if info.st_size > MAX_WHOLE_BYTES:
        return _stat_fingerprint(info)
    digest, size = hashlib.sha256(), 0
    for chunk in chunks(descriptor, MAX_WHOLE_BYTES + 1):
        digest.update(chunk)
        size += len(chunk)
    return _stat_fingerprint(info) if size > MAX_WHOLE_BYTES else f"sha256:{digest.hexdigest()}"


def note_seen(path: Path, state: FileState | None, ledger: FileLedger) -> None:
    """What stands at ``path`` was shown to a person, or that nothing does (``None``)."""
    mark = state.fingerprint if state is not None else _ABSENT
    if mark:
        ledger.seen.setdefault(path, mark)


def require_unchanged(state: FileState, ledger: FileLedger, workspace: Workspace) -> None:
    """Raises ``FileProblem`` when the file was seen in this session and differs now (TOOL-8)."""
    seen = ledger.seen.get(state.path)
    if seen == _ABSENT:
        name = shown(state.path, workspace)
        raise FileProblem(
            f"{name} did not exist when it was to be written and does now. Nothing was written. "
            "Read it with read_file first."
        )
    if seen is not None and seen != state.fingerprint:
        name = shown(state.path, workspace)
        raise FileProblem(
            f"{name} changed since it was last read in this session, by the user or a command. "
            "Nothing was written. Read it again with read_file, then repeat the change."
        )


def _stat_fingerprint(info: os.stat_result) -> str:
    return f"stat:{info.st_mtime_ns}:{info.st_size}:{info.st_ino}"
