"""What in a session file could act counts only with this home's mark on it (SEC-16).

Laws. A mark covers one row: its table, what is in it, and the session that the file is named after,
so that a row holds in no other session. It is written in the transaction that writes the row. A
row that has acted, or no longer can, has none: bringing it back takes an older copy of the whole
file. A store that is to go on with a file first drops what has no mark (``drop_foreign``); what was
said stays. Files that hold triggers, views or, of these tables, indexes are not opened at all
(``file.py``), so that no statement here does more than it says, or finds what is in no table.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from typing import Any

from agentcli.store.codec import MalformedBody, from_column, to_column

Seal = Callable[[str], str]
"""The mark of a text, which only this home can make; empty where there can be none. Blocks."""

UNSEALED = "this home did not start it"
_TASK = (
    "task_id, tool, arguments, title, state, attempt, summary, error_kind, error_message, signals,"
    " schedule_id, pid, pid_started, is_repeatable"
)
_FILE_CHANGE = (
    "seq, call_id, path, before_kind, before_data, before_mode, after_kind, after_data, after_mode"
)
# by table: what a row is called, and what a mark covers
COLUMNS: Mapping[str, tuple[str, str]] = {
    "session": ("singleton", "cwd, model"),
    "kv": ("key", "value"),
    "input_queue": ("id", "kind, body, source, created_at"),
    "task": ("run_id", _TASK),
    "schedule": ("id", "cron_expression, scheduled_at, time_zone, run, state, next_at"),
    "file_change": ("id", _FILE_CHANGE),
}
# the mark of a session from before its model was under it: of its directory alone
_EARLIER = "mark_of('session', singleton, cwd)"
# what the model or the screen remembers, and nothing acts on; a plan says that the user approved it
_HARMLESS_KEYS = "'imported', 'memory', 'quarantine', 'subagent', 'todos'"
_ENDED = "'succeeded', 'failed', 'cancelled', 'interrupted'"  # all of ``TaskState`` but running
# the rows that something acts on
_ACTING = {
    "kv": f"key NOT IN ({_HARMLESS_KEYS})",
    "input_queue": "state NOT IN ('delivered', 'done')",
    "task": f"(state NOT IN ({_ENDED}) OR (signals IS NOT 0 AND announced_at IS NULL))",
    "schedule": "state <> 'over'",
}
_DROPPED = {
    "kv": "DELETE FROM kv",
    "input_queue": "UPDATE input_queue SET state = 'done', updated_at = :now",
    "task": (
        f"UPDATE task SET state = CASE WHEN state IN ({_ENDED}) THEN state"  # noqa: S608 - own names
        " ELSE 'interrupted' END, attempt = attempt + 1, error_kind = 'foreign',"
        " error_message = :why, finished_at = coalesce(finished_at, :now), updated_at = :now,"
        " announced_at = :now, pid = NULL, pid_started = ''"
    ),
    "schedule": "UPDATE schedule SET state = 'over', next_at = NULL, updated_at = :now",
}
_WORDS = {
    "input_queue": ("waiting message", "waiting messages"),
    "task": ("background run", "background runs"),
    "schedule": ("schedule", "schedules"),
}


def prepare(
    db: sqlite3.Connection, session_id: str, seal: Seal | None, function: str = "mark_of"
) -> None:
    """Let statements on ``db`` make marks; without ``seal`` they prove nothing to a home."""

    def mark(*values: Any) -> str:
        if seal is None:
            return "-"
        # a list is what no column holds: bytes read as no text that looks like them
        known = [[value.hex()] if isinstance(value, bytes) else value for value in values]
        return seal(json.dumps(["session", session_id, *known]))

    db.create_function(function, -1, mark)


def mark(table: str, function: str = "mark_of") -> str:
    """The mark of a row of ``table``, in SQL."""
    key, columns = COLUMNS[table]
    return f"{function}('{table}', {key}, {columns})"


def put_mark(db: sqlite3.Connection, table: str, name: Any) -> None:
    """Mark the row of ``table`` that is called ``name`` as it is now."""
    key, _ = COLUMNS[table]
    db.execute(f"UPDATE {table} SET seal = {mark(table)} WHERE {key} = ?", (name,))  # noqa: S608 - own names


def carry_over(db: sqlite3.Connection, source: str, target: str, seal: Seal | None) -> None:
    """In the copy of the session ``source``: what was marked there is marked for ``target``."""
    prepare(db, source, seal, "mark_before")
    prepare(db, target, seal)
    _prove_names(db)
    for table in COLUMNS:  # the very row: another may have a name that reads the same
        was = mark(table, "mark_before")
        now = f"CASE WHEN seal <> '' AND seal = {was} THEN {mark(table)} ELSE '' END"
        db.execute(f"UPDATE {table} SET seal = {now}")  # noqa: S608 - own names


def _prove_names(db: sqlite3.Connection) -> None:
    """Raise ``MalformedBody`` where rows are not in the order of their names, or two have one.

    A name leads to the first of them that is met, and the mark of one row would go to another.
    """
    for table in COLUMNS:
        (line,) = db.execute(f"PRAGMA integrity_check({table})").fetchone()
        if line != "ok":
            raise MalformedBody(line)


def is_own(db: sqlite3.Connection) -> bool:
    """Whether the session itself is marked: begun, or taken up before, in this home."""
    query = (
        f"SELECT count(*) FROM session WHERE seal <> '' AND seal IN ({mark('session')}, {_EARLIER})"  # noqa: S608 - own names
    )
    return bool(db.execute(query).fetchone()[0] == 1)


def is_whole(db: sqlite3.Connection) -> bool:
    """Whether the mark is of all that it covers today, the model too."""
    query = f"SELECT count(*) FROM session WHERE seal <> '' AND seal = {mark('session')}"  # noqa: S608 - own names
    return bool(db.execute(query).fetchone()[0] == 1)


def has_foreign(db: sqlite3.Connection) -> bool:
    """Whether ``drop_foreign`` would change anything."""
    return not is_whole(db) or bool(foreign(db))


def foreign(db: sqlite3.Connection) -> tuple[str, ...]:
    """What could act and has no mark, in words; empty if there is nothing of it.

    Raises ``MalformedBody`` where a mark that is made later might go to another row.
    """
    _prove_names(db)
    found = []
    keys = [row[0] for row in db.execute(f"SELECT key FROM kv WHERE {_foreign('kv')}").fetchall()]  # noqa: S608 - own names
    if any(str(key).startswith("shell") for key in keys):
        found.append("the state of its shell")
    elif keys:
        found.append("values that it kept")
    for table, (one, many) in _WORDS.items():
        query = f"SELECT count(*) FROM {table} WHERE {_foreign(table)}"  # noqa: S608 - own names
        (count,) = db.execute(query).fetchone()
        if count:
            found.append(f"{count} {one if count == 1 else many}")
    return tuple(found)


def _foreign(table: str) -> str:
    # a NULL, which only another's file can hold here, counts as what acts and as no mark
    return f"({_ACTING[table]}) IS NOT 0 AND (seal = '' OR seal IS NOT {mark(table)})"


def drop_foreign(db: sqlite3.Connection, cwd: str) -> tuple[str, ...]:
    """Drop what could act and has no mark; what it was, in words.

    A session without a mark is one of ``cwd`` from now on; whose mark is not of its model goes on
    with the user's own. Raises
    ``MalformedBody`` where the file's tables do not let it be dropped.
    """
    dropped = foreign(db)
    now = {"now": time.time(), "why": UNSEALED}
    for table, statement in _DROPPED.items():
        db.execute(f"{statement} WHERE {_foreign(table)}", now)
    if foreign(db):
        raise MalformedBody("it holds what this home did not write and what cannot be taken out")
    if not is_whole(db):
        there, model = db.execute("SELECT cwd, model FROM session").fetchone()
        if not is_own(db):
            if (place := from_column(there)) != cwd:
                dropped = (*dropped, f"its directory {place}")
            db.execute("UPDATE session SET cwd = ?", (to_column(cwd),))
        if name := from_column(model):  # it says whose server gets what is said from now on
            dropped = (*dropped, f"its model {name}")
        db.execute("UPDATE session SET model = ''")
        put_mark(db, "session", 1)
    return dropped
