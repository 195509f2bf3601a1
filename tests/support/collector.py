"""An OTLP collector on the loopback interface: takes http/protobuf as a real one does, keeps all."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from tests.support.json_server import HttpServer

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


class Collector(HttpServer):
    """``silent``: connections are taken and nothing is ever answered; ``reached`` says so."""

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__()
        self.url = self.origin
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        self.bodies: list[tuple[str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.reached = threading.Event()
        self._is_silent = silent
        self._over = threading.Event()

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        super().__exit__(*exc)

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.reached.set()
        if self._is_silent:
            self._over.wait(60)
            return
        self.bodies.append((request.path, body))
        request.send_response(200 if request.path in PATHS else 404)
        request.send_header("content-type", "application/x-protobuf")
        request.send_header("content-length", "0")
        request.end_headers()

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
