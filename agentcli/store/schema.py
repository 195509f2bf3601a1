"""The tables of a session file, version 8: a public API that anybody may query.

=========== =========================================================================
table      holds
=========== =========================================================================
session    one row: what lists and resume show
message    the history; ``body`` is JSON (see ``_codec``); ``hidden_by`` is the seq of
           the summary that stands for the row (of itself: it was taken back), ``place``
           the seq before which a summary is sent: nothing is ever deleted
tool_run   one row per tool call, written with the message that asked for it; ``result``
           is a result that waits for its turn, ``result_seq`` the message it became
blob       bytes by SHA-256: images, whole outputs, file snapshots
usage      tokens and cost per request; ``kind`` is "step", "partial" (its reply was cut
           by a cancel or a fault) or what else they were spent on: "compaction", or
           "subagent" (the sum of a session of its own, whose file has the rows too)
note       what is shown and never sent: partial answers, warnings
kv         small JSON values of the tools
input_queue what waits to be said to the model; ``source`` is "background" for what the
           program says of its runs, else it is the user's
task       background runs; ``attempt`` fences: an update names the one it belongs to;
           ``question`` is JSON, what a run asks, ``answer`` what has not reached it yet
schedule   when a run starts; ``run`` is JSON: tool, arguments, title, signals
rewind     what was taken back: ``messages`` (JSON, their seqs) and rows of file_change
event      what the session said while it worked, as JSON, where that is kept
file_change what stood at a path before and after a call; contents are zlib in ``blob``
=========== =========================================================================

``seal`` is this home's mark on a row that could act; a row without one never does (``seals``).
Times are seconds since 1970, UTC. Law: a row of ``tool_run`` gets one ``result_seq`` at most,
so a call can have one result only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from agentcli.store import disk as _private

SCHEMA_VERSION = 8
APPLICATION_ID = 0x41474E54  # "AGNT", https://sqlite.org/pragma.html#pragma_application_id

NOTE_TABLE = """
CREATE TABLE note (
  id INTEGER PRIMARY KEY,
  after_seq INTEGER NOT NULL,
  created_at REAL NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL
)"""

EVENT_TABLE = """
CREATE TABLE event (
  id INTEGER PRIMARY KEY,
  created_at REAL NOT NULL,
  type TEXT NOT NULL,
  data TEXT NOT NULL
)"""

REWIND_TABLES = (
    """
CREATE TABLE rewind (
  id INTEGER PRIMARY KEY,
  created_at REAL NOT NULL,
  newest_seq INTEGER NOT NULL,
  messages TEXT NOT NULL,
  text TEXT NOT NULL DEFAULT '',
  undone_at REAL
)""",
    """
CREATE TABLE file_change (
  id INTEGER PRIMARY KEY,
  seq INTEGER NOT NULL,
  call_id TEXT NOT NULL,
  path TEXT NOT NULL,
  before_kind TEXT NOT NULL,
  before_data TEXT REFERENCES blob (hash),
  before_mode INTEGER NOT NULL DEFAULT 0,
  after_kind TEXT,
  after_data TEXT REFERENCES blob (hash),
  after_mode INTEGER,
  created_at REAL NOT NULL,
  rewind INTEGER REFERENCES rewind (id),
  seal TEXT NOT NULL DEFAULT ''
)""",
)

TABLES = (
    """
CREATE TABLE session (
  singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
  id TEXT NOT NULL,
  title TEXT NOT NULL,
  cwd TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  status TEXT NOT NULL,
  detail TEXT NOT NULL DEFAULT '',
  turns INTEGER NOT NULL DEFAULT 0,
  model TEXT NOT NULL DEFAULT '',
  parent_id TEXT,
  seal TEXT NOT NULL DEFAULT ''
)""",
    """
CREATE TABLE message (
  seq INTEGER PRIMARY KEY,
  role TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at REAL NOT NULL,
  hidden_by INTEGER REFERENCES message (seq),
  place INTEGER
)""",
    """
CREATE TABLE blob (
  hash TEXT PRIMARY KEY,
  size INTEGER NOT NULL,
  data BLOB NOT NULL
)""",
    """
CREATE TABLE tool_run (
  call_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  message_seq INTEGER NOT NULL REFERENCES message (seq),
  started_at REAL,
  finished_at REAL,
  raw TEXT REFERENCES blob (hash),
  display TEXT NOT NULL DEFAULT '',
  result TEXT,
  result_seq INTEGER REFERENCES message (seq),
  line TEXT NOT NULL DEFAULT '',
  outcome TEXT NOT NULL DEFAULT ''
)""",
    """
CREATE TABLE usage (
  id INTEGER PRIMARY KEY,
  message_seq INTEGER REFERENCES message (seq),
  created_at REAL NOT NULL,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  input_tokens INTEGER,
  output_tokens INTEGER,
  cache_read_tokens INTEGER,
  cache_write_tokens INTEGER,
  reasoning_tokens INTEGER,
  cost_usd REAL
)""",
    NOTE_TABLE,
    """
