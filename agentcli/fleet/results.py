"""The directory of a batch: what was begun and how it ended, and one row for each task (SCALE-2).

``journal.jsonl`` is the truth: a line is added before a task starts and when it ends, the latter
on disk before anybody hears of it. ``results.jsonl`` is made of it, as a whole or not at all: one
row for each task, in their order, of the shape of ``results.schema.json``. Laws: a session's id
follows from the batch, the task and how often it was begun afresh, so that no kill at any moment
lets a task have two sessions; one process at a time writes; a torn last line is as if it had not
been written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Self

from agentcli.domain.clean import MAX_VALUES, read_json
from agentcli.domain.errors import PersistenceError, UsageError
from agentcli.domain.files import directory_of, make_private_directory, refuse_links
from agentcli.domain.session import session_id_at
from agentcli.domain.values import mutable
from agentcli.ui.sanitize import safe_json

JOURNAL = "journal.jsonl"
RESULTS = "results.jsonl"
REPORT = "report.html"
STEPS = "steps.json"
SESSIONS = "sessions"
"""The folder beside the report with a page for each session that it links to."""
FORMAT = "agentcli-batch/1"
MAX_LINE_BYTES = 64 * 1024 * 1024
_MOST_VALUES = 2 * MAX_VALUES  # a result in a shape that was asked for, and the rest
_HEAD = f'{{"format": "{FORMAT}"'.encode()
_TEMPORARY = re.compile(r"\.[\w.-]+\.(?:jsonl|json|html)\.[0-9]+")
_UNFIT = re.compile(r"[^a-z0-9-]+")
_SLUG_CHARS = 40
_LARGEST = 1 << 53
_DIGEST_CHARS = 16


class BatchState(StrEnum):
    """How a task stands. The last three are to be brought to their end."""

    DONE = "done"
    FAILED = "failed"
    LIMIT = "limit"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    PENDING = "pending"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more becomes of it by itself."""
        return self not in {BatchState.INTERRUPTED, BatchState.RUNNING, BatchState.PENDING}


@mutable
class TaskStanding:
    """What is known of a task beside what it was to do.

    ``cost_usd`` is that of all its sessions, ``None`` where it is unknown; ``earlier_usd`` that of
    the sessions before this one, of which there were ``afresh``. ``row_at`` is where its row stands
    in the journal.
    """

    state: BatchState = BatchState.PENDING
    session_id: str = ""
    afresh: int = 0
    attempts: int = 0
    exit_code: int | None = None
    cost_usd: float | None = 0.0
    earlier_usd: float = 0.0
    duration_ms: int = 0
    content: str = ""
    row_at: int = -1


