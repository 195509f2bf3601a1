"""A session file: created whole, opened checked, written in counted transactions.

Laws. A file appears under its name complete, with its schema and first message, or not at all:
it is built under another name, synced and renamed. One ``write`` is one transaction and one
commit (FAIL-5), WAL and ``synchronous=FULL``. After a failed write the connection is rolled
back, or closed and opened again by the next. Nothing here opens the file other than through
SQLite while it may be open: that would drop SQLite's locks.

Synchronous: ``sqlite.py`` runs it in a thread. Raises what SQLite and the system raise.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agentcli.domain.errors import SessionNotFound
from agentcli.store import _kill_points, _private
from agentcli.store._faults import damaged, too_new
from agentcli.store._lock import WriterLock
from agentcli.store._schema import APPLICATION_ID, SCHEMA_VERSION, STATEMENTS
from agentcli.store._stamp import log_stamp_of, stamp_of

T = TypeVar("T")

BUSY_TIMEOUT_S = 5.0
WAL_LIMIT_BYTES = 4 * 1024 * 1024
MAX_VALUE_BYTES = 64 * 1024 * 1024  # of a row: a file of others must not fill the memory (SEC-13)
WAL_MARK = b"\x02\x02"  # https://sqlite.org/fileformat2.html#file_format_version_numbers
ROLLBACK_MARK = b"\x01\x01"
WAL_MARK_OFFSET = 18


class SessionFile:
    """The file at ``path`` and, when ``writable``, the writer's lock on it."""

    __slots__ = ("_db", "_kill_at", "_lock", "_quiet_stamp", "commits", "path", "writable")

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self.commits = 0
        self._db: sqlite3.Connection | None = None
        self._lock: WriterLock | None = None
        self._quiet_stamp: str | None = None
        self._kill_at = _kill_points.target()

    def create(self, fill: Callable[[sqlite3.Connection], T]) -> T:
        """Make the file with what ``fill`` inserts, and keep it locked.

        The connection is opened by the next use: the first request need not wait for that.
        """
        _private.ensure_directory(self.path.parent)
        if self.path.exists():
            raise FileExistsError(errno.EEXIST, "there is such a file already", str(self.path))
        self._reach_kill_point()
        temporary = _private.temporary(self.path)
        descriptor = _private.create(temporary)
        try:
            self._lock = WriterLock.acquire(self.path)
            try:
                result = _build(temporary, fill)
                os.pwrite(descriptor, WAL_MARK, WAL_MARK_OFFSET)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._reach_kill_point()
            temporary.rename(self.path)
            temporary = self.path
            _private.sync_directory(self.path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            self._release()
            raise
        self.commits += 1
        self._reach_kill_point()
        return result

    def open(self) -> None:
        """Open an existing file: checked, locked if writable, of the current version."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise SessionNotFound(
                f"no session file {self.path}", "see: agent sessions list"
            ) from None
        if not stat.S_ISREG(status.st_mode):
            raise damaged(self.path, "it is not a regular file")
        if status.st_size == 0:
            raise damaged(self.path, "it is empty")
        try:
            if self.writable:
                self._lock = WriterLock.acquire(self.path)
                if status.st_mode & 0o077:
                    self.path.chmod(_private.FILE_MODE)
            elif not log_stamp_of(self.path):
                self._quiet_stamp = stamp_of(self.path)
            self._db = self._connect()
            version = self._check_version(self._db)
            if version < SCHEMA_VERSION:
                self._migrate(self._db, version)
        except BaseException:
            self.close()
            raise

    def write(self, body: Callable[[sqlite3.Connection], T]) -> T:
        """What ``body`` returns, its changes committed; on any exception none of them are."""
        if self._lock is None:  # closed: somebody else may be its writer now
            raise sqlite3.ProgrammingError("the session is closed")
        if not self.path.exists():
            raise FileNotFoundError(errno.ENOENT, "the file is gone", str(self.path))
        if self._db is None:
            self._db = self._connect()
        db = self._db
        self._reach_kill_point()
        try:
            db.execute("BEGIN IMMEDIATE")
            result = body(db)
            self._reach_kill_point()
            db.execute("COMMIT")
        except BaseException:
            self._roll_back(db)
            raise
        self.commits += 1
        self._reach_kill_point()
        return result

    def read(self, body: Callable[[sqlite3.Connection], T]) -> T:
        """What ``body`` returns; it sees one state of the file, whoever writes meanwhile."""
        if self._quiet_stamp is None:
            return self._read_once(body)
        try:
            result = self._read_once(body)
        except (sqlite3.Error, ValueError):
            if self._is_quiet():
                raise
        else:
            if self._is_quiet():
                return result
        self._disconnect()  # somebody has begun to write
        self._quiet_stamp = None
        return self._read_once(body)

    def _read_once(self, body: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is None:
            self._db = self._connect()
        db = self._db
        db.execute("BEGIN")
        try:
            return body(db)
        finally:
            self._roll_back(db)

    def _is_quiet(self) -> bool:
        return self._quiet_stamp == stamp_of(self.path)

    def close(self) -> None:
        """Fold the write-ahead log into the file and give the lock back; never raises."""
        if self._db is not None and self.writable:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._disconnect()
        self._release()
        if self.commits:
            _kill_points.report()

    def _connect(self) -> sqlite3.Connection:
        if not self.writable:
            return self._connect_to_read()
        db = _connect(self.path, "mode=rw")
        try:
            for name, value in (
                ("foreign_keys", "ON"),
                ("synchronous", "FULL"),
                ("trusted_schema", "OFF"),
                ("journal_size_limit", str(WAL_LIMIT_BYTES)),
                ("journal_mode", "WAL"),
            ):
                db.execute(f"PRAGMA {name} = {value}")
        except BaseException:
            db.close()
            raise
        return db

    def _connect_to_read(self) -> sqlite3.Connection:
        """A connection that changes nothing.

        While nobody writes, the file is read as immutable: that leaves no files of SQLite's
        behind and works in a read-only directory. ``read`` finds out when that ends.
        """
        options = "mode=ro" if self._quiet_stamp is None else "mode=ro&immutable=1"
        db = _connect(self.path, options)
        db.execute("PRAGMA trusted_schema = OFF")
        return db

    def _check_version(self, db: sqlite3.Connection) -> int:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        application = db.execute("PRAGMA application_id").fetchone()[0]
        if application != APPLICATION_ID or version < 1:
            raise damaged(self.path, "it is not a session of agentcli")
        if version > SCHEMA_VERSION:
            raise too_new(self.path, f"version {version}, this one knows {SCHEMA_VERSION}")
        if db.execute("SELECT count(*) FROM session").fetchone()[0] != 1:
            raise damaged(self.path, "it holds no session")
        return version

    def _migrate(self, db: sqlite3.Connection, version: int) -> None:
        from agentcli.store import _migrations

        if self.writable:
            _migrations.back_up(db, self.path, version)
            self.write(_migrations.migrate)
            return
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        db.backup(memory)
        db.close()
        self._db = memory
        self._quiet_stamp = None
        _migrations.migrate(memory)

    def _roll_back(self, db: sqlite3.Connection) -> None:
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _reach_kill_point(self) -> None:
        _kill_points.reach(self._kill_at)


def _build(path: Path, fill: Callable[[sqlite3.Connection], T]) -> T:
    db = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(db):
        db.execute("PRAGMA journal_mode = OFF")  # nobody sees the file before it is renamed
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        for statement in STATEMENTS:
            db.execute(statement)
        result = fill(db)
        db.execute("COMMIT")
    return result


def _connect(path: Path, options: str) -> sqlite3.Connection:
    name = str(path)
    for character, escape in (("%", "%25"), ("?", "%3f"), ("#", "%23")):
        name = name.replace(character, escape)
    db = sqlite3.connect(
        f"file:{name}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    return db
