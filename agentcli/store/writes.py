"""What each write of a turn changes in the tables. Every method runs in one transaction.

Laws. After every commit the history is balanced, or each call without a result has a row in
``tool_run`` from which the next open can balance it (REC-1). A compaction deletes no message
(CMP-3): a summary is one more, sent before what was kept (``place``), and what it stands for
points to it (``hidden_by``). Taking it back clears those pointers and lets the summary point to
itself, so that the summary before it, if any, is back as well.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentcli.domain.errors import HistoryViolation
from agentcli.domain.events import Outcome
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ResultStatus,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import QueuedInput, QueueKind, QueueSource, RecordedResult, RunStatus
from agentcli.domain.session import KeptEvent, SessionInfo, SessionStatus
from agentcli.store import seals
from agentcli.store.codec import checksum, encode, from_column, to_column, to_json
from agentcli.store.reads import SENT_ORDER

TITLE_LENGTH = 80
IMPORTED_KIND = "imported"  # usage of another program's requests

STATUS_OF_OUTCOME = {
    Outcome.DONE: SessionStatus.DONE,
    Outcome.WRAPPED_UP: SessionStatus.DONE,
    Outcome.MAX_STEPS: SessionStatus.LIMIT,
    Outcome.MAX_TOKENS: SessionStatus.LIMIT,
    Outcome.TIMED_OUT: SessionStatus.CANCELLED,
    Outcome.CANCELLED: SessionStatus.CANCELLED,
    Outcome.ERROR: SessionStatus.FAILED,
}
_RUN_OF_RESULT = {
    ResultStatus.CANCELLED: RunStatus.CANCELLED,
    ResultStatus.INTERRUPTED: RunStatus.INTERRUPTED,
}

Redact = Callable[[str], str]
PriceOf = Callable[[AssistantMessage], float | None]


def blob_name(data: bytes) -> str:
    """What ``data`` is called in ``blob``: its SHA-256 in hexadecimal."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def put_blob(db: sqlite3.Connection, data: bytes) -> str:
    """Store ``data`` once; its name."""
    name = blob_name(data)
    db.execute(
        "INSERT OR IGNORE INTO blob (hash, size, data) VALUES (?, ?, ?)", (name, len(data), data)
    )
    return name


def title_of(message: UserMessage, redact: Redact = str) -> str:
    """The first line of a prompt that says something, bounded and without control characters.

    ``redact`` comes before the bound: a part of a key would not be known as one (SEC-9).
    """
    for line in message.text[:10_000].splitlines():
        words = "".join(c if c.isprintable() else " " for c in line).split()
        if words:
            title = redact(" ".join(words))
            return title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1] + "…"
    return "(image)" if message.parts else ""


