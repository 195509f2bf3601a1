"""What each write of a turn changes in the tables. Every method runs in one transaction.

Law: after every commit the history is balanced, or each call without a result has a row in
``tool_run`` from which the next open can balance it (REC-1).
"""

from __future__ import annotations

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
from agentcli.domain.ports import RecordedResult, RunStatus
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store import _compaction, _queue
from agentcli.store._codec import encode, to_column, to_json

TITLE_LENGTH = 80

STATUS_OF_OUTCOME = {
    Outcome.DONE: SessionStatus.DONE,
    Outcome.WRAPPED_UP: SessionStatus.DONE,
    Outcome.MAX_STEPS: SessionStatus.LIMIT,
    Outcome.CANCELLED: SessionStatus.CANCELLED,
    Outcome.ERROR: SessionStatus.FAILED,
}
_RUN_OF_RESULT = {
    ResultStatus.CANCELLED: RunStatus.CANCELLED,
    ResultStatus.INTERRUPTED: RunStatus.INTERRUPTED,
}

Redact = Callable[[str], str]
PriceOf = Callable[[AssistantMessage], float | None]


def put_blob(db: sqlite3.Connection, data: bytes) -> str:
    """Store ``data`` once; its SHA-256 in hexadecimal."""
    import hashlib

    name = hashlib.sha256(data).hexdigest()
    db.execute(
        "INSERT OR IGNORE INTO blob (hash, size, data) VALUES (?, ?, ?)", (name, len(data), data)
    )
    return name


def title_of(message: UserMessage) -> str:
    """The first line of a prompt that says something, bounded and without control characters."""
    for line in message.text[:10_000].splitlines():
        words = "".join(c if c.isprintable() else " " for c in line).split()
        if words:
            title = " ".join(words)
            return title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 1] + "…"
    return "(image)" if message.parts else ""


class Recorder:
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
        _queue.deliver(db, queued, now)
        title = ""
        if message is not None:
            title = self.redact(title_of(message))
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

    def assistant(
        self,
        db: sqlite3.Connection,
        message: AssistantMessage,
        calls: Sequence[ToolCall],
        final: Outcome | None,
    ) -> int:
        """W1; returns the seq of the message."""
        now = time.time()
        seq = self._append(db, message, now)
        for call in calls:
            db.execute(
                "INSERT INTO tool_run (call_id, name, status, message_seq) VALUES (?, ?, ?, ?)",
                (to_column(call.id), to_column(call.name), RunStatus.PENDING.value, seq),
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
        fold: tuple[Sequence[int], int],
        spent: tuple[str, Usage],
    ) -> int:
        """A summary in the place of what it folds; see ``_compaction``. Returns its seq.

        ``fold``: the indices and how many messages there are; ``spent``: model and tokens.
        """
        now = time.time()
        seq = _compaction.fold(db, *fold, lambda: self._append(db, summary, now))
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
        raw = None if done.raw is None else put_blob(db, self._redact_bytes(done.raw))
        changed = db.execute(
            "UPDATE tool_run SET status = ?, finished_at = ?, raw = ?, display = ?, result = ?"
            " WHERE call_id = ? AND result IS NULL AND result_seq IS NULL",
            (
                run_status_of(result).value,
                now,
                raw,
                to_column(self.redact(done.display)),
                parked,
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
        partial: str,
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

    def title(self, db: sqlite3.Connection, title: str) -> None:
        """Name the session."""
        db.execute("UPDATE session SET title = ?", (to_column(self.redact(title)),))

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

    def _append_result(self, db: sqlite3.Connection, result: ToolResult, now: float) -> None:
        seq = self._append(db, result, now)
        # The row is missing only in sessions that were imported or repaired.
        changed = db.execute(
            "INSERT INTO tool_run (call_id, name, status, message_seq, finished_at, result_seq)"
            " VALUES (:id, :name, :status,"
            " (SELECT max(seq) FROM message WHERE role = 'assistant'), :now, :seq)"
            " ON CONFLICT (call_id) DO UPDATE SET result = NULL, result_seq = :seq,"
            " finished_at = coalesce(finished_at, :now),"
            " status = CASE WHEN status IN ('pending', 'running') THEN :status ELSE status END"
            " WHERE result_seq IS NULL",
            {
                "id": to_column(result.call_id),
                "name": to_column(result.name),
                "status": run_status_of(result).value,
                "now": now,
                "seq": seq,
            },
        )
        if changed.rowcount != 1:
            raise HistoryViolation(f"call {result.call_id} has a result already")

    def _append(self, db: sqlite3.Connection, message: Message, now: float) -> int:
        role, body = encode(message, lambda data: put_blob(db, data))
        cursor = db.execute(
            "INSERT INTO message (seq, role, body, created_at)"
            " VALUES ((SELECT coalesce(max(seq), 0) + 1 FROM message), ?, ?, ?)",
            (role, self.redact(body), now),
        )
        return int(cursor.lastrowid or 0)

    def _set_status(
        self, db: sqlite3.Connection, status: SessionStatus, detail: str, now: float
    ) -> None:
        _queue.settle(db, now)
        db.execute(
            "UPDATE session SET status = ?, detail = ?, updated_at = ?",
            (status.value, to_column(self.redact(detail)), now),
        )

    def _redact_bytes(self, data: bytes) -> bytes:
        return self.redact(data.decode("latin-1")).encode("latin-1", "replace")


def run_status_of(result: ToolResult) -> RunStatus:
    """The status of a call's row that its result amounts to."""
    return _RUN_OF_RESULT.get(result.status, RunStatus.FINISHED)


def _last_seq(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM message").fetchone()[0])
