"""A copy of a session that goes on by itself.

Laws. The source is only read, and whoever writes to it is not in the way: the copy is one state
of it (https://sqlite.org/backup.html). The copy appears under its name complete and proved
readable, or not at all. Nothing of the source's lock or turn binds it: a turn that runs in the
source was cut in the copy, whose next open balances it (REC-1, REC-6).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from agentcli.domain.errors import HistoryViolation, SessionDamaged, StoreError
from agentcli.domain.history import History
from agentcli.domain.session import SessionStatus
from agentcli.store import _kill_points, _private, _rows
from agentcli.store._codec import MalformedBody, NewerBody, to_column
from agentcli.store._faults import damaged, fault
from agentcli.store._file import ROLLBACK_MARK, WAL_MARK, WAL_MARK_OFFSET, SessionFile
from agentcli.store._lock import live_owner
from agentcli.store._tasks import leave_to_the_original

CUT_DETAIL = "it was copied in the middle of a turn, which went on in the original"


def fork(source: Path, target: Path) -> None:
    """Make ``target``, a session of its own, from the session file ``source``.

    Raises ``SessionNotFound``, ``SessionDamaged``, ``SessionTooNew`` or ``PersistenceError``.
    """
    file = SessionFile(source, writable=False)
    try:
        file.open()
        _publish(file, target)
    except StoreError:
        raise
    except HistoryViolation as error:
        raise damaged(source, error.message) from error
    except (MalformedBody, NewerBody) as error:
        raise fault(error, source, writing=False) from error
    except Exception as error:
        known = fault(error, target, writing=True)
        if isinstance(known, SessionDamaged):
            known = damaged(source, str(error))
        raise known from error
    finally:
        file.close()


def _publish(file: SessionFile, target: Path) -> None:
    """Fill a file that nobody sees, then give it its name; like any write it can be killed."""
    kill_at = _kill_points.target()
    is_live = live_owner(file.path) is not None
    _kill_points.reach(kill_at)
    temporary = _private.temporary(target)
    descriptor = _private.create(temporary)
    try:
        try:
            file.read(lambda db: _copy(db, temporary, descriptor))
            _make_own(temporary, file.path, target, is_live=is_live)
            os.pwrite(descriptor, WAL_MARK, WAL_MARK_OFFSET)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _kill_points.reach(kill_at)
        temporary.rename(target)
        temporary = target
        _private.sync_directory(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _kill_points.reach(kill_at)


def _copy(db: sqlite3.Connection, path: Path, descriptor: int) -> None:
    db.execute("SELECT id FROM session").fetchone()  # from here on one state is seen
    os.ftruncate(descriptor, 0)
    with contextlib.closing(_connect(path)) as copy:
        db.backup(copy)
    os.pwrite(descriptor, ROLLBACK_MARK, WAL_MARK_OFFSET)


def _make_own(path: Path, source: Path, target: Path, *, is_live: bool) -> None:
    """Prove the copy readable and lawful, and give it its own name and times."""
    now = time.time()
    with contextlib.closing(_connect(path)) as db:
        line = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if line != "ok":
            raise MalformedBody(line)
        loaded = _rows.read_session(db)
        History(stored.message for stored in loaded.messages)
        status, detail = loaded.info.status, loaded.info.detail
        if is_live and status is SessionStatus.RUNNING:
            status, detail = SessionStatus.CRASHED, CUT_DETAIL
        db.execute("DELETE FROM kv WHERE key = ?", (_rows.SUBAGENT_KEY,))  # a person's from now on
        leave_to_the_original(db, now)
        db.execute(
            "UPDATE session SET id = ?, parent_id = ?, created_at = ?, updated_at = ?,"
            " status = ?, detail = ?",
            (target.stem, source.stem, now, now, status.value, to_column(detail)),
        )


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = OFF")  # nobody sees the file before it is renamed
    db.execute("PRAGMA synchronous = OFF")
    return db
