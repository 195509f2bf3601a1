"""Reading a session file: rows become the values of ``domain.session``.

Law: what says that it runs is reported as crashed where the process that ran it is dead.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from agentcli.domain.clean import FEW_VALUES_CHARS, count_values
from agentcli.domain.errors import PersistenceError
from agentcli.domain.messages import AssistantMessage, Message, ToolResult, Usage
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.session import (
    KeptEvent,
    LoadedSession,
    Note,
    Origin,
    SessionInfo,
    SessionPage,
    SessionStatus,
    StoredMessage,
)
from agentcli.store.codec import (
    GetBlob,
    MalformedBody,
    decode,
    from_column,
    from_json,
    prove,
    to_column,
)
from agentcli.store.file import MAX_VALUE_BYTES, SessionFile, faults_of
from agentcli.store.lock import live_owner

T = TypeVar("T")
P = ParamSpec("P")

SESSION_COLUMNS = "id, title, cwd, created_at, updated_at, status, detail, turns, model, parent_id"
# a summary comes before the message whose seq is its place
SENT_ORDER = "coalesce(place, seq), place IS NULL, seq"
CRASH_DETAIL = "it stopped without warning: a crash, a kill or a power loss"
SUBAGENT_KEY = "subagent"
"""Whose session it is, where it is not the user's: see ``SessionInfo.agent``."""
IMPORTED_KEY = "imported"
MAX_INDEXED_CHARACTERS = 100_000
LONGEST_NAME = 1_000_000
_BYTES_OF_VALUE = 64
_BYTES_OF_ROW = 400
MOST_AT_ONCE = 128_000_000
"""Characters of messages that are loaded at once: far more than any model takes (SEC-13)."""
MOST_ROWS = MOST_AT_ONCE // _BYTES_OF_ROW
"""Rows that are held at once, however short they are."""
_MOST = 1 << 53  # sums of them fit into what SQLite adds up
_LAST_MOMENT = 253_370_764_800.0  # the year 9999, in every time zone
_RUN_COLUMNS = "call_id, name, status, started_at, finished_at, result, display, line, outcome"


@dataclass(slots=True)
class _Room:
    """How many characters may still be read."""

    left: int = sys.maxsize

    def take(self, text: Any, role: str = "") -> None:
        """Raises ``PersistenceError`` where ``text`` does not fit, with the values of its calls."""
        if role == "assistant" and isinstance(text, str) and len(text) > FEW_VALUES_CHARS:
            self.left -= _BYTES_OF_VALUE * count_values(text)
        if not self.fits(text):
            most = f"{MOST_AT_ONCE // 1_000_000} MB"
            raise PersistenceError(
                f"this session cannot be loaded whole: it holds more than {most} of messages,"
                f" or {MOST_ROWS:,}",
                "read it: agent sessions show ID; or begin another: agent --new",
            )

    def fits(self, text: Any) -> bool:
        size = _BYTES_OF_ROW + len(text) if isinstance(text, str | bytes) else 0
        is_short = size <= self.left
        self.left -= size if is_short else 0
        return is_short


def read_session(db: sqlite3.Connection, *, hidden: bool = False) -> LoadedSession:
    """Everything but raw outputs; ``hidden`` includes what a compaction folded away.

    Raises ``PersistenceError`` for more than ``MOST_AT_ONCE`` of messages; what is only for showing
    is left out beyond it.
    """
    get_blob, room = blob_reader(db), _Room(MOST_AT_ONCE)
    messages, runs = _messages(db, get_blob, room, hidden=hidden), _runs(db, get_blob, room)
    return LoadedSession(read_info(db), messages, _notes(db, room), runs)


