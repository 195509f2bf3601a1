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
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from agentcli.domain.clean import one_line
from agentcli.domain.errors import (
    PersistenceError,
    SessionDamaged,
    SessionNotFound,
    SessionTooNew,
    StoreError,
)
from agentcli.store import disk, schema, seals
from agentcli.store.codec import MalformedBody, NewerBody, from_column
from agentcli.store.lock import WriterLock
from agentcli.store.schema import APPLICATION_ID, SCHEMA_VERSION

T = TypeVar("T")
P = ParamSpec("P")
Body = Callable[Concatenate[sqlite3.Connection, P], T]
"""What is done in one transaction, given the connection and what else it takes."""

BUSY_TIMEOUT_S = 5.0
WAL_LIMIT_BYTES = 4 * 1024 * 1024
MAX_VALUE_BYTES = 64 * 1024 * 1024  # of a row: a file of others must not fill the memory (SEC-13)
_MAX_NAME_BYTES = 1024 * 1024
MAX_OLDER_BYTES = 1024 * 1024 * 1024  # of a file that is copied to be looked at
_WAL_MARK = b"\x02\x02"  # https://sqlite.org/fileformat2.html#file_format_version_numbers
_ROLLBACK_MARK = b"\x01\x01"
_WAL_MARK_OFFSET = 18


