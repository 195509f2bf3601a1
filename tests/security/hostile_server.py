"""A model service that means harm: it answers with any bytes, for as long as somebody reads."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, repeat

MB = 1024 * 1024
Body = Callable[[], Iterable[bytes]]

STREAM = b"content-type: text/event-stream\r\n"
JSON = b"content-type: application/json\r\n"


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):
            length, head = 0, b""
            while (line := self.rfile.readline()) not in {b"\r\n", b""}:
                head += line
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            self.rfile.read(length)
            server = self.server
            assert isinstance(server, HostileServer)
            server.heads.append(head)
            self.wfile.write(server.head)
            server.asked.set()
            for piece in server.body():
                self.wfile.write(piece)
                server.sent += len(piece)


class HostileServer(socketserver.ThreadingTCPServer):
    """Answers every request with ``status``, ``headers`` and ``body``, unframed: till it closes."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, body: Body, *, status: int = 200, headers: bytes = STREAM) -> None:
        self.body = body
        self.head = b"HTTP/1.1 %d Well\r\nconnection: close\r\n%s\r\n" % (status, headers)
        self.asked = threading.Event()
        self.sent = 0
        self.heads: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def hostile(body: Body, *, status: int = 200, headers: bytes = STREAM) -> Iterator[HostileServer]:
    """The server, while the block lasts."""
    with HostileServer(body, status=status, headers=headers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@cache
def bomb(head: bytes, piece: bytes, megabytes: int) -> bytes:
    """``head`` and then ``piece`` for so many megabytes, as gzip without an end."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = squeeze.compress(head) + squeeze.flush(zlib.Z_FULL_FLUSH)
    # a block after a full flush stands for itself, so it is made once
    block = squeeze.compress(piece * (MB // len(piece))) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return start + block * megabytes


def endless(head: bytes, piece: bytes) -> Body:
    """``head`` once and ``piece`` for ever."""
    large = piece * max(1, 256 * 1024 // len(piece))
    return lambda: chain([head], repeat(large))
