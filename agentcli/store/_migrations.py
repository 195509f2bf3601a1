"""Session files of older versions, brought up to ``_schema.SCHEMA_VERSION``.

Laws: the file is copied first; all steps happen in one transaction; a step says how many rows
each table gains or loses and the counts are checked before the commit. Number *n* below leads
from version *n* to *n* + 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from agentcli.store import _private
from agentcli.store._schema import NOTE_TABLE, REWIND_TABLES, SCHEMA_VERSION, TABLE_NAMES

Step = Callable[[sqlite3.Connection], Mapping[str, int]]


class MigrationFailed(Exception):
    """The rows do not add up; the transaction is rolled back."""


def _give_notes_their_table(db: sqlite3.Connection) -> Mapping[str, int]:
    """1 to 2: partial answers leave the history for ``note``; results know their call's row."""
    db.execute(NOTE_TABLE)
    moved = db.execute("SELECT seq, body, created_at FROM message WHERE role = 'partial'")
    partials = moved.fetchall()
    db.execute("DELETE FROM message WHERE role = 'partial'")
    for seq, body, created_at in partials:
        db.execute(
            "INSERT INTO note (after_seq, created_at, kind, text)"
            " VALUES ((SELECT coalesce(max(seq), 0) FROM message WHERE seq < ?), ?, ?, ?)",
            (seq, created_at, "partial", json.loads(body)["text"]),
        )
    db.execute("ALTER TABLE tool_run ADD COLUMN display TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE tool_run ADD COLUMN result TEXT")
    db.execute("ALTER TABLE tool_run ADD COLUMN result_seq INTEGER REFERENCES message (seq)")
    for seq, body in db.execute("SELECT seq, body FROM message WHERE role = 'tool'").fetchall():
        call_id = json.loads(body)["call_id"]
        db.execute("UPDATE tool_run SET result_seq = ? WHERE call_id = ?", (seq, call_id))
    return {"message": -len(partials), "note": len(partials)}


def _give_summaries_a_place(db: sqlite3.Connection) -> Mapping[str, int]:
    """2 to 3: a summary is sent before messages that are older than it."""
    db.execute("ALTER TABLE message ADD COLUMN place INTEGER")
    return {}


def _give_background_runs_their_columns(db: sqlite3.Connection) -> Mapping[str, int]:
    """3 to 4: what was reserved for background runs is used; what waits says who said it."""
    for column in (
        "task_id TEXT NOT NULL DEFAULT ''",
        "finished_at REAL",
        "signals INTEGER NOT NULL DEFAULT 1",
        "announced_at REAL",
        "schedule_id TEXT NOT NULL DEFAULT ''",
        "pid INTEGER",
        "pid_started TEXT NOT NULL DEFAULT ''",
        "is_repeatable INTEGER NOT NULL DEFAULT 0",
    ):
        db.execute(f"ALTER TABLE task ADD COLUMN {column}")
    db.execute("ALTER TABLE input_queue ADD COLUMN source TEXT NOT NULL DEFAULT 'person'")
    return {}


def _give_rewinds_their_tables(db: sqlite3.Connection) -> Mapping[str, int]:
    """4 to 5: files are kept before they are changed, and what was said can be taken back."""
    for table in REWIND_TABLES:
        db.execute(table)
    return {"rewind": 0, "file_change": 0}


STEPS: Mapping[int, Step] = {
    1: _give_notes_their_table,
    2: _give_summaries_a_place,
    3: _give_background_runs_their_columns,
    4: _give_rewinds_their_tables,
}


def migrate(db: sqlite3.Connection) -> None:
    """Bring ``db`` up to date inside the caller's transaction; raises ``MigrationFailed``."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    for number in range(version, SCHEMA_VERSION):
        expected = _count_rows(db)
        for table, change in STEPS[number](db).items():
            expected[table] = expected.get(table, 0) + change
        if _count_rows(db) != expected:
            raise MigrationFailed(f"row counts differ after migration {number}")
        db.execute(f"PRAGMA user_version = {number + 1}")


def backup_path(path: Path, version: int) -> Path:
    """Where the copy of a file of ``version`` is kept."""
    return path.with_name(f"{path.stem}.v{version}.backup")


def back_up(db: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy the file of ``version`` beside itself, durably, mode 0600."""
    temporary = _private.temporary(path)
    descriptor = _private.create(temporary)
    try:
        copy = sqlite3.connect(temporary)
        with contextlib.closing(copy):
            db.backup(copy)
        os.fsync(descriptor)
        temporary.rename(backup_path(path, version))
        _private.sync_directory(path.parent)
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)


def _count_rows(db: sqlite3.Connection) -> dict[str, int]:
    present = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {
        table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - own names
        for table in TABLE_NAMES
        if table in present
    }
