"""HTTP servers on the loopback interface; one answers with JSON values of the test's."""

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


class HttpServer:
    """Gives each GET and POST, with its body, to ``serve`` in a thread of its own."""

    version = "HTTP/1.0"

    def __init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = server.version

            def do_GET(self) -> None:
                server.serve(self, self.rfile.read(int(self.headers.get("content-length") or 0)))

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer ``request``."""
        raise NotImplementedError


class JsonServer(HttpServer):
    """``routes``: ``"GET /path"`` -> a value, or a function that gives status and value.

    Whatever has no route is a 404. A value of ``bytes`` is sent as it is.
    """

    def __init__(self, routes: Mapping[str, Any | Answer] | None = None) -> None:
        super().__init__()
        self.url = self.origin
        self.routes: dict[str, Any] = dict(routes or {})
        self.asked: list[Asked] = []
        self.headers: dict[str, str] = {}

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.command, request.path, headers, json.loads(body) if body else None)
        self.asked.append(asked)
        status, value = 200, self.routes.get(f"{asked.method} {asked.path}", self)
        if value is self:
            status, value = 404, {"error": "not found"}
        elif callable(value):
            status, value = value(asked)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        content = b"" if status == 304 else content
        try:
            request.send_response(status)
            request.send_header("content-type", "application/json")
            request.send_header("content-length", str(len(content)))
            for name, text in self.headers.items():
                request.send_header(name, text)
            if status in range(300, 400) and status != 304:
                request.send_header("location", f"{self.url}/elsewhere")
            request.end_headers()
            request.wfile.write(content)
        except ConnectionError:
            pass  # the asker has given up
