"""Files that anyone may have put there.

Law: nothing is waited for, such as a pipe or a device; only a regular file is read.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NoRegularFile(OSError):
    """What has the name is something else."""


def open_regular(path: str | Path, flags: int = 0) -> BufferedReader:
    """The file, open to be read; ``flags`` are more of ``os.open``'s, such as ``O_NOFOLLOW``.

    Raises ``OSError``, of it ``NoRegularFile``; ``ValueError`` for what is no path.
    """
    handle = os.open(path, _READ | flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoRegularFile(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb")


def refuse_links(path: Path) -> None:
    """Raise ``OSError`` where a link leads a file that is to be written elsewhere (SEC-5).

    It is one itself, or one in the working directory is on its way: what worked there may have made
    it. Those of the system (``/dev/stdout``) are followed.
    """
    named = Path(os.path.normpath(path.absolute()))
    is_link = named.is_symlink()
    with suppress(FileNotFoundError):  # there may be no working directory any more
        is_link |= named.is_relative_to(Path.cwd()) and os.path.realpath(named) != str(named)
    if is_link and named.parts[1:2] not in {("dev",), ("proc",)}:
        raise OSError(errno.ELOOP, "a link leads elsewhere", str(path))


def real_text(path: str) -> str:
    """``path`` with all links followed, as text; as it is where one may not be read.

    The links that a process has in ``/proc`` may be read by its own user only.
    """
    try:
        return os.path.realpath(path)
    except OSError:
        return os.path.abspath(path)  # noqa: PTH100 - pathlib's keeps ".."


def read_start(path: str | Path, most_bytes: int = 256 * 1024, flags: int = 0) -> bytes:
    """The first bytes of a file; empty where there is none that can be read."""
    try:
        with open_regular(path, flags) as file:
            return file.read(most_bytes)
    except (OSError, ValueError):
        return b""


def small_file(path: str | Path, most_bytes: int = 16 * 1024, flags: int = 0) -> bytes:
    """All that a small file holds; empty where it is too large, or cannot be read."""
    data = read_start(path, most_bytes + 1, flags)
    return data if len(data) <= most_bytes else b""
