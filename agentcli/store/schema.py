"""The tables of a session file, version 9: a public API that anybody may query.

=========== =========================================================================
table      holds
=========== =========================================================================
session    one row: what lists and resume show
message    the history; ``body`` is JSON (see ``_codec``); ``hidden_by`` is the seq of
           the summary that stands for the row (of itself: it was taken back), ``place``
           the seq before which a summary is sent: nothing is ever deleted; ``checksum``
           is that of role and body (``codec.checksum``), NULL where none was written
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
import functools
import json
import os
import re
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen
from agentcli.store import disk as _private
from agentcli.store import seals
from agentcli.store.codec import checksum

SCHEMA_VERSION = 9
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
  place INTEGER,
  checksum INTEGER
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


# --- what the tables of a file must be ----------------------------------------------------------

# Law: a version adds tables, and columns at the end of a table; so the columns of a file are known
# by their places, and an older file's tables are beginnings of these. Number *n* here is what leads
# from version *n* to *n* + 1: columns by table, none for a table that is new.
_ADDED: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    1: {"note": (), "tool_run": ("display", "result", "result_seq")},
    2: {"message": ("place",)},
    3: {
        "task": (
            "task_id",
            "finished_at",
            "signals",
            "announced_at",
            "schedule_id",
            "pid",
            "pid_started",
            "is_repeatable",
        ),
        "input_queue": ("source",),
    },
    4: {"rewind": (), "file_change": ()},
    5: dict.fromkeys(
        ("session", "kv", "input_queue", "task", "schedule", "file_change"), ("seal",)
    ),
    6: {"tool_run": ("line", "outcome")},
    7: {"task": ("question", "answer", "wake"), "event": ()},
    8: {"message": ("checksum",)},
}
# how earlier versions wrote a definition, and how it is written now
_EARLIER_WORDS = {"source TEXT NOT NULL DEFAULT 'person'": "source TEXT NOT NULL DEFAULT 'user'"}
# those that compute, or any: https://sqlite.org/pragma.html#pragma_index_xinfo
_INDEXES = """
SELECT name FROM pragma_index_list(?) AS list WHERE origin = 'c'
AND (? OR partial OR EXISTS (SELECT 1 FROM pragma_index_xinfo(list.name) WHERE cid = -2))"""
_SPACE = LazyPattern(r"\s+", re.ASCII)  # to SQLite other spaces are letters
_DEFINITION = LazyPattern(r"(?:[^,()']|'[^']*'|\((?:[^()']|'[^']*'|\([^()]*\))*\))+")
_TABLE = LazyPattern(r"CREATE TABLE (\w+) ?\((.*)\)((?: WITHOUT ROWID)?)", re.DOTALL)


@frozen
class TableShape:
    """A table as its statement says: columns by name, in order, and what holds for all of them."""

    name: str
    columns: Mapping[str, str]
    rules: tuple[str, ...]


def read_table(sql: str) -> TableShape | None:
    """The table that a statement makes; ``None`` for a statement that none of ours looks like."""
    words = _TABLE.fullmatch(_SPACE.sub(" ", sql).strip())
    if words is None:
        return None
    parts = [part.strip() for part in _DEFINITION.findall(words[2])]
    rules = tuple(part for part in parts if part.startswith("CHECK"))
    columns = [_EARLIER_WORDS.get(part, part) for part in parts if part not in rules]
    by_name = {column.partition(" ")[0]: column for column in columns}
    return (
        TableShape(words[1], by_name, (*rules, words[3])) if len(by_name) == len(columns) else None
    )


@functools.cache
def _known(statements: tuple[str, ...]) -> Mapping[str, tuple[str, str]]:
    """What stands in the schema of a file that ``statements`` have made: table and SQL by name."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for statement in statements:
            db.execute(statement)
        return _stored(db)


def _stored(db: sqlite3.Connection) -> Mapping[str, tuple[str, str]]:
    rows = db.execute("SELECT type || ' ' || name, tbl_name, sql FROM sqlite_schema").fetchall()
    return {name: (table, sql or "") for name, table, sql in rows}


def known_tables() -> Mapping[str, TableShape]:
    """The tables of this version by name."""
    found = (read_table(sql) for _, sql in _known(STATEMENTS).values() if sql)
    return {table.name: table for table in found if table is not None}


def _columns_of(version: int) -> dict[str, set[str]]:
    """The columns that each table of ``version`` has at least."""
    columns = {name: set(table.columns) for name, table in known_tables().items()}
    for number in range(version, SCHEMA_VERSION):
        for table, added in _ADDED[number].items():
            columns[table] = columns.get(table, set()) - set(added) if added else set()
    return {name: names for name, names in columns.items() if names}


def least_columns(table: str) -> int:
    """How many columns ``table`` had in the first version that had it."""
    versions = range(1, SCHEMA_VERSION + 1)
    return next(len(found) for v in versions if (found := _columns_of(v).get(table)))


