"""An OTLP collector on the loopback interface: takes http/protobuf as a real one does, keeps all."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

PATHS = {"/v1/traces": "trace", "/v1/metrics": "metrics"}


class CollectedSpan(NamedTuple):
    """One span. ``error`` is the description of a status of error, ``None`` for another status."""

    name: str
    id: str
    parent: str
    trace: str
    attributes: dict[str, Any]
    error: str | None
    events: tuple[str, ...]
    kind: int
    took_ns: int


class Collector:
    """``silent``: connections are taken and nothing is ever answered; ``reached`` says so."""

    def __init__(self, *, silent: bool = False) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.reached = threading.Event()
        self._over = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.headers.append({k.lower(): v for k, v in self.headers.items()})
                collector.reached.set()
                if silent:
                    collector._over.wait(60)
                    return
                collector.bodies.append((self.path, body))
                self.send_response(200 if self.path in PATHS else 404)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def env(self) -> dict[str, str]:
        """Switched on, sent here, and at the end waited for as long as a busy machine takes."""
        return {
            "AGENTCLI_ENABLE_TELEMETRY": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_EXPORT_TIMEOUT": "20000",
        }

    @property
    def raw(self) -> bytes:
        """Everything that arrived."""
        return b"".join(body for _, body in self.bodies)

    def spans(self) -> list[CollectedSpan]:
        """In the order of their beginnings."""
        found = []
        for resource in self._messages("trace", "ExportTraceServiceRequest", "resource_spans"):
            for scope in resource.scope_spans:
                for span in scope.spans:
                    assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
                    one = CollectedSpan(
                        span.name,
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.trace_id.hex(),
                        _plain(span.attributes),
                        span.status.message if span.status.code == 2 else None,
                        tuple(event.name for event in span.events),
                        span.kind,
                        span.end_time_unix_nano - span.start_time_unix_nano,
                    )
                    found.append((span.start_time_unix_nano, one))
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def resource(self) -> dict[str, Any]:
        """The attributes of who sent the first spans."""
        first = self._messages("trace", "ExportTraceServiceRequest", "resource_spans")[0]
        return _plain(first.resource.attributes)

    def points(self) -> list[tuple[str, float, dict[str, Any]]]:
        """Of each metric its name, its sum and its attributes."""
        found: list[tuple[str, float, dict[str, Any]]] = []
        for resource in self._messages(
            "metrics", "ExportMetricsServiceRequest", "resource_metrics"
        ):
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    found += [
                        (metric.name, point.sum, _plain(point.attributes))
                        for point in metric.histogram.data_points
                    ]
                    found += [
                        (metric.name, point.as_double or point.as_int, _plain(point.attributes))
                        for point in metric.sum.data_points
                    ]
        return found

    def _messages(self, signal: str, message: str, field: str) -> list[Any]:
        from importlib import import_module

        module = import_module(f"opentelemetry.proto.collector.{signal}.v1.{signal}_service_pb2")
        found: list[Any] = []
        for path, body in self.bodies:
            if PATHS.get(path) == signal:
                found += getattr(getattr(module, message).FromString(body), field)
        return found


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)
