"""Listens to sessions and hands what happens to one thread, which reports it (SCALE-7).

Laws: a listener notes the time and returns; OpenTelemetry is imported by the thread, once the first
request has left. Closing a session waits until what it said has become spans, and the end of the
process until they are sent: each at most ``exit_bound_s``. The thread is a daemon: a collector that
does not answer holds up nothing else.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from agentcli.domain.events import (
    AssistantRecorded,
    CallForming,
    Cancelled,
    Compacted,
    CompactionStarted,
    Done,
    Failed,
    PromptRecorded,
    ProviderRequestPrepared,
    RetryWait,
    TextChunk,
    ThinkingChunk,
    ToolAnnounced,
    ToolFinished,
    ToolStarted,
    TurnStart,
)
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.domain.events import AgentEvent

log = logging.getLogger(__name__)

EXIT_S = 1.0
LONGEST_EXIT_S = 3_600.0
AGENT = "agentcli"
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_PROTOCOLS = tuple(f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL" for signal in ("", "TRACES_", "METRICS_"))
HEADERS = tuple(
    f"OTEL_EXPORTER_OTLP_{signal}HEADERS" for signal in ("", "TRACES_", "METRICS_", "LOGS_")
)
"""Variables that may hold the collector's key: no command sees them (SEC-8)."""
_PIECES = (TextChunk, ThinkingChunk, CallForming)
# when one of these comes, a request has left, or none will
_STARTING = (*_PIECES, RetryWait, AssistantRecorded, Done, Cancelled, Failed)
_HEARD = frozenset(
    {
        TurnStart,
        PromptRecorded,
        ProviderRequestPrepared,
        RetryWait,
        AssistantRecorded,
        ToolAnnounced,
        ToolStarted,
        ToolFinished,
        CompactionStarted,
        Compacted,
        Done,
        Cancelled,
        Failed,
    }
)


@frozen
class Observed:
    """Whose events they are. ``redact`` takes secrets out of JSON data; ``None``: no content."""

    session_id: str
    agent: str = AGENT
    redact: Callable[[Any], Any] | None = None


@frozen
class Report:
    """One event of a session, and when it happened, in nanoseconds since the epoch.

    ``None`` is the session's end. ``host`` is the OpenTelemetry context that a program around ours
    is in.
    """

    source: Observer
    at_ns: int
    event: AgentEvent | None
    host: Any = None


class Observer:
    """A listener of one session. End it with ``aclose``."""

    def __init__(
        self, pipeline: Pipeline, observed: Observed, parent: tuple[Observer, str] | None = None
    ) -> None:
        self.observed = observed
        self.parent = parent
        self._pipeline = pipeline
        self._awaits_answer = False

    def on_event(self, event: AgentEvent) -> None:
        """Note ``event``."""
        kind = type(event)
        if kind in _PIECES:
            if not self._awaits_answer:
                return
            self._awaits_answer = False
        elif kind not in _HEARD:
            return
        elif kind is ProviderRequestPrepared:
            self._awaits_answer = True
        host = None
        if kind is TurnStart and (module := sys.modules.get("opentelemetry.context")) is not None:
            # without it our own thread is just importing it: no program around ours had a context
            host = getattr(module, "get_current", lambda: None)()
        self._pipeline.put(Report(self, time.time_ns(), event, host))

    def within(self, call_id: str, session_id: str, agent: str) -> Observer:
        """A listener for the sub-agent that works for the call ``call_id`` of this session."""
        observed = Observed(session_id, agent, self.observed.redact)
        return Observer(self._pipeline, observed, (self, call_id))

    async def aclose(self) -> None:
        """What the session has said becomes spans; no longer than the bound."""
        self._pipeline.put(Report(self, time.time_ns(), None))
        await self._pipeline.drained()


class Pipeline:
    """The one thread of the process that reports. ``make`` builds what it reports to."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._queue: SimpleQueue[Report | Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def put(self, item: Report) -> None:
        """Report ``item`` soon."""
        self._queue.put(item)
        if self._thread is None and isinstance(item.event, _STARTING):
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    async def drained(self) -> None:
        """Wait until all that was put so far is reported, no longer than the bound."""
        if self._thread is None or not self._thread.is_alive():
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not done.done():
                done.set_result(None)

        self._queue.put(lambda: loop.call_soon_threadsafe(tell))
        await asyncio.wait({done}, timeout=exit_bound_s(os.environ))

    def close(self) -> None:
        """Send what is left, no longer than the bound. Called at the end of the process."""
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(exit_bound_s(os.environ))

    def _run(self) -> None:
        try:
            recorder = self._make()
        except Exception:
            log.warning("telemetry could not start", exc_info=True)
            recorder = None
        while (item := self._queue.get()) is not None:
            if isinstance(item, Report) and recorder is None:
                continue
            try:
                if isinstance(item, Report):
                    recorder.record(item)
                else:
                    item()
            except Exception:
                log.warning("telemetry missed an event", exc_info=True)
        if recorder is not None:
            with contextlib.suppress(Exception):
                recorder.close()


def exit_bound_s(env: Mapping[str, str]) -> float:
    """How long an end may wait, in seconds: ``EXIT_S`` if nothing else is said.

    ``OTEL_BSP_EXPORT_TIMEOUT`` says it in milliseconds:
    https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
    """
    text = env.get("OTEL_BSP_EXPORT_TIMEOUT", "").strip()
    is_number = text.isascii() and text.isdecimal()
    return min(float(text) / 1000, LONGEST_EXIT_S) if is_number else EXIT_S


def collector(env: Mapping[str, str]) -> str:
    """The address of the collector: https://opentelemetry.io/docs/specs/otel/protocol/exporter/."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((env[name] for name in names if env.get(name)), "http://localhost:4318")


def obstacle(env: Mapping[str, str]) -> str | None:
    """Why nothing can be reported, as a line for the user; ``""`` when that is what they want."""
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    for name in _NEEDED:
        try:
            found = find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            from agentcli.domain.extensions.extras import install_command

            return f"telemetry is on, but OpenTelemetry is not installed: {install_command('otel')}"
    for name in _PROTOCOLS:
        if env.get(name, "").strip() not in {"", "http/protobuf"}:
            return f"telemetry is off, since it can only be sent as http/protobuf: correct {name}"
    return None


@cache
def pipeline(make: Callable[[], Any]) -> Pipeline:
    """The one of the process that reports to what ``make`` builds."""
    return Pipeline(make)
