"""The registry of background runs: the rows of ``task`` and ``schedule`` (BG-3, BG-8).

Laws. An update names the attempt that it belongs to; where that is stale, or the run has ended,
it changes nothing. The end of a run and the message about it are one commit, so a crash neither
loses nor doubles the message (BG-5). Texts are redacted; arguments that redaction has changed
make the run one that cannot be repeated. Asking a run to end, and ending a schedule, are the
writes that need no writer's lock (REC-6, BG-6): one row of one table, in one transaction, read by
the session's owner; so is answering what a run asks, once. None needs a mark (``seals``).
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentcli.domain.background import (
    BackgroundTask,
    Beat,
    Schedule,
    TaskEnd,
    TaskProgress,
    TaskQuestion,
    TaskState,
    Wake,
)
from agentcli.domain.clean import as_object
from agentcli.domain.ports import EndRecorded, QueuedInput, QueueKind, QueueSource
from agentcli.store.codec import MalformedBody, from_column, from_json, to_column, to_json
from agentcli.store.file import BUSY_TIMEOUT_S, fault, read_with
from agentcli.store.lock import live_owner
from agentcli.store.reads import moment
from agentcli.store.seals import mark, put_mark
from agentcli.store.writes import queue_add

if TYPE_CHECKING:
    from agentcli.store.file import InTransaction

T = TypeVar("T")
Row = tuple[Any, ...]
_MOST_TEXT = 64 * 1024 * 1024  # of all rows of a table
_RUNNING, _ASKS = TaskState.RUNNING.value, TaskState.NEEDS_INPUT.value
FORKED = "it goes on in the session that this one is a copy of"
_TASK_COLUMNS = (
    "run_id, task_id, tool, arguments, title, state, created_at, updated_at, attempt, detail,"
    " progress, summary, log_path, result_path, error_kind, error_message, heartbeat_at,"
    " finished_at, cancel_requested_at, signals, announced_at, schedule_id, pid, pid_started,"
    " is_repeatable, question, answer, wake"
)

_SCHEDULE_COLUMNS = "id, run, created_at, cron_expression, scheduled_at, time_zone, next_at, state"
SCHEDULE_ACTIVE, SCHEDULE_OVER = "active", "over"


class TaskTable:
    """Satisfies ``engine.background.runs.TaskStore``; ``write`` and ``read`` are its file's."""

    __slots__ = ("_read", "_redact", "_write")

    def __init__(
        self, write: InTransaction, read: InTransaction, redact: Callable[[str], str]
    ) -> None:
        self._write = write
        self._read = read
        self._redact = redact

    @property
    def redact(self) -> Callable[[str], str]:
        """Takes out of text what the session file does not hold either (SEC-9)."""
        return self._redact

    async def add(self, task: BackgroundTask, fired: Schedule | None = None) -> None:
        """A run is about to start; with ``fired`` the schedule that started it, as it is now."""

        def body(db: sqlite3.Connection) -> None:
            _add(db, task, self._redact)
            if fired is not None:
                _put_schedule(db, fired, task.created_at, self._redact)

        await self._write(body)

    async def tasks(self) -> Sequence[BackgroundTask]:
        """All runs, oldest first."""
        return await self._read(read_tasks)

    async def beat(self, beats: Sequence[Beat], now: float) -> None:
        """The runs are alive."""
        await self._write(_beat, beats, now, self._redact)

    async def cancel_requests(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Those of the active runs ``run_ids`` that are asked to end."""
        return await self._read(_cancel_requests, run_ids)

    async def request_cancel(self, run_id: str, now: float) -> bool:
        """Ask an active run to end; false when it is not active."""
        return await self._write(request_cancel, run_id, now)

    async def end(self, end: TaskEnd, now: float) -> EndRecorded:
        """The end of an attempt, and its message in the input queue."""
        return await self._write(_end, end, now, self._redact)

    async def ask(
        self, run_id: str, attempt: int, question: TaskQuestion, message: str
    ) -> EndRecorded:
        """A run waits for an answer; ``message``, if any, waits in the input queue."""
        return await self._write(_ask, (run_id, attempt), question, message, self._redact)

    async def answered(self, run_id: str, attempt: int, question: TaskQuestion) -> bool:
        """It goes on: its question was answered, or is asked no longer; false: it had not asked."""
        return await self._write(_answered, (run_id, attempt), question, self._redact)

    async def answers(self, run_ids: Sequence[str]) -> Mapping[str, str]:
        """What other processes have answered to those of ``run_ids`` that ask."""
        return await self._read(_answers, run_ids)

    async def tell(self, run_id: str, attempt: int, message: str) -> EndRecorded:
        """What an active run tells the session on its way waits in the input queue (BG-9)."""
        return await self._write(_tell, run_id, attempt, message, self._redact)

    async def restart(self, run_id: str, attempt: int, now: float) -> int | None:
        """Begin the next attempt after ``attempt``; ``None`` when that is stale."""
        return await self._write(_restart, run_id, attempt, now)

    async def announce(self, run_ids: Sequence[str], message: str, now: float) -> EndRecorded:
        """Tell the session of runs that had ended unannounced."""
        return await self._write(_announce, run_ids, message, now, self._redact)

    async def schedules(self) -> Sequence[Schedule]:
        """All schedules, oldest first."""
        return await self._read(read_schedules)

    async def put_schedule(self, schedule: Schedule, now: float) -> None:
        """Add a schedule, or replace the one of its id."""
        await self._write(_put_schedule, schedule, now, self._redact)


def read_tasks(db: sqlite3.Connection) -> tuple[BackgroundTask, ...]:
    """All runs, oldest first. Raises ``MalformedBody``."""
    query = f"SELECT {_TASK_COLUMNS} FROM task ORDER BY created_at, run_id"  # noqa: S608 - constant
    return tuple(map(_bounded(_task), db.execute(query)))


def read_schedules(db: sqlite3.Connection) -> tuple[Schedule, ...]:
    """All schedules, oldest first. Raises ``MalformedBody``."""
    query = f"SELECT {_SCHEDULE_COLUMNS} FROM schedule ORDER BY created_at, id"  # noqa: S608 - constant
    return tuple(map(_bounded(_schedule), db.execute(query)))


def _bounded(read: Callable[[Row], T]) -> Callable[[Row], T]:
    """``read``, which refuses rows once they hold more than those of any session (SEC-13)."""
    room = _MOST_TEXT

    def read_bounded(row: Row) -> T:
        nonlocal room
        size = sum(len(value) for value in row if isinstance(value, str | bytes))
        if size > room:
            raise MalformedBody("there is more of it than in any session")
        room -= size
        return read(row)

    return read_bounded


def request_cancel(db: sqlite3.Connection, run_id: str, now: float) -> bool:
    """Ask an active run to end; any process may, not only the writer (BG-6)."""
    changed = db.execute(
        "UPDATE task SET cancel_requested_at = coalesce(cancel_requested_at, ?)"
        " WHERE run_id = ? AND state IN ('running', 'needs_input')",
        (now, to_column(run_id)),
    )
    return changed.rowcount == 1


def put_answer(db: sqlite3.Connection, run_id: str, text: str) -> bool:
    """Answer what a run asks; any process may, the first one counts (BG-9)."""
    changed = db.execute(
        "UPDATE task SET answer = ? WHERE run_id = ? AND state = ? AND answer IS NULL",
        (to_column(text), to_column(run_id), _ASKS),
    )
    return changed.rowcount == 1


def leave_to_the_original(db: sqlite3.Connection, now: float) -> None:
    """In a copy of a session: what runs, and what is to start, belongs to the original."""
    db.execute(
        "UPDATE task SET state = ?, attempt = attempt + 1, finished_at = ?, updated_at = ?,"
        " error_kind = 'forked', error_message = ?, pid = NULL, pid_started = '', answer = NULL,"
        " announced_at = NULL WHERE state IN ('running', 'needs_input')",
        (TaskState.INTERRUPTED.value, now, now, FORKED),
    )
    db.execute(f"UPDATE task SET seal = {mark('task')} WHERE seal <> ''")  # noqa: S608 - own names
    db.execute("UPDATE schedule SET state = ?, next_at = NULL, seal = ''", (SCHEDULE_OVER,))


def unreadable(db: sqlite3.Connection) -> Iterator[tuple[str, Any, str]]:
    """Table, id and what is wrong in one line, of each row that cannot be read."""
    for table, columns, decode in (
        ("task", _TASK_COLUMNS, _bounded(_task)),
        ("schedule", _SCHEDULE_COLUMNS, _bounded(_schedule)),
    ):
        for row in db.execute(f"SELECT {columns} FROM {table}"):  # noqa: S608 - constants
            try:
                decode(row)
            except MalformedBody as error:
                yield table, row[0], str(error)


# --- writes --------------------------------------------------------------------------------


def _add(db: sqlite3.Connection, task: BackgroundTask, redact: Callable[[str], str]) -> None:
    given = to_json(dict(task.arguments))
    kept = redact(given)
    values = {
        "run_id": to_column(task.run_id),
        "task_id": to_column(task.task_id),
        "tool": to_column(task.tool),
        "arguments": kept,
        "title": to_column(redact(task.title)),
        "state": task.state.value,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
        "attempt": task.attempt,
        "detail": to_column(redact(task.detail)),
        "progress": _progress_json(task.progress),
        "log_path": to_column(task.log_path),
        "result_path": to_column(task.result_path),
        "heartbeat_at": task.heartbeat_at,
        "signals": int(task.signals),
        "schedule_id": to_column(task.schedule_id),
        "pid": task.pid,
        "pid_started": task.pid_started,
        "is_repeatable": int(task.is_repeatable and kept == given),
        "wake": task.wake.value,
    }
    marks = ", ".join(f":{name}" for name in values)
    db.execute(f"INSERT INTO task ({', '.join(values)}) VALUES ({marks})", values)  # noqa: S608 - own names
    put_mark(db, "task", to_column(task.run_id))


def _beat(
    db: sqlite3.Connection, beats: Sequence[Beat], now: float, redact: Callable[[str], str]
) -> None:
    for beat in beats:
        changed = db.execute(
            "UPDATE task SET heartbeat_at = :now, updated_at = :now, detail = :detail,"
            " progress = :progress, pid = :pid, pid_started = :started"
            " WHERE run_id = :run_id AND attempt = :attempt"
            " AND state IN ('running', 'needs_input')",
            {
                "now": now,
                "detail": to_column(redact(beat.detail)),
                "progress": _progress_json(beat.progress),
                "pid": beat.pid,
                "started": beat.pid_started,
                "run_id": to_column(beat.run_id),
                "attempt": beat.attempt,
            },
        )
        if changed.rowcount == 1:
            put_mark(db, "task", to_column(beat.run_id))


def _cancel_requests(db: sqlite3.Connection, run_ids: Sequence[str]) -> Sequence[str]:
    query = (
        "SELECT 1 FROM task WHERE run_id = ? AND cancel_requested_at IS NOT NULL"
        " AND state IN ('running', 'needs_input')"
    )
    return [name for name in run_ids if db.execute(query, (to_column(name),)).fetchone()]


def _answers(db: sqlite3.Connection, run_ids: Sequence[str]) -> Mapping[str, str]:
    query = "SELECT answer FROM task WHERE run_id = ? AND state = ? AND answer IS NOT NULL"
    found = {name: db.execute(query, (to_column(name), _ASKS)).fetchone() for name in run_ids}
    return {name: from_column(row[0]) for name, row in found.items() if row}


def _ask(
    db: sqlite3.Connection,
    run: tuple[str, int],
    question: TaskQuestion,
    message: str,
    redact: Callable[[str], str],
) -> EndRecorded:
    changed = _change_state(db, run, (_RUNNING, _ASKS), question, redact)
    return EndRecorded(changed=changed, message=_enqueue(db, message if changed else "", redact))


def _answered(
    db: sqlite3.Connection,
    run: tuple[str, int],
    question: TaskQuestion,
    redact: Callable[[str], str],
) -> bool:
    return _change_state(db, run, (_ASKS, _RUNNING), question, redact)


def _change_state(
    db: sqlite3.Connection,
    run: tuple[str, int],
    states: tuple[str, str],
    question: TaskQuestion,
    redact: Callable[[str], str],
) -> bool:
    """``run`` is its id and its attempt; ``states``: what it has to be and what it is then."""
    before, after = states
    asked = {"text": question.text, "options": question.options, "answer": question.answer}
    changed = db.execute(
        "UPDATE task SET state = ?, question = ?, answer = NULL, updated_at = ?"
        " WHERE run_id = ? AND attempt = ? AND state = ?",
        (after, redact(to_json(asked)), time.time(), to_column(run[0]), run[1], before),
    )
    if changed.rowcount == 1:
        put_mark(db, "task", to_column(run[0]))
    return changed.rowcount == 1


def _tell(
    db: sqlite3.Connection, run_id: str, attempt: int, message: str, redact: Callable[[str], str]
) -> EndRecorded:
    query = (
        "SELECT 1 FROM task WHERE run_id = ? AND attempt = ?"
        " AND state IN ('running', 'needs_input')"
    )
    if not db.execute(query, (to_column(run_id), attempt)).fetchone():
        return EndRecorded(changed=False)
    return EndRecorded(changed=True, message=_enqueue(db, message, redact))


def _end(
    db: sqlite3.Connection, end: TaskEnd, now: float, redact: Callable[[str], str]
) -> EndRecorded:
    changed = db.execute(
        "UPDATE task SET state = :state, summary = :summary, error_kind = :kind,"
        " error_message = :error, finished_at = :now, updated_at = :now, announced_at = :announced,"
        " pid = NULL, pid_started = '', answer = NULL"
        " WHERE run_id = :run_id AND attempt = :attempt"
        " AND state IN ('running', 'needs_input')",
        {
            "state": end.state.value,
            "summary": to_column(redact(end.summary)),
            "kind": end.error_kind or None,
            "error": to_column(redact(end.error_message)) if end.error_message else None,
            "now": now,
            "announced": now if end.message else None,
            "run_id": to_column(end.run_id),
            "attempt": end.attempt,
        },
    )
    if changed.rowcount != 1:
        return EndRecorded(changed=False)
    put_mark(db, "task", to_column(end.run_id))
    return EndRecorded(changed=True, message=_enqueue(db, end.message, redact))


def _restart(db: sqlite3.Connection, run_id: str, attempt: int, now: float) -> int | None:
    changed = db.execute(
        "UPDATE task SET state = ?, attempt = attempt + 1, updated_at = ?, heartbeat_at = NULL,"
        " detail = '', progress = NULL, pid = NULL, pid_started = '', cancel_requested_at = NULL,"
        " answer = NULL WHERE run_id = ? AND attempt = ? AND state IN ('running', 'needs_input')",
        (_RUNNING, now, to_column(run_id), attempt),
    )
    if changed.rowcount != 1:
        return None
    put_mark(db, "task", to_column(run_id))
    return attempt + 1


def _announce(
    db: sqlite3.Connection,
    run_ids: Sequence[str],
    message: str,
    now: float,
    redact: Callable[[str], str],
) -> EndRecorded:
    changed = 0
    for run_id in run_ids:
        changed += db.execute(
            "UPDATE task SET announced_at = ?"
            " WHERE run_id = ? AND announced_at IS NULL"
            " AND state NOT IN ('running', 'needs_input')",
            (now, to_column(run_id)),
        ).rowcount
    message = message if changed else ""
    return EndRecorded(changed=bool(changed), message=_enqueue(db, message, redact))


def _enqueue(
    db: sqlite3.Connection, message: str, redact: Callable[[str], str]
) -> QueuedInput | None:
    if not message:
        return None
    return queue_add(db, QueueKind.FOLLOW_UP, message, redact, QueueSource.BACKGROUND)


def _put_schedule(
    db: sqlite3.Connection, schedule: Schedule, now: float, redact: Callable[[str], str]
) -> None:
    run = {
        "tool": schedule.tool,
        "arguments": dict(schedule.arguments),
        "title": schedule.title,
        "signals": schedule.signals,
        "wake": schedule.wake.value,
        "approved": schedule.approved,
        "root": schedule.root,
        "cwd": schedule.cwd,
    }
    db.execute(
        "INSERT INTO schedule (id, cron_expression, scheduled_at, time_zone, run, state, next_at,"
        " created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
        " SET run = excluded.run, state = excluded.state, next_at = excluded.next_at,"
        " updated_at = excluded.updated_at",
        (
            to_column(schedule.id),
            schedule.cron_expression,
            schedule.scheduled_at,
            schedule.time_zone,
            redact(to_json(run)),
            SCHEDULE_ACTIVE if schedule.is_active else SCHEDULE_OVER,
            schedule.next_at,
            schedule.created_at,
            now,
        ),
    )
    put_mark(db, "schedule", to_column(schedule.id))


# --- rows ----------------------------------------------------------------------------------


_UNFIT = (ValueError, TypeError, KeyError, OverflowError, RecursionError)


def _task(row: tuple[Any, ...]) -> BackgroundTask:
    texts = {number: from_column(row[number]) for number in (0, 1, 2, 4, 9, 11, 12, 13, 14, 15)}
    run_id = texts[0]
    try:
        return BackgroundTask(
            run_id=run_id,
            task_id=texts[1],
            tool=texts[2],
            arguments=_object(row[3]),
            title=texts[4],
            state=TaskState(row[5]),
            created_at=moment(row[6]),
            updated_at=moment(row[7]),
            attempt=int(row[8]),
            detail=texts[9],
            progress=_progress(row[10]),
            summary=texts[11],
            log_path=texts[12],
            result_path=texts[13],
            error_kind=texts[14],
            error_message=texts[15],
            heartbeat_at=_time(row[16]),
            finished_at=_time(row[17]),
            cancel_requested_at=_time(row[18]),
            signals=bool(row[19]),
            announced_at=_time(row[20]),
            schedule_id=from_column(row[21]),
            pid=None if row[22] is None else int(row[22]),
            pid_started=from_column(row[23]),
            is_repeatable=bool(row[24]),
            question=_question(row[25], row[26]),
            wake=Wake(row[27]),
        )
    except _UNFIT as error:
        raise MalformedBody(f"task {run_id}: {error}") from error


def _schedule(row: tuple[Any, ...]) -> Schedule:
    try:
        run = _object(row[1])
        arguments = run.get("arguments")
        return Schedule(
            id=from_column(row[0]),
            tool=str(run.get("tool") or ""),
            arguments=as_object(arguments),
            title=str(run.get("title") or ""),
            created_at=moment(row[2]),
            cron_expression=None if row[3] is None else from_column(row[3]),
            scheduled_at=None if row[4] is None else from_column(row[4]),
            time_zone=from_column(row[5]),
            next_at=_time(row[6]),
            is_active=row[7] == SCHEDULE_ACTIVE,
            signals=bool(run.get("signals", True)),
            wake=Wake(run.get("wake", Wake.COMPLETION)),
            approved=str(run.get("approved") or ""),
            cwd=str(run.get("cwd") or ""),
            root=str(run.get("root") or ""),
        )
    except _UNFIT as error:
        raise MalformedBody(f"schedule {from_column(row[0])}: {error}") from error


def _object(text: str) -> dict[str, Any]:
    value = from_json(text)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value


def _time(value: Any) -> float | None:
    return None if value is None else moment(value)


def _progress(text: str | None) -> TaskProgress | None:
    value: Mapping[str, Any] = _object(text) if text else {}
    if not value:
        return None
    total = value.get("total")
    return TaskProgress(
        float(value["current"]),
        None if total is None else float(total),
        str(value.get("unit") or ""),
        str(value.get("label") or ""),
    )


def _question(text: str | None, waiting: str | None) -> TaskQuestion | None:
    if text is None:
        return None
    value = _object(text)
    options, answer = value.get("options"), value.get("answer")
    return TaskQuestion(
        str(value.get("text") or ""),
        tuple(map(str, options)) if isinstance(options, list) else (),
        None if answer is None else str(answer),
        None if waiting is None else from_column(waiting),
    )


def _progress_json(progress: TaskProgress | None) -> str | None:
    if progress is None:
        return None
    return to_json(
        {
            "current": progress.current,
            "total": progress.total,
            "unit": progress.unit,
            "label": progress.label,
        }
    )


# --- for other processes: these functions block --------------------------------------------


def read_registry(path: Path) -> tuple[Sequence[BackgroundTask], Sequence[Schedule]]:
    """All runs and schedules of a session file, oldest first; raises ``StoreError``."""
    return read_with(path, lambda db: (read_tasks(db), read_schedules(db)))


def is_looked_after(path: Path) -> bool:
    """Whether a process has the session open, so that somebody reads what is asked of its runs."""
    return live_owner(path) is not None


def ask_to_cancel(path: Path, run_id: str) -> bool:
    """Ask an active run to end, in whatever process; false when it is not active.

    Nobody ends it where the session is not open. Raises ``StoreError``.
    """
    if all(task.run_id != run_id or not task.is_active for task in read_registry(path)[0]):
        return False
    return _write(path, lambda db: request_cancel(db, run_id, time.time()))


def leave_answer(path: Path, run_id: str, text: str) -> bool:
    """Answer what a run of a session that is open asks; false when it asks nothing (any more).

    Raises ``StoreError``.
    """
    return _write(path, lambda db: put_answer(db, run_id, text))


def end_schedule(path: Path, schedule_id: str) -> bool:
    """End a schedule, in whatever process the session is open; false when it is not active.

    Raises ``StoreError``.
    """
    if all(each.id != schedule_id or not each.is_active for each in read_registry(path)[1]):
        return False
    query = (
        "UPDATE schedule SET state = ?, next_at = NULL, updated_at = ?, seal = ''"
        " WHERE id = ? AND state = ?"
    )
    values = (SCHEDULE_OVER, time.time(), schedule_id, SCHEDULE_ACTIVE)
    return _write(path, lambda db: db.execute(query, values).rowcount == 1)


def _write(path: Path, body: Callable[[sqlite3.Connection], bool]) -> bool:
    try:
        name = path.as_uri()
        db = sqlite3.connect(f"{name}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S)
        with contextlib.closing(db), db:
            return body(db)
    except (sqlite3.Error, OSError) as error:
        raise fault(error, path, writing=True) from error