def read_info(db: sqlite3.Connection) -> SessionInfo:
    """The one row of ``session`` with the totals of ``usage``."""
    row = db.execute(f"SELECT {SESSION_COLUMNS} FROM session").fetchone()  # noqa: S608 - constant
    if row is None:
        raise MalformedBody("it holds no session")
    try:
        status = SessionStatus(row[5])
    except ValueError as error:
        raise MalformedBody(str(error)) from error
    if any(isinstance(each, str | bytes) and len(each) > LONGEST_NAME for each in row):
        raise MalformedBody("its title, directory or model is longer than any is")
    totals = db.execute(
        "SELECT sum(input_tokens), sum(output_tokens), sum(cache_read_tokens),"
        " sum(cache_write_tokens), sum(reasoning_tokens),"
        " sum(cost_usd), count(*) - count(cost_usd) FROM usage"
    ).fetchone()
    return SessionInfo(
        id=from_column(row[0]),
        title=from_column(row[1]),
        cwd=from_column(row[2]),
        created_at=moment(row[3]),
        updated_at=moment(row[4]),
        status=status,
        detail=from_column(row[6]),
        turns=count(row[7]),
        model=from_column(row[8]),
        parent_id=None if row[9] is None else from_column(row[9]),
        usage=Usage(*totals[:5]),
        # unknown in part is unknown (COST-1); who used nothing owes nothing
        cost_usd=(totals[5] or 0.0) if totals[6] == 0 else None,
        agent=_agent(db),
        origin=_origin(db),
    )


def _agent(db: sqlite3.Connection) -> str:
    """See ``SessionInfo``."""
    row = db.execute("SELECT value FROM kv WHERE key = ?", (SUBAGENT_KEY,)).fetchone()
    if row is None:
        return ""
    try:
        mark = from_json(row[0])
    except ValueError as error:
        raise MalformedBody(f"{SUBAGENT_KEY}: {error}") from error
    return str(mark.get("agent") or "task") if isinstance(mark, dict) else "task"


def _origin(db: sqlite3.Connection) -> Origin | None:
    """Where an imported session comes from."""
    row = db.execute("SELECT value FROM kv WHERE key = ?", (IMPORTED_KEY,)).fetchone()
    try:
        return None if row is None else Origin.from_json(from_json(row[0]))
    except (ValueError, TypeError):
        return None  # it is told, and acted on by nothing


def number(value: Any) -> float:
    """``value`` if it is a number; raises ``MalformedBody``."""
    if not isinstance(value, int | float):
        raise MalformedBody(f"{value!r:.40} is not a number")
    return value


def count(value: Any) -> int:
    """``value`` if it is a whole number that can be one of ours; raises ``MalformedBody``."""
    if not isinstance(value, int) or abs(value) > _MOST:
        raise MalformedBody(f"{value!r:.40} is no count")
    return value


def moment(value: Any) -> float:
    """A time in seconds since 1970, within what a clock can show; raises ``MalformedBody``."""
    return min(max(number(value), 0.0), _LAST_MOMENT)


def blob_reader(db: sqlite3.Connection) -> GetBlob:
    """A function from a blob's name to its bytes, each read once; raises ``KeyError``."""
    known: dict[str, bytes] = {}

    def get_blob(name: str) -> bytes:
        if name not in known:
            row = db.execute("SELECT data FROM blob WHERE hash = ?", (name,)).fetchone()
            if row is None:
                raise KeyError(f"blob {name}")
            known[name] = bytes(row[0])
        return known[name]

    return get_blob


def read_page(db: sqlite3.Connection, after: int, most: int) -> SessionPage:
    """At most ``most`` messages after the one with the seq ``after``; empty at the end."""
    get_blob = blob_reader(db)
    query = f"{_SELECT_MESSAGES} WHERE seq > ? AND hidden_by IS NOT seq ORDER BY seq LIMIT ?"
    messages = tuple(_decoded(db.execute(query, (after, most)), get_blob, _Room()))
    if not messages:
        return SessionPage()
    last = messages[-1].seq
    rows = db.execute(
        f"SELECT {_RUN_COLUMNS} FROM tool_run WHERE message_seq > ? AND message_seq <= ?"  # noqa: S608 - constants
        " ORDER BY rowid",
        (after, last),
    ).fetchall()
    runs = {run.call_id: run for run in (_run(row, get_blob) for row in rows)}
    notes = tuple(note for note in _notes(db, _Room()) if (after or -1) < note.after_seq <= last)
    return SessionPage(messages, notes, runs)


