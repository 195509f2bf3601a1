"""Proving a session file: the database, the values, the references and the history law.

``check`` changes nothing and says every problem in one line each; an empty answer is the
proof. What it finds, ``repair`` repairs.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentcli.domain.errors import HistoryViolation, SessionTooNew
from agentcli.domain.history import History
from agentcli.domain.messages import AssistantMessage, Message, TextPart, ToolResult
from agentcli.domain.ports import QueueKind, RunStatus
from agentcli.domain.session import SessionStatus
from agentcli.store import reads as _rows
from agentcli.store import schema
from agentcli.store import tasks as _tasks
from agentcli.store.codec import (
    USAGE_FIELDS,
    GetBlob,
    MalformedBody,
    NewerBody,
    decode,
    from_column,
    from_json,
    prove,
)
from agentcli.store.disk import is_session_name
from agentcli.store.file import SessionFile, fault
from agentcli.store.lock import live_owner
from agentcli.store.wal import fault_of_log

MAX_PROBLEMS = 50
_MAY_HAVE_PENDING = {SessionStatus.RUNNING, SessionStatus.CRASHED}


def check(path: Path, *, own: bool = False) -> list[str]:
    """The problems of a session file, at most 50; empty when it is sound.

    ``own``: the caller holds the writer's lock. While others do, the log is theirs.
    """
    file = SessionFile(path, writable=False)
    try:
        if (own or live_owner(path) is None) and (problem := fault_of_log(path)):
            return [problem]
        file.open()
        return file.read(lambda db: _limited(_problems(db)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a problem of this file
        known = fault(error, path, writing=False)
        return [str(known) if isinstance(known, SessionTooNew) else known.message]
    finally:
        file.close()


def newest_files(directory: Path) -> Mapping[Path, int]:
    """The session files in ``directory`` with their sizes, the newest first; raises ``OSError``."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if is_session_name(entry.name):
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        found.append((status.st_mtime, Path(entry.path), status.st_size))
    except FileNotFoundError:
        return {}
    found.sort(key=lambda row: row[0], reverse=True)
    return {path: size for _, path, size in found}


def _limited(problems: Iterator[str]) -> list[str]:
    found: list[str] = []
    for problem in problems:
        if len(found) == MAX_PROBLEMS:
            return [*found, "and more"]
        found.append(problem)
    return found


def _problems(db: sqlite3.Connection) -> Iterator[str]:
    broken = False
    for (line,) in db.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
        if line != "ok":
            broken = True
            yield f"database: {line}"
    if broken:
        return
    for table, row, parent, _ in db.execute("PRAGMA foreign_key_check").fetchall():
        yield f"reference: row {row} of {table} points to nothing in {parent}"
    _read_texts(db)
    yield from _session_problems(db)
    yield from _blob_problems(db)
    messages: dict[int, Message] = {}
    get_blob = _presence(db)
    rows = db.execute(
        "SELECT seq, role, body, created_at, hidden_by, checksum FROM message ORDER BY seq"
    )
    summaries = {seq for (seq,) in db.execute("SELECT seq FROM message WHERE role = 'summary'")}
    for seq, role, body, created_at, hidden_by, proof in rows:
        try:
            prove(role, body, proof)
            messages[seq] = _without_texts(decode(role, body, get_blob))
            _rows.number(created_at)
        except (MalformedBody, NewerBody) as error:
            yield f"message {seq}: {error}"
            continue
        if hidden_by is not None and hidden_by not in {*summaries, seq}:
            yield f"message {seq}: it is hidden by {hidden_by}, which is no summary"
    sent = [messages[seq] for seq in _rows.sent_order(db) if seq in messages]
    yield from _law_problems(db, sent)
    yield from _run_problems(db, messages)
    yield from (problem for *_, problem in odd_rows(db))


def _presence(db: sqlite3.Connection) -> GetBlob:
    """No bytes for each blob that is there; raises ``KeyError`` for another."""

    def get_blob(name: str) -> bytes:
        if db.execute("SELECT 1 FROM blob WHERE hash = ?", (name,)).fetchone() is None:
            raise KeyError(f"blob {name}")
        return b""

    return get_blob


def _without_texts(message: Message) -> Message:
    """What the law is about: who speaks, which calls are made and answered."""
    nothing = (TextPart(""),)
    if isinstance(message, AssistantMessage):
        calls = tuple(replace(call, arguments={}, malformed=None) for call in message.tool_calls)
        return replace(message, parts=calls or nothing)
    return replace(message, parts=nothing)


def _read_texts(db: sqlite3.Connection) -> None:
    """Raises where a text beside messages is not UTF-8; in a resume, any of them would."""
    for table in schema.table_names():
        if table not in {"blob", "message"}:
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608 - own names
                for value in row:
                    from_column(value)