class SessionWrites:
    """The writes. ``price`` knows what a message cost, ``redact`` takes secrets out of text."""

    __slots__ = ("_price", "redact")

    def __init__(self, price: PriceOf | None, redact: Redact | None) -> None:
        self._price = price
        self.redact: Redact = redact if redact is not None else lambda text: text

    def session(self, db: sqlite3.Connection, info: SessionInfo) -> None:
        """The row that makes a file a session."""
        db.execute(
            "INSERT INTO session (singleton, id, title, cwd, created_at, updated_at, status,"
            " turns, model, parent_id) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                info.id,
                to_column(self.redact(info.title)),
                to_column(info.cwd),
                info.created_at,
                info.updated_at,
                info.status.value,
                info.turns,
                to_column(self.redact(info.model)),
                info.parent_id,
            ),
        )
        seals.put_mark(db, "session", 1)

    def prompt(
        self,
        db: sqlite3.Connection,
        message: UserMessage | None,
        queued: Sequence[int] = (),
        *,
        begins_turn: bool = True,
    ) -> int:
        """W0; returns the seq of the message, or of the last one when there is none."""
        now = time.time()
        for row_id in queued:  # they become a message in this transaction
            changed = db.execute(
                "UPDATE input_queue SET state = 'delivered', updated_at = ?, seal = ''"
                " WHERE id = ? AND state = 'queued'",
                (now, row_id),
            )
            if changed.rowcount != 1:
                raise HistoryViolation(f"queued text {row_id} was delivered before")
        title = ""
        if message is not None:
            title = title_of(message, self.redact)
        db.execute(
            "UPDATE session SET status = ?, detail = '', updated_at = ?, turns = turns + ?,"
            " title = CASE title WHEN '' THEN ? ELSE title END",
            (
                SessionStatus.RUNNING.value,
                now,
                int(message is not None and begins_turn),
                to_column(title),
            ),
        )
        if message is None:
            return _last_seq(db)
        return self._append(db, message, now)

    def earlier(
        self, db: sqlite3.Connection, messages: Sequence[tuple[Message, float | None]]
    ) -> None:
        """What a history begins with that another program has kept (CTRL-9), each with its time."""
        now, asked = time.time(), None
        for message, at in messages:
            if isinstance(message, ToolResult):
                self._append_result(db, message, now if at is None else at, asked)
                continue
            seq = self._append(db, message, now if at is None else at)
            asked = seq if isinstance(message, AssistantMessage) else asked

    def places(
        self,
        db: sqlite3.Connection,
        hidden: Sequence[tuple[int, int]],
        summaries: Sequence[tuple[int, int]],
    ) -> None:
        """Which messages are not sent, and what stands for them; where each summary is sent."""
        db.executemany(
            "UPDATE message SET hidden_by = ? WHERE seq = ?", [(by, seq) for seq, by in hidden]
        )
        db.executemany(
            "UPDATE message SET place = ? WHERE seq = ?", [(place, seq) for seq, place in summaries]
        )

    def assistant(
        self,
        db: sqlite3.Connection,
        message: AssistantMessage,
        calls: Sequence[ToolCall],
        *,
        final: Outcome | None,
        wasted: Usage | None = None,
    ) -> int:
        """W1; returns the seq of the message."""
        if wasted is not None:
            self.partial_usage(db, f"{message.provider}/{message.model}", wasted)
        now = time.time()
        seq = self._append(db, message, now)
        for call in calls:
            db.execute(
                "INSERT INTO tool_run (call_id, name, status, message_seq) VALUES (?, ?, ?, ?)",
                (to_column(call.id), self._name(call), RunStatus.PENDING.value, seq),
            )
        cost_usd = None if self._price is None else self._price(message)
        model = f"{message.provider}/{message.model}" if message.provider else message.model
        self.usage(db, (seq, now, "step", model), message.usage, cost_usd)
        if final is None:
            db.execute("UPDATE session SET updated_at = ?", (now,))
        else:
            self._set_status(db, STATUS_OF_OUTCOME[final], "", now)
        return seq

    def usage(
        self,
        db: sqlite3.Connection,
        about: tuple[int | None, float, str, str],
        usage: Usage,
        cost_usd: float | None,
    ) -> None:
        """Tokens of one request; ``about`` is (message seq, time, kind, model)."""
        db.execute(
            "INSERT INTO usage (message_seq, created_at, kind, model, input_tokens, output_tokens,"
            " cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *about[:3],
                to_column(self.redact(about[3])),
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.reasoning_tokens,
                cost_usd,
            ),
        )

    def partial_usage(self, db: sqlite3.Connection, model: str, usage: Usage) -> None:
        """Tokens of a request whose reply was cut; ``model`` is ``provider/model`` or empty."""
        cost_usd = self._cost(model, usage)
        self.usage(db, (None, time.time(), "partial", model), usage, cost_usd)

    def _cost(self, model: str, usage: Usage) -> float | None:
        if self._price is None or not model:
            return None
        provider, name = model.split("/", 1) if "/" in model else ("", model)
        return self._price(AssistantMessage((), provider, name, usage=usage))

    def compaction(
        self,
        db: sqlite3.Connection,
        summary: UserMessage,
        folded: Sequence[int],
        total: int,
        spent: tuple[str, Usage],
    ) -> int:
        """Put ``summary`` before the history and hide the messages at ``folded``; its seq.

        ``spent``: model and tokens. Raises ``HistoryViolation`` when the file does not have the
        ``total`` messages to send that the indices were counted in.
        """
        rows = db.execute(
            f"SELECT seq, coalesce(place, seq) FROM message"  # noqa: S608 - constant
            f" WHERE hidden_by IS NULL ORDER BY {SENT_ORDER}"
        ).fetchall()
        if len(rows) != total:
            raise HistoryViolation(f"{total} messages were to be folded, the file has {len(rows)}")
        away = set(folded)
        places = [place for at, (_, place) in enumerate(rows) if at not in away]
        now = time.time()
        seq = self._append(db, summary, now)
        if places:
            db.execute("UPDATE message SET place = ? WHERE seq = ?", (places[0], seq))
        db.executemany(
            "UPDATE message SET hidden_by = ? WHERE seq = ?",
            [(seq, rows[at][0]) for at in sorted(away)],
        )
        model, usage = spent
        if usage.is_known:
            self.usage(db, (seq, now, "compaction", model), usage, self._cost(model, usage))
        db.execute("UPDATE session SET updated_at = ?", (now,))
        return seq

    def running(self, db: sqlite3.Connection, call: ToolCall) -> None:
        """W2."""
        changed = db.execute(
            "UPDATE tool_run SET status = ?, started_at = ? WHERE call_id = ? AND status = ?",
            (
                RunStatus.RUNNING.value,
                time.time(),
                to_column(call.id),
                RunStatus.PENDING.value,
            ),
        )
        if changed.rowcount != 1:
            raise HistoryViolation(f"call {call.id} is not pending")

    def result(
        self, db: sqlite3.Connection, done: RecordedResult, in_order: Sequence[ToolResult]
    ) -> None:
        """W3: the row of ``done``, and a message for each result whose turn has come."""
        now = time.time()
        result = done.result
        parked = None
        if all(other.call_id != result.call_id for other in in_order):
            parked = self.redact(encode(result, lambda data: put_blob(db, data))[1])
        raw = None
        if done.raw is not None:
            text = self.redact(done.raw.decode("latin-1"))
            raw = put_blob(db, text.encode("latin-1", "replace"))
        changed = db.execute(
            "UPDATE tool_run SET status = ?, finished_at = ?, raw = ?, display = ?, result = ?,"
            " line = ?, outcome = ?"
            " WHERE call_id = ? AND result IS NULL AND result_seq IS NULL",
            (
                run_status_of(result).value,
                now,
                raw,
                to_column(self.redact(done.display)),
                parked,
                to_column(self.redact(done.line)),
                to_column(self.redact(done.outcome)),
                to_column(result.call_id),
            ),
        )
        if changed.rowcount != 1:
            raise HistoryViolation(f"call {result.call_id} is unknown or has a result already")
        for ready in in_order:
            self._append_result(db, ready, now)

    def end(
        self,
        db: sqlite3.Connection,
        results: Sequence[ToolResult],
        status: SessionStatus,
        detail: str,
        partial: str = "",
    ) -> None:
        """Balance, say why, keep what was seen."""
        now = time.time()
        for result in results:
            self._append_result(db, result, now)
        if partial:
            self.note(db, "partial", partial)
        self._set_status(db, status, detail, now)

    def note(self, db: sqlite3.Connection, kind: str, text: str) -> None:
        """Something to show after the messages so far."""
        db.execute(
            "INSERT INTO note (after_seq, created_at, kind, text) VALUES (?, ?, ?, ?)",
            (_last_seq(db), time.time(), kind, to_column(self.redact(text))),
        )

    def named(self, db: sqlite3.Connection, column: str, text: str) -> None:
        """Set the session's ``title`` or ``model``; what was marked stays so, and nothing else."""
        is_whole = seals.is_whole(db)
        db.execute(f"UPDATE session SET {column} = ?", (to_column(self.redact(text)),))  # noqa: S608 - own names
        if is_whole:
            seals.put_mark(db, "session", 1)

    def state(self, db: sqlite3.Connection, key: str, value: Any) -> None:
        """Store a JSON value under ``key``; ``None`` removes it."""
        if value is None:
            db.execute("DELETE FROM kv WHERE key = ?", (to_column(key),))
            return
        db.execute(
            "INSERT INTO kv (key, value) VALUES (?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (to_column(key), self.redact(to_json(value))),
        )
        seals.put_mark(db, "kv", to_column(key))

    def _name(self, named: ToolCall | ToolResult) -> str | bytes:
        return to_column(self.redact(named.name))

    def _append_result(
        self, db: sqlite3.Connection, result: ToolResult, now: float, asked: int | None = None
    ) -> None:
        """``asked`` is the message that asks, where that is known: else the newest reply."""
        seq = self._append(db, result, now)
        # The row is missing only in sessions that were imported or repaired.
        changed = db.execute(
            "INSERT INTO tool_run (call_id, name, status, message_seq, finished_at, result_seq)"
            " VALUES (:id, :name, :status,"
            " coalesce(:asked, (SELECT max(seq) FROM message WHERE role = 'assistant')),"
            " :now, :seq)"
            " ON CONFLICT (call_id) DO UPDATE SET result = NULL, result_seq = :seq,"
            " finished_at = coalesce(finished_at, :now),"
            " status = CASE WHEN status IN ('pending', 'running') THEN :status ELSE status END"
            " WHERE result_seq IS NULL",
            {
                "id": to_column(result.call_id),
                "name": self._name(result),
                "status": run_status_of(result).value,
                "asked": asked,
                "now": now,
                "seq": seq,
            },
        )
        if changed.rowcount != 1:
            raise HistoryViolation(f"call {result.call_id} has a result already")

    def _append(self, db: sqlite3.Connection, message: Message, now: float) -> int:
        role, body = encode(message, lambda data: put_blob(db, data))
        body = self.redact(body)
        cursor = db.execute(
            "INSERT INTO message (seq, role, body, created_at, checksum)"
            " VALUES ((SELECT coalesce(max(seq), 0) + 1 FROM message), ?, ?, ?, ?)",
            (role, body, now, checksum(role, body)),
        )
        return int(cursor.lastrowid or 0)

    def _set_status(
        self, db: sqlite3.Connection, status: SessionStatus, detail: str, now: float
    ) -> None:
        db.execute(  # the turn is over: what was delivered in it is done
            "UPDATE input_queue SET state = 'done', updated_at = ? WHERE state = 'delivered'",
            (now,),
        )
        db.execute(
            "UPDATE session SET status = ?, detail = ?, updated_at = ?",
            (status.value, to_column(self.redact(detail)), now),
        )


