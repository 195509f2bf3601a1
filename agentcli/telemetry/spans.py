"""Events become spans and metrics, in the terms of the GenAI semantic conventions (SCALE-7).

The revision is v1.41.0, the last one published with a tag:
https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai (all of it is in
*development*; what has followed in ``semantic-conventions-genai`` renames metrics and has no
release yet). What the conventions have no word for is named ``agentcli.*``.

The tree: ``invoke_agent`` (a turn) → ``chat`` (a model request with its retries) →
``execute_tool``; the turn of a sub-agent is below the call that it works for.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from opentelemetry import metrics, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from agentcli import __version__
from agentcli.domain.cancel import CancelReason
from agentcli.domain.errors import kind_of
from agentcli.domain.events import (
    AssistantRecorded,
    CallForming,
    Cancelled,
    Compacted,
    CompactionStarted,
    Done,
    Failed,
    Outcome,
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
from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    StopReason,
    TextPart,
    ToolCall,
    Usage,
)
from agentcli.telemetry.observer import AGENT, Observer, Report, collector, exit_bound_s

log = logging.getLogger(__name__)
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
MOST_NAME = 128
MOST_TEXT = 16_000
MOST_CALLS = 500
# the names that the conventions know; others are called what they are called here
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
_FINISH = {
    StopReason.END_TURN: "stop",
    StopReason.TOOL_USE: "tool_call",
    StopReason.MAX_TOKENS: "length",
    StopReason.REFUSAL: "content_filter",
}
_COMPLETE = (Outcome.DONE, Outcome.WRAPPED_UP)
# both advised by the conventions
_TOKEN_BUCKETS = tuple(4**power for power in range(14))
_SECOND_BUCKETS = tuple(0.01 * 2**power for power in range(14))


class Instruments(NamedTuple):
    """What is counted."""

    tokens: Any
    duration: Any
    cost: Any


class SpanRecorder:
    """Makes spans and metrics of reports, in the order in which they come.

    ``around`` is the context that the process was started in.
    """

    def __init__(
        self,
        traces: Any,
        meters: Any,
        around: Any = None,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self._tracer = traces.get_tracer(AGENT, __version__, schema_url=SCHEMA_URL)
        self._around = around
        self._close = close
        self._sessions: dict[Observer, SessionSpans] = {}
        meter = meters.get_meter(AGENT, __version__, schema_url=SCHEMA_URL)
        self._instruments = Instruments(
            meter.create_histogram(
                "gen_ai.client.token.usage",
                "{token}",
                "Number of input and output tokens used.",
                explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
            ),
            meter.create_histogram(
                "gen_ai.client.operation.duration",
                "s",
                "GenAI operation duration.",
                explicit_bucket_boundaries_advisory=_SECOND_BUCKETS,
            ),
            meter.create_counter("agentcli.cost.usage", "USD", "What turns have cost."),
        )

    def record(self, report: Report) -> None:
        """Take ``report`` in."""
        source = report.source
        spans = self._sessions.get(source)
        if report.event is None:
            if spans is not None:
                spans.end(report.at_ns)
                del self._sessions[source]
            return
        if spans is None:
            spans = SessionSpans(source, self._tracer, self._instruments, self._parent_of)
            self._sessions[source] = spans
        spans.record(report)
        if source.parent is not None and isinstance(report.event, Done | Cancelled | Failed):
            del self._sessions[source]  # a sub-agent has one turn

    def close(self) -> None:
        """End what is open and send what is left."""
        for spans in self._sessions.values():
            spans.end(None)
        self._sessions.clear()
        self._close()

    def _parent_of(self, report: Report) -> Any:
        """The context in which a turn begins."""
        if report.source.parent is not None:
            above, call_id = report.source.parent
            spans = self._sessions.get(above)
            found = spans.context_of(call_id) if spans is not None else None
            if found is not None:
                return found
        host = report.host
        if host is not None and trace.get_current_span(host).get_span_context().is_valid:
            return host
        return self._around


class SessionSpans:
    """The spans of one session."""

    def __init__(
        self,
        source: Observer,
        tracer: Any,
        instruments: Instruments,
        parent_of: Callable[[Report], Any],
    ) -> None:
        self._observed = source.observed
        self._is_whole = source.parent is None
        self._tracer = tracer
        self._instruments = instruments
        self._parent_of = parent_of
        self._turn: Any = None
        self._request: OpenRequest | None = None
        self._compaction: Any = None
        self._calls: dict[str, Any] = {}
        self._announced: dict[str, int] = {}
        self._contexts: dict[str, Any] = {}
        self._around: Any = None
        self._last_request: Any = None
        self._news: list[Mapping[str, Any]] = []
        self._handlers: Mapping[type, Callable[[Any, int], object]] = {
            PromptRecorded: self._note_prompt,
            ProviderRequestPrepared: self._start_request,
            TextChunk: self._note_first,
            ThinkingChunk: self._note_first,
            CallForming: self._note_first,
            RetryWait: self._note_retry,
            AssistantRecorded: self._end_request,
            ToolAnnounced: self._announce,
            ToolStarted: self._start_tool,
            ToolFinished: self._end_call,
            CompactionStarted: self._start_compaction,
            Compacted: self._compacted,
            Done: self._end_turn,
            Cancelled: self._end_turn,
            Failed: self._end_turn,
        }

    def context_of(self, call_id: str) -> Any:
        """The context of a call's span, also after its end, or of the turn: of a background run."""
        return self._contexts.get(call_id, self._around)

    def record(self, report: Report) -> None:
        """What the event means for the spans."""
        if isinstance(report.event, TurnStart):
            self._start_turn(report)
        elif (handle := self._handlers.get(type(report.event))) is not None:
            handle(report.event, report.at_ns)

    def end(self, now: int | None) -> None:
        """End what is open: nobody will."""
        self._close_open(now, "interrupted")
        if self._turn is not None:
            _fail(self._turn, "interrupted")
            self._turn.end(now)
            self._turn = None

    # --- turns -------------------------------------------------------------------------------

    def _start_turn(self, report: Report) -> None:
        self.end(report.at_ns)
        name = self._observed.agent
        self._turn = self._tracer.start_span(
            f"invoke_agent {name}",
            self._parent_of(report),
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": name,
                "gen_ai.agent.version": __version__,
                "gen_ai.conversation.id": self._observed.session_id,
            },
            start_time=report.at_ns,
        )
        self._around = self._inside(self._turn)
        self._last_request = None

    def _end_turn(self, event: Done | Cancelled | Failed, now: int) -> None:
        summary, span = event.summary, self._turn
        self._close_open(now, _problem(event) or "interrupted")
        if span is None:
            return
        self._turn = None
        span.set_attributes(
            {
                "agentcli.turn.outcome": str(summary.outcome),
                "agentcli.turn.steps": summary.steps,
                **_usage(summary.usage),
            }
        )
        if summary.stop_reason in _FINISH:
            reason = _FINISH[StopReason(summary.stop_reason)]
            span.set_attribute("gen_ai.response.finish_reasons", (reason,))
        if summary.cost_usd is not None:
            span.set_attribute("agentcli.cost_usd", summary.cost_usd)
            if self._is_whole:  # it has what its sub-agents cost
                self._instruments.cost.add(summary.cost_usd)
        if summary.text:
            message = {"role": "assistant", "parts": _text_parts([summary.text])}
            self._set(span, "gen_ai.output.messages", [message])
        if isinstance(event, Cancelled):
            span.set_attribute("agentcli.cancelled_by", event.reason)
        if problem := _problem(event):
            _fail(span, problem)
        span.end(now)

    def _close_open(self, now: int | None, problem: str) -> None:
        self._end_compaction(now)
        if self._request is not None:
            self._fail_request(problem, now)
        for span in self._calls.values():
            _fail(span, problem)
            span.end(now)
        self._calls.clear()
        self._announced.clear()
        self._news.clear()

    def _note_prompt(self, event: PromptRecorded, _now: int) -> None:
        texts = [part.text for part in event.message.parts if isinstance(part, TextPart)]
        self._news.append({"role": "user", "parts": _text_parts(texts)})
        self._set(self._turn, "gen_ai.input.messages", self._news[-1:])

    # --- requests ----------------------------------------------------------------------------

    def _start_request(self, event: ProviderRequestPrepared, now: int) -> None:
        self._end_compaction(now)
        request = self._request
        if request is not None and request.model_id == event.model:
            request.attempts += 1
            return
        if request is not None:  # another model takes its place
            self._fail_request(request.last_error or "other", now)
        provider, _, model = event.model.rpartition("/")
        facts = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(provider, provider) or "unknown",
            "gen_ai.request.model": model,
        }
        more = {"gen_ai.conversation.id": self._observed.session_id, "agentcli.step": event.step}
        if event.max_output_tokens is not None:
            more["gen_ai.request.max_tokens"] = event.max_output_tokens
        span = self._tracer.start_span(
            f"chat {model}",
            self._inside(self._turn),
            SpanKind.CLIENT,
            {**facts, **more},
            start_time=now,
        )
        if self._turn is not None:
            for name in ("gen_ai.provider.name", "gen_ai.request.model"):
                self._turn.set_attribute(name, facts[name])
        self._set(span, "gen_ai.input.messages", self._news)
        self._news.clear()
        self._request = OpenRequest(span, event.model, facts, now)

    def _note_first(self, _event: object, now: int) -> None:
        if self._request is not None:
            waited = (now - self._request.began_ns) / 1e9
            self._request.span.set_attribute("gen_ai.response.time_to_first_chunk", waited)

    def _note_retry(self, event: RetryWait, now: int) -> None:
        if self._request is None:
            return
        kind = kind_of(event.error)
        facts = {"error.type": kind, "agentcli.retry.delay_s": event.delay_s}
        self._request.span.add_event("agentcli.retry", facts, now)
        self._request.retries += 1
        self._request.last_error = kind

    def _end_request(self, event: AssistantRecorded, now: int) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        message = event.message
        span, usage = request.span, message.usage
        answered = {"gen_ai.response.model": message.model} if message.model else {}
        reason = _FINISH.get(message.stop_reason, "other")
        span.set_attributes(
            {
                **answered,
                "gen_ai.response.finish_reasons": (reason,),
                **request.counts(),
                **_usage(usage),
            }
        )
        self._set(span, "gen_ai.output.messages", [_output(message, reason)])
        span.end(now)
        self._last_request = span
        facts = {**request.facts, **answered}
        self._instruments.duration.record((now - request.began_ns) / 1e9, facts)
        for kind, count in (("input", _input_tokens(usage)), ("output", usage.output_tokens)):
            if count is not None:
                self._instruments.tokens.record(count, {**facts, "gen_ai.token.type": kind})

    def _fail_request(self, problem: str, now: int | None) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        request.span.set_attributes(request.counts())
        _fail(request.span, problem)
        request.span.end(now)
        if now is not None:
            facts = {**request.facts, "error.type": problem}
            self._instruments.duration.record((now - request.began_ns) / 1e9, facts)

    def _start_compaction(self, event: CompactionStarted, now: int) -> None:
        self._compaction = self._tracer.start_span(
            "compaction",
            self._inside(self._turn),
            attributes={"agentcli.compaction.trigger": str(event.trigger)},
            start_time=now,
        )

    def _compacted(self, event: Compacted, now: int) -> None:
        self._end_compaction(now, event)

    def _end_compaction(self, now: int | None, event: Compacted | None = None) -> None:
        span, self._compaction = self._compaction, None
        if span is None:
            return
        if event is None:
            _fail(span, "failed")
        else:
            span.set_attributes(
                {
                    "agentcli.compaction.tokens_before": event.tokens_before,
                    "agentcli.compaction.tokens_after": event.tokens_after,
                    **_usage(event.usage),
                }
            )
        span.end(now)

    # --- tools -------------------------------------------------------------------------------

    def _announce(self, event: ToolAnnounced, now: int) -> None:
        self._announced[event.call.id] = now

    def _start_tool(self, event: ToolStarted, now: int) -> None:
        self._start_call(event.call, now)

    def _start_call(self, call: ToolCall, now: int) -> Any:
        name = "".join(filter(str.isprintable, call.name))[:MOST_NAME]
        span = self._tracer.start_span(
            f"execute_tool {name}",
            self._inside(self._last_request or self._turn),
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call.id[:MOST_NAME],
            },
            start_time=now,
        )
        self._set(span, "gen_ai.tool.call.arguments", call.arguments)
        self._calls[call.id] = span
        self._contexts[call.id] = self._inside(span)
        if len(self._contexts) > MOST_CALLS:
            self._contexts.pop(next(iter(self._contexts)))
        return span

    def _end_call(self, event: ToolFinished, now: int) -> None:
        """A call that never ran has a span all the same, with what stopped it."""
        call, result = event.call, event.result
        announced = self._announced.pop(call.id, now)
        span = self._calls.get(call.id) or self._start_call(call, announced)
        del self._calls[call.id]
        if result.status is not ResultStatus.OK:
            _fail(span, "tool_error" if result.status is ResultStatus.ERROR else str(result.status))
        self._set(span, "gen_ai.tool.call.result", result.text)
        span.end(now)
        part = {"type": "tool_call_response", "id": call.id, "response": result.text}
        self._news.append({"role": "tool", "parts": [part]})

    # --- all of them -------------------------------------------------------------------------

    def _inside(self, span: Any) -> Any:
        return None if span is None else trace.set_span_in_context(span)

    def _set(self, span: Any, name: str, value: Any) -> None:
        """Content, where it is wanted, without secrets."""
        redact = self._observed.redact
        if redact is not None and span is not None and value:
            clean = _short(redact(value))  # cut first, a secret might be no longer known as one
            text = clean if isinstance(clean, str) else json.dumps(clean, ensure_ascii=False)
            span.set_attribute(name, text)


