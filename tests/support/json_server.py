"""A server on the loopback interface that answers each request with a JSON value of the test's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Asked(NamedTuple):
    """One request. ``target`` is the path with its query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: Any

    @property
    def path(self) -> str:
        """Without the query."""
        return self.target.partition("?")[0]


Answer = Callable[[Asked], tuple[int, Any]]


class JsonServer:
    """``routes``: ``"GET /path"`` -> a value, or a function that gives status and value.

    Whatever has no route is a 404. A value of ``bytes`` is sent as it is.
    """

    def __init__(self, routes: Mapping[str, Any | Answer] | None = None) -> None:
        self.routes: dict[str, Any] = dict(routes or {})
        self.asked: list[Asked] = []
        self.headers: dict[str, str] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def do_POST(self) -> None:
                server.answer(self)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = Asked(handler.command, handler.path, headers, json.loads(raw) if raw else None)
        self.asked.append(asked)
        status, value = 200, self.routes.get(f"{asked.method} {asked.path}", self)
        if value is self:
            status, value = 404, {"error": "not found"}
        elif callable(value):
            status, value = value(asked)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        content = b"" if status == 304 else content
        try:
            handler.send_response(status)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(content)))
            for name, text in self.headers.items():
                handler.send_header(name, text)
            if status in range(300, 400) and status != 304:
                handler.send_header("location", f"{self.url}/elsewhere")
            handler.end_headers()
            handler.wfile.write(content)
        except ConnectionError:
            pass  # the asker has given up