def run_status_of(result: ToolResult) -> RunStatus:
    """The status of a call's row that its result amounts to."""
    return _RUN_OF_RESULT.get(result.status, RunStatus.FINISHED)


def _last_seq(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM message").fetchone()[0])


# --- text that waits: ``input_queue`` (UI-3, CTRL-1) ----------------------------------------

# Law: a row goes queued → delivered → done and never back. It is delivered in the transaction that
# makes it a message, so after a crash it is either waiting or in the history, never both or
# neither. A row that the user takes back is done without having been delivered.


def queue_add(
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
    seals.put_mark(db, "input_queue", cursor.lastrowid)
    return QueuedInput(int(cursor.lastrowid or 0), kind, kept, now, source)


def queue_waiting(db: sqlite3.Connection) -> tuple[QueuedInput, ...]:
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


def queue_edit(
    db: sqlite3.Connection, row_id: int, text: str, redact: Callable[[str], str]
) -> str | None:
    """Change the text of what waits; as stored, or ``None`` when it waits no longer."""
    kept = redact(text)
    changed = db.execute(
        "UPDATE input_queue SET body = ?, updated_at = ? WHERE id = ? AND state = 'queued'",
        (to_column(kept), time.time(), row_id),
    )
    if changed.rowcount != 1:
        return None
    seals.put_mark(db, "input_queue", row_id)
    return kept


def queue_drop(db: sqlite3.Connection, row_id: int) -> bool:
    """Take back what waits; false when it waits no longer."""
    changed = db.execute(
        "UPDATE input_queue SET state = 'done', updated_at = ?, seal = ''"
        " WHERE id = ? AND state = 'queued'",
        (time.time(), row_id),
    )
    return changed.rowcount == 1


# --- compaction ------------------------------------------------------------------------------


def undo_compaction(db: sqlite3.Connection) -> bool:
    """Bring back what the newest summary stands for; false when there is none."""
    (summary,) = db.execute(
        "SELECT max(seq) FROM message WHERE role = 'summary' AND hidden_by IS NULL"
    ).fetchone()
    if summary is None:
        return False
    db.execute("UPDATE message SET hidden_by = NULL WHERE hidden_by = ?", (summary,))
    db.execute("UPDATE message SET hidden_by = ? WHERE seq = ?", (summary, summary))
    return True


def append_events(db: sqlite3.Connection, events: Sequence[KeptEvent], redact: Redact) -> None:
    """Keep ``events`` after those that are there."""
    db.executemany(
        "INSERT INTO event (created_at, type, data) VALUES (?, ?, ?)",
        [(each.at, each.type, to_column(redact(json.dumps(each.data)))) for each in events],
    )
