"""One writer per session: a lock of the operating system on a file beside the session (REC-6).

The kernel releases it when its owner dies, however that happens, so a dead owner never blocks.
What is written in the file only serves to name the owner. The file is removed with the lock;
a process that opened it before that finds out by comparing inodes, and starts over.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agentcli.domain.errors import SessionLocked
from agentcli.domain.files import open_regular
from agentcli.store import disk as _private

if sys.platform != "win32":  # there, sessions open unlocked
    import fcntl

# A reader that asks whether the owner lives holds the lock for a moment (``live_owner``).
ATTEMPTS = 6
RETRY_DELAY_S = 0.02
OWNER_TEXT_BYTES = 500


def lock_path(session_path: Path) -> Path:
    """The lock file of a session file."""
    return session_path.with_suffix(_private.LOCK_SUFFIX)


class WriterLock:
    """Held from ``acquire`` to ``release`` or the end of the process."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, session_path: Path, name: Callable[[Path], str]) -> WriterLock:
        """Take the lock, waiting 100 ms at most; raises ``SessionLocked`` or ``OSError``.

        ``name`` is what the user knows the session by, asked for when somebody else has it.
        """
        path = lock_path(session_path)
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(RETRY_DELAY_S)
            descriptor = _private.open_or_create(path)
            if _try_lock(descriptor) and _is_current(descriptor, path):
                _write_owner(descriptor)
                return cls(path, descriptor)
            owner = _read_owner(descriptor)
            os.close(descriptor)
        raise SessionLocked(
            f"{name(session_path)} is open in another agent ({owner})",
            "close it there, or use --fork to go on from a copy; show and export still work",
        )

    def release(self) -> None:
        """Give the lock back and remove its file. May be called again."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = None


def live_owner(session_path: Path) -> str | None:
    """Who writes to the session now ("process 12 on box since ..."), or ``None``."""
    try:
        with open_regular(lock_path(session_path), os.O_NOFOLLOW) as file:
            descriptor = file.fileno()
            return None if _try_lock(descriptor, shared=True) else _read_owner(descriptor)
    except OSError:
        return None


def _try_lock(descriptor: int, *, shared: bool = False) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: better unlocked than unusable
        return True
    return True


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _write_owner(descriptor: int) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    text = f"process {os.getpid()} on {os.uname().nodename} since {since}"
    with contextlib.suppress(OSError):  # a full disk must not keep a session from being opened
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(errors="replace"), 0)


def _read_owner(descriptor: int) -> str:
    try:
        text = os.pread(descriptor, OWNER_TEXT_BYTES, 0).decode(errors="replace")
    except OSError:
        text = ""
    return text.strip() or "unknown process"
