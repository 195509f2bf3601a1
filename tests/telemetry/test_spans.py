"""Events of a turn, given by hand, and the spans that they become: ends of every kind."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentcli.domain.errors import ErrorKind, PersistenceError, ProviderError
from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    Cancelled,
    Compacted,
    CompactionStarted,
    CompactionTrigger,
    Done,
    Failed,
    Outcome,
    PromptRecorded,
    ProviderRequestPrepared,
    RetryWait,
    TextChunk,
    ToolAnnounced,
    ToolFinished,
    ToolStarted,
    TurnStart,
    TurnSummary,
)
from agentcli.domain.messages import (
    AssistantMessage,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.telemetry.observer import (
    EXIT_S,
    LONGEST_EXIT_S,
    Observed,
    Observer,
    Pipeline,
    Report,
    exit_bound_s,
    obstacle,
)
from tests.support.cli import agent_env
from tests.support.model_server import ModelServer
from tests.support.replies import Call, calls

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is missing")
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentcli.telemetry.spans import MOST_TEXT, SpanRecorder, make_recorder

OVERLOADED = ProviderError("no", kind=ErrorKind.OVERLOADED)
CALL = ToolCall("c1", "bash", {"command": "ls"})


class Memory:
    """A recorder and what it has made; ``feed`` gives one session's events in their order."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.recorder = SpanRecorder(provider, NoOpMeterProvider())
        self.pipeline = Pipeline(lambda: self.recorder)

    def feed(
        self, *events: AgentEvent, redact: Callable[[Any], Any] | None = None
    ) -> list[ReadableSpan]:
        async def body() -> None:
            observer = Observer(self.pipeline, Observed("session-1", redact=redact))
            for event in events:
                observer.on_event(event)
            await observer.aclose()

        asyncio.run(body())
        self.pipeline.close()
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "20000")
    return Memory()


def prepared(model: str = "anthropic/m", attempt: int = 1) -> ProviderRequestPrepared:
    return ProviderRequestPrepared(1, attempt, model, 1, 1, 1, 1, 1, "h", 1000)


def summary(outcome: Outcome, limit: str = "") -> TurnSummary:
    return TurnSummary(outcome, 1, Usage(1, 2), limit=limit)


def problems(spans: list[ReadableSpan]) -> dict[str, Any]:
    for span in spans:
        assert (span.status.description or None) == (span.attributes or {}).get("error.type")
        assert span.status.is_ok is (span.status.description is None)
    return {span.name: span.status.description for span in spans}


@pytest.mark.spec("SCALE-7")
@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (Done(summary(Outcome.MAX_STEPS, "budget")), "budget"),
        (Done(summary(Outcome.TIMED_OUT)), "timed_out"),
        (Cancelled(summary(Outcome.CANCELLED), "user"), "cancelled"),
        (Cancelled(summary(Outcome.CANCELLED), "limit"), "timed_out"),
        (Failed(summary(Outcome.ERROR), OVERLOADED), "overloaded"),
        (Failed(summary(Outcome.ERROR), PersistenceError("disk")), "persistence_error"),
    ],
)
def test_a_turn_that_stops_short_says_why_in_all_that_was_open(
    memory: Memory, end: AgentEvent, kind: str
) -> None:
    message = AssistantMessage((CALL,), "anthropic", "m", usage=Usage(1, 1, 8, 2))
    spans = memory.feed(
        TurnStart(1),
        prepared(),
        TextChunk("a"),
        AssistantRecorded(message, 2),
        ToolStarted(CALL, "ls"),
        prepared("openai/n"),
        end,
    )
    found = problems(spans)
    assert found == {
        "chat m": None,
        "execute_tool bash": kind,
        "chat n": kind,
        "invoke_agent agentcli": kind,
    }
    chat = dict(spans[0].attributes or {})
    assert chat["gen_ai.usage.input_tokens"] == 11  # with what came from the cache
    assert chat["gen_ai.usage.cache_read.input_tokens"] == 8
    assert "gen_ai.response.time_to_first_chunk" in chat


def test_a_refused_call_a_fallback_and_a_compaction_have_spans_of_their_own(
    memory: Memory,
) -> None:
    refused = ToolResult("c1", "bash", (TextPart("no"),), ResultStatus.REFUSED)
    spans = memory.feed(
        TurnStart(1),
        CompactionStarted(CompactionTrigger.WINDOW),
        Compacted(CompactionTrigger.WINDOW, 9, 3, 900, 100, "", "", Usage(5, 6)),
        prepared(),
        RetryWait(OVERLOADED, 1, 3, 0.1),
        prepared("openai/n", 2),
        AssistantRecorded(AssistantMessage((CALL,)), 2),
        ToolAnnounced(CALL, "ls"),
        ToolFinished(CALL, refused, "refused", 0.0),
        CompactionStarted(CompactionTrigger.WINDOW),
        prepared("openai/n"),
        AssistantRecorded(AssistantMessage((TextPart("x"),)), 4),
        Done(summary(Outcome.DONE)),
    )
    assert [(span.name, span.status.description) for span in spans] == [
        ("compaction", None),
        ("chat m", "overloaded"),
        ("chat n", None),
        ("execute_tool bash", "refused"),
        ("compaction", "failed"),
        ("chat n", None),
        ("invoke_agent agentcli", None),
    ]
    problems(spans)


def test_what_is_open_when_a_session_ends_is_ended(memory: Memory) -> None:
    hostile = ToolCall("c1", "\x1b[31m" + "x" * 500, {})
    spans = memory.feed(
        TurnStart(1), prepared(), RetryWait(OVERLOADED, 1, 3, 0.1), ToolStarted(hostile, "")
    )
    assert {span.status.description for span in spans} == {"interrupted"} and len(spans) == 3
    assert all("\x1b" not in span.name and len(span.name) < 150 for span in spans)


def test_a_sub_agent_is_below_its_call_and_in_the_background_below_the_turn(
    memory: Memory,
) -> None:
    async def body() -> None:
        parent = Observer(memory.pipeline, Observed("session-1"))
        agents = [parent.within(call, f"of-{call}", "explore") for call in ("c1", "bg_1")]
        for event in (TurnStart(1), prepared(), ToolStarted(CALL, "")):
            parent.on_event(event)
        for agent in agents:
            agent.on_event(TurnStart(1))
            agent.on_event(Done(summary(Outcome.DONE)))
        await parent.aclose()

    asyncio.run(body())
    memory.pipeline.close()
    spans = memory.exporter.get_finished_spans()
    ids = {span.context.span_id: span.name for span in spans if span.context}
    below = [ids.get(span.parent.span_id if span.parent else 0) for span in spans[:2]]
    assert below == ["execute_tool bash", "invoke_agent agentcli"]


def test_the_variables_of_the_standard_are_kept() -> None:
    assert exit_bound_s({}) == exit_bound_s({"OTEL_BSP_EXPORT_TIMEOUT": "x"}) == EXIT_S
    assert exit_bound_s({"OTEL_BSP_EXPORT_TIMEOUT": "2500"}) == 2.5
    assert exit_bound_s({"OTEL_BSP_EXPORT_TIMEOUT": "9" * 5_000}) == LONGEST_EXIT_S
    assert obstacle({}) is None and obstacle({"OTEL_SDK_DISABLED": "true"}) == ""
    assert "OTLP_PROTOCOL" in (obstacle({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) or "")


def tell_nobody() -> None:
    """A turn in this process, whose threads keep on asking for a collector as long as it lives."""
    pipeline = Pipeline(lambda: make_recorder(os.environ))

    async def body() -> None:
        observer = Observer(pipeline, Observed("session-1"))
        for event in (TurnStart(1), prepared(), Done(summary(Outcome.DONE))):
            observer.on_event(event)
        await observer.aclose()

    asyncio.run(body())
    pipeline.close()


@pytest.mark.spec("SCALE-7")
def test_a_collector_that_nobody_has_started_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{port}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1000",
        "OTEL_BSP_EXPORT_TIMEOUT": "1000000",
    }
    code = f"from {__name__} import tell_nobody; tell_nobody()"
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, cwd=root, timeout=25, check=True
    )


LIBRARY = """
import asyncio, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from agentcli import Agent
memory, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
trace.set_tracer_provider(provider)

async def main():
    with trace.get_tracer("mine").start_as_current_span("my job"):
        async with Agent(model=os.environ["AGENTCLI_MODEL"]) as agent:
            async for event in agent.run("hi"):
                pass
    found = {span.context.span_id: span for span in memory.get_finished_spans()}
    for span in found.values():
        print(span.name, "<", found[span.parent.span_id].name if span.parent else "")

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.spec("SCALE-7")
def test_in_a_program_with_a_provider_of_its_own_a_turn_is_part_of_its_trace(
    tmp_path: Path,
) -> None:
    with ModelServer([calls(Call("list_directory", {}, "l1")), "done"]) as server:
        env = agent_env(server, AGENTCLI_ENABLE_TELEMETRY="1", OTEL_BSP_EXPORT_TIMEOUT="20000")
        done = subprocess.run(
            [sys.executable, "-c", LIBRARY],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=25,
            check=False,
        )
    assert done.stdout.splitlines() == [
        "chat claude-sonnet-4-5 < invoke_agent agentcli",
        "execute_tool list_directory < chat claude-sonnet-4-5",
        "chat claude-sonnet-4-5 < invoke_agent agentcli",
        "invoke_agent agentcli < my job",
        "my job < ",
    ], done.stderr


@pytest.mark.spec("SCALE-7")
def test_a_turn_that_begins_while_the_library_is_imported_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports: list[Report] = []
    pipeline = Pipeline(lambda: None)
    monkeypatch.setattr(pipeline, "put", reports.append)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", ModuleType("half of it"))
    Observer(pipeline, Observed("s")).on_event(TurnStart(1))
    assert [type(report.event) for report in reports] == [TurnStart]


@pytest.mark.spec("SCALE-7", "SEC-9")
def test_a_secret_where_a_long_text_is_cut_is_taken_out_before(memory: Memory) -> None:
    key = "sk-" + "k3Y" * 20
    said = UserMessage((TextPart("." * (MOST_TEXT - 30) + key + "." * 100),))

    def redact(value: Any) -> Any:
        return json.loads(json.dumps(value).replace(key, "[redacted]"))

    end = Done(summary(Outcome.DONE))
    spans = memory.feed(TurnStart(1), PromptRecorded(said, 1), end, redact=redact)
    told = str([dict(span.attributes or {}) for span in spans])
    assert "[redacted]" in told and "characters)" in told and "k3Y" not in told
