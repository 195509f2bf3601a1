"""Snapshots of files and what was taken back, in a session file (TT-1, TT-2).

Each function runs in one transaction. Laws: a rewind deletes no message, it hides: what was taken
back points to itself (``hidden_by``), as a summary does, and can be brought back; contents of
files are compressed, each kept once, and bounded in all (``MAX_KEPT_BYTES``). The one row that
goes is that of a file which a call was to change and did not (``settle``).
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from agentcli.domain.errors import UsageError
from agentcli.domain.history import History, RepairReason, repair_results
from agentcli.domain.messages import NOT_SAID, UserMessage
from agentcli.domain.rewind import FileChange, FileKind, FileState, RewindPoint, RewindRecord
from agentcli.domain.session import SessionStatus
from agentcli.store.codec import MalformedBody, decode, from_column, from_json, to_column
from agentcli.store.reads import blob_reader, moment, read_open_runs, read_session
from agentcli.store.seals import mark, put_mark
from agentcli.store.writes import SessionWrites, blob_name, put_blob

if TYPE_CHECKING:
    from agentcli.store.file import InTransaction

MAX_KEPT_BYTES = 256 * 1024 * 1024
MAX_POINTS = 500
_MAX_INFLATED = 64 * 1024 * 1024
_NEWEST_PROMPT = (
    "SELECT coalesce(max(seq), 0) FROM message WHERE role = 'user' AND hidden_by IS NULL"
)
Move = tuple[int, int | None, int | None]
_MOST_OF_MOVE, _FEW_MESSAGES = 100, 1_000  # characters; messages that repair may have left out
_LAST_SEQ = 2**63 - 1
_MOVE = "UPDATE message SET hidden_by = ? WHERE seq = ?"
_STATES = "id, seq, path, before_kind, before_data, before_mode, after_kind, after_data, after_mode"
_COLUMNS = f"{_STATES}, seal <> '' AND seal = {mark('file_change')}"


class RewindTable:
    """The rows of one session's file; ``write`` and ``read`` are the file's.

    All raise ``PersistenceError``.
    """

    __slots__ = ("_exists", "_read", "_write")

    def __init__(
        self, write: InTransaction, read: InTransaction, exists: Callable[[], bool]
    ) -> None:
        self._write = write
        self._read = read
        self._exists = exists

    async def keep(self, call_id: str, states: Mapping[Path, FileState]) -> Mapping[Path, int]:
        """Keep what stands at the paths before the call changes them; the rows' ids."""
        return await self._write(keep, call_id, states)

    async def settle(self, after: Mapping[int, FileState | None]) -> None:
        """What became of the paths of these rows; ``None``: they are as they were."""
        await self._write(settle, after)

    async def points(self) -> Sequence[RewindPoint]:
        """What can be gone back to, oldest first."""
        return await self._read(points) if self._exists() else ()

    async def changes_since(self, seq: int) -> Sequence[FileChange]:
        """Changes from the prompt ``seq`` on that were not taken back."""
        return await self._read(changes_since, seq) if self._exists() else ()

    async def take_back(self, seq: int, text: str, changes: Sequence[int], *, chat: bool) -> int:
        """Take back what was said (with ``chat``) and these changes; how many messages."""
        return await self._write(take_back, seq, text, changes, chat=chat)

    async def newest(self) -> RewindRecord | None:
        """The newest rewind that can itself be taken back."""
        return await self._read(newest) if self._exists() else None

    async def bring_back(self, record: RewindRecord) -> None:
        """Undo a rewind."""
        await self._write(bring_back, record)


def keep(db: sqlite3.Connection, call_id: str, states: Mapping[Path, FileState]) -> dict[Path, int]:
    """A row for each path that the call is about to change; their ids."""
    (seq,) = db.execute(_NEWEST_PROMPT).fetchone()
    ids = {}
    room = _room(db)
    for path, state in states.items():
        columns, room = _columns(db, state, room)
        row = db.execute(
            "INSERT INTO file_change (seq, call_id, path, before_kind, before_data, before_mode,"
            " created_at) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
            (seq, call_id, to_column(str(path)), *columns, time.time()),
        ).fetchone()
        ids[path] = int(row[0])
        put_mark(db, "file_change", row[0])
    return ids


