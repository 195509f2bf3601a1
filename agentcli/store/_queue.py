"""The rows of ``input_queue``: text that waits to be said to the model (UI-3, CTRL-1).

Law: a row goes queued → delivered → done and never back. It is delivered in the transaction that
makes it a message, so after a crash it is either waiting or in the history, never both or
neither. A row that a person takes back is done without having been delivered.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence

from agentcli.domain.errors import HistoryViolation
from agentcli.domain.ports import QueuedInput, QueueKind, QueueSource
from agentcli.store._codec import from_column, to_column


def add(
    db: sqlite3.Connection,
    kind: QueueKind,
    text: str,
    redact: Callable[[str], str],
    source: QueueSource = QueueSource.USER,
) -> QueuedInput:
    """Let ``text`` wait."""
    now, kept = time.time(), redact(text)
    cursor = db.execute(
        "INSERT INTO input_queue (kind, body, created_at, updated_at, source)"
        " VALUES (?, ?, ?, ?, ?)",
        (kind.value, to_column(kept), now, now, source.value),
    )
    return QueuedInput(int(cursor.lastrowid or 0), kind, kept, now, source)


def waiting(db: sqlite3.Connection) -> tuple[QueuedInput, ...]:
    """What waits, oldest first."""
    rows = db.execute(
        "SELECT id, kind, body, created_at, source FROM input_queue"
        " WHERE state = 'queued' ORDER BY id"
    )
    return tuple(
        QueuedInput(
            int(row[0]),
            QueueKind(row[1]),
            from_column(row[2]),
            float(row[3]),
            # session files of earlier versions have another word for the user
            QueueSource.BACKGROUND if row[4] == "background" else QueueSource.USER,
        )
        for row in rows
    )


def edit(
    db: sqlite3.Connection, row_id: int, text: str, redact: Callable[[str], str]
) -> str | None:
    """Change the text of what waits; as stored, or ``None`` when it waits no longer."""
    kept = redact(text)
    changed = db.execute(
        "UPDATE input_queue SET body = ?, updated_at = ? WHERE id = ? AND state = 'queued'",
        (to_column(kept), time.time(), row_id),
    )
    return kept if changed.rowcount == 1 else None


def drop(db: sqlite3.Connection, row_id: int) -> bool:
    """Take back what waits; false when it waits no longer."""
    changed = db.execute(
        "UPDATE input_queue SET state = 'done', updated_at = ? WHERE id = ? AND state = 'queued'",
        (time.time(), row_id),
    )
    return changed.rowcount == 1


def deliver(db: sqlite3.Connection, ids: Sequence[int], now: float) -> None:
    """These become a message in the same transaction."""
    for row_id in ids:
        changed = db.execute(
            "UPDATE input_queue SET state = 'delivered', updated_at = ?"
            " WHERE id = ? AND state = 'queued'",
            (now, row_id),
        )
        if changed.rowcount != 1:
            raise HistoryViolation(f"queued text {row_id} was delivered before")


def settle(db: sqlite3.Connection, now: float) -> None:
    """The turn is over: what was delivered in it is done."""
    db.execute(
        "UPDATE input_queue SET state = 'done', updated_at = ? WHERE state = 'delivered'", (now,)
    )
