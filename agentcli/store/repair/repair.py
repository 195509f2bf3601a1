"""Making a damaged session file usable again (REC-7).

Laws: what was there is copied aside first and kept; what can be read goes row by row into a
new file that obeys every law of ``check``; what could not be saved is said, line by line; the
new file takes the old one's place in one rename. A sound file is left as it is.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import time
from pathlib import Path

from agentcli.domain.errors import PersistenceError, SessionNotFound, SessionTooNew, StoreError
from agentcli.domain.values import frozen
from agentcli.store import disk, wal
from agentcli.store.file import SessionFile, fault, name_of
from agentcli.store.lock import WriterLock
from agentcli.store.repair.check import check
from agentcli.store.repair.pages import read_tables
from agentcli.store.repair.rebuild import Rebuilt, rebuild


@frozen
class RepairReport:
    """What a repair did.

    ``copy`` is where the damaged file is kept, ``None`` when nothing was wrong; ``messages``
    is how many the session now has; ``lost`` says what could not be saved, ``restored`` what was
    put right.
    """

    path: Path
    copy: Path | None
    messages: int
    lost: tuple[str, ...]
    restored: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """The same in words."""
        if self.copy is None:
            return ("nothing was wrong with it",)
        done = f"repaired: {self.messages} message(s); the damaged file is {self.copy}"
        right = (f"put right: {line}" for line in self.restored)
        return (done, *right, *(f"lost: {line}" for line in self.lost))


def repair(path: Path) -> RepairReport:
    """Repair the session file at ``path``.

    Raises ``SessionLocked`` while a live process has it open, ``SessionTooNew``,
    ``SessionNotFound`` and ``PersistenceError``.
    """
    if not path.exists():
        raise SessionNotFound(f"no session file {path}", "see: agent sessions list")
    if not stat.S_ISREG(path.lstat().st_mode):
        raise PersistenceError(f"{path} is a link or no file at all", "move it away")
    try:
        lock = WriterLock.acquire(path, name_of)
        try:
            sound = _count_if_sound(path)
            if sound is not None:
                return RepairReport(path, None, sound, ())
            return _repair(path)
        finally:
            lock.release()
    except (OSError, sqlite3.Error) as error:
        raise fault(error, path, writing=True) from error


def _count_if_sound(path: Path) -> int | None:
    file = SessionFile(path, writable=False)
    try:
        file.open()
        if check(path, own=True):
            return None
        query = "SELECT count(*) FROM message"
        return int(file.read(lambda db: db.execute(query).fetchone()[0]))
    except SessionTooNew:
        raise
    except (StoreError, sqlite3.Error, ValueError):
        return None
    finally:
        file.close()


def _repair(path: Path) -> RepairReport:
    copy = path.with_name(
        f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
    )
    is_replaced = False
    workshop = Path(tempfile.mkdtemp(prefix=".repair-", dir=path.parent))
    try:
        _copy_with_log(path, copy)
        work = workshop / "damaged"
        _copy_with_log(path, work)
        tables, lost = read_tables(work)
        built = rebuild(tables, path.stem, path.stat().st_mtime)
        fresh = workshop / path.name
        _store(fresh, built)
        lost += [*built.lost, *check(fresh)]
        if _log_of(path).exists():
            _make_log(fresh, workshop / "log")
        is_replaced = True
        _replace(path, fresh, workshop / "log")
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
        if not is_replaced and path.exists():  # a copy too few is none: the file is as it was
            for name in (copy, _log_of(copy)):
                name.unlink(missing_ok=True)
    return RepairReport(path, copy, len(built.messages), tuple(lost), tuple(built.restored))


def _replace(path: Path, fresh: Path, made: Path) -> None:
    """Put ``fresh`` in the place of a file and its log; a kill leaves the one or the other whole.

    A log would belong to either file, and a file without its log may seem sound: so the first step
    is the log ``made``, by which the damaged file reads as ``fresh``.
    """
    for suffix in ("-shm", disk.JOURNAL_SUFFIX):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if made.exists():
        made.replace(_log_of(path))
        disk.sync_directory(path.parent)
    fresh.replace(path)
    disk.sync_directory(path.parent)
    _log_of(path).unlink(missing_ok=True)


def _make_log(fresh: Path, made: Path) -> None:
    data = fresh.read_bytes()
    with os.fdopen(disk.create(made), "wb") as file:
        file.write(wal.made_log(data, int.from_bytes(data[16:18])))
        file.flush()
        os.fsync(file.fileno())


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _store(path: Path, built: Rebuilt) -> None:
    file = SessionFile(path, writable=True)
    try:
        file.create(built.insert)
    finally:
        file.close()


def _copy_with_log(source: Path, target: Path) -> None:
    disk.copy(source, target)
    if _log_of(source).exists() and not disk.is_odd(_log_of(source)):
        disk.copy(_log_of(source), _log_of(target))
