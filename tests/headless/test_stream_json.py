"""stream-json: the shape, one line each, one result, and last."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.domain.errors import AgentError, ErrorKind, ProviderError
from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    CallForming,
    Cancelled,
    Compacted,
    CompactionStarted,
    CompactionTrigger,
    Done,
    Failed,
    GateList,
    ModelFellBack,
    Notice,
    Outcome,
    OutputCapRaised,
    RetryWait,
    StepStart,
    TerminalEvent,
    TextChunk,
    ThinkingChunk,
    ToolFinished,
    ToolGateConflictResolved,
    ToolRefused,
    TurnStart,
    TurnSummary,
    WrappingUp,
)
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    ResultStatus,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import PermissionMode
from agentcli.headless.errors import ExitCode
from agentcli.headless.result import (
    RunEnd,
    RunFacts,
    Subtype,
    ended_by,
    failed,
    result_object,
)
from agentcli.headless.stream_json import StreamWriter, dumps
from tests.ui.schema_check import problems

SCHEMA = json.loads(
    importlib.resources.files("agentcli.headless").joinpath("stream_json.schema.json").read_text()
)
FACTS = RunFacts("s1")
CALL = ToolCall("c1", "bash", {"command": "ls"})
MESSAGE = AssistantMessage(
    (
        ThinkingPart("hm", "sig"),
        ThinkingPart("", redacted="xx"),
        TextPart("text"),
        CALL,
    ),
    "anthropic",
    "m",
    StopReason.TOOL_USE,
    Usage(10, 5, 2, None, None),
)
RESULT = ToolResult(
    "c1",
    "bash",
    (TextPart("Cancelled by user"), ImagePart("image/png", b"\x89P")),
    ResultStatus.ERROR,
)
SUMMARY = TurnSummary(Outcome.DONE, 2, Usage(10, 5), 1.5, 1.0, "the answer", 0.01)
ENDS: list[tuple[TerminalEvent | None, str, bool, str]] = [
    (Done(SUMMARY), "success", False, "completed"),
    (Done(TurnSummary(Outcome.WRAPPED_UP)), "success", False, "wrapped_up"),
    (Done(TurnSummary(Outcome.MAX_STEPS, limit="steps")), "error_max_turns", True, "max_turns"),
    (
        Done(TurnSummary(Outcome.MAX_STEPS, limit="budget")),
        "error_max_budget_usd",
        True,
        "max_budget_usd",
    ),
    (Cancelled(TurnSummary(Outcome.CANCELLED), "sigterm"), "cancelled", True, "cancelled_sigterm"),
    (
        Failed(TurnSummary(Outcome.ERROR), ProviderError("no", "do", kind=ErrorKind.AUTH)),
        "error_during_execution",
        True,
        "auth",
    ),
    (None, "error_during_execution", True, "agent_error"),
]


def end_of(event: TerminalEvent | None) -> RunEnd:
    return failed(AgentError("x")) if event is None else ended_by(event, unattended=0)


def play(events: list[AgentEvent], *, partial: bool = False) -> list[dict[str, Any]]:
    lines: list[str] = []
    writer = StreamWriter(lines.append, partial)
    writer.init("s1", "anthropic/m", "/work", ("bash",), "default")
    for event in events:
        writer.on_event(event)
    end = next((e for e in events if isinstance(e, Done | Cancelled | Failed)), None)
    refused = [event for event in events if isinstance(event, ToolRefused)]
    writer.result(result_object(end_of(end), RunFacts("s1", refused=refused)))
    assert all(line.endswith("\n") and len(line.splitlines()) == 1 for line in lines)
    values = [json.loads(line) for line in lines]
    for value in values:
        assert problems(value, SCHEMA, SCHEMA) == []
    return values


RUN: list[AgentEvent] = [
    TurnStart(1),
    StepStart(1),
    RetryWait(ProviderError("slow", kind=ErrorKind.OVERLOADED, status=529), 1, 3, 2.0),
    RetryWait(AgentError("odd"), 2, 3, 0.25),
    ThinkingChunk("h"),
    ThinkingChunk("m, m"),
    TextChunk("te"),
    TextChunk("xt, te"),
    TextChunk("xt"),
    CallForming("bash", "c1"),
    AssistantRecorded(MESSAGE, 2),
    ToolRefused(CALL, "not allowed", unattended=True),
    ToolFinished(CALL, RESULT, "failed", 0.1),
    Notice("x"),
    StepStart(2),
    TextChunk("cut"),
    Done(SUMMARY),
]


@pytest.mark.spec("CLI-5")
def test_a_run_is_told_in_the_shared_shape() -> None:
    values = play(RUN)
    kinds = [(value["type"], value.get("subtype")) for value in values]
    assert kinds == [
        ("system", "init"),
        ("system", "api_retry"),
        ("system", "api_retry"),
        ("assistant", None),
        ("user", None),
        ("result", "success"),
    ]
    assert {value["session_id"] for value in values} == {"s1"}
    assert [block["type"] for block in values[3]["message"]["content"]] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
    ]
    result = values[4]["message"]["content"][0]
    assert result["tool_use_id"] == "c1"
    assert result["content"][0] == {"type": "text", "text": "Cancelled by user"}
    assert result["is_error"] is True
    assert values[1]["retry_delay_ms"] == 2000
    assert values[-1]["permission_denials"][0]["tool_name"] == "bash"
    assert values[-1]["usage"]["cache_read_input_tokens"] is None


@pytest.mark.spec("CLI-5")
def test_partial_messages_come_only_on_request_and_form_whole_blocks() -> None:
    assert not any(value["type"] == "stream_event" for value in play(RUN))
    events = [v["event"] for v in play(RUN, partial=True) if v["type"] == "stream_event"]
    assert [event["type"] for event in events] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
        * 2,
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_stop",
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "text, textcut"
    assert [e["index"] for e in events if e["type"] == "content_block_start"] == [0, 1, 2, 0]


def folded(events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Content and last state of one message, as a client of the Messages API would fold them."""
    assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop"
    message = events[0]["message"]
    content: list[dict[str, Any]] = message["content"]
    open_blocks: dict[int, str] = {}
    for event in events[1:-1]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(content)
                content.append(event["content_block"])
                open_blocks[event["index"]] = ""
            case "content_block_delta":
                block, delta = content[event["index"]], event["delta"]
                assert event["index"] in open_blocks
                if delta["type"] == "input_json_delta":
                    open_blocks[event["index"]] += delta["partial_json"]
                else:
                    block[block["type"]] += delta[block["type"]]
            case "content_block_stop":
                if json_text := open_blocks.pop(event["index"]):
                    content[event["index"]]["input"] = json.loads(json_text)
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
    assert not open_blocks
    return content, message