def settle(db: sqlite3.Connection, after: Mapping[int, FileState | None]) -> None:
    """What became of the paths of these rows; ``None``: nothing, the row goes."""
    room = _room(db)
    for row_id, state in after.items():
        if state is None:
            db.execute("DELETE FROM file_change WHERE id = ?", (row_id,))
            continue
        columns, room = _columns(db, state, room)
        db.execute(
            "UPDATE file_change SET after_kind = ?, after_data = ?, after_mode = ? WHERE id = ?",
            (*columns, row_id),
        )
        put_mark(db, "file_change", row_id)


def points(db: sqlite3.Connection) -> list[RewindPoint]:
    """What can be gone back to, oldest first: what the user said and did not take back."""
    get_blob = blob_reader(db)
    rows = db.execute(
        "SELECT seq, created_at, body FROM message WHERE role = 'user'"
        " AND coalesce(hidden_by, 0) != seq ORDER BY seq DESC LIMIT ?",
        (MAX_POINTS,),
    ).fetchall()
    counts: dict[int, int] = dict(
        db.execute("SELECT seq, count(*) FROM file_change WHERE rewind IS NULL GROUP BY seq")
    )
    found: list[RewindPoint] = []
    for seq, created_at, body in reversed(rows):
        message = decode("user", body, get_blob)
        text = message.typed if isinstance(message, UserMessage) else ""
        if not text.startswith(NOT_SAID):  # else nobody has said it
            found.append(RewindPoint(seq, text, moment(created_at)))
    starts = [point.seq for point in found]
    files = [0] * len(found)
    for seq, count in counts.items():
        if at := bisect_right(starts, seq):
            files[at - 1] += count
    return [replace(point, files=count) for point, count in zip(found, files, strict=True)]