def fault_of_tables(db: sqlite3.Connection, version: int) -> str:
    """What in the schema of a file of ``version`` is not as it was made; empty if nothing is.

    SQLite believes what the file says of its tables; one wrong bit there makes columns that
    nothing finds or rules that refuse every row, and https://sqlite.org/pragma.html#pragma_integrity_check
    sees nothing.
    """
    stored, known = _stored(db), _known(STATEMENTS)
    if stored == known:
        return ""
    least, tables = _columns_of(min(version, SCHEMA_VERSION)), known_tables()
    for key, (name, sql) in known.items():
        if name not in least and key not in stored:
            continue
        if key not in stored or stored[key][0] != name:
            return f"its {key} is missing"
        if sql and (problem := _difference(stored[key][1], tables[name], least.get(name, set()))):
            return f"its table {name} is not as it was made: {problem}"
    return _fault_of_additions(db, stored)


def _fault_of_additions(db: sqlite3.Connection, stored: Mapping[str, tuple[str, str]]) -> str:
    """What beside our tables may act, or cost what it likes; a user's own plain tables do not."""
    known = _known(STATEMENTS)
    if code := [key for key in stored if key.partition(" ")[0] not in {"table", "index"}]:
        return f"it holds triggers or views, which no session has: {code[0]}"
    for key, (name, sql) in stored.items():
        if key in known or not key.startswith("table "):
            continue
        if not sql.startswith("CREATE TABLE ") or "(" in sql.partition("(")[2]:
            return f"its table {name} computes, which none of a session does"
    # SQLite answers from an index that knows rows of its own, which are in no table; and what one
    # computes it does with every row, for as long and in as much memory as it likes
    for table in {name for name, _ in stored.values()}:
        if made := db.execute(_INDEXES, (table, table in seals.COLUMNS)).fetchone():
            return f"its table {table} has an index, which no session has: {made[0]}"
    return ""


def is_wrong_number(db: sqlite3.Connection, version: int) -> bool:
    """Whether a file that says ``version`` is of this one, and the number is what has changed.

    A later version has other tables; without them a number counts that two bits or more set apart.
    """
    if version > SCHEMA_VERSION and (version ^ SCHEMA_VERSION).bit_count() > 1:
        return False
    return not fault_of_tables(db, SCHEMA_VERSION)


def _difference(sql: str, known: TableShape, least: set[str]) -> str:
    found = read_table(sql)
    if found is None or found.name != known.name:
        return "its statement cannot be read"
    if found.rules != known.rules:
        return "its rules differ"
    if odd := [text for text in found.columns.values() if text not in known.columns.values()]:
        return f"no version has {odd[0]!r}"
    missing = least - found.columns.keys()
    return f"it has no {min(missing)}" if missing else ""


# --- session files of older versions ---------------------------------------------------------

# Laws: the file is copied first; all steps happen in one transaction; a step says how many rows
# each table gains or loses and the counts are checked before the commit.


class MigrationFailed(Exception):
    """The rows do not add up; the transaction is rolled back."""


def _move_partial_answers(db: sqlite3.Connection) -> Mapping[str, int]:
    """1 to 2: partial answers leave the history for ``note``; results know their call's row."""
    moved = db.execute("SELECT seq, body, created_at FROM message WHERE role = 'partial'")
    partials = moved.fetchall()
    db.execute("DELETE FROM message WHERE role = 'partial'")
    for seq, body, created_at in partials:
        db.execute(
            "INSERT INTO note (after_seq, created_at, kind, text)"
            " VALUES ((SELECT coalesce(max(seq), 0) FROM message WHERE seq < ?), ?, ?, ?)",
            (seq, created_at, "partial", json.loads(body)["text"]),
        )
    for seq, body in db.execute("SELECT seq, body FROM message WHERE role = 'tool'").fetchall():
        call_id = json.loads(body)["call_id"]
        db.execute("UPDATE tool_run SET result_seq = ? WHERE call_id = ?", (seq, call_id))
    return {"message": -len(partials), "note": len(partials)}


def _give_messages_a_checksum(db: sqlite3.Connection) -> Mapping[str, int]:
    """8 to 9: what changes a message without a word is seen from now on."""
    for seq, role, body in db.execute("SELECT seq, role, body FROM message").fetchall():
        db.execute("UPDATE message SET checksum = ? WHERE seq = ?", (checksum(role, body), seq))
    return {}


Step = Callable[[sqlite3.Connection], Mapping[str, int]]
# what changes rows, after the new tables and columns are there
STEPS: Mapping[int, Step] = {1: _move_partial_answers, 8: _give_messages_a_checksum}


def _add(db: sqlite3.Connection, number: int) -> list[str]:
    """Make what version ``number`` + 1 has and this file has not; the tables that are new."""
    tables, new = known_tables(), []
    for name, columns in _ADDED[number].items():
        present = {row[1] for row in db.execute(f"PRAGMA table_info({name})")}
        if not present:
            db.execute(_known(STATEMENTS)[f"table {name}"][1])
            new.append(name)
        for column in [column for column in columns if present and column not in present]:
            db.execute(f"ALTER TABLE {name} ADD COLUMN {tables[name].columns[column]}")
    return new


def migrate(db: sqlite3.Connection) -> None:
    """Bring ``db`` up to date inside the caller's transaction; raises ``MigrationFailed``."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    for number in range(version, SCHEMA_VERSION):
        expected = _count_rows(db) | dict.fromkeys(_add(db, number), 0)
        for table, change in (STEPS[number](db) if number in STEPS else {}).items():
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