def odd_rows(db: sqlite3.Connection) -> Iterator[tuple[str, str, Any, str]]:
    """Table, key column, key and what is wrong, of each row beside the history that is none."""
    for table, name, problem in _tasks.unreadable(db):
        yield table, "run_id" if table == "task" else "id", name, problem
    for table, key, columns, read in _BESIDE:
        for name, *values in db.execute(f"SELECT {key}, {columns} FROM {table}"):  # noqa: S608 - own names
            try:
                read(*values)
            except (ValueError, TypeError, RecursionError) as error:
                yield table, key, name, f"{table} {from_column(name)}: {error}"


def _read_value(key: Any, value: Any) -> None:
    if not isinstance(key, str):
        raise MalformedBody(f"{key!r:.40} is no name")
    from_json(value)


def _read_note(after: Any, at: Any, *texts: Any) -> None:
    _rows.moment(at)
    _rows.count(after)
    _texts(*texts)


def _read_queued(kind: Any, state: Any, *times: Any) -> None:
    if state == "queued":
        QueueKind(kind)
    for at in times:
        _rows.number(at)


def _read_event(at: Any, data: Any) -> None:
    _rows.moment(at)
    from_json(from_column(data))


def _read_rewind(at: Any, newest: Any, messages: Any) -> None:
    _rows.moment(at)
    _rows.count(newest)
    for move in from_json(messages):
        for seq in (move[0], *(seq for seq in move[1:] if seq is not None)):
            _rows.count(seq)
        if len(move) != 3:  # noqa: PLR2004 - a seq, what hid it before and after
            raise ValueError(f"{move} is no move")


def _read_change(seq: Any, path: Any, rewind: Any) -> None:
    _rows.count(seq)
    _texts(path)
    if rewind is not None:
        _rows.count(rewind)


def _read_usage(at: Any, kind: Any, model: Any, cost: Any, *tokens: Any) -> None:
    _rows.moment(at)
    _texts(kind, model)
    for value in tokens:
        if value is not None:
            _rows.count(value)
    if cost is not None:
        _rows.number(cost)


def _texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str | bytes):
            raise MalformedBody(f"{value!r:.40} is no text")
        from_column(value)


def _read_times(*times: Any) -> None:
    for at in times:
        if at is not None:
            _rows.moment(at)


_BESIDE: tuple[tuple[str, str, str, Callable[..., object]], ...] = (
    ("kv", "key", "key, value", _read_value),
    ("note", "id", "after_seq, created_at, kind, text", _read_note),
    ("input_queue", "id", "kind, state, created_at, updated_at", _read_queued),
    ("event", "id", "created_at, data", _read_event),
    ("tool_run", "call_id", "started_at, finished_at", _read_times),
    ("rewind", "id", "created_at, newest_seq, messages", _read_rewind),
    ("file_change", "id", "seq, path, rewind", _read_change),
    (
        "usage",
        "id",
        f"created_at, kind, model, cost_usd, {', '.join(USAGE_FIELDS)}",
        _read_usage,
    ),
)


def _session_problems(db: sqlite3.Connection) -> Iterator[str]:
    try:
        _rows.read_info(db)
    except MalformedBody as error:
        yield f"session: {error}"


def _blob_problems(db: sqlite3.Connection) -> Iterator[str]:
    import hashlib

    for name, size, data in db.execute("SELECT hash, size, data FROM blob"):
        if not isinstance(data, bytes) or len(data) != size:
            yield f"blob {name}: wrong size"
        elif hashlib.sha256(data).hexdigest() != name:
            yield f"blob {name}: its content has changed"


def _law_problems(db: sqlite3.Connection, messages: list[Message]) -> Iterator[str]:
    history = History()
    for message in messages:
        try:
            history.append(message)
        except HistoryViolation as error:
            yield f"history: {error.message}"
            return
    if history.pending and _status(db) not in _MAY_HAVE_PENDING:
        yield f"history: calls without a result: {', '.join(c.id for c in history.pending)}"


def _status(db: sqlite3.Connection) -> SessionStatus | None:
    try:
        return _rows.read_info(db).status
    except MalformedBody:
        return None


def _run_problems(db: sqlite3.Connection, messages: dict[int, Message]) -> Iterator[str]:
    calls = {
        call.id: seq
        for seq, message in messages.items()
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
    }
    get_blob = _presence(db)
    seen = set()
    for raw_id, status, message_seq, parked, result_seq in db.execute(
        "SELECT call_id, status, message_seq, result, result_seq FROM tool_run"
    ):
        call_id = from_column(raw_id)
        seen.add(call_id)
        if calls.get(call_id) != message_seq:
            yield f"tool run {call_id}: message {message_seq} has no such call"
        if status not in set(RunStatus):
            yield f"tool run {call_id}: unknown status {status!r}"
        if result_seq is not None:
            answer = messages.get(result_seq)
            if not isinstance(answer, ToolResult) or answer.call_id != call_id:
                yield f"tool run {call_id}: message {result_seq} is not its result"
        elif status == RunStatus.FINISHED and parked is None:
            yield f"tool run {call_id}: finished without a result"
        if parked is not None:
            try:
                decode("tool", parked, get_blob)
            except (MalformedBody, NewerBody) as error:
                yield f"tool run {call_id}: {error}"
    for call_id in calls.keys() - seen:
        yield f"call {call_id}: it has no row in tool_run"
