"""Messages as bytes and back, within bounds (SEC-13).

Law: bytes from outside become a value or a ``MalformedMessage``, never more memory than a small
multiple of ``MAX_MESSAGE_BYTES``; a line that is too long is thrown away as it comes, and only
its head is kept.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from agentcli.domain.clean import MAX_VALUES, as_object, holds_too_many, is_deep
from agentcli.domain.values import frozen

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 200
MAX_BATCH = 1_000
"""Messages in one: each is work, however short it is."""
READ_BYTES = 64 * 1024
LINES_TOGETHER = 64
_HEAD_BYTES = 4096
_TEXT_OF_ERROR = 2000

# https://www.jsonrpc.org/specification#error_object, and of the Language Server Protocol
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800

RequestId = int | str
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\]]')
_ID = re.compile(rb'\s*(-?\d{1,18}|"[^"\\]{1,200}")(?=\s*[,}])')


class RpcError(Exception):
    """The other side's answer is an error, or ours is to be; ``data`` is any JSON."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class MalformedMessage(Exception):
    """What came is not a message; ``code`` is that of JSON-RPC."""

    def __init__(self, problem: str, code: int = PARSE_ERROR) -> None:
        super().__init__(problem)
        self.code = code


class TooMuch(MalformedMessage):
    """It is a message beyond our bounds; somebody may wait for it."""


@frozen
class OverlongLine:
    """Stands for a line of more than ``MAX_MESSAGE_BYTES``; ``head`` is how it began."""

    head: bytes


def beginning_of(line: bytes) -> tuple[RequestId | None, bool]:
    """The id of a message that is not read, and whether it asks; as far as its head says so."""
    depth, number, asks = 0, None, False
    for token in _TOKEN.finditer(line[:_HEAD_BYTES]):
        if token[0] in b"{[":
            depth += 1
        elif token[0] in b"}]":
            depth -= 1
        elif depth == 1 and token[1]:
            asks = asks or token[0].startswith(b'"method"')
            if token[0].startswith(b'"id"') and (found := _ID.match(line, token.end())):
                number = json.loads(found[1].decode("utf-8", "replace"))
    return number, asks


def encode(message: dict[str, Any]) -> bytes:
    """One line, without its end."""
    return json.dumps(
        {"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":")
    ).encode("utf-8", "replace")


def decode(line: bytes) -> Any:
    """The JSON value of ``line``; raises ``MalformedMessage``."""
    if len(line) > MAX_MESSAGE_BYTES:
        raise TooMuch(f"more than {MAX_MESSAGE_BYTES:,} bytes")
    if holds_too_many(line):
        raise TooMuch(f"more than {MAX_VALUES:,} values")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedMessage("not JSON") from None
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and is_deep(value, MAX_DEPTH):
        raise TooMuch(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, list) and len(value) > MAX_BATCH:
        raise TooMuch(f"more than {MAX_BATCH:,} messages")
    return value


def error_of(value: Any) -> RpcError:
    """The error object of an answer, whatever is wrong with it; its text is bounded."""
    given = as_object(value)
    code, message = given.get("code"), given.get("message")
    text = message if isinstance(message, str) and message.strip() else "an error without a message"
    return RpcError(
        code if type(code) is int else INTERNAL_ERROR, text[:_TEXT_OF_ERROR], given.get("data")
    )


class LineCutter:
    """Cuts what comes into lines; see the module."""

    def __init__(self) -> None:
        self._begun = bytearray()  # one, since a sender may send byte by byte
        self._overlong: OverlongLine | None = None

    def feed(self, data: bytes) -> Iterator[bytes | OverlongLine]:
        """The lines that ``data`` ends, without their ends; empty ones are left out."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield from self.end()
        self._add(rest)

    def end(self) -> Iterator[bytes | OverlongLine]:
        """The line that was begun, if any."""
        line: bytes | OverlongLine = self._overlong or bytes(self._begun).strip()
        self._begun, self._overlong = bytearray(), None
        if line:
            yield line

    def _add(self, piece: bytes) -> None:
        if self._overlong is not None:
            return
        self._begun += piece
        if len(self._begun) > MAX_MESSAGE_BYTES:
            self._overlong = OverlongLine(bytes(self._begun[:_HEAD_BYTES]))
            self._begun = bytearray()


async def read_lines(
    read: Callable[[int], Awaitable[bytes]],
) -> AsyncIterator[bytes | OverlongLine]:
    """The lines of what ``read(size)`` gives until it gives nothing; others have turns between."""
    splitter = LineCutter()
    while data := await read(READ_BYTES):
        for number, line in enumerate(splitter.feed(data)):
            if not number % LINES_TOGETHER:
                await asyncio.sleep(0)
            yield line
    for line in splitter.end():
        yield line
