"""What a compaction changes in a session file (CMP-3). Each function runs in one transaction.

Law: nothing is deleted. A summary is one more message, sent before what was kept (``place``);
what it stands for points to it (``hidden_by``). Taking it back clears those pointers and lets
the summary point to itself, so that the summary before it, if any, is back as well.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from agentcli.domain.errors import HistoryViolation
from agentcli.store._rows import SENT_ORDER


def fold(
    db: sqlite3.Connection, folded: Sequence[int], total: int, append: Callable[[], int]
) -> int:
    """Hide the messages at ``folded`` behind the one that ``append`` writes; its seq.

    Raises ``HistoryViolation`` when the file does not have the ``total`` messages to send that
    the indices were counted in.
    """
    rows = db.execute(
        f"SELECT seq, coalesce(place, seq) FROM message"  # noqa: S608 - constant
        f" WHERE hidden_by IS NULL ORDER BY {SENT_ORDER}"
    ).fetchall()
    if len(rows) != total:
        raise HistoryViolation(f"{total} messages were to be folded, the file has {len(rows)}")
    away = set(folded)
    places = [place for at, (_, place) in enumerate(rows) if at not in away]
    summary = append()
    if places:
        db.execute("UPDATE message SET place = ? WHERE seq = ?", (places[0], summary))
    db.executemany(
        "UPDATE message SET hidden_by = ? WHERE seq = ?",
        [(summary, rows[at][0]) for at in sorted(away)],
    )
    return summary


def undo(db: sqlite3.Connection) -> bool:
    """Bring back what the newest summary stands for; false when there is none."""
    (summary,) = db.execute(
        "SELECT max(seq) FROM message WHERE role = 'summary' AND hidden_by IS NULL"
    ).fetchone()
    if summary is None:
        return False
    db.execute("UPDATE message SET hidden_by = NULL WHERE hidden_by = ?", (summary,))
    db.execute("UPDATE message SET hidden_by = ? WHERE seq = ?", (summary, summary))
    return True
