"""From salvaged rows to a lawful session: the values first, then the rows of a new file.

The history law is restored as after a crash (``domain.history.repair_results``): a call whose
result is lost gets one that says so. A result whose call is lost becomes a note.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agentcli.domain.history import RepairReason, repair_results
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store._codec import MalformedBody, NewerBody, decode, encode, from_column, to_column
from agentcli.store._recorder import Recorder, put_blob, run_status_of, title_of
from agentcli.store._status import CRASH_DETAIL
from agentcli.store._tasks import unreadable
from agentcli.store.repair.rebuild_rewinds import insert_rewinds
from agentcli.store.repair.salvage import Row, Tables

M = TypeVar("M", UserMessage, AssistantMessage, ToolResult, Message)

LOST_IMAGE = TextPart("(an image that was lost when the session file was damaged)")
TAKEN_BACK = -1
_PLAIN_TABLES = ("kv", "input_queue", "task", "schedule")
_FINAL = {RunStatus.FINISHED, RunStatus.CANCELLED, RunStatus.INTERRUPTED}


@dataclass(slots=True)
class Kept:
    """A message that goes into the new file; ``old_seq`` is ``None`` for an added result.

    ``hidden_by`` and ``place`` count as the old file did; ``TAKEN_BACK`` hides itself (TT-2).
    """

    message: Message
    created_at: float
    old_seq: int | None = None
    hidden_by: int | None = None
    place: int | None = None


@dataclass(slots=True)
class Rebuilt:
    """A session to be written: ``insert`` fills a new file."""

    info: SessionInfo
    messages: list[Kept]
    tables: Tables
    blobs: Mapping[str, bytes]
    lost: list[str] = field(default_factory=list)
    orphans: list[tuple[int, ToolResult]] = field(default_factory=list)

    def insert(self, db: sqlite3.Connection) -> None:
        """Write everything into the empty tables of ``db``."""
        Recorder(None, None).session(db, self.info)
        db.execute("UPDATE session SET detail = ?", (to_column(self.info.detail),))
        for data in self.blobs.values():
            put_blob(db, data)
        new_seq = {kept.old_seq: seq for seq, kept in enumerate(self.messages, 1)}
        self._insert_messages(db, new_seq)
        self._insert_runs(db)
        self._insert_beside(db, new_seq)
        insert_rewinds(db, self.tables, new_seq, self.blobs, self.lost)
        for table in _PLAIN_TABLES:
            for row in self.tables.get(table, ()):
                self._try_insert(db, table, row)
        for table, name, problem in tuple(unreadable(db)):
            key = "run_id" if table == "task" else "id"
            db.execute(f"DELETE FROM {table} WHERE {key} = ?", (name,))  # noqa: S608 - own names
            self.lost.append(problem)

    def _insert_messages(self, db: sqlite3.Connection, new_seq: Mapping[int | None, int]) -> None:
        for seq, kept in enumerate(self.messages, 1):
            role, body = encode(kept.message, lambda data: put_blob(db, data))
            db.execute(
                "INSERT INTO message (seq, role, body, created_at) VALUES (?, ?, ?, ?)",
                (seq, role, body, kept.created_at),
            )
        for seq, kept in enumerate(self.messages, 1):
            if kept.hidden_by is not None:
                by = seq if kept.hidden_by == TAKEN_BACK else new_seq.get(kept.hidden_by)
                db.execute("UPDATE message SET hidden_by = ? WHERE seq = ?", (by, seq))
            if kept.place is not None:
                db.execute("UPDATE message SET place = ? WHERE seq = ?", (self._place(kept), seq))

    def _place(self, summary: Kept) -> int | None:
        """The first message that was sent after ``summary`` and is still there."""
        for seq, kept in enumerate(self.messages, 1):
            if kept is summary:
                return None
            if kept.old_seq is not None and kept.old_seq >= (summary.place or 0):
                return seq
        return None

    def _insert_runs(self, db: sqlite3.Connection) -> None:
        rows = {from_column(row.get("call_id")): row for row in self.tables.get("tool_run", ())}
        answers = {
            kept.message.call_id: (seq, kept.message)
            for seq, kept in enumerate(self.messages, 1)
            if isinstance(kept.message, ToolResult)
        }
        for seq, kept in enumerate(self.messages, 1):
            if not isinstance(kept.message, AssistantMessage):
                continue
            for call in kept.message.tool_calls:
                row = rows.get(call.id, {})
                result_seq, result = answers.get(call.id, (None, None))
                status = row.get("status")
                if result is not None and status not in _FINAL:
                    status = run_status_of(result).value
                raw = row.get("raw")
                db.execute(
                    "INSERT INTO tool_run (call_id, name, status, message_seq, started_at,"
                    " finished_at, raw, display, result_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        to_column(call.id),
                        to_column(call.name),
                        status or RunStatus.INTERRUPTED.value,
                        seq,
                        row.get("started_at"),
                        row.get("finished_at"),
                        raw if raw in self.blobs else None,
                        row.get("display") or "",
                        result_seq,
                    ),
                )

    def _insert_beside(self, db: sqlite3.Connection, new_seq: Mapping[int | None, int]) -> None:
        for row in self.tables.get("usage", ()):
            seq = new_seq.get(row.get("message_seq")) if row.get("message_seq") else None
            self._try_insert(db, "usage", {**row, "message_seq": seq})
        notes = list(self.tables.get("note", ()))
        for old_seq, result in self.orphans:
            text = f"The result of a lost call of {result.name}:\n{result.text}"
            about = {"after_seq": old_seq, "created_at": self.info.updated_at}
            notes.append({**about, "kind": "lost_result", "text": to_column(text)})
        for row in notes:
            place = [
                seq
                for seq, kept in enumerate(self.messages, 1)
                if kept.old_seq is not None and kept.old_seq <= row["after_seq"]
            ]
            self._try_insert(db, "note", {**row, "after_seq": max(place, default=0)})

    def _try_insert(self, db: sqlite3.Connection, table: str, row: Row) -> None:
        names = [name for name in row if name not in {"__rowid", "id"} or table == "schedule"]
        marks = ", ".join("?" * len(names))
        try:
            db.execute(
                f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 - own names
                [row[name] for name in names],
            )
        except sqlite3.Error as error:
            self.lost.append(f"a row of {table}: {error}")


def rebuild(tables: Tables, session_id: str, changed_at: float) -> Rebuilt:
    """The session that the salvaged ``tables`` amount to."""
    lost: list[str] = []
    blobs = _sound_blobs(tables, lost)
    kept, partials = _decode_messages(tables, blobs, lost)
    tables["note"] = [*tables.get("note", ()), *partials]
    runs = _decode_runs(tables, blobs)
    orphans: list[tuple[int, ToolResult]] = []
    _show_what_nothing_stands_for(kept, lost)
    lawful = list(_restore_law(kept, runs, lost, orphans))
    info = _info(tables, session_id, changed_at, [item.message for item in lawful], lost)
    if any(item.old_seq is None for item in lawful) or info.status is SessionStatus.RUNNING:
        info = replace(info, status=SessionStatus.CRASHED, detail=CRASH_DETAIL)
    return Rebuilt(info, lawful, tables, blobs, lost, orphans)


def _sound_blobs(tables: Tables, lost: list[str]) -> Mapping[str, bytes]:
    blobs = {}
    for row in tables.get("blob", ()):
        data = row.get("data")
        if isinstance(data, bytes) and hashlib.sha256(data).hexdigest() == row.get("hash"):
            blobs[str(row["hash"])] = data
        else:
            lost.append(f"blob {row.get('hash')}: its content had changed")
    return blobs


def _decode_messages(
    tables: Tables, blobs: Mapping[str, bytes], lost: list[str]
) -> tuple[list[Kept], list[Row]]:
    kept: list[Kept] = []
    partials: list[Row] = []
    for row in tables.get("message", ()):
        seq, created_at = row["seq"], _number(row.get("created_at"))
        if not created_at:
            lost.append(f"message {seq}: its time")
        if row["role"] == "partial":  # how version 1 kept partial answers
            about = {"after_seq": seq, "created_at": created_at, "kind": "partial"}
            partials.append({**about, "text": _partial_text(row["body"])})
            continue
        try:
            message = decode(str(row["role"]), str(row["body"]), lambda name: blobs.get(name, b""))
        except (MalformedBody, NewerBody) as error:
            lost.append(f"message {seq}: {error}")
            continue
        message = _without_lost_images(message)
        hidden_by = TAKEN_BACK if row.get("hidden_by") == seq else row.get("hidden_by")
        kept.append(Kept(message, created_at, seq, hidden_by, row.get("place")))
    return kept, partials


def _partial_text(body: str) -> str:
    try:
        return str(json.loads(body)["text"])
    except (ValueError, TypeError, KeyError):
        return body


def _without_lost_images(message: M) -> M:
    if isinstance(message, AssistantMessage):
        return message
    parts = tuple(
        LOST_IMAGE if isinstance(part, ImagePart) and not part.data else part
        for part in message.parts
    )
    return replace(message, parts=parts)


def _decode_runs(tables: Tables, blobs: Mapping[str, bytes]) -> Mapping[str, ToolRun]:
    runs = {}
    for row in tables.get("tool_run", ()):
        call_id = from_column(row.get("call_id"))
        try:
            status = RunStatus(str(row.get("status")))
        except ValueError:
            status = RunStatus.RUNNING  # unknown: it may have taken effect
        result = None
        if row.get("result"):
            try:
                decoded = decode("tool", str(row["result"]), lambda name: blobs.get(name, b""))
            except (MalformedBody, NewerBody):
                decoded = None
            if isinstance(decoded, ToolResult):
                result = _without_lost_images(decoded)
        runs[call_id] = ToolRun(call_id, from_column(row.get("name")), status, result=result)
    return runs


def _show_what_nothing_stands_for(kept: Sequence[Kept], lost: list[str]) -> None:
    """What a lost summary stood for is sent again."""
    summaries = {
        item.old_seq
        for item in kept
        if isinstance(item.message, UserMessage) and item.message.is_summary
    }
    hiding = {item.hidden_by for item in kept if item.hidden_by is not None}
    for seq in hiding - summaries - {TAKEN_BACK}:
        lost.append(f"summary {seq}: what it stood for is back")
        for item in kept:
            if item.hidden_by == seq:
                item.hidden_by = None


def _restore_law(
    kept: Sequence[Kept],
    runs: Mapping[str, ToolRun],
    lost: list[str],
    orphans: list[tuple[int, ToolResult]],
) -> Iterator[Kept]:
    """``kept`` as the law wants it, the results that it takes added in their places."""
    pending: dict[str, ToolCall] = {}
    used: set[str] = set()
    last = Kept(UserMessage(()), 0.0)

    def close() -> Iterator[Kept]:
        for result in repair_results(tuple(pending.values()), runs, RepairReason.CRASHED):
            lost.append(f"the result message of call {result.call_id}: replaced")
            yield Kept(result, last.created_at, hidden_by=last.hidden_by)
        pending.clear()

    for item in kept:
        message = item.message
        if isinstance(message, ToolResult):
            if message.call_id in pending:
                del pending[message.call_id]
                yield replace(item, hidden_by=last.hidden_by)
            else:
                lost.append(f"message {item.old_seq}: a result without its call, kept as a note")
                orphans.append((item.old_seq or 0, message))
            continue
        yield from close()
        last = item
        if isinstance(message, AssistantMessage):
            message = _with_new_calls_only(message, used, lost)
            if item.message.parts and not message.parts:
                continue
            used |= {call.id for call in message.tool_calls}
            pending = {call.id: call for call in message.tool_calls}
        yield replace(item, message=message)
    yield from close()


def _with_new_calls_only(
    message: AssistantMessage, used: set[str], lost: list[str]
) -> AssistantMessage:
    parts: list[Any] = []
    seen = set(used)
    for part in message.parts:
        if isinstance(part, ToolCall):
            if not part.id or part.id in seen:
                lost.append(f"call {part.id!r}: its id was used before")
                continue
            seen.add(part.id)
        parts.append(part)
    return replace(message, parts=tuple(parts))


def _info(
    tables: Tables,
    session_id: str,
    changed_at: float,
    messages: Sequence[Message],
    lost: list[str],
) -> SessionInfo:
    prompts = [m for m in messages if isinstance(m, UserMessage) and not m.is_summary]
    rows = tables.get("session", ())
    row: Row = rows[0] if rows else {}
    if not rows:
        lost.append("the session's own row: its title and times are guesses, its directory unknown")
    try:
        status = SessionStatus(str(row.get("status")))
    except ValueError:
        status = SessionStatus.CRASHED
        lost.append("the session's state: taken for crashed")
    title = from_column(row.get("title")) or (title_of(prompts[0]) if prompts else "")
    created_at = _number(row.get("created_at")) or changed_at
    parent = row.get("parent_id")
    return SessionInfo(
        id=from_column(row.get("id")) or session_id,
        title=title,
        cwd=from_column(row.get("cwd")),
        created_at=created_at,
        updated_at=_number(row.get("updated_at")) or changed_at,
        status=status,
        turns=int(_number(row.get("turns"))) or len(prompts),
        model=from_column(row.get("model")),
        detail=from_column(row.get("detail")),
        parent_id=None if parent is None else from_column(parent),
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
