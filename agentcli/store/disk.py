"""The files of sessions on the disk: private, whole, and what they look like from outside.

Law: only their owner can read them, whatever the umask (SEC-9); a stamp tells whether a session
changed since, without opening it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentcli.domain.files import make_private_directory
from agentcli.domain.patterns import LazyPattern

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_OPEN_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
SUFFIX = ".db"
WAL_SUFFIX = ".db-wal"
JOURNAL_SUFFIX = "-journal"
_BESIDE = (JOURNAL_SUFFIX, "-wal", "-shm")
MAX_LOG_BYTES = 256 * 1024 * 1024  # it is read whole (SEC-13); none of ours grows to that
LOCK_SUFFIX = ".lock"
_RACY_S = 2.0
_PAGE = 4096
_PLAIN = b"SQLite format 3\0\x10\0"
_LEAF, _GOES_ON = 13, 0x80
_MOST_OF_ROW = _PAGE - 100  # a longer one goes on elsewhere
SESSION_ID = LazyPattern(r"[A-Za-z0-9_-]{1,64}")


def ensure_directory(path: Path) -> None:
    """Make ``path`` and its missing parents, each 0700; tighten ``path`` if it was wider."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        make_private_directory(path)
        return
    if mode & 0o077:
        with contextlib.suppress(OSError):
            path.chmod(DIRECTORY_MODE)


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


# --- what the files of a session are called, and what they look like from outside ------------


def recovery_path(session_path: Path) -> Path:
    """Where text goes that could not be written to a session (FAIL-1)."""
    return session_path.with_suffix(".recovery.txt")


def runs_directory(path: Path) -> Path:
    """Where the background runs of the session file ``path`` put what they make (BG-4)."""
    return path.with_suffix(".runs")


def stamp_of(path: Path) -> str:
    """Times and sizes of a session file and its write-ahead log; empty if there is no file."""
    try:
        main = _part(path.stat())
    except OSError:
        return ""
    return main + log_stamp_of(path)


def changed_at(path: Path) -> float:
    """When a session file or its write-ahead log was last written, in seconds since 1970, or 0."""
    times = [0.0]
    for part in (path, path.with_name(path.name + "-wal")):
        with contextlib.suppress(OSError):
            times.append(part.stat().st_mtime)
    return max(times)


def written_at(stamp: str) -> float:
    """When the files of a stamp were last written, in seconds since 1970."""
    return max(int(part.split(".")[1]) for part in stamp.split(";") if part) / 1e9


def log_stamp_of(path: Path) -> str:
    """The part of ``stamp_of`` that is the write-ahead log; an empty log counts as none."""
    try:
        status = os.stat(f"{path}-wal")  # noqa: PTH116 - after each row that is read
    except OSError:
        return ""
    return _part(status) if status.st_size else ""


def fault_beside(path: Path) -> str:
    """What lies beside the session file ``path`` that SQLite is not to obey; empty if nothing does.

    No session of ours has a rollback journal: one names a file that SQLite then deletes
    (https://sqlite.org/atomiccommit.html, 5.6). Through a link it writes elsewhere.
    """
    found = (path.with_name(path.name + suffix) for suffix in _BESIDE)
    return next(
        (f"{each.name} beside it is none of a session's" for each in found if is_odd(each)), ""
    )


def is_odd(beside: Path) -> bool:
    """Whether what lies beside a session file is there, and nothing that a session has."""
    try:
        status = beside.lstat()
    except FileNotFoundError:
        return False
    is_log = stat.S_ISREG(status.st_mode) and status.st_size <= MAX_LOG_BYTES
    return not is_log or beside.name.endswith(JOURNAL_SUFFIX)


def is_session_name(name: str) -> bool:
    """Whether a file of the sessions' directory can be a session: nothing else there is ours."""
    return name.endswith(SUFFIX) and SESSION_ID.fullmatch(name[: -len(SUFFIX)]) is not None


def stamps_in(directory: Path) -> Mapping[str, str]:
    """The stamp of every session file in ``directory``, by session id."""
    main: dict[str, str] = {}
    logs: dict[str, str] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name
                if is_session_name(name):
                    main[name[: -len(SUFFIX)]] = _stat(entry)
                elif name.endswith(WAL_SUFFIX):
                    logs[name[: -len(WAL_SUFFIX)]] = _log_stat(entry)
    except FileNotFoundError:
        return {}
    return {name: stamp + logs.get(name, "") for name, stamp in main.items() if stamp}


def may_name(path: Path, stamp: str, texts: Sequence[bytes]) -> bool:
    """Whether a session file may have one of ``texts`` in its own row; false only if surely not.

    The row stands on the second page, by itself, where nothing of the file is in a log and its
    pages are those that SQLite makes today (https://sqlite.org/fileformat2.html). ``stamp`` is the
    file's.
    """
    try:
        with path.open("rb", buffering=0) as file:
            data = file.read(2 * _PAGE)
    except OSError:
        return True
    page = data[_PAGE:]
    if not data.startswith(_PLAIN) or len(page) < _PAGE or page[0] != _LEAF:
        return True
    at = int.from_bytes(page[8:10])  # where the row begins: with its size
    high, low = page[at : at + 2].ljust(2, b"\xff")
    is_short = high < _GOES_ON or (low < _GOES_ON and ((high - _GOES_ON) << 7 | low) < _MOST_OF_ROW)
    return not is_short or stamp.count(";") > 1 or any(text in page for text in texts)


def names_in(directory: Path) -> tuple[set[str], set[str]]:
    """The ids of all sessions in ``directory``, and of those that are or were left open."""
    ids: set[str] = set()
    open_: set[str] = set()
    try:
        names = os.listdir(directory)  # noqa: PTH208 - very many names: no object for each
    except FileNotFoundError:
        return ids, open_
    for name in names:
        if name.endswith(SUFFIX):
            ids.add(name[: -len(SUFFIX)])
        elif name.endswith((WAL_SUFFIX, LOCK_SUFFIX)):
            open_.add(name.partition(".")[0])
    return {name for name in ids if SESSION_ID.fullmatch(name)}, open_ & ids


def mark_of(directory: Path) -> str:
    """A stamp that changes with every file that is made or removed in ``directory``.

    Empty where it proves nothing: so soon after a change that another would have the same time
    (the same as https://git-scm.com/docs/racy-git).
    """
    try:
        status = directory.stat()
    except OSError:
        return ""
    age_s = time.time() - status.st_mtime
    return f"{status.st_ino}.{status.st_mtime_ns}" if age_s > _RACY_S else ""


def _stat(entry: os.DirEntry[str]) -> str:
    try:
        return _part(entry.stat())
    except OSError:
        return ""


def _log_stat(entry: os.DirEntry[str]) -> str:
    try:
        status = entry.stat()
    except OSError:
        return ""
    return _part(status) if status.st_size else ""


def _part(status: os.stat_result) -> str:
    return f"{status.st_ino}.{status.st_mtime_ns}.{status.st_size};"
