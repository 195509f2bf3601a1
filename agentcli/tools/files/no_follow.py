"""Reaching files through their directories, one by one, none of them a link (SEC-5).

Law: a resolved path is judged, and what is opened here is what stood at that very path at the
moment of use: a directory that has become a link since then is an ``OSError`` (``ELOOP``), never
followed. Nothing is opened that could block (SEC-13).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)  # Linux; elsewhere the directory must be readable
_PASS = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def directory_of(path: Path, made: list[Path] | None = None) -> Iterator[int]:
    """A descriptor of ``path``'s directory. ``path`` is resolved; raises ``OSError``.

    With ``made``, missing directories are created and added to it.
    """
    descriptor = os.open(path.anchor, _PASS)
    try:
        here = Path(path.anchor)
        for name in path.parent.parts[1:]:
            here /= name
            descriptor = _exchange(descriptor, _enter(name, descriptor, here, made))
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def below(directory: int, names: Sequence[str]) -> Iterator[int]:
    """A descriptor of the directory that ``names`` lead to from an open one."""
    descriptor = os.dup(directory)
    try:
        for name in names:
            descriptor = _exchange(descriptor, _enter(name, descriptor, Path(name), None))
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """A descriptor of the directory at the resolved ``path``, to be listed; raises ``OSError``."""
    with directory_of(path) as directory:
        # the root has no name of its own
        descriptor = os.open(path.name or path.anchor, _LIST, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_at(name: str, directory: int) -> int:
    """A descriptor of the entry, for reading; it never waits and is no link."""
    return os.open(name, _READ, dir_fd=directory)


def lstat_at(name: str, directory: int) -> os.stat_result:
    """What an entry of an open directory is."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def lstat_of(path: Path) -> os.stat_result:
    """What stands at the resolved ``path``; raises ``OSError``."""
    if not path.name:
        return path.lstat()
    with directory_of(path) as directory:
        return lstat_at(path.name, directory)


def readlink_of(path: Path) -> str:
    """Where the link at ``path`` leads; its directory is resolved; raises ``OSError``."""
    with directory_of(path) as directory:
        return os.readlink(path.name, dir_fd=directory)


def size_of(path: Path) -> int:
    """The bytes of the file at the resolved ``path``; 0 where there is none."""
    try:
        return lstat_of(path).st_size
    except (OSError, ValueError):
        return 0


def is_directory(path: Path) -> bool:
    """Whether a directory stands at the resolved ``path``."""
    try:
        return stat.S_ISDIR(lstat_of(path).st_mode)
    except (OSError, ValueError):
        return False


def _exchange(old: int, new: int) -> int:
    os.close(old)
    return new


def _enter(name: str, directory: int, here: Path, made: list[Path] | None) -> int:
    try:
        return _pass(name, directory)
    except FileNotFoundError:
        if made is None:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
        made.append(here)
    return _pass(name, directory)


def _pass(name: str, directory: int) -> int:
    if name == "..":  # no resolved path has it
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    try:
        return os.open(name, _PASS, dir_fd=directory)
    except NotADirectoryError:
        if stat.S_ISLNK(lstat_at(name, directory).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise
