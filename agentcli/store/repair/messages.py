"""Messages out of rows that are not as they were written.

Laws. What can be read is kept: one byte that has changed is put right by the row's checksum; else
the message has a mark, so that the model and the user know; a body that is no JSON any more is kept
as the text it is, with the calls and the id that ``tool_run`` knows of it. A damaged message has no
signatures: a provider refuses thinking that is not what it has signed.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import RunStatus
from agentcli.store.codec import GetBlob, MalformedBody, decode, from_column, to_json
from agentcli.store.repair.pages import BAD, Row

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
            return decode(role, to_json(json.loads(body, strict=False)), self._get_blob)

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
    return found if isinstance(found, bytes) else from_column(row.get(column)).encode()


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
