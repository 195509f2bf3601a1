"""Out of a damaged database into a lawful session: rows are read, then values, then a new file.

Laws. A text of which something can be read is kept, with a mark where it is not as it was. The
history law is restored as after a crash (``domain.history.repair_results``): a call whose result is
lost gets one that says so, a result whose call is lost becomes a note. Which tables and columns
there are is for ``schema`` alone to say: what is not looked at here is taken over as it is.
"""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agentcli.domain.history import RepairReason, repair_results
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.rewind import FileKind
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store import schema
from agentcli.store.codec import (
    GetBlob,
    MalformedBody,
    NewerBody,
    checksum,
    decode,
    encode,
    from_column,
    from_json,
    to_column,
    to_json,
)
from agentcli.store.reads import CRASH_DETAIL, LONGEST_NAME
from agentcli.store.repair.check import odd_rows
from agentcli.store.repair.pages import BAD, Row, Tables
from agentcli.store.writes import blob_name, put_blob, run_status_of, title_of

M = TypeVar("M", UserMessage, AssistantMessage, ToolResult, Message)

LOST_IMAGE = TextPart("(an image that was lost when the session file was damaged)")
OUTPUT_MARK = b"[this output was damaged on the disk: some of it may not be as it was]\n"
TAKEN_BACK = -1
_MOST = 1 << 53
# The tables that are not taken over as they are.
_LOOKED_AT = frozenset(
    {"session", "blob", "message", "tool_run", "usage", "note", "rewind", "file_change"}
)
# what a row says that cannot be kept as what it was
_TEXTS = {"input_queue": "body", "note": "text"}
_FINAL = {RunStatus.FINISHED, RunStatus.CANCELLED, RunStatus.INTERRUPTED}


# --- a lawful session ------------------------------------------------------------------------


@dataclass(slots=True)
class KeptMessage:
    """A message that goes into the new file; ``old_seq`` is ``None`` for an added result.

    ``hidden_by`` and ``place`` count as the old file did; ``TAKEN_BACK`` hides itself (TT-2).
    """

    message: Message
    created_at: float
    old_seq: int | None = None
    row: Row = field(default_factory=dict)
    hidden_by: int | None = None
    place: int | None = None