if TYPE_CHECKING:

    class InTransaction(Protocol):
        """Runs a body in a transaction of its own, elsewhere."""

        def __call__(self, body: Body[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
            """What ``body`` returns, after the commit."""


class SessionFile:
    """The file at ``path`` and, when ``writable``, the writer's lock on it.

    ``seal`` marks what could act (``seals``); without it marks prove nothing.
    """

    __slots__ = ("_db", "_lock", "_quiet_stamp", "commits", "path", "seal", "writable")

    def __init__(self, path: Path, *, writable: bool, seal: seals.Seal | None = None) -> None:
        self.path = path
        self.seal = seal
        self.writable = writable
        self.commits = 0
        self._db: sqlite3.Connection | None = None
        self._lock: WriterLock | None = None
        self._quiet_stamp: str | None = None

    def create(self, fill: Callable[[sqlite3.Connection], T]) -> T:
        """Make the file with what ``fill`` inserts, and keep it locked.

        The connection is opened by the next use: the first request need not wait for that.
        """

        def build(temporary: Path, _descriptor: int) -> T:
            self._lock = WriterLock.acquire(self.path, name_of)
            if self.path.exists():
                raise FileExistsError(errno.EEXIST, "there is such a file already", str(self.path))
            with contextlib.closing(connect_unseen(temporary)) as db:
                seals.prepare(db, self.path.stem, self.seal)
                db.execute("BEGIN")
                for statement in schema.STATEMENTS:
                    db.execute(statement)
                result = fill(db)
                db.execute("COMMIT")
            return result

        disk.ensure_directory(self.path.parent)
        try:
            result = publish(self.path, build)
        except BaseException:
            self._release()
            raise
        self.commits += 1
        return result

    def open(self) -> None:
        """Open an existing file: checked, locked if writable, of the current version."""
        try:
            status = self.path.lstat()  # a link may lead to another program's (SEC-16)
        except FileNotFoundError:
            raise SessionNotFound(
                f"no session file {self.path}", "see: agent sessions list"
            ) from None
        if not stat.S_ISREG(status.st_mode):
            raise damaged(self.path, "it is not a regular file")
        if problem := disk.fault_beside(self.path) if status.st_size else "it is empty":
            raise damaged(self.path, problem)
        try:
            if self.writable:
                self._lock = WriterLock.acquire(self.path, name_of)
                if status.st_mode & 0o077:
                    self.path.chmod(disk.FILE_MODE)
                if disk.log_stamp_of(self.path):
                    _prove_log(self.path)
            elif not disk.log_stamp_of(self.path):
                self._quiet_stamp = disk.stamp_of(self.path)
            self._db = self._connect()
            version = self._check_version(self._db)
            if version < SCHEMA_VERSION:
                self._migrate(self._db, version)
        except BaseException:
            self.close()
            raise

    def write(
        self,
        body: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What ``body`` returns, its changes committed; on any exception none of them are."""
        if self._lock is None:  # closed: somebody else may be its writer now
            raise sqlite3.ProgrammingError("the session is closed")
        if not self.path.exists():
            raise FileNotFoundError(errno.ENOENT, "the file is gone", str(self.path))
        if self._db is None:
            self._db = self._connect()
        db = self._db
        reach_kill_point()
        try:
            db.execute("BEGIN IMMEDIATE")
            result = body(db, *args, **kwargs)
            reach_kill_point()
            db.execute("COMMIT")
        except BaseException:
            self._roll_back(db)
            raise
        self.commits += 1
        reach_kill_point()
        return result

    def read(
        self,
        body: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What ``body`` returns; it sees one state of the file, also while others write."""
        if self._quiet_stamp is None:
            return self._read_once(body, *args, **kwargs)
        try:
            result = self._read_once(body, *args, **kwargs)
        except (sqlite3.Error, ValueError):
            if self._is_quiet():
                raise
        else:
            if self._is_quiet():
                return result
        self._disconnect()  # somebody has begun to write
        self._quiet_stamp = None
        return self._read_once(body, *args, **kwargs)

    def look(
        self,
        body: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Open, ``read``, close; raises ``StoreError``. Blocks."""
        try:
            with faults_of(self.path):
                self.open()
                return self.read(body, *args, **kwargs)
        finally:
            self.close()

    def _read_once(
        self,
        body: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._db is None:
            self._db = self._connect()
        db = self._db
        db.execute("BEGIN")
        try:
            return body(db, *args, **kwargs)
        finally:
            self._roll_back(db)

    def _is_quiet(self) -> bool:
        return self._quiet_stamp == disk.stamp_of(self.path)

    def close(self) -> None:
        """Fold the write-ahead log into the file and give the lock back; never raises."""
        if self._db is not None and self.writable:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._disconnect()
        self._release()
        if self.commits and COUNT_VARIABLE in os.environ:
            with Path(os.environ[COUNT_VARIABLE]).open("a", encoding="ascii") as file:
                file.write(f"{_passed}\n")

    def _connect(self) -> sqlite3.Connection:
        if not self.writable:
            return self._connect_to_read()
        db = _connect(self.path, "mode=rw")
        try:
            seals.prepare(db, self.path.stem, self.seal)
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
        seals.prepare(db, self.path.stem, self.seal)
        db.execute("PRAGMA trusted_schema = OFF")
        return db

    def _check_version(self, db: sqlite3.Connection) -> int:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        application = db.execute("PRAGMA application_id").fetchone()[0]
        if application != APPLICATION_ID or version < 1:
            raise damaged(self.path, "it is not a session of agentcli")
        if version != SCHEMA_VERSION and schema.is_wrong_number(db, version):
            raise damaged(self.path, f"its version number {version} is not that of its tables")
        if version > SCHEMA_VERSION:
            raise too_new(self.path, f"version {version}, this one knows {SCHEMA_VERSION}")
        if problem := schema.fault_of_tables(db, version):
            raise damaged(self.path, problem)
        if db.execute("SELECT count(*) FROM session").fetchone()[0] != 1:
            raise damaged(self.path, "it holds no session")
        return version

    def _migrate(self, db: sqlite3.Connection, version: int) -> None:
        if self.writable:
            schema.back_up(db, self.path, version)
            self.write(schema.migrate)
            return
        if self.path.stat().st_size > MAX_OLDER_BYTES:
            what = f"session file {self.path} is of an older version, and too large to be looked at"
            raise PersistenceError(what, "go on with the session once, which brings it up to date")
        # a file of SQLite's own, which goes with the connection: the memory stays small (SEC-13)
        copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        seals.prepare(copy, self.path.stem, self.seal)
        db.backup(copy)
        db.close()
        self._db = copy
        self._quiet_stamp = None
        schema.migrate(copy)

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


def _prove_log(path: Path) -> None:
    """Raises ``SessionDamaged`` where not all is there that a killed process has committed."""
    from agentcli.store.wal import fault_of_log

    if problem := fault_of_log(path):
        raise damaged(path, problem)


def read_with(path: Path, body: Body[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``body`` reads of the session file ``path``; raises ``StoreError``. Blocks."""
    return SessionFile(path, writable=False).look(body, *args, **kwargs)


def read_names(path: Path) -> tuple[str, str]:
    """The directory and the title that a file gives which cannot be opened; else both empty."""
    return _names(path, "mode=ro&immutable=1") if path.is_file() else ("", "")


def name_of(path: Path) -> str:
    """What the user knows a session by that somebody else may be writing to."""
    title = _names(path, "mode=ro")[1]
    return f'"{title}"' if title else f"session {path.stem}"


def _names(path: Path, options: str) -> tuple[str, str]:
    try:
        with contextlib.closing(_connect(path, options)) as db:
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_NAME_BYTES)
            cwd, title = db.execute("SELECT cwd, title FROM session").fetchone()
            return from_column(cwd), from_column(title)
    except (sqlite3.Error, TypeError, ValueError):
        return "", ""


def publish(path: Path, build: Callable[[Path, int], T]) -> T:
    """Let ``build`` fill a database that nobody sees, then give it its name ``path``.

    It gets the file's temporary name and a descriptor. Like any write it passes three kill points.
    """
    reach_kill_point()
    temporary = disk.temporary(path)
    descriptor = disk.create(temporary)
    try:
        try:
            result = build(temporary, descriptor)
            os.pwrite(descriptor, _WAL_MARK, _WAL_MARK_OFFSET)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        reach_kill_point()
        temporary.rename(path)
        temporary = path
        disk.sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    reach_kill_point()
    return result


def unmark_wal(descriptor: int) -> None:
    """Make the copy of a database one that needs no write-ahead log to be opened."""
    os.pwrite(descriptor, _ROLLBACK_MARK, _WAL_MARK_OFFSET)


def connect_unseen(path: Path) -> sqlite3.Connection:
    """A connection to a file that nobody sees before it is renamed."""
    db = sqlite3.connect(path, isolation_level=None)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    db.execute("PRAGMA journal_mode = OFF")
    db.execute("PRAGMA synchronous = OFF")
    return db


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


# --- test hooks: end this process at a chosen write (REC-3); without effect unless asked for ----

# Each transaction on a session file passes three points: before BEGIN, before COMMIT, after
# COMMIT. The creation of a session file counts as one transaction.
#
# ``AGENTCLI_TEST_KILL_AT_WRITE=N``         SIGKILL at the N-th point (from 1) of this process.
# ``AGENTCLI_TEST_KILL_AT_WRITE=N:before``  SIGKILL before the COMMIT of the N-th transaction.
# ``AGENTCLI_TEST_KILL_AT_WRITE=N:after``   SIGKILL after the COMMIT of the N-th transaction.
# ``AGENTCLI_TEST_COUNT_WRITES=FILE``       whenever a session is closed, append to FILE a line
# with the number of points passed so far by this process; the last line is the total.

KILL_VARIABLE = "AGENTCLI_TEST_KILL_AT_WRITE"
COUNT_VARIABLE = "AGENTCLI_TEST_COUNT_WRITES"
POINTS_PER_WRITE = 3
_OFFSETS = {"before": 2, "after": 3}

_passed = 0


def reach_kill_point() -> None:
    """Pass the next point."""
    global _passed  # noqa: PLW0603 - the points of one process are one sequence
    _passed += 1
    text = os.environ.get(KILL_VARIABLE)
    if text is None:
        return
    number, _, moment = text.partition(":")
    before = (int(number) - 1) * POINTS_PER_WRITE + _OFFSETS[moment] if moment else int(number)
    if _passed == before:
        import signal

        os.kill(os.getpid(), signal.SIGKILL)


# --- what SQLite and the system say, as an error of ours: the file, the cause, the way out --------

_FREE_SPACE = "free some disk space, then continue the session"
_MAKE_WRITABLE = (
    "make the file and its directory writable, or set AGENTCLI_HOME to a directory that is"
)
_TRY_AGAIN = "close the other program that uses the file and try again"
_CHECK_DISK = "check the disk: it may be full, over quota or failing"

_SQLITE_CAUSES = (
    ("SQLITE_FULL", "the disk is full", _FREE_SPACE),
    ("SQLITE_READONLY", "it is read-only", _MAKE_WRITABLE),
    ("SQLITE_PERM", "permission denied", _MAKE_WRITABLE),
    ("SQLITE_AUTH", "permission denied", _MAKE_WRITABLE),
    ("SQLITE_CANTOPEN", "it cannot be opened", _MAKE_WRITABLE),
    ("SQLITE_BUSY", "it is locked", _TRY_AGAIN),
    ("SQLITE_LOCKED", "it is locked", _TRY_AGAIN),
    ("SQLITE_IOERR", "input/output error", _CHECK_DISK),
    ("SQLITE_NOMEM", "out of memory", "close other programs and try again"),
    ("SQLITE_TOOBIG", "a value is too large", "start a new session"),
)
_SYSTEM_CAUSES = {
    errno.ENOSPC: ("the disk is full", _FREE_SPACE),
    errno.EDQUOT: ("the disk quota is used up", _FREE_SPACE),
    errno.EFBIG: ("the file size limit is reached", "raise the limit (ulimit -f)"),
    errno.EROFS: ("the file system is read-only", _MAKE_WRITABLE),
    errno.EACCES: ("permission denied", _MAKE_WRITABLE),
    errno.EPERM: ("permission denied", _MAKE_WRITABLE),
    errno.EMFILE: ("too many open files", "raise the limit (ulimit -n)"),
    errno.ENFILE: ("too many open files", "raise the limit (ulimit -n)"),
    errno.ENAMETOOLONG: ("its path is too long", "set AGENTCLI_HOME to a shorter one"),
}
_MAX_CAUSE = 300
NOT_UTF_8 = "a text in it is not UTF-8 any more"
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_SCHEMA", "SQLITE_MISMATCH", "SQLITE_FORMAT")


def damaged(path: Path, cause: str) -> SessionDamaged:
    """The error for a file that is not readable as a session (REC-7)."""
    return SessionDamaged(
        f"session file {path} is damaged: {one_line(cause, _MAX_CAUSE)}",
        f"run: agent sessions repair {path.stem}",
    )


def too_new(path: Path, what: str) -> SessionTooNew:
    """The error for a file of a newer version; the file is left as it is."""
    return SessionTooNew(
        f"session file {path} was written by a newer version ({what})",
        "upgrade agentcli to open it",
    )


@contextlib.contextmanager
def faults_of(path: Path) -> Iterator[None]:
    """Let what goes wrong while the file is read be a ``StoreError``."""
    try:
        yield
    except Exception as error:
        known = fault(error, path, writing=False)
        if known is error:
            raise
        raise known from error


def fault(error: BaseException, path: Path, *, writing: bool) -> StoreError:
    """The error of ours that ``error`` amounts to; whatever it is, it becomes one (FAIL-4)."""
    if isinstance(error, RecursionError) and not writing:
        error = MalformedBody("a value in it is nested deeper than any that is written")
    if isinstance(error, StoreError):
        return error
    if isinstance(error, NewerBody):
        return too_new(path, str(error))
    if isinstance(error, MalformedBody | UnicodeDecodeError):
        return damaged(path, str(error) if isinstance(error, MalformedBody) else NOT_UTF_8)
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "")
        text = str(error)
        no_such = name == "SQLITE_ERROR" and "no such" in text
        if name == "SQLITE_TOOBIG" and not writing:
            return damaged(path, "a value in it is larger than any that is written")
        if "Could not decode" in text:
            text, no_such = NOT_UTF_8, True  # it has the whole text
        if text == "integer overflow":
            no_such = True  # a number in it is none that is written
        if name.startswith(_DAMAGE) or no_such:
            return damaged(path, text)
    cause, advice = _cause(error, path)
    verb = "write" if writing else "read"
    return PersistenceError(f"cannot {verb} session file {path}: {cause}", advice)


def _cause(error: BaseException, path: Path) -> tuple[str, str]:
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith("SQLITE_IOERR") and _is_full(path):
            name = "SQLITE_FULL"
        for prefix, cause, advice in _SQLITE_CAUSES:
            if name.startswith(prefix):
                return cause, advice
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        return _SYSTEM_CAUSES.get(error.errno or 0, (text, _CHECK_DISK))
    return f"{type(error).__name__}: {error}", "this is a fault of agentcli; please report it"


def _is_full(path: Path) -> bool:
    try:
        usage = os.statvfs(path.parent)
    except OSError:
        return False
    return usage.f_bavail == 0