class OpenRequest:
    """A model request whose answer is awaited; ``facts`` are the same in spans and metrics."""

    def __init__(self, span: Any, model_id: str, facts: Mapping[str, Any], began_ns: int) -> None:
        self.span = span
        self.model_id = model_id
        self.facts = facts
        self.began_ns = began_ns
        self.attempts = 1
        self.retries = 0
        self.last_error = ""

    def counts(self) -> Mapping[str, int]:
        """How often it was sent."""
        return {"agentcli.request.attempts": self.attempts + self.retries}


def _problem(event: Done | Cancelled | Failed) -> str:
    """Our kind of error for a turn that did not complete; "" for one that did."""
    match event:
        case Failed():
            return kind_of(event.error)
        case Cancelled(reason=reason):
            return "timed_out" if reason == CancelReason.LIMIT else "cancelled"
    outcome = event.summary.outcome
    return "" if outcome in _COMPLETE else event.summary.limit or str(outcome)


def _fail(span: Any, problem: str) -> None:
    """https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/general/recording-errors.md."""
    span.set_attribute("error.type", problem)
    span.set_status(Status(StatusCode.ERROR, problem))


def _usage(usage: Usage) -> dict[str, int]:
    """The conventions' input counts what came from a cache too."""
    found = {
        "gen_ai.usage.input_tokens": _input_tokens(usage),
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return {name: count for name, count in found.items() if count is not None}


def _input_tokens(usage: Usage) -> int | None:
    known = [usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens]
    counts = [count for count in known if count is not None]
    return sum(counts) if counts else None


def _short(value: Any) -> Any:
    """``value`` with its texts cut."""
    if isinstance(value, Mapping):
        return {key: _short(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    if not isinstance(value, str) or len(value) <= MOST_TEXT:
        return value
    return f"{value[:MOST_TEXT]}… ({len(value)} characters)"


def _text_parts(texts: Sequence[str]) -> list[Mapping[str, Any]]:
    return [{"type": "text", "content": text} for text in texts]


def _output(message: AssistantMessage, reason: str) -> Mapping[str, Any]:
    parts = _text_parts([message.text] if message.text else [])
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": "assistant", "parts": parts, "finish_reason": reason}


# --- where it goes ---------------------------------------------------------------------------


def make_recorder(env: Mapping[str, str]) -> SpanRecorder:
    """What reports to the providers of the program around ours, else to OTLP as ``env`` says.

    https://opentelemetry.io/docs/specs/otel/protocol/exporter/
    """
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {name.lower(): env[name] for name in ("TRACEPARENT", "TRACESTATE") if env.get(name)}
    around = TraceContextTextMapPropagator().extract(carrier) if carrier else None
    traces: Any = trace.get_tracer_provider()
    meters: Any = metrics.get_meter_provider()
    if isinstance(traces, trace.ProxyTracerProvider):
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider

        named = Resource.create({"service.name": AGENT, "service.version": __version__})
        resource = named.merge(OTELResourceDetector().detect())
        traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        readers = []
        if env.get("OTEL_TRACES_EXPORTER", "").strip() != "none":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        if env.get("OTEL_METRICS_EXPORTER", "").strip() != "none":
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
        meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        return SpanRecorder(traces, meters, around, partial(_send, traces, meters))
    return SpanRecorder(traces, meters, around)


def _send(traces: Any, meters: Any) -> None:
    address = collector(os.environ)
    if not os.environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") and _is_refused(address):
        log.warning("telemetry is lost: no collector listens on this machine")
        return
    bound_ms = int(exit_bound_s(os.environ) * 1000)
    traces.force_flush(bound_ms)
    meters.force_flush(bound_ms)


def _is_refused(address: str) -> bool:
    """Whether nobody listens there, on this machine: it would be asked until the bound is over."""
    try:
        parts = urlsplit(address)
        if parts.hostname in {"localhost", "127.0.0.1", "::1"} and parts.port is not None:
            socket.create_connection((parts.hostname, parts.port), exit_bound_s(os.environ)).close()
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):  # it is not known
        pass
    return False
