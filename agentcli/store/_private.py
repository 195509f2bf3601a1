"""Files that only their owner can read, whatever the umask (SEC-9)."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_OPEN_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


def ensure_directory(path: Path) -> None:
    """Make ``path`` and its missing parents, each 0700; tighten ``path`` if it was wider."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.parent != path:
            _make_parents(path.parent)
        _make(path)
        return
    if mode & 0o077:
        with contextlib.suppress(OSError):
            path.chmod(DIRECTORY_MODE)


def _make_parents(path: Path) -> None:
    if not path.exists():
        _make_parents(path.parent)
        _make(path)


def _make(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=DIRECTORY_MODE)
        path.chmod(DIRECTORY_MODE)  # the umask may have taken more away


def create(path: Path) -> int:
    """A descriptor of the new, empty file ``path``, mode 0600; ``FileExistsError`` if it exists."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS, FILE_MODE)
    os.fchmod(descriptor, FILE_MODE)
    return descriptor


def open_or_create(path: Path, extra_flags: int = 0) -> int:
    """A descriptor of ``path`` for reading and writing, mode 0600 when it is new; no links."""
    flags = os.O_RDWR | os.O_CREAT | _OPEN_FLAGS | extra_flags
    descriptor = os.open(path, flags, FILE_MODE)
    if not os.fstat(descriptor).st_mode & 0o600:  # the umask took it all away
        os.fchmod(descriptor, FILE_MODE)
    return descriptor


def temporary(path: Path) -> Path:
    """A name beside ``path`` that nobody can guess and no listing shows."""
    return path.with_name(f".{path.stem}.{os.urandom(8).hex()}.new")


def sync_directory(path: Path) -> None:
    """Make what was created or renamed in ``path`` durable, where the file system can do that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def copy(source: Path, target: Path) -> None:
    """A durable copy, mode 0600; ``FileExistsError`` if ``target`` exists.

    ``source`` must not be open in this process as a database: closing any descriptor of a
    file drops SQLite's locks on it (https://sqlite.org/howtocorrupt.html, 2.2).
    """
    import shutil

    with source.open("rb") as reader, os.fdopen(create(target), "wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        os.fsync(writer.fileno())