CREATE TABLE kv (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  seal TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID""",
    """
CREATE TABLE input_queue (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'delivered', 'done')),
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  source TEXT NOT NULL DEFAULT 'user',
  seal TEXT NOT NULL DEFAULT ''
)""",
    """
CREATE TABLE task (
  run_id TEXT PRIMARY KEY,
  tool TEXT NOT NULL,
  arguments TEXT NOT NULL,
  title TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 1,
  detail TEXT NOT NULL DEFAULT '',
  progress TEXT,
  summary TEXT NOT NULL DEFAULT '',
  log_path TEXT,
  result_path TEXT,
  error_kind TEXT,
  error_message TEXT,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  heartbeat_at REAL,
  cancel_requested_at REAL,
  task_id TEXT NOT NULL DEFAULT '',
  finished_at REAL,
  signals INTEGER NOT NULL DEFAULT 1,
  announced_at REAL,
  schedule_id TEXT NOT NULL DEFAULT '',
  pid INTEGER,
  pid_started TEXT NOT NULL DEFAULT '',
  is_repeatable INTEGER NOT NULL DEFAULT 0,
  seal TEXT NOT NULL DEFAULT '',
  question TEXT,
  answer TEXT,
  wake TEXT NOT NULL DEFAULT 'completion'
) WITHOUT ROWID""",
    """
CREATE TABLE schedule (
  id TEXT PRIMARY KEY,
  cron_expression TEXT,
  scheduled_at TEXT,
  time_zone TEXT NOT NULL DEFAULT 'UTC',
  run TEXT NOT NULL,
  state TEXT NOT NULL,
  next_at REAL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  seal TEXT NOT NULL DEFAULT '',
  CHECK ((cron_expression IS NULL) <> (scheduled_at IS NULL))
) WITHOUT ROWID""",
    *REWIND_TABLES,
    EVENT_TABLE,
)

STATEMENTS = (
    *TABLES,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def table_names() -> tuple[str, ...]:
    """The tables, in the order in which they are made."""
    words = (statement.split(maxsplit=3) for statement in STATEMENTS)
    return tuple(found[2] for found in words if found[:2] == ["CREATE", "TABLE"])


# --- session files of older versions ---------------------------------------------------------

# Laws: the file is copied first; all steps happen in one transaction; a step says how many rows
# each table gains or loses and the counts are checked before the commit. Number *n* below leads
# from version *n* to *n* + 1.

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
    db.execute("ALTER TABLE input_queue ADD COLUMN source TEXT NOT NULL DEFAULT 'user'")
    return {}


def _give_rewinds_their_tables(db: sqlite3.Connection) -> Mapping[str, int]:
    """4 to 5: files are kept before they are changed, and what was said can be taken back."""
    for table in REWIND_TABLES:
        db.execute(table)
    return {"rewind": 0, "file_change": 0}


def _give_rows_a_seal(db: sqlite3.Connection) -> Mapping[str, int]:
    """5 to 6: what could act is marked; what an older version wrote has no mark."""
    for table in ("session", "kv", "input_queue", "task", "schedule", "file_change"):
        columns = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
        if "seal" not in columns:  # else a step before has just made the table as it is today
            db.execute(f"ALTER TABLE {table} ADD COLUMN seal TEXT NOT NULL DEFAULT ''")
    return {}


def _give_calls_their_words(db: sqlite3.Connection) -> Mapping[str, int]:
    """6 to 7: what the user read of a call is read again when the session is resumed."""
    present = {row[1] for row in db.execute("PRAGMA table_info(tool_run)")}
    for column in [name for name in ("line", "outcome") if name not in present]:
        db.execute(f"ALTER TABLE tool_run ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
    return {}


def _let_runs_ask(db: sqlite3.Connection) -> Mapping[str, int]:
    """7 to 8: a background run can ask; events, which came as they were kept, have their table."""
    present = {row[1] for row in db.execute("PRAGMA table_info(task)")}
    for column in ("question TEXT", "answer TEXT", "wake TEXT NOT NULL DEFAULT 'completion'"):
        if column.split()[0] not in present:
            db.execute(f"ALTER TABLE task ADD COLUMN {column}")
    if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'event'").fetchone():
        return {}
    db.execute(EVENT_TABLE)
    return {"event": 0}


STEPS: Mapping[int, Step] = {
    1: _give_notes_their_table,
    2: _give_summaries_a_place,
    3: _give_background_runs_their_columns,
    4: _give_rewinds_their_tables,
    5: _give_rows_a_seal,
    6: _give_calls_their_words,
    7: _let_runs_ask,
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
        for table in table_names()
        if table in present
    }