class Journal:
    """The open journal of ``directory``; ``tasks`` is how each task stands, by its id.

    Its functions block: they are for a thread, one at a time.
    """

    def __init__(self, directory: Path, file: BinaryIO) -> None:
        self.directory = directory
        self.tasks: dict[str, TaskStanding] = {}
        self.is_new = True
        self._file = file
        self.batch = ""
        """The id of the batch: another for each directory."""
        self._created_ms = 0

    @staticmethod
    def place(named: Path) -> Path:
        """The real path of a directory; raises ``UsageError`` where a link leads to it."""
        try:
            refuse_links(named)
        except OSError:
            advice = "name where results are to go with -o DIR"
            raise UsageError(f"{named} is a link, or behind one", advice) from None
        return named.resolve()

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Take the directory, made if it is missing. Raises ``UsageError`` or ``StoreError``."""
        try:
            make_private_directory(directory)
            path = directory / JOURNAL
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.fdopen(os.open(path, flags, 0o600), "r+b")
        except OSError as error:
            what = f"cannot write to {directory}: {(error.strerror or str(error)).lower()}"
            raise UsageError(what, "give another directory with -o DIR") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UsageError(
                f"another agent is at work on {directory}", "wait for it, or give another -o DIR"
            ) from None
        except OSError:
            pass  # a file system without locks
        tidy(directory)
        journal = cls(directory, file)
        try:
            journal._read()
        except BaseException:
            file.close()
            raise
        return journal

    def close(self) -> None:
        """Let another process have the directory."""
        self._file.close()

    def session_of(self, task_id: str) -> str:
        """The id of the session that the task has or is to get."""
        afresh = self.tasks[task_id].afresh if task_id in self.tasks else 0
        name = json.dumps([self.batch, task_id, afresh]).encode()
        return session_id_at(self._created_ms, hashlib.sha256(name).digest())

    def worktree_of(self, task_id: str) -> str:
        """The name of the task's worktree, which is one of a branch, too."""
        slug = _UNFIT.sub("-", task_id).strip("-.")[:_SLUG_CHARS].rstrip("-.")
        digest = hashlib.sha256(task_id.encode()).hexdigest()[:_DIGEST_CHARS]
        plain = slug if slug == task_id else f"{slug or 'task'}-{digest}"
        return f"batch-{self.batch[:6]}-{plain}"

    # --- reading ---------------------------------------------------------------------------------

    def _read(self) -> None:
        end, size = 0, self._file.seek(0, os.SEEK_END)
        for at, line in self._lines():
            is_ours = at > 0 or _HEAD.startswith(line[: len(_HEAD)])
            if is_ours and not line.endswith(b"\n"):
                break  # torn: the end of what was written
            try:
                self._take(read_value(line), at)
            except (ValueError, TypeError, LookupError, AttributeError):
                raise self._damaged(at) from None
            end = at + len(line)
        if end < size:
            self._file.truncate(end)
        self.is_new = not end
        if self.is_new:
            try:
                refuse_foreign(self.directory, "no journal of a batch beside it")
            except UsageError:
                (self.directory / JOURNAL).unlink()  # it is new and empty
                raise
            self.batch, self._created_ms = uuid.uuid4().hex, time.time_ns() // 1_000_000
            head = {"format": FORMAT, "batch": self.batch, "created_ms": self._created_ms}
            self._write(head, lasting=True)

    def _damaged(self, at: int) -> UsageError:
        """Nothing of a file is thrown away that another, or a user, has written."""
        path = self.directory / JOURNAL
        if at == 0:
            what = f"{path} is not the journal of a batch"
            return UsageError(what, "give another directory with -o DIR")
        return UsageError(f"{path} is damaged at byte {at:,}", "correct that line, or remove it")

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        at = 0
        while line := self._file.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:  # a task may have written it (SEC-13)
                raise self._damaged(at)
            yield at, line
            at += len(line)

    def _take(self, value: Mapping[str, Any], at: int) -> None:
        if at == 0:
            if value.get("format") != FORMAT:
                raise self._damaged(at)
            self.batch, self._created_ms = str(value["batch"]), _count(value["created_ms"])
        elif (begun := value.get("begin")) is not None:
            known = self.tasks.setdefault(str(begun), TaskStanding())
            known.state = BatchState.INTERRUPTED
            known.attempts = _count(value["attempts"])
            known.afresh = _count(value["afresh"])
            known.session_id = self.session_of(str(begun))
            if value["session_id"] != known.session_id:
                raise ValueError(begun)
            known.earlier_usd = _amount(value["earlier_usd"])
            known.content = str(value["content"])
            known.row_at = -1
        elif (ran := value.get("ran")) is not None and str(ran) in self.tasks:
            known = self.tasks[str(ran)]
            known.cost_usd, known.duration_ms = _spent(value)
        elif isinstance(row := value.get("end"), dict):
            known = self.tasks.setdefault(str(row["id"]), TaskStanding())
            known.state = BatchState(row["state"])
            known.exit_code = None if row["exit_code"] is None else _count(row["exit_code"])
            known.cost_usd, known.duration_ms = _spent(row)
            known.row_at = at

    # --- writing ---------------------------------------------------------------------------------

    def begin(self, task_id: str, content: str) -> TaskStanding:
        """The task starts, once more or for the first time; how it stands then."""
        known = self.tasks.setdefault(task_id, TaskStanding())
        known.state = BatchState.RUNNING
        known.session_id = self.session_of(task_id)
        known.content = content
        known.attempts += 1
        known.row_at = -1
        line = {
            "begin": task_id,
            "session_id": known.session_id,
            "attempts": known.attempts,
            "afresh": known.afresh,
            "earlier_usd": known.earlier_usd,
            "content": content,
        }
        self._write(line, lasting=False)
        return known

    def ran(self, task_id: str) -> None:
        """A run of the task is over, and the task is not: what all of its runs have cost."""
        known = self.tasks[task_id]
        cost, took_ms = known.cost_usd, known.duration_ms
        line = {"ran": task_id, "cost_usd": cost, "duration_ms": took_ms}
        self._write(line, lasting=False)

    def begin_afresh(self, task_id: str) -> None:
        """The next start of the task is in another session; what it has cost is remembered."""
        known = self.tasks[task_id]
        known.afresh += 1
        known.earlier_usd = known.cost_usd or 0.0

    def end(self, task_id: str, row: Mapping[str, Any]) -> None:
        """The task has ended; ``row`` is what its row says beside what is known of it."""
        known = self.tasks[task_id]
        known.row_at = self._write({"end": {**_row(task_id, known), **row}}, lasting=True)

    def _write(self, value: Mapping[str, Any], *, lasting: bool) -> int:
        """Add a line; where it begins. ``lasting``: it is on disk before this returns."""
        data = _line(value)
        handle = self._file.fileno()
        at = self._file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(handle, data) :]
            if lasting:
                os.fsync(handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(handle, at)
            raise _unwritten(self.directory / JOURNAL, error) from error
        return at

    # --- the rows --------------------------------------------------------------------------------

    def rows(self, tasks: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """The row of each of ``tasks``. Raises ``UsageError`` where the file is damaged."""
        for task_id in tasks:
            known = self.tasks.get(task_id, TaskStanding())
            if known.row_at < 0:
                yield {**_row(task_id, known), "result": ""}
                continue
            self._file.seek(known.row_at)
            try:
                row = dict(read_value(self._file.readline(MAX_LINE_BYTES + 1))["end"])
            except (ValueError, TypeError, LookupError):
                raise self._damaged(known.row_at) from None
            yield {"result": "", **row, **_row(task_id, known)}

    def write_results(self, tasks: Sequence[str]) -> None:
        """Write ``results.jsonl`` for ``tasks``, whole or not at all."""
        write_whole(self.directory / RESULTS, (_line(row) for row in self.rows(tasks)))


def read_value(data: bytes) -> Any:
    """What is written in a file that a task may have changed (SEC-13); raises ``ValueError``."""
    return read_json(data, most=_MOST_VALUES)


def _spent(value: Mapping[str, Any]) -> tuple[float | None, int]:
    cost = value["cost_usd"]
    return None if cost is None else _amount(cost), _count(value["duration_ms"])


def _count(value: Any) -> int:
    """A number that can be one of ours; raises ``ValueError`` for any other, and ``TypeError``."""
    return int(_amount(value))


def _amount(value: Any) -> float | int:
    if not 0 <= value <= _LARGEST:  # no NaN either
        raise ValueError("no number of a batch")
    return value if isinstance(value, int) else float(value)


def _row(task_id: str, known: TaskStanding) -> dict[str, Any]:
    return {
        "id": task_id,
        "session_id": known.session_id or None,
        "state": str(known.state),
        "exit_code": known.exit_code,
        "cost_usd": known.cost_usd,
        "duration_ms": known.duration_ms,
        "attempts": known.attempts,
    }


def _line(value: Mapping[str, Any]) -> bytes:
    text = safe_json(json.dumps(value, ensure_ascii=False))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def refuse_foreign(directory: Path, why: str) -> None:
    """Raise ``UsageError`` where results would replace what is not known to be theirs."""
    for path in (directory / name for name in (RESULTS, REPORT, STEPS)):
        if os.path.lexists(path):
            advice = "give another directory with -o DIR, or move it away"
            raise UsageError(f"{path} is there, and {why}", advice)


def tidy(directory: Path) -> None:
    """Take away what a killed process has half written; nobody else may be at work there."""
    for folder in (directory, directory / SESSIONS):
        if folder.is_symlink():
            continue
        with suppress(OSError):
            for path in folder.iterdir():
                if _TEMPORARY.fullmatch(path.name):
                    path.unlink()


def write_whole(path: Path, pieces: Iterator[bytes]) -> None:
    """Write a file that is there whole or not at all. Raises ``PersistenceError``.

    ``path`` is a real one: what runs meanwhile may have put a link in its way (SEC-5).
    """
    temporary = f".{path.name}.{os.getpid()}"
    try:
        with directory_of(path) as place:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=place), "wb") as file:
                    os.fchmod(file.fileno(), 0o600)
                    file.writelines(pieces)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path.name, src_dir_fd=place, dst_dir_fd=place)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=place)
                raise
    except OSError as error:
        raise _unwritten(path, error) from error


def make_folder(path: Path) -> None:
    """Make a directory if it is missing, as ``write_whole`` a file."""
    try:
        with suppress(FileExistsError), directory_of(path) as place:
            os.mkdir(path.name, 0o700, dir_fd=place)
    except OSError as error:
        raise _unwritten(path, error) from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """The same with ``value`` in a line. Raises ``PersistenceError``."""
    write_whole(path, iter([_line(value)]))


def _unwritten(path: Path, error: OSError) -> PersistenceError:
    reason = (error.strerror or str(error)).lower()
    advice = "make room, and start the batch again: what is done stays done"
    return PersistenceError(f"cannot write {path}: {reason}", advice)
