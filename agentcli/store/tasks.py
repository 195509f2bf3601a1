"""The background runs of a session as another process sees them: reads them, asks them to end.

Law: asking a run to end, and ending a schedule, are the writes that need no writer's lock (REC-6,
BG-6): one row of one table, in one transaction, read by the session's owner. These functions block.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agentcli.domain.background import BackgroundTask, Schedule
from agentcli.store import _tasks
from agentcli.store._faults import fault
from agentcli.store._file import BUSY_TIMEOUT_S, SessionFile


def read_registry(path: Path) -> tuple[Sequence[BackgroundTask], Sequence[Schedule]]:
    """All runs and schedules of a session file, oldest first; raises ``StoreError``."""
    file = SessionFile(path, writable=False)
    try:
        file.open()
        return file.read(lambda db: (_tasks.read_tasks(db), _tasks.read_schedules(db)))
    except Exception as error:
        known = fault(error, path, writing=False)
        if known is error:
            raise
        raise known from error
    finally:
        file.close()


def ask_to_cancel(path: Path, run_id: str) -> bool:
    """Ask an active run to end, whoever has the session open; false when it is not active.

    Nobody ends it where the session is not open. Raises ``StoreError``.
    """
    if all(task.run_id != run_id or not task.is_active for task in read_registry(path)[0]):
        return False
    return _write(path, lambda db: _tasks.request_cancel(db, run_id, time.time()))


def end_schedule(path: Path, schedule_id: str) -> bool:
    """End a schedule, whoever has the session open; false when it is not active.

    Raises ``StoreError``.
    """
    if all(each.id != schedule_id or not each.is_active for each in read_registry(path)[1]):
        return False
    query = (
        "UPDATE schedule SET state = ?, next_at = NULL, updated_at = ? WHERE id = ? AND state = ?"
    )
    values = (_tasks.SCHEDULE_OVER, time.time(), schedule_id, _tasks.SCHEDULE_ACTIVE)
    return _write(path, lambda db: db.execute(query, values).rowcount == 1)


def _write(path: Path, body: Callable[[sqlite3.Connection], bool]) -> bool:
    try:
        name = path.as_uri()
        db = sqlite3.connect(f"{name}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S)
        with contextlib.closing(db), db:
            return body(db)
    except (sqlite3.Error, OSError) as error:
        raise fault(error, path, writing=True) from error