OTHER = ToolCall("c2", "read_file", {"path": "b"})


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize(
    "forming",
    [
        [CallForming("bash", "c1"), CallForming("read_file", "c2")],
        [CallForming("bash"), CallForming("read_file")],
        [CallForming("bash", "c1"), CallForming("read_file", "gone"), TextChunk("more")],
        [],
    ],
    ids=["ids", "no-ids", "another-id", "untold"],
)
def test_partial_messages_fold_to_the_message_that_is_recorded(forming: list[AgentEvent]) -> None:
    text = "text" + "".join(event.text for event in forming if isinstance(event, TextChunk))
    message = AssistantMessage(
        (TextPart(text), CALL, OTHER), "anthropic", "m", StopReason.TOOL_USE, Usage(10, 5)
    )
    values = play(
        [StepStart(1), TextChunk("te"), TextChunk("xt"), *forming, AssistantRecorded(message, 2)],
        partial=True,
    )
    content, last = folded([v["event"] for v in values if v["type"] == "stream_event"])
    (told,) = [v["message"] for v in values if v["type"] == "assistant"]
    assert "".join(block["text"] for block in content if block["type"] == "text") == text
    found = [block for block in content if block["type"] == "tool_use" and block["id"] != "gone"]
    assert found == [block for block in told["content"] if block["type"] == "tool_use"]
    assert (last["id"], last["stop_reason"], last["usage"]) == (
        told["id"],
        told["stop_reason"],
        told["usage"],
    )


