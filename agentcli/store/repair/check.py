"""Proving a session file: the database, the values, the references and the history law.

``check`` changes nothing and says every problem in one line each; an empty answer is the
proof. What it finds, ``repair`` repairs.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentcli.domain.errors import HistoryViolation, SessionTooNew
from agentcli.domain.history import History
from agentcli.domain.messages import AssistantMessage, Message, ToolResult
from agentcli.domain.ports import RunStatus
from agentcli.domain.session import SessionStatus
from agentcli.store import reads as _rows
from agentcli.store import tasks as _tasks
from agentcli.store.codec import MalformedBody, NewerBody, decode, from_column
from agentcli.store.disk import is_session_name
from agentcli.store.faults import fault
from agentcli.store.file import SessionFile

MAX_PROBLEMS = 50
_MAY_HAVE_PENDING = {SessionStatus.RUNNING, SessionStatus.CRASHED}


def check(path: Path) -> list[str]:
    """The problems of a session file, at most 50; empty when it is sound."""
    file = SessionFile(path, writable=False)
    try:
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
    yield from _session_problems(db)
    yield from _blob_problems(db)
    messages: dict[int, Message] = {}
    visible: list[Message] = []
    get_blob = _rows.blob_reader(db)
    rows = db.execute(
        "SELECT seq, role, body, created_at, hidden_by FROM message"  # noqa: S608 - constant
        f" ORDER BY {_rows.SENT_ORDER}"
    ).fetchall()
    summaries = {seq for seq, role, *_ in rows if role == "summary"}
    for seq, role, body, created_at, hidden_by in rows:
        try:
            messages[seq] = decode(role, body, get_blob)
            _rows.number(created_at)
        except (MalformedBody, NewerBody) as error:
            yield f"message {seq}: {error}"
            continue
        if hidden_by is None:
            visible.append(messages[seq])
        elif hidden_by not in {*summaries, seq}:
            yield f"message {seq}: it is hidden by {hidden_by}, which is no summary"
    yield from _law_problems(db, visible)
    yield from _run_problems(db, messages)
    yield from (problem for _, _, problem in _tasks.unreadable(db))


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
    get_blob = _rows.blob_reader(db)
    seen = set()
    for raw_id, status, message_seq, parked, result_seq in db.execute(
        "SELECT call_id, status, message_seq, result, result_seq FROM tool_run"
    ).fetchall():
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