_SELECT_MESSAGES = "SELECT seq, created_at, role, body, hidden_by, checksum FROM message"


def _messages(
    db: sqlite3.Connection, get_blob: GetBlob, room: _Room, *, hidden: bool
) -> tuple[StoredMessage, ...]:
    """What is sent, in the order in which it is sent, or all in the order in which it came."""
    if hidden:
        return tuple(_decoded(db.execute(f"{_SELECT_MESSAGES} ORDER BY seq"), get_blob, room))
    rows = db.execute(f"{_SELECT_MESSAGES} WHERE hidden_by IS NULL ORDER BY seq")
    found = {stored.seq: stored for stored in _decoded(rows, get_blob, room)}
    return tuple(found[seq] for seq in sent_order(db))


def sent_order(db: sqlite3.Connection) -> list[int]:
    """The seqs of what is sent, in its order; bodies are never sorted, which would hold them."""
    query = f"SELECT seq FROM message WHERE hidden_by IS NULL ORDER BY {SENT_ORDER}"  # noqa: S608 - constant
    return [seq for (seq,) in db.execute(query)]


def _decoded(
    rows: Iterable[tuple[Any, ...]], get_blob: GetBlob, room: _Room
) -> Iterator[StoredMessage]:
    """One after another: the rows themselves are not held."""
    for row in rows:
        room.take(row[3], row[2])
        yield _stored(row, get_blob)


def _stored(row: tuple[Any, ...], get_blob: GetBlob) -> StoredMessage:
    seq, created_at, role, body, hidden_by, proof = row
    try:
        prove(role, body, proof)
        message = decode(role, body, get_blob)
        by = None if hidden_by is None else count(hidden_by)
        return StoredMessage(seq, moment(created_at), message, by)
    except MalformedBody as error:
        raise MalformedBody(f"message {seq}: {error}") from error


def _notes(db: sqlite3.Connection, room: _Room) -> tuple[Note, ...]:
    rows = db.execute(f"{_SELECT_NOTES} ORDER BY id")
    return tuple(_note(row) for row in rows if room.fits(row[4]))


_SELECT_NOTES = "SELECT id, after_seq, created_at, kind, text FROM note"


def _note(row: tuple[Any, ...]) -> Note:
    _, seq, at, kind, text = row
    return Note(count(seq), moment(at), from_column(kind), from_column(text))


def _runs(db: sqlite3.Connection, get_blob: GetBlob, room: _Room) -> Mapping[str, ToolRun]:
    found = {}
    for row in db.execute(f"SELECT {_RUN_COLUMNS} FROM tool_run ORDER BY rowid"):  # noqa: S608 - constants
        *facts, parked, display, line, outcome = row
        room.take(parked or "")
        texts = (text if room.fits(text) else "" for text in (display, line, outcome))
        run = _run((*facts, parked, *texts), get_blob)
        found[run.call_id] = run
    return found


def read_open_runs(db: sqlite3.Connection) -> Mapping[str, ToolRun]:
    """The rows of calls that have no result message yet."""
    rows = db.execute(
        f"SELECT {_RUN_COLUMNS} FROM tool_run WHERE result_seq IS NULL ORDER BY rowid"  # noqa: S608 - constants
    ).fetchall()
    get_blob = blob_reader(db)
    return {run.call_id: run for run in (_run(row, get_blob) for row in rows)}


def _run(row: tuple[Any, ...], get_blob: GetBlob) -> ToolRun:
    call_id, name, status, started_at, finished_at, parked, *texts = row
    call_id = from_column(call_id)
    try:
        result = None if parked is None else decode("tool", parked, get_blob)
        known_status = RunStatus(status)
    except ValueError as error:
        raise MalformedBody(f"tool run {call_id}: {error}") from error
    if result is not None and not isinstance(result, ToolResult):
        raise MalformedBody(f"tool run {call_id}: not a result")
    return ToolRun(
        call_id,
        from_column(name),
        known_status,
        None if started_at is None else moment(started_at),
        None if finished_at is None else moment(finished_at),
        result,
        *map(from_column, texts),
    )