@dataclass(slots=True)
class Rebuilt:
    """A session to be written: ``insert`` fills a new file."""

    info: SessionInfo
    messages: list[KeptMessage]
    tables: Tables
    blobs: Mapping[str, bytes]
    lost: list[str] = field(default_factory=list)
    orphans: list[tuple[int, ToolResult]] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)

    def insert(self, db: sqlite3.Connection) -> None:
        """Write everything into the empty tables of ``db``."""
        info = self.info
        put(
            db,
            "session",
            next(iter(self.tables.get("session", ())), {}),
            singleton=1,
            id=info.id,
            title=to_column(info.title),
            cwd=to_column(info.cwd),
            created_at=info.created_at,
            updated_at=info.updated_at,
            status=info.status.value,
            detail=to_column(info.detail),
            turns=info.turns,
            model=to_column(info.model),
            parent_id=info.parent_id,
        )
        for row in self.tables.get("blob", ()):
            put(db, "blob", row, size=len(row["data"]))
        new_seq = {kept.old_seq: seq for seq, kept in enumerate(self.messages, 1)}
        self._insert_messages(db, new_seq)
        self._insert_runs(db)
        self._insert_beside(db, new_seq)
        insert_rewinds(db, self.tables, new_seq, self.blobs, self.lost)
        for table in schema.table_names():
            if table not in _LOOKED_AT:
                for row in self.tables.get(table, ()):
                    try_put(db, table, row, self.lost)
        for table, key, name, problem in tuple(odd_rows(db)):
            said = _TEXTS.get(table)
            if said is not None:
                query = f"SELECT {said} FROM {table} WHERE {key} = ?"  # noqa: S608 - own names
                (text,) = db.execute(query, (name,)).fetchone()
                about = {"after_seq": len(self.messages), "created_at": self.info.updated_at}
                put(db, "note", {**about, "kind": f"lost_{table}", "text": text})
            db.execute(f"DELETE FROM {table} WHERE {key} = ?", (name,))  # noqa: S608 - own names
            self.lost.append(problem)

    def _insert_messages(self, db: sqlite3.Connection, new_seq: Mapping[int | None, int]) -> None:
        for seq, kept in enumerate(self.messages, 1):
            role, body = encode(kept.message, lambda data: put_blob(db, data))
            now = {"role": role, "body": body, "created_at": kept.created_at}
            now["checksum"] = checksum(role, body)
            put(db, "message", kept.row, seq=seq, hidden_by=None, place=None, **now)
        for seq, kept in enumerate(self.messages, 1):
            if kept.hidden_by is not None:
                by = seq if kept.hidden_by == TAKEN_BACK else new_seq.get(kept.hidden_by)
                db.execute("UPDATE message SET hidden_by = ? WHERE seq = ?", (by, seq))
            if kept.place is not None:
                db.execute("UPDATE message SET place = ? WHERE seq = ?", (self._place(kept), seq))

    def _place(self, summary: KeptMessage) -> int | None:
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
                put(
                    db,
                    "tool_run",
                    row,
                    call_id=to_column(call.id),
                    name=to_column(call.name),
                    status=status or RunStatus.INTERRUPTED.value,
                    message_seq=seq,
                    raw=row.get("raw") if row.get("raw") in self.blobs else None,
                    result=None,
                    result_seq=result_seq,
                )

    def _insert_beside(self, db: sqlite3.Connection, new_seq: Mapping[int | None, int]) -> None:
        for row in self.tables.get("usage", ()):
            seq = new_seq.get(row.get("message_seq")) if row.get("message_seq") else None
            try_put(db, "usage", row, self.lost, id=None, message_seq=seq)
        notes = list(self.tables.get("note", ()))
        for old_seq, result in self.orphans:
            text = f"The result of a lost call of {result.name}:\n{result.text}"
            about = {"after_seq": old_seq, "created_at": self.info.updated_at}
            notes.append({**about, "kind": "lost_result", "text": to_column(text)})
        for row in notes:
            place = [
                seq
                for seq, kept in enumerate(self.messages, 1)
                if kept.old_seq is not None and kept.old_seq <= _number(row.get("after_seq"))
            ]
            try_put(db, "note", row, self.lost, id=None, after_seq=max(place, default=0))


def put(db: sqlite3.Connection, table: str, row: Row, **ours: Any) -> None:
    """Insert ``row`` with the values of ``ours`` in place of its own.

    A column that the table no longer has is left out, and so is one without a value, or a number
    that is none: it gets its default.
    """
    columns = [(name, kind) for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})")]
    given = {**row, **ours}
    names = [
        name
        for name, kind in columns
        if given.get(name) is not None
        and not (kind in {"INTEGER", "REAL"} and isinstance(given[name], bytes | str))
    ]
    marks = ", ".join("?" * len(names))
    db.execute(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 - own names
        [given[name] for name in names],
    )


def try_put(db: sqlite3.Connection, table: str, row: Row, lost: list[str], **ours: Any) -> None:
    """As ``put``; a row that the table refuses is lost."""
    try:
        put(db, table, row, **ours)
    except sqlite3.Error as error:
        lost.append(f"a row of {table}: {error}")


def rebuild(tables: Tables, session_id: str, changed_at: float) -> Rebuilt:
    """The session that the salvaged ``tables`` amount to."""
    lost: list[str] = []
    blobs = _sound_blobs(tables, lost)
    kept, partials, restored = _decode_messages(tables, blobs, lost)
    tables["note"] = [*tables.get("note", ()), *partials]
    runs = _decode_runs(tables, blobs)
    orphans: list[tuple[int, ToolResult]] = []
    _show_what_nothing_stands_for(kept, lost)
    lawful = list(_restore_law(kept, runs, lost, orphans))
    info = _info(tables, session_id, changed_at, [item.message for item in lawful], lost)
    if any(item.old_seq is None for item in lawful) or info.status is SessionStatus.RUNNING:
        info = replace(info, status=SessionStatus.CRASHED, detail=CRASH_DETAIL)
    return Rebuilt(info, lawful, tables, blobs, lost, orphans, restored)