@pytest.mark.spec("CLI-5", "LOOP-9")
def test_a_partial_call_that_is_no_object_comes_as_the_model_wrote_it() -> None:
    broken = ToolCall("c1", "bash", {}, malformed='{"command": "ech')
    events = [
        v["event"]
        for v in play([AssistantRecorded(AssistantMessage((broken,)), 2)], partial=True)
        if v["type"] == "stream_event"
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert deltas == [{"type": "input_json_delta", "partial_json": '{"command": "ech'}]


@pytest.mark.spec("CLI-5", "CMP-2")
def test_a_compaction_shows_as_a_status_until_it_is_over() -> None:
    started = CompactionStarted(CompactionTrigger.WINDOW)
    told = [
        v["status"] for v in play([started, StepStart(1), started, Done(SUMMARY)]) if "status" in v
    ]
    assert told == ["compacting", None, "compacting", None]


@pytest.mark.spec("CLI-4", "CLI-5")
def test_one_writer_tells_several_turns_and_what_is_said_between_them() -> None:
    lines: list[str] = []
    writer = StreamWriter(lines.append)
    writer.init("s1", "anthropic/m", "/work", ("bash",), "default")
    writer.replay(UserMessage((TextPart("hi"), ImagePart("image/png", b"x"))), "from-the-client")
    writer.result(result_object(end_of(Done(SUMMARY)), RunFacts("s1")), more=True)
    assert writer.ends_with_result
    writer.control(
        {
            "type": "control_response",
            "response": {"subtype": "error", "request_id": "1", "error": "no"},
        }
    )
    assert not writer.ends_with_result
    writer.input_error(3, "it is not JSON")
    writer.result(result_object(end_of(Done(SUMMARY)), RunFacts("s1")))
    writer.control({"type": "control_response"})
    values = [json.loads(line) for line in lines]
    assert [value["type"] for value in values] == [
        "system", "user", "result", "control_response", "system", "result",
    ]  # fmt: skip
    assert values[1]["uuid"] == "from-the-client"
    for value in values:
        assert problems(value, SCHEMA, SCHEMA) == []


@pytest.mark.spec("CLI-5")
def test_the_schema_knows_every_word_of_the_code_and_no_other() -> None:
    values = SCHEMA["$defs"]
    subtypes = values["result"]["properties"]["subtype"]["enum"]
    reasons = values["message"]["properties"]["stop_reason"]["enum"]
    modes = values["init"]["properties"]["permissionMode"]["enum"]
    assert subtypes == list(Subtype)
    assert reasons == [*(reason for reason in StopReason if reason is not StopReason.OTHER), None]
    assert modes == list(PermissionMode)


@pytest.mark.spec("CLI-5")
def test_an_object_of_the_schema_has_its_properties_and_no_others() -> None:
    may_be_missing = {"compaction_usage", "retry_after_s", "truncated"}
    objects = [value for value in every(SCHEMA) if "properties" in value]
    assert len(objects) > 30
    for value in objects:
        assert value["additionalProperties"] is False
        assert set(value["properties"]) - set(value["required"]) <= may_be_missing


def every(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in JSON data."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, dict | list):
            yield from every(child)


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize(("end", "subtype", "is_error", "reason"), ENDS)
def test_each_end_has_its_result(
    end: TerminalEvent | None, subtype: str, is_error: bool, reason: str
) -> None:
    result = result_object(end_of(end), RunFacts("s1"))
    assert problems(result, SCHEMA, SCHEMA) == []
    assert (result["subtype"], result["is_error"], result["terminal_reason"]) == (
        subtype,
        is_error,
        reason,
    )
    assert bool(result["errors"]) is is_error
    assert json.loads(dumps(result)) == result


@pytest.mark.spec("STR-7", "CLI-5")
def test_a_raised_output_limit_is_told_and_the_message_goes_on() -> None:
    lines = play(
        [StepStart(1), TextChunk("a b"), OutputCapRaised(200, 400), TextChunk("c"), Done(SUMMARY)],
        partial=True,
    )
    (told,) = [line for line in lines if line.get("subtype") == "output_cap_raised"]
    assert (told["old_tokens"], told["new_tokens"]) == (200, 400)
    starts = [e for e in lines if e.get("event", {}).get("type") == "message_start"]
    assert len(starts) == 1


@pytest.mark.spec("STR-2", "CTRL-7", "CLI-5")
def test_another_model_and_a_limit_that_is_near_are_lines_of_their_own() -> None:
    busy = ProviderError("it is overloaded", kind=ErrorKind.OVERLOADED)
    fell, near = ModelFellBack("a/one", "b/two", busy), WrappingUp("2 of 9 requests are left")
    lists = (GateList("plan", 9, True, ("read_file",)), GateList("limit", 1, False, ("bash",)))
    conflict = ToolGateConflictResolved(1, "plan", lists, ("read_file",))
    lines = play([StepStart(1), fell, near, conflict, Done(SUMMARY)])
    by_kind = {line.get("subtype"): line for line in lines if line["type"] == "system"}
    told = by_kind["model_fallback"]
    assert (told["old_model"], told["new_model"]) == ("a/one", "b/two")
    assert (told["error"], told["message"]) == ("overloaded", "it is overloaded")
    assert by_kind["wrapping_up"]["reason"] == "2 of 9 requests are left"
    told = by_kind["tool_gate_conflict_resolved"]
    assert (told["winner"], told["allowed_tools"]) == ("plan", ["read_file"])
    assert [gate["allowed_tools"] for gate in told["gates"]] == [["read_file"], ["bash"]]
    assert all(problems(line, SCHEMA, SCHEMA) == [] for line in lines)


@pytest.mark.spec("STR-9", "CLI-5")
def test_the_result_says_when_to_try_again_where_that_is_known() -> None:
    busy = ProviderError("busy", kind=ErrorKind.OVERLOADED, retry_after_s=2520.0)
    result = result_object(failed(busy), FACTS)
    assert "retry_after_s" not in result  # it has not been tried
    ended = ended_by(Failed(SUMMARY, busy), unattended=0)
    result = result_object(ended, FACTS)
    assert result["retry_after_s"] == 2520.0
    assert problems(json.loads(dumps(result)), SCHEMA, SCHEMA) == []


@pytest.mark.spec("CLI-5")
def test_the_result_is_what_was_said_so_far_or_the_error() -> None:
    summary = TurnSummary(Outcome.CANCELLED, text="so far")
    end = RunEnd(Subtype.TIMEOUT, ExitCode.LIMIT, "timeout", summary, "10 s are over")
    result = result_object(end, RunFacts("s", duration_s=0.007))
    assert (result["subtype"], result["terminal_reason"]) == ("error_timeout", "timeout")
    assert (result["duration_ms"], result["result"]) == (7, "so far")
    assert result["errors"] == ["10 s are over"]
    silent = RunEnd(Subtype.TIMEOUT, ExitCode.LIMIT, "timeout", TurnSummary(Outcome.CANCELLED))
    assert result_object(silent, FACTS)["errors"] == ["timeout"]
    assert result_object(silent, FACTS)["result"] == "timeout"


@pytest.mark.spec("CLI-5")
def test_the_result_is_written_once_and_nothing_after_it() -> None:
    lines: list[str] = []
    writer = StreamWriter(lines.append)
    result = result_object(end_of(Done(SUMMARY)), RunFacts("s1"))
    writer.result(result)
    writer.result(result)
    writer.on_event(AssistantRecorded(MESSAGE, 2))
    assert len(lines) == 1


@pytest.mark.spec("CLI-5", "SEC-10")
@given(st.text(st.characters()))
def test_any_text_is_one_line_of_valid_utf8(text: str) -> None:
    line = dumps({"text": text})
    line.encode()
    assert len(line.splitlines()) == 1
    assert not any("\x7f" <= char <= "\x9f" for char in line)
    back = json.loads(line)["text"]
    assert back == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def test_the_schema_refuses_what_it_should() -> None:
    good = result_object(end_of(Done(SUMMARY)), RunFacts("s1"))
    assert problems({**good, "subtype": "great"}, SCHEMA, SCHEMA)
    assert problems({**good, "extra": 1}, SCHEMA, SCHEMA)
    del good["usage"]
    assert problems(good, SCHEMA, SCHEMA)


@pytest.mark.spec("CLI-5")
def test_writing_needs_no_heavy_package() -> None:
    code = (
        "import sys, agentcli.headless.stream_json, agentcli.headless.result, agentcli.ui.sanitize;"
        "heavy = {'pydantic', 'rich', 'prompt_toolkit', 'pygments', 'httpx'} & set(sys.modules);"
        "sys.exit(len(heavy))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


@pytest.mark.spec("CMP-2", "CLI-5")
@pytest.mark.parametrize(
    ("trigger", "shown"),
    [
        (CompactionTrigger.WINDOW, "auto"),
        (CompactionTrigger.OVERFLOW, "auto"),
        (CompactionTrigger.MANUAL, "manual"),
    ],
)
def test_a_compaction_is_a_line_with_tokens_and_messages_before_and_after(
    trigger: CompactionTrigger, shown: str
) -> None:
    event = Compacted(trigger, 40, 6, 90_000, 9_000, "kept", "folded", Usage(100, 50))
    line = play([TurnStart(1), StepStart(1), event, Done(SUMMARY)])[1]
    assert (line["type"], line["subtype"]) == ("system", "compact_boundary")
    metadata = line["compact_metadata"]
    assert (metadata["trigger"], metadata["pre_tokens"], metadata["post_tokens"]) == (
        shown,
        90_000,
        9_000,
    )
    assert (metadata["pre_messages"], metadata["post_messages"]) == (40, 6)
    assert metadata["usage"]["input_tokens"] == 100
    assert (metadata["kept"], metadata["folded"]) == ("kept", "folded")


@pytest.mark.spec("LOOP-6")
def test_the_result_tells_what_summaries_cost_and_only_where_there_were_some() -> None:
    spent = TurnSummary(Outcome.DONE, 2, Usage(110, 55), compaction=Usage(100, 50))
    result = play([TurnStart(1), Done(spent)])[-1]
    assert result["usage"]["input_tokens"] == 110
    assert result["compaction_usage"]["input_tokens"] == 100
    assert "compaction_usage" not in play(RUN)[-1]