# --- row after row -----------------------------------------------------------------------------

# Law: no more is held than ``_AT_ONCE`` and a row that goes beyond it. What was said never changes:
# rows that are read one after another belong together, also while others write.

_BEFORE_ALL = -(1 << 63)
_AT_ONCE = 500_000  # characters and bytes
_Decoded = Callable[[tuple[Any, ...], GetBlob], T]


@contextlib.contextmanager
def reading(path: Path) -> Iterator[SessionReader]:
    """One session file to be shown or exported, without locking it; raises ``StoreError``."""
    file = SessionFile(path, writable=False)
    try:
        with faults_of(path):
            file.open()
        yield SessionReader(file)
    finally:
        file.close()


class SessionReader:
    """The session in an open file, to be shown or exported (``SessionSource``).

    What comes from it raises ``StoreError``.
    """

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        info = self.read(read_info)
        self.info = with_true_status(info, file.path, own=False, live=False)
        # what comes after one that was asked for is asked for next
        self._runs: dict[str, ToolRun] = {}
        self._results: dict[str, ToolResult] = {}

    @property
    def messages(self) -> Iterator[StoredMessage]:
        """See ``SessionSource``."""
        return self._each(f"{_SELECT_MESSAGES} WHERE seq > ? ORDER BY seq", _stored)

    @property
    def said(self) -> Iterator[StoredMessage]:
        """See ``SessionSource``."""
        where = "seq > ? AND role <> 'tool'"
        return self._each(f"{_SELECT_MESSAGES} WHERE {where} ORDER BY seq", _stored)

    @property
    def notes(self) -> Iterator[Note]:
        """See ``SessionSource``."""
        return self._each(f"{_SELECT_NOTES} WHERE id > ? ORDER BY id", lambda row, _: _note(row))

    @property
    def tool_runs(self) -> Iterator[ToolRun]:
        """See ``SessionSource``."""
        query = f"SELECT rowid, {_RUN_COLUMNS} FROM tool_run WHERE rowid > ? ORDER BY rowid"  # noqa: S608 - constants
        return self._each(query, lambda row, get_blob: _run(row[1:], get_blob))

    def run_of(self, call_id: str) -> ToolRun | None:
        """See ``SessionSource``."""
        if call_id not in self._runs:
            first = "SELECT rowid FROM tool_run WHERE call_id = ?"
            query = f"SELECT {_RUN_COLUMNS} FROM tool_run WHERE rowid >= ({first}) ORDER BY rowid"  # noqa: S608 - constants
            found = self.read(_some, query, to_column(call_id), _run)
            self._runs = {run.call_id: run for run in found}
        return self._runs.pop(call_id, None)

    def result_of(self, call_id: str) -> ToolResult | None:
        """See ``SessionSource``."""
        if call_id not in self._results:
            first = "SELECT result_seq FROM tool_run WHERE call_id = ?"
            query = f"{_SELECT_MESSAGES} WHERE role = 'tool' AND seq >= ({first}) ORDER BY seq"
            found = self.read(_some, query, to_column(call_id), _stored)
            messages = (stored.message for stored in found)
            self._results = {
                each.call_id: each for each in messages if isinstance(each, ToolResult)
            }
        return self._results.pop(call_id, None)

    def _each(self, query: str, decoded: _Decoded[T]) -> Iterator[T]:
        """What the rows of ``query`` say, whose first column is their place."""
        after = _BEFORE_ALL

        def placed(row: tuple[Any, ...], get_blob: GetBlob) -> tuple[int, T]:
            return row[0], decoded(row, get_blob)

        while found := self.read(_some, query, after, placed):
            while found:
                after, value = found.popleft()
                yield value

    def read(
        self,
        body: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What ``body`` reads; raises ``StoreError``."""
        with faults_of(self._file.path):
            return self._file.read(body, *args, **kwargs)


def _some(db: sqlite3.Connection, query: str, key: Any, decoded: _Decoded[T]) -> deque[T]:
    """What the first rows of ``query`` say, with the images that they name."""
    found: deque[T] = deque()
    left = _AT_ONCE
    for row in db.execute(query, (key,)):
        room = _Room(MAX_VALUE_BYTES)
        found.append(decoded(row, _blobs_within(db, room)))
        left -= MAX_VALUE_BYTES - room.left
        left -= sum(len(value) for value in row if isinstance(value, str | bytes))
        if left < 0:
            break
    return found


def _blobs_within(db: sqlite3.Connection, room: _Room) -> GetBlob:
    get_blob = blob_reader(db)

    def get_within(name: str) -> bytes:
        data = get_blob(name)
        if not room.fits(data):
            most = f"{MAX_VALUE_BYTES >> 20} MB"
            what = f"a message of this session holds more than {most} of images and documents"
            raise PersistenceError(what, "it can be neither shown nor exported")
        return data

    return get_within


def read_state(db: sqlite3.Connection, key: str) -> Any:
    """The JSON value of ``key`` in ``kv``, or ``None``."""
    row = db.execute("SELECT value FROM kv WHERE key = ?", (to_column(key),)).fetchone()
    return None if row is None else from_json(row[0])


def read_raw(db: sqlite3.Connection, call_id: str) -> bytes | None:
    """The whole output of a call, when it was kept."""
    row = db.execute(
        "SELECT data FROM tool_run JOIN blob ON blob.hash = tool_run.raw WHERE call_id = ?",
        (call_id,),
    ).fetchone()
    return None if row is None else bytes(row[0])


def with_true_status(info: SessionInfo, path: Path, *, own: bool, live: bool) -> SessionInfo:
    """``info`` with "running" corrected to "crashed" where the process that ran it is dead.

    A session is called what its file is called, also when somebody has copied the file.
    ``own``: the caller holds the writer's lock; ``live``: and has begun the turn itself.
    """
    if info.id != path.stem:
        info = replace(info, id=path.stem)
    if info.status is not SessionStatus.RUNNING:
        return info
    alive = live if own else live_owner(path) is not None
    if alive:
        return info
    return replace(info, status=SessionStatus.CRASHED, detail=CRASH_DETAIL)


def read_events(
    db: sqlite3.Connection, after: int = 0, most: int = sys.maxsize
) -> tuple[int, list[KeptEvent]]:
    """The kept events after the one with the id ``after``, and the id of the last one read.

    Ends where there are more than ``most`` characters; without events there are no more.
    """
    found, size = [], 0
    rows = db.execute(
        "SELECT id, created_at, type, data FROM event WHERE id > ? ORDER BY id", (after,)
    )
    for row, at, kind, data in rows:
        after, text = row, from_column(data)
        found.append(KeptEvent(moment(at), str(kind), from_json(text)))
        size += len(text)
        if size > most:
            break
    return after, found


def searchable_texts(db: sqlite3.Connection, after: int) -> tuple[int, list[tuple[int, str]]]:
    """The last seq, and what can be found of the messages after ``after``, by their seqs."""
    reached, found = after, []
    rows = db.execute(f"{_SELECT_MESSAGES} WHERE seq > ? ORDER BY seq", (after,))
    for stored in _decoded(rows, lambda _: b"", _Room()):
        reached = stored.seq
        if text := _searchable(stored.message):
            found.append((reached, text))
    return reached, found


def _searchable(message: Message) -> str:
    """What users may look for: what was said and what tools printed; not the thinking."""
    text = message.text
    if isinstance(message, AssistantMessage):
        calls = (" ".join(map(str, call.arguments.values())) for call in message.tool_calls)
        text = "\n".join((text, *calls))
    return text[:MAX_INDEXED_CHARACTERS].encode(errors="replace").decode().strip()
