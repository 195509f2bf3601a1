"""How a ``Reply`` goes over a connection: status line, chunks, and the faults at their places.

Every place becomes an offset in the body, so that a fault hits the same byte each time.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.replies import Place, Reply

Event = tuple[str, bytes]
_POLL_S = 0.002
_JOIN_ABOVE = 2_000
_JOINED_BYTES = 65_536
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


class ClientLeft(Exception):
    """The client closed the connection."""


class Dropped(Exception):
    """The script asked for the connection to be reset."""


class Connection:
    """One HTTP/1.1 connection; several requests may follow each other on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.body_bytes = 0
        self._deflate: Any = None

    @property
    def client_left(self) -> bool:
        """Whether the other side has closed."""
        return self.reader.at_eof() or self.writer.transport.is_closing()

    async def read_request(self) -> tuple[str, str, dict[str, str], bytes] | None:
        """(method, path, headers, body), or ``None`` when the client is done."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.split(":", 1) for line in lines if line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        if headers.get("transfer-encoding") == "chunked":
            return method, path, headers, await self._chunked_body()
        size = int(headers.get("content-length", 0))
        return method, path, headers, await self.reader.readexactly(size)

    async def _chunked_body(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
        await self.reader.readline()
        return body

    async def send_whole(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """A response with a length."""
        fields = {"content-type": "application/json", **(headers or {})}
        fields["content-length"] = str(len(body))
        self._head(status, fields)
        self.writer.write(body)
        await self.writer.drain()

    async def send_json(self, status: int, value: Any, **headers: str) -> None:
        """A JSON response."""
        await self.send_whole(status, json.dumps(value).encode(), headers)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        reason = _REASONS.get(status, "Status")
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{k}: {v}" for k, v in headers.items())]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def start_stream(self, reply: Reply, headers: Mapping[str, str]) -> None:
        """The head of a streamed response."""
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        fields.update(headers)
        fields.update(reply.headers)
        if reply.gzip:
            fields["content-encoding"] = "gzip"
            self._deflate = zlib.compressobj(wbits=31)
        fields["transfer-encoding"] = "chunked"
        self.body_bytes = 0
        self._head(reply.status, fields)
        await self.writer.drain()

    async def send(self, data: bytes) -> None:
        """One HTTP chunk of the body."""
        if self.client_left:
            raise ClientLeft
        self.body_bytes += len(data)
        if self._deflate is not None:
            data = self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._chunk(data)
        await self.writer.drain()

    def _chunk(self, data: bytes) -> None:
        if data:
            self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_stream(self) -> None:
        """The end of the body, in good order."""
        if self._deflate is not None:
            self._chunk(self._deflate.flush())
            self._deflate = None
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def unsent(self) -> bool:
        """Whether something written has not reached the network yet."""
        return self.writer.transport.get_write_buffer_size() > 0

    def reset(self) -> None:
        """Close so that the client sees a reset connection."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_while(self, waiting: Any) -> None:
        """Return when ``waiting()`` turns false; raises ``ClientLeft`` if the client goes first."""
        while waiting():
            if self.client_left:
                raise ClientLeft
            await asyncio.sleep(_POLL_S)


def offset_of(place: Place, events: Sequence[Event]) -> int:
    """How many bytes of the body are out at ``place``; -1 is before the headers."""
    if isinstance(place, int):
        return place
    if place in {"connect", "headers"}:
        return -1 if place == "connect" else 0
    name, _, count = place.partition(":")
    wanted, position = int(count or 1), 0
    for kind, data in events:
        if name == "end" and kind == "end" and wanted == 1:
            return position
        position += len(data)
        wanted -= kind == name
        if wanted == 0 and name not in {"end", "last"}:
            return position
    if name == "last":
        return position
    raise ValueError(f"no place {place!r} in this reply: {[kind for kind, _ in events]}")


def marks_of(reply: Reply, events: Sequence[Event]) -> list[tuple[int, str]]:
    """(offset, action) for every fault of the reply, in order."""
    wanted: list[tuple[Place | None, str]] = [
        (reply.hold_at if reply.hold is not None else None, "hold"),
        (reply.garbage_at, "garbage"),
        (reply.error_at, "error"),
        (reply.stall_at, "stall"),
        (reply.close_at, "close"),
        (reply.drop_at, "drop"),
    ]
    found = [(offset_of(place, events), action) for place, action in wanted if place is not None]
    return sorted(found, key=lambda mark: mark[0])


def steps_of(
    reply: Reply, events: Sequence[Event], marks: Sequence[tuple[int, str]]
) -> Iterator[bytes | str]:
    """Pieces of the body to write and actions to take, in order."""
    waiting = [mark for mark in marks if mark[0] >= 0]
    position = 0
    for data in _sized([data for _, data in events], reply):
        rest = data
        while waiting and waiting[0][0] < position + len(rest):
            offset, action = waiting.pop(0)
            before, rest = rest[: offset - position], rest[offset - position :]
            position += len(before)
            if before:
                yield before
            yield action
        position += len(rest)
        yield rest
    yield from (action for _, action in waiting)


def _sized(parts: list[bytes], reply: Reply) -> Iterator[bytes]:
    if reply.write_bytes is None and (reply.delay_s or len(parts) <= _JOIN_ABOVE):
        yield from parts
        return
    size = reply.write_bytes or _JOINED_BYTES
    whole = b"".join(parts)
    yield from (whole[i : i + size] for i in range(0, len(whole), size))
