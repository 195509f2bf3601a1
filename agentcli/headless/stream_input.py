"""What a program says on stdin, one JSON object per line (CLI-4, ``--input-format stream-json``).

The shape is the one that Claude Code reads: ``user`` messages, ``control_request`` and the
``control_response`` to a request of ours. Law: no line, however malformed, long or deep, ends
the run: it becomes ``Unreadable`` and the next one is read; a line longer than
``MAX_LINE_BYTES`` is never held in memory.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agentcli.domain.clean import as_object, read_json
from agentcli.domain.messages import ImagePart, TextPart, UserMessage, UserPart
from agentcli.domain.values import frozen

MAX_LINE_BYTES = 10_000_000
_CHUNK = 1 << 16
_SPACE = b" \t\r"
# sent by some clients, and nothing to act on
_IGNORED = frozenset({"keep_alive", "control_cancel_request"})
_MODES = {"acceptEdits": "accept-edits", "bypassPermissions": "yolo", "dontAsk": "default"}


@frozen
class Said:
    """A message for the agent; ``uuid`` is the sender's own name for it, maybe empty."""

    message: UserMessage
    uuid: str = ""


@frozen
class Asked:
    """A control request: ``interrupt``, ``set_model`` and their like."""

    request_id: str
    subtype: str
    request: dict[str, Any]


@frozen
class Answered:
    """The answer to a control request of ours; ``error`` instead of an answer."""

    request_id: str
    answer: dict[str, Any]
    error: str = ""


@frozen
class Unreadable:
    """A line that is skipped, and why."""

    reason: str


Line = Said | Asked | Answered | Unreadable


class _NotALine(ValueError):
    """What is wrong with a line."""


def parse_line(data: bytes) -> Line | None:
    """One line as what it means; ``None`` for one that means nothing."""
    if not data.strip():
        return None
    try:
        return _parse(data)
    except _NotALine as error:
        return Unreadable(str(error))


def _parse(data: bytes) -> Line | None:
    try:
        value = read_json(data.decode("utf-8-sig", "replace"))
    except ValueError as error:
        raise _NotALine(f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _NotALine("it is not a JSON object")
    match value.get("type"):
        case "user":
            return _said(value)
        case "control_request":
            return _asked(value)
        case "control_response":
            return _answered(value)
        case str(kind) if kind in _IGNORED:
            return None
        case kind:
            raise _NotALine(
                f"its type is {json.dumps(kind)[:40]}, not user, control_request or"
                " control_response"
            )


def _said(value: dict[str, Any]) -> Said:
    message = value.get("message")
    if not isinstance(message, dict):
        raise _NotALine("it has no message object")
    if message.get("role", "user") != "user":
        raise _NotALine("the role of its message is not user")
    parts = tuple(_parts(message.get("content")))
    if not any(isinstance(part, ImagePart) or part.text.strip() for part in parts):
        raise _NotALine("its message is empty")
    uuid = value.get("uuid")
    return Said(UserMessage(parts), uuid if isinstance(uuid, str) else "")


def _parts(content: Any) -> Iterator[UserPart]:
    if isinstance(content, str):
        yield TextPart(content)
        return
    if not isinstance(content, list):
        raise _NotALine("the content of its message is neither text nor a list of blocks")
    for block in content:
        match block:
            case {"type": "text", "text": str(text)}:
                if text.strip():
                    yield TextPart(text)
            case {"type": "image", "source": {"type": "base64", "data": str(data), **rest}}:
                yield _image(data, rest.get("media_type"))
            case {"type": "image"}:
                raise _NotALine("its image has no base64 data")
            case {"type": str(kind)}:
                raise _NotALine(f"a block of type {kind[:40]} cannot be sent, only text and image")
            case _:
                raise _NotALine("a content block is not an object with a type")


def _image(data: str, media_type: Any) -> ImagePart:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _NotALine("the data of its image is not base64") from None
    return ImagePart(media_type if isinstance(media_type, str) else "image/png", raw)


def _asked(value: dict[str, Any]) -> Asked:
    request_id, request = value.get("request_id"), value.get("request")
    if not isinstance(request_id, str) or not isinstance(request, dict):
        raise _NotALine("a control_request needs a request_id and a request object")
    return Asked(request_id, str(request.get("subtype", "")), request)


def _answered(value: dict[str, Any]) -> Answered:
    match value.get("response"):
        case {"subtype": "error", "request_id": str(request_id), **rest}:
            return Answered(request_id, {}, str(rest.get("error") or "no reason given"))
        case {"request_id": str(request_id), **rest}:
            answer = rest.get("response")
            return Answered(request_id, as_object(answer))
        case _:
            raise _NotALine("a control_response needs a response object with a request_id")


class LineReader:
    """Lines of a descriptor, read when there is something to read; no thread waits for it.

    ``number`` is that of the last line, counted from 1.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending: list[bytes] = []
        self._size = 0
        self._too_long = False
        self.number = 0

    async def lines(self) -> AsyncIterator[Line]:
        """What each line means, up to the end of the input."""
        while chunk := await self._read():
            for data in self._cut(chunk):
                if (line := self._line(data)) is not None:
                    yield line
        if (line := self._line(b"")) is not None:  # the last one need not end in a line feed
            yield line

    async def _read(self) -> bytes:
        await self._readable()
        try:
            return os.read(self._descriptor, _CHUNK)
        except OSError:
            return b""

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except (OSError, ValueError):  # a file is always ready, a closed descriptor at its end
            await asyncio.sleep(0)
            return
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)

    def _cut(self, chunk: bytes) -> Iterator[bytes]:
        """The ends of the lines that ``chunk`` completes; the rest is kept."""
        *ends, rest = chunk.split(b"\n")
        yield from ends
        self._keep(rest)

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_LINE_BYTES:
            self._pending.clear()
            self._too_long = True
        elif data and not self._too_long:
            self._pending.append(data)

    def _line(self, end: bytes) -> Line | None:
        self._keep(end)
        data, too_long = b"".join(self._pending), self._too_long
        self._pending.clear()
        self._size, self._too_long = 0, False
        self.number += 1
        if too_long:
            return Unreadable(f"it is longer than {MAX_LINE_BYTES // 1_000_000} MB")
        return parse_line(data.strip(_SPACE))


def permission_mode(name: str) -> str:
    """A permission mode's name as ours, from that of Claude Code."""
    return _MODES.get(name, name)
