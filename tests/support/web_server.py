"""A web server on the loopback interface that answers byte for byte what a test gives it."""

from __future__ import annotations

import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

Page = bytes | Iterable[bytes] | Callable[[bytes], bytes | Iterable[bytes]]


def answer(
    body: bytes | str = b"",
    content_type: str = "text/plain; charset=utf-8",
    status: str = "200 OK",
    **headers: str,
) -> bytes:
    """A whole HTTP answer. ``headers`` with ``_`` for ``-``."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def redirect(place: str, status: str = "302 Found") -> bytes:
    """An answer that leads to ``place``."""
    return answer(status=status, Location=place)


class WebServer:
    """``pages`` by path; ``heads`` are the requests' heads as they came, oldest first.

    A page is an answer, its pieces as they are to be sent, or a function of the request's head
    that gives one of these. ``left`` is set when a client goes before it has the whole answer.
    After a CONNECT the same connection is read for the request that goes through the tunnel. With
    a ``banner`` the server says that, at once, and nothing else. With ``is_proxy`` a tunnel really
    leads to where it is wanted.
    """

    def __init__(
        self,
        pages: dict[str, Page] | None = None,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        banner: bytes = b"",
        is_proxy: bool = False,
    ) -> None:
        self.pages: dict[str, Page] = pages or {}
        self.heads: list[bytes] = []
        self.connections = 0
        self.asked = threading.Event()
        self.left = threading.Event()
        self._tls = tls
        self._banner = banner
        self._is_proxy = is_proxy
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.bind((host, 0))
        self._socket.listen()
        self.port: int = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(10)

    def wait_closing(self, seconds: float) -> bool:
        """Wait, but not longer than the server lives."""
        return self._closing.wait(seconds)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(10)
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            if self._banner:
                client.sendall(self._banner)
                return
            while self._answer(client):
                pass
        except OSError:
            self.left.set()
        finally:
            client.close()

    def _answer(self, client: socket.socket) -> bool:
        """Whether another request may follow on the connection."""
        head = b""
        while b"\r\n\r\n" not in head:
            more = client.recv(65_536)
            if not more:
                return False
            head += more
        # what is left unread has the system take back an answer that was sent
        told = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        size = head.index(b"\r\n\r\n") + 4 + int(told[1] if told else 0)
        while len(head) < size and (more := client.recv(65_536)):
            head += more
        self.heads.append(head)
        self.asked.set()
        path = head.split(None, 2)[1].decode()
        if self._is_proxy and head.startswith(b"CONNECT "):
            _relay(client, path)
            return False
        page = self.pages.get(path, answer("no such page", status="404 Not Found"))
        if callable(page):
            page = page(head)
        for piece in [page] if isinstance(page, bytes) else page:
            if self._closing.is_set():
                break
            client.sendall(piece)
        return head.startswith(b"CONNECT ")


def _relay(client: socket.socket, place: str) -> None:
    host, _, port = place.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), 10) as there:
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        while True:
            for source in select.select([client, there], [], [], 10)[0]:
                data = source.recv(65_536)
                if not data:
                    return
                (there if source is client else client).sendall(data)


def slowly(server: WebServer, first: bytes, pause_s: float = 0.02) -> Iterable[bytes]:
    """``first`` and then a byte now and then, for as long as somebody listens."""
    yield first
    end = time.monotonic() + 20
    while time.monotonic() < end and not server.wait_closing(pause_s):
        yield b"."