def changes_since(db: sqlite3.Connection, seq: int) -> list[FileChange]:
    """Changes from the prompt ``seq`` on that were not taken back, in their order."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM file_change WHERE rewind IS NULL AND seq >= ? ORDER BY id",  # noqa: S608 - constants
        (seq,),
    ).fetchall()
    return [_change(db, row) for row in rows]


def changes_of(db: sqlite3.Connection, path: str) -> list[tuple[FileChange, str, float]]:
    """What calls did to ``path``, also what was taken back: each with the call's id and its time.

    Of another home's session as it says itself: to be told, not to be brought back.
    """
    rows = db.execute(
        f"SELECT call_id, created_at, {_STATES} FROM file_change WHERE path = ? ORDER BY id DESC"  # noqa: S608 - constants
        " LIMIT ?",
        (to_column(path), MAX_POINTS),
    ).fetchall()
    return [(_change(db, (*row[2:], True)), str(row[0]), float(row[1])) for row in rows]


def take_back(
    db: sqlite3.Connection, seq: int, text: str, changes: Sequence[int], *, chat: bool
) -> int:
    """Hide what was said from ``seq`` on (with ``chat``), mark ``changes``; how much is hidden.

    Where a summary stands for ``seq``, summaries made since are hidden as well, and what they stood
    for is sent again.
    """
    moves = _moves(db, seq) if chat else []
    (newest,) = db.execute("SELECT coalesce(max(seq), 0) FROM message").fetchone()
    row = db.execute(
        "INSERT INTO rewind (created_at, newest_seq, messages, text) VALUES (?, ?, ?, ?)"
        " RETURNING id",
        (time.time(), newest, json.dumps(moves), to_column(text)),
    ).fetchone()
    db.executemany(_MOVE, [(after, at) for at, _, after in moves])
    db.executemany(
        "UPDATE file_change SET rewind = ? WHERE id = ?", [(row[0], each) for each in changes]
    )
    return sum(after == at for at, _, after in moves)


def _moves(db: sqlite3.Connection, seq: int) -> list[Move]:
    """Each message that changes: its seq, ``hidden_by`` now and then."""
    found = db.execute("SELECT hidden_by FROM message WHERE seq = ?", (seq,)).fetchone()
    if found is None or found[0] is None:
        rows = db.execute(
            "SELECT seq FROM message"
            " WHERE seq >= ? AND hidden_by IS NULL AND role != 'summary' ORDER BY seq",
            (seq,),
        ).fetchall()
        return [(at, None, at) for (at,) in rows]
    rows = db.execute(
        "SELECT seq, hidden_by FROM message WHERE coalesce(hidden_by, 0) != seq"
        " AND (seq >= ? OR hidden_by > ?) ORDER BY seq",
        (seq, seq),
    ).fetchall()
    return [(at, hidden_by, at if at >= seq else None) for at, hidden_by in rows]


def newest(db: sqlite3.Connection) -> RewindRecord | None:
    """The newest rewind that can be taken back: nothing was said since."""
    is_newest = "newest_seq = (SELECT coalesce(max(seq), 0) FROM message)"
    row_id, moves = next(_rewinds(db, is_newest), (None, ()))
    if row_id is None:
        return None
    for at, _, after in moves:
        now = db.execute("SELECT hidden_by FROM message WHERE seq = ?", (at,)).fetchone()
        if now is None or now[0] != after:  # a compaction was made or taken back since
            return None
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM file_change WHERE rewind = ? ORDER BY id",  # noqa: S608 - constants
        (row_id,),
    ).fetchall()
    (text,) = db.execute("SELECT text FROM rewind WHERE id = ?", (row_id,)).fetchone()
    return RewindRecord(row_id, moves, tuple(_change(db, r) for r in rows), from_column(text))


def _rewinds(
    db: sqlite3.Connection, where: str, *values: int
) -> Iterator[tuple[int, tuple[Move, ...]]]:
    """Id and moves of the rewinds that hold, newest first.

    Raises ``MalformedBody``, also where they tell of more messages than the session has (SEC-13).
    """
    holds = f"FROM rewind WHERE undone_at IS NULL AND {where}"
    query = f"SELECT total(length(messages)), (SELECT count(*) FROM message) {holds}"  # noqa: S608 - own words
    size, count = db.execute(query, values).fetchone()
    if size > _MOST_OF_MOVE * (count + _FEW_MESSAGES):
        raise MalformedBody("its rewinds tell of more messages than there are")
    query = f"SELECT id, messages {holds} ORDER BY id DESC"
    for row_id, text in db.execute(query, values).fetchall():
        try:
            yield row_id, tuple(_move(*each) for each in from_json(text))
        except (ValueError, TypeError) as error:
            raise MalformedBody(f"rewind {row_id}: {error}") from error


def _move(at: object, before: object, after: object) -> Move:
    for value in (at, before, after):
        if value is not None and not (isinstance(value, int) and 0 <= value <= _LAST_SEQ):
            raise ValueError("it names what is no message")
    return cast("Move", (at, before, after))


def bring_back(db: sqlite3.Connection, record: RewindRecord) -> None:
    """Show again what ``record`` hid, and count its changes again."""
    db.executemany(_MOVE, [(before, at) for at, before, _ in record.moves])
    db.execute("UPDATE file_change SET rewind = NULL WHERE rewind = ?", (record.id,))
    db.execute("UPDATE rewind SET undone_at = ? WHERE id = ?", (time.time(), record.id))


# --- the session as it was right after a message (TT-3) ---------------------------------------

# Law: in a copy that nobody has opened yet. What came later is gone from it, also what later took
# back or folded; a call whose result came later gets the one that a cancel would give it.

_CUT = (
    """UPDATE file_change SET rewind = NULL
       WHERE rewind IN (SELECT id FROM rewind WHERE newest_seq >= :seq)""",
    "DELETE FROM rewind WHERE newest_seq >= :seq",
    "DELETE FROM file_change WHERE seq > :seq",
    "UPDATE message SET hidden_by = NULL WHERE hidden_by > :seq",
    "DELETE FROM tool_run WHERE message_seq > :seq",
    """UPDATE tool_run SET status = 'running', result_seq = NULL, result = NULL,
       finished_at = NULL, raw = NULL, display = '', outcome = '' WHERE result_seq > :seq""",
    "DELETE FROM usage WHERE message_seq > :seq OR (message_seq IS NULL AND created_at > :at)",
    "DELETE FROM note WHERE after_seq > :seq",
    "DELETE FROM event WHERE created_at > :at",
    "DELETE FROM kv WHERE key IN ('todos', 'plan')",
    "UPDATE input_queue SET state = 'done', updated_at = :now WHERE state <> 'done'",
    "DELETE FROM message WHERE seq > :seq",
    """UPDATE session SET turns = min(turns,
       (SELECT count(*) FROM message WHERE role = 'user' AND hidden_by IS NOT seq))""",
)


def cut_after(db: sqlite3.Connection, seq: int) -> None:
    """Leave of a session what it was when the message ``seq`` was its newest.

    Raises ``UsageError`` where there is no such message.
    """
    (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM message").fetchone()
    query = "SELECT created_at FROM message WHERE seq = ?"
    row = db.execute(query, (seq,)).fetchone() if 0 < seq <= last else None
    if row is None:
        advice = f"messages are numbered 1 to {last}: agent sessions show ID --format json"
        raise UsageError(f"there is no message {seq}", advice)
    for _, moves in _rewinds(db, "newest_seq >= ?", seq):
        db.executemany(_MOVE, [(before, at) for at, before, _ in moves])
    for statement in _CUT:
        db.execute(statement, {"seq": seq, "at": row[0], "now": time.time()})
    pending = History(each.message for each in read_session(db).messages).pending
    results = repair_results(pending, read_open_runs(db), RepairReason.CANCELLED)
    SessionWrites(None, None).end(db, results, SessionStatus.DONE, "")


def _room(db: sqlite3.Connection) -> int:
    """How many bytes of contents may still be kept."""
    (used,) = db.execute("SELECT coalesce(sum(size), 0) FROM blob").fetchone()
    return MAX_KEPT_BYTES - int(used)


def _columns(
    db: sqlite3.Connection, state: FileState, room: int
) -> tuple[tuple[str, str | None, int], int]:
    """A state as three columns, and the room that is left; without room it is unkept."""
    kind, name = state.kind, None
    if kind in {FileKind.FILE, FileKind.LINK}:
        packed = zlib.compress(state.data, 6)
        if len(packed) > room:
            kind = FileKind.UNKEPT
        else:
            name = put_blob(db, packed)
            room -= len(packed)
    return (kind.value, name, state.mode), room


def _change(db: sqlite3.Connection, row: tuple[object, ...]) -> FileChange:
    row_id, seq, path, *states, is_own = row
    before, after = _state(db, states[:3]), _state(db, states[3:])
    if not is_own:  # somebody else says what stood there (SEC-16)
        before = FileState(FileKind.UNKEPT, why="this home did not take its snapshot")
    return FileChange(
        int(str(row_id)),
        int(str(seq)),
        Path(from_column(path)),
        before or FileState(FileKind.UNKEPT),
        after if is_own else before,
    )


def _state(db: sqlite3.Connection, columns: Sequence[object]) -> FileState | None:
    kind, name, mode = columns
    if kind is None:
        return None
    try:
        known = FileKind(str(kind))
    except ValueError:
        return FileState(FileKind.UNKEPT, why="it was kept in a way that is not known here")
    number = mode if isinstance(mode, int) else 0
    if known not in {FileKind.FILE, FileKind.LINK}:
        return FileState(known, b"", number)
    row = db.execute("SELECT data FROM blob WHERE hash = ?", (name,)).fetchone()
    try:
        unpacker = zlib.decompressobj()
        packed = bytes(row[0]) if row else b""
        data = unpacker.decompress(packed, _MAX_INFLATED)
    except zlib.error:
        data = None
    if data is None or not unpacker.eof or blob_name(packed) != name:
        return FileState(FileKind.UNKEPT, why="its snapshot is damaged")
    return FileState(known, data, number)