def _sound_blobs(tables: Tables, lost: list[str]) -> Mapping[str, bytes]:
    """What the blobs hold, by name. An output that has changed has a new name, and says so."""
    outputs = {row.get("raw") for row in tables.get("tool_run", ())}
    blobs: dict[str, bytes] = {}
    new_names, rows = {}, {}
    for row in tables.get("blob", ()):
        data, name = row.get("data"), row.get("hash")
        if isinstance(data, bytes) and blob_name(data) != name:
            lost.append(f"blob {name}: its content had changed")
            if name not in outputs:
                continue
            data = OUTPUT_MARK + data
            new_names[name] = blob_name(data)
            row = {**row, "hash": new_names[name], "data": data}  # noqa: PLW2901 - the row as it is kept
        if isinstance(data, bytes):
            blobs[str(row["hash"])] = data
            rows[row["hash"]] = row
    tables["blob"] = list(rows.values())
    if new_names:
        tables["tool_run"] = [
            {**row, "raw": new_names.get(row.get("raw"), row.get("raw"))}
            for row in tables.get("tool_run", ())
        ]
    return blobs


def _decode_messages(
    tables: Tables, blobs: Mapping[str, bytes], lost: list[str]
) -> tuple[list[KeptMessage], list[Row], list[str]]:
    kept: list[KeptMessage] = []
    partials: list[Row] = []
    restorer = Restorer(tables.get("tool_run", ()), lambda name: blobs.get(name, b""), lost)
    for row in tables.get("message", ()):
        seq, created_at = row["seq"], _number(row.get("created_at"))
        if not created_at:
            lost.append(f"message {seq}: its time")
        if row["role"] == "partial":  # how version 1 kept partial answers
            about = {"after_seq": seq, "created_at": created_at, "kind": "partial"}
            partials.append({**about, "text": _partial_text(from_column(row["body"]))})
            continue
        message = restorer.message(row)
        if message is not None:
            message = _without_lost_images(message)
            by, place = _seq(row.get("hidden_by")), _seq(row.get("place"))
            by = TAKEN_BACK if by == seq else by
            kept.append(KeptMessage(message, created_at, seq, row, by, place))
    return kept, partials, restorer.restored


def _partial_text(body: str) -> str:
    try:
        return str(from_json(body)["text"])
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
            text = from_column(row["result"])
            try:
                decoded = decode("tool", text, lambda name: blobs.get(name, b""))
            except (MalformedBody, NewerBody):
                name = from_column(row.get("name"))
                decoded = ToolResult(call_id, name, (TextPart(text), MARK))
            if isinstance(decoded, ToolResult):
                result = _without_lost_images(decoded)
        runs[call_id] = ToolRun(call_id, from_column(row.get("name")), status, result=result)
    return runs


def _show_what_nothing_stands_for(kept: Sequence[KeptMessage], lost: list[str]) -> None:
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
    kept: Sequence[KeptMessage],
    runs: Mapping[str, ToolRun],
    lost: list[str],
    orphans: list[tuple[int, ToolResult]],
) -> Iterator[KeptMessage]:
    """``kept`` as the law wants it, the results that it takes added in their places."""
    pending: dict[str, ToolCall] = {}
    used: set[str] = set()
    last = KeptMessage(UserMessage(()), 0.0)

    def close() -> Iterator[KeptMessage]:
        for result in repair_results(tuple(pending.values()), runs, RepairReason.CRASHED):
            lost.append(f"the result message of call {result.call_id}: replaced")
            yield KeptMessage(result, last.created_at, hidden_by=last.hidden_by)
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
    title = _name(row, "title") or (title_of(prompts[0]) if prompts else "")
    created_at = _number(row.get("created_at")) or changed_at
    parent = row.get("parent_id")
    return SessionInfo(
        id=from_column(row.get("id")) or session_id,
        title=title,
        cwd=_name(row, "cwd"),
        created_at=created_at,
        updated_at=_number(row.get("updated_at")) or changed_at,
        status=status,
        turns=int(_number(row.get("turns"))) or len(prompts),
        model=_name(row, "model"),
        detail=_name(row, "detail"),
        parent_id=None if parent is None else _name(row, "parent_id"),
    )


def _name(row: Row, column: str) -> str:
    return from_column(row.get(column))[: LONGEST_NAME // 4]  # a character has four bytes at most


def _seq(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < _MOST else 0.0


# --- messages out of rows that are not as they were written -------------------------------------

# Laws. One byte that has changed is put right by the row's checksum; else the message has a mark,
# so that the model and the user know. A body that is no JSON any more is kept as the text it is,
# with the calls and the id that ``tool_run`` knows of it. A damaged message has no signatures: a
# provider refuses thinking that is not what it has signed.

MARK = TextPart("[this message was damaged on the disk: some of it may not be as it was]")
_WORD = re.compile(r"\w{3}")
_STATUS_OF_RUN = {
    RunStatus.FINISHED.value: ResultStatus.OK,
    RunStatus.CANCELLED.value: ResultStatus.CANCELLED,
}
_TABLE = [zlib.crc32(bytes([value])) ^ zlib.crc32(b"\0") for value in range(256)]
_MAX_PUT_RIGHT = 4 * 1024 * 1024  # a second


class Restorer:
    """Decodes the rows of ``message``; ``lost`` and ``restored`` say what became of which."""

    def __init__(self, runs: Sequence[Row], get_blob: GetBlob, lost: list[str]) -> None:
        self._get_blob = get_blob
        self.lost = lost
        self.restored: list[str] = []
        self._asked: dict[Any, list[Row]] = {}
        self._answered: dict[Any, Row] = {}
        for run in runs:
            self._asked.setdefault(run.get("message_seq"), []).append(run)
            if run.get("result_seq") is not None:
                self._answered[run["result_seq"]] = run

    def message(self, row: Row) -> Message | None:
        """The message of a row, or ``None`` if there is nothing to read in it."""
        seq = row["seq"]
        raw = (_raw(row, "role"), _raw(row, "body"))
        proof, whole = row.get("checksum"), b"\n".join(raw)
        if not isinstance(proof, int):
            is_sound = BAD not in row
        elif not (is_sound := zlib.crc32(whole) == proof) and 0 <= proof < 1 << 32:
            if _is_one_byte(zlib.crc32(whole) ^ proof):  # the checksum is what has changed
                is_sound = True
            elif (right := put_right(whole, proof, len(raw[0]))) is not None:
                raw, is_sound = right, True
                self.restored.append(f"message {seq}: one byte of it had changed")
        role, body = (part.decode(errors="replace") for part in raw)
        try:
            message = self._decoded(role, body)
        except (ValueError, RecursionError) as error:
            found = self._as_text(row, role, body) if _WORD.search(body) else None
            kept = "kept as text" if found else str(error)
            self.lost.append(f"message {seq}: {kept}")
            return found
        if is_sound:
            return message
        self.lost.append(f"message {seq}: it has changed since it was written; kept with a mark")
        return self._marked(seq, message)

    def _decoded(self, role: str, body: str) -> Message:
        try:
            return decode(role, body, self._get_blob)
        except MalformedBody:  # perhaps a character has become one that JSON wants escaped
            return decode(role, to_json(from_json(body, strict=False)), self._get_blob)

    def _marked(self, seq: int, message: Message) -> Message:
        if isinstance(message, UserMessage):
            return replace(message, parts=(*message.parts, MARK))
        if isinstance(message, ToolResult):
            run = self._answered.get(seq)
            call_id = message.call_id if run is None else from_column(run.get("call_id"))
            return replace(message, parts=(*message.parts, MARK), call_id=call_id)
        calls = list(message.tool_calls)
        runs = self._asked.get(seq, [])
        if len(runs) == len(calls):  # an id may be what has changed, and its result has it, too
            ids = [from_column(run.get("call_id")) for run in runs]
            calls = [replace(call, id=name) for call, name in zip(calls, ids, strict=True)]
        said = (
            ThinkingPart(part.text) if isinstance(part, ThinkingPart) else part
            for part in message.parts
            if not isinstance(part, ToolCall)
            and not (isinstance(part, ThinkingPart) and not part.text)
        )
        return replace(message, parts=(*said, MARK, *calls))

    def _as_text(self, row: Row, role: str, body: str) -> Message:
        seq = row["seq"]
        parts = (TextPart(body), MARK)
        answered = self._answered.get(seq)
        if role == "tool" or (answered is not None and role not in {"user", "summary"}):
            run: Mapping[str, Any] = answered or {}
            status = _STATUS_OF_RUN.get(str(run.get("status")), ResultStatus.ERROR)
            name = from_column(run.get("name"))
            return ToolResult(from_column(run.get("call_id")), name, parts, status)
        runs = self._asked.get(seq, [])
        if role == "assistant" or runs:
            names = (
                (from_column(run.get("call_id")), from_column(run.get("name"))) for run in runs
            )
            return AssistantMessage((*parts, *(ToolCall(*pair, {}) for pair in names)))
        return UserMessage(parts, is_summary=role == "summary")


def _raw(row: Row, column: str) -> bytes:
    found = row.get(BAD, {}).get(column)
    return (
        found
        if isinstance(found, bytes)
        else from_column(row.get(column)).encode("utf-8", "surrogatepass")
    )


def _is_one_byte(difference: int) -> bool:
    return any(difference & ~(0xFF << shift) == 0 for shift in (0, 8, 16, 24))


def put_right(whole: bytes, proof: int, role_size: int) -> tuple[bytes, bytes] | None:
    """Role and body with the one byte put right that makes ``proof`` their CRC-32, if one does.

    A CRC is linear: a byte that differs adds the same to it whatever stands around it, so each
    place says by itself what would have to stand there. More than one answer is none.
    """
    if len(whole) > _MAX_PUT_RIGHT:
        return None
    rest = zlib.crc32(whole) ^ proof
    by_top = {value >> 24: at for at, value in enumerate(_TABLE)}
    found = []
    for place in range(len(whole) - 1, -1, -1):
        at = by_top[rest >> 24]
        if _TABLE[at] == rest and place != role_size:
            found.append((place, at))
        rest = ((rest ^ _TABLE[at]) << 8 | at) & 0xFFFFFFFF
    fits = []
    for place, change in found:
        right = bytearray(whole)
        right[place] ^= change
        role, body = bytes(right[:role_size]), bytes(right[role_size + 1 :])
        try:
            decode(role.decode(), body.decode(), lambda _: b"")
        except (ValueError, RecursionError):
            continue
        fits.append((role, body))
    return fits[0] if len(fits) == 1 else None


# --- snapshots and rewinds (TT-1) ------------------------------------------------------------

# Law: a row whose content is lost says so instead of naming what is not there.

_SIDES = ("before", "after")


def insert_rewinds(
    db: sqlite3.Connection,
    tables: Tables,
    new_seq: Mapping[int | None, int],
    blobs: Mapping[str, bytes],
    lost: list[str],
) -> None:
    """Write both tables; messages are numbered again by ``new_seq``."""
    known = sorted(seq for seq in new_seq if seq is not None)
    for row in tables.get("rewind", ()):
        try_put(db, "rewind", _rewind(row, new_seq, known), lost)
    rewinds = {row_id for (row_id,) in db.execute("SELECT id FROM rewind")}
    for row in tables.get("file_change", ()):
        try_put(db, "file_change", _change(row, new_seq, known, blobs, rewinds), lost)


def _rewind(row: Row, new_seq: Mapping[int | None, int], known: Sequence[int]) -> Row:
    try:
        moves = [[new_seq.get(seq) for seq in move] for move in from_json(row["messages"])]
    except (ValueError, TypeError):
        moves = []
    newest = _place(row.get("newest_seq"), new_seq, known)
    return {
        **row,
        "messages": json.dumps([move for move in moves if move[:1] != [None]]),
        "newest_seq": newest,
    }


def _change(
    row: Row,
    new_seq: Mapping[int | None, int],
    known: Sequence[int],
    blobs: Mapping[str, bytes],
    rewinds: set[int],
) -> Row:
    repaired = {**row, "seq": _place(row.get("seq"), new_seq, known)}
    for side in _SIDES:
        name = row.get(f"{side}_data")
        if name is not None and name not in blobs:
            repaired |= {f"{side}_kind": FileKind.UNKEPT.value, f"{side}_data": None}
    if row.get("rewind") not in rewinds:
        repaired["rewind"] = None
    return repaired


def _place(seq: Any, new_seq: Mapping[int | None, int], known: Sequence[int]) -> int:
    """The new number of the message ``seq`` or of the last one before it that is left."""
    at = bisect_right(known, seq) if isinstance(seq, int) else 0
    return new_seq[known[at - 1]] if at else 0
