"""The Responses API's stream: every documented event, every ending, every way of cutting it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)
from agentcli.domain.stream import StreamEnd, TextDelta, ThinkingDelta, ToolCallStart
from agentcli.providers._responses_reply import ResponsesDecoder, unseal
from agentcli.wire.http import Endpoint
from tests.providers.streams import cuts, decode, fold
from tests.support.replies import Call, Reply, Text, Thinking, Tokens
from tests.support.wire_responses import encode

SUMMARY = "response.reasoning_summary_text"
BODY = {
    "model": "gpt-6-sol",
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"summary": "auto"},
}
pytestmark = pytest.mark.spec("STR-8")


def decoder() -> ResponsesDecoder:
    return ResponsesDecoder(
        Endpoint("openai", "https://api.openai.com/v1/responses", "OPENAI_API_KEY")
    )


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def message_of(*events: dict[str, Any]) -> AssistantMessage:
    made = decoder()
    message = fold(decode(made, [sse(*events)]))
    assert made.failure is None
    assert message is not None
    return message


def failure_of(*events: dict[str, Any]) -> ProviderError:
    made = decoder()
    assert not any(isinstance(event, StreamEnd) for event in decode(made, [sse(*events)]))
    assert made.failure is not None
    return made.failure


def text_delta(text: str, index: int = 0, part: int = 0) -> dict[str, Any]:
    kind = "response.output_text.delta"
    return {"type": kind, "output_index": index, "content_index": part, "delta": text}


def item(kind: str, index: int = 0, **value: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": value}


def ended(status: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, **response}}


def whole_reply() -> bytes:
    blocks = (
        Thinking("First.\n\nThen \u4e16.", signature="gAAAA"),
        Text("Gr\u00fc\u00dfe \U0001f642"),
        Call("bash", {"command": "ls"}, id="call_1"),
        Call("read_file", {"path": "\u00e9"}, id="call_2"),
    )
    tokens = Tokens(input=70, output=9, cache_read=30, cache_write=5, reasoning=4)
    events = encode(Reply(blocks, tokens=tokens, piece=3), BODY, 1)
    return b"".join(data for _, data in events)


@pytest.mark.spec("HIS-4", "LOOP-6", "LOOP-7")
def test_a_whole_reply_with_everything_in_it() -> None:
    message = fold(decode(decoder(), [whole_reply()]))
    assert message is not None
    thought, text, one, two = message.parts
    assert isinstance(thought, ThinkingPart)
    assert thought.text == "First.\n\nThen \u4e16."
    known = unseal(thought)
    assert known is not None
    reasoning, following = known
    assert reasoning is not None
    assert reasoning["encrypted_content"] == "gAAAA"
    assert [part["text"] for part in reasoning["summary"]] == ["First.", "Then \u4e16."]
    assert "status" not in reasoning
    assert (following["type"], following["phase"]) == ("message", "commentary")
    assert following["id"].startswith("msg_")
    assert text == TextPart("Gr\u00fc\u00dfe \U0001f642")
    assert one == ToolCall("call_1", "bash", {"command": "ls"})
    assert two == ToolCall("call_2", "read_file", {"path": "\u00e9"})
    assert message.stop_reason is StopReason.TOOL_USE
    assert message.usage == Usage(70, 9, 30, 5, 4)


@pytest.mark.parametrize("how", cuts(whole_reply()))
def test_the_message_does_not_depend_on_the_chunks(how: str) -> None:
    expected = fold(decode(decoder(), [whole_reply()]))
    assert fold(decode(decoder(), cuts(whole_reply())[how])) == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, len(whole_reply())), max_size=12))
def test_any_cut_gives_the_same_message_and_no_early_end(places: list[int]) -> None:
    data = whole_reply()
    marks = [0, *sorted(places), len(data)]
    chunks = [data[a:b] for a, b in pairwise(marks)]
    assert fold(decode(decoder(), chunks)) == fold(decode(decoder(), [data]))
    for place in places:
        if place < data.rindex(b"event: response.completed"):
            assert fold(decode(decoder(), [data[:place]])) is None


def test_unknown_events_and_items_mean_nothing() -> None:
    message = message_of(
        {"type": "response.queued"},
        {"type": "response.brand_new", "output_index": 0, "delta": "x"},
        {"type": "response.output_text.annotation.added", "output_index": 1, "annotation": {}},
        item("added", type="web_search_call", id="ws_1", status="in_progress"),
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        item("done", type="web_search_call", id="ws_1", status="completed"),
        text_delta("hi", 1),
        ended(output=[{"type": "compaction", "id": "cmp_1"}, {"type": "message"}, 7, None]),
    )
    assert message.parts == (TextPart("hi"),)


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "response.output_text.done", "output_index": 0, "text": "Hello"}],
        [
            text_delta("He"),
            {"type": "response.output_text.done", "output_index": 0, "text": "Hello"},
        ],
        [
            text_delta("Hel"),
            {
                "type": "response.content_part.done",
                "output_index": 0,
                "content_index": 0,
                "part": {"type": "output_text", "text": "Hello"},
            },
        ],
        [item("done", type="message", content=[{"type": "output_text", "text": "Hello"}])],
        [
            text_delta("Hello"),
            {"type": "response.output_text.done", "output_index": 0, "text": "Help"},
        ],
    ],
)
def test_what_the_deltas_left_out_is_added_once(events: list[dict[str, Any]]) -> None:
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}]
    assert message_of(*events, ended(output=output)).text == "Hello"


def test_a_server_that_streams_nothing_but_the_end() -> None:
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "bash", "arguments": "{}"},
    ]
    document = {"object": "response", "status": "completed", "output": output, "error": None}
    message = fold(decode(decoder(), [b"data: " + json.dumps(document).encode() + b"\n\n"]))
    assert message is not None
    thought, call = message.parts
    assert isinstance(thought, ThinkingPart)
    assert unseal(thought) == (output[0], {"type": "function_call", "id": "fc_1"})
    assert call == ToolCall("c", "bash", {})
    assert message.stop_reason is StopReason.TOOL_USE


def test_arguments_of_parallel_calls_may_interleave() -> None:
    def arguments(index: int, text: str) -> dict[str, Any]:
        kind = "response.function_call_arguments.delta"
        return {"type": kind, "output_index": index, "delta": text}

    message = message_of(
        item("added", 0, type="function_call", call_id="a", name="bash", arguments=""),
        item("added", 1, type="function_call", call_id="b", name="bash", arguments=""),
        arguments(0, '{"x"'),
        arguments(1, '{"y"'),
        arguments(0, ":1}"),
        arguments(1, ":2}"),
        ended(),
    )
    assert [call.arguments for call in message.tool_calls] == [{"x": 1}, {"y": 2}]


def test_a_call_whose_name_comes_late_keeps_its_arguments() -> None:
    message = message_of(
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a":'},
        item("done", type="function_call", call_id="c", name="bash", arguments='{"a":1}'),
        ended(),
    )
    assert message.tool_calls == (ToolCall("c", "bash", {"a": 1}),)


def test_arguments_as_an_object_are_taken() -> None:
    done = item("done", type="function_call", call_id="c", name="bash", arguments={"a": 1})
    assert message_of(done, ended()).tool_calls[0].arguments == {"a": 1}


@pytest.mark.spec("LOOP-7")
def test_open_reasoning_and_summaries_are_shown_as_they_come() -> None:
    def piece(kind: str, index: int, text: str) -> dict[str, Any]:
        counter = "summary_index" if "summary" in kind else "content_index"
        return {"type": kind, "output_index": 0, counter: index, "delta": text}

    made = decoder()
    shown = decode(
        made,
        [
            sse(
                item("added", type="reasoning", id="rs_1", summary=[]),
                {
                    "type": "response.reasoning_summary_part.added",
                    "output_index": 0,
                    "summary_index": 0,
                    "part": {"type": "summary_text", "text": ""},
                },
                piece(f"{SUMMARY}.delta", 0, "One"),
                {
                    "type": "response.reasoning_summary_part.done",
                    "output_index": 0,
                    "summary_index": 0,
                    "part": {"type": "summary_text", "text": "One."},
                },
                piece(f"{SUMMARY}.delta", 1, "Two"),
                piece("response.reasoning_text.delta", 0, "raw"),
                {
                    "type": "response.reasoning_text.done",
                    "output_index": 0,
                    "content_index": 0,
                    "text": "raw!",
                },
            )
        ],
    )
    text = "".join(event.text for event in shown if isinstance(event, ThinkingDelta))
    assert text == "One.\n\nTwo\n\nraw!"


@pytest.mark.parametrize("kind", ["delta", "done"])
def test_a_refusal_is_text_and_a_stop_reason(kind: str) -> None:
    field = {"delta": "delta", "done": "refusal"}[kind]
    event = {"type": f"response.refusal.{kind}", "output_index": 0, "content_index": 0}
    message = message_of({**event, field: "I cannot."}, ended())
    assert (message.text, message.stop_reason) == ("I cannot.", StopReason.REFUSAL)


@pytest.mark.spec("LOOP-12", "STR-7")
@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("max_output_tokens", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("something_new", StopReason.OTHER),
    ],
)
def test_an_incomplete_reply_says_why(reason: str, stop: StopReason) -> None:
    call = item("added", 1, type="function_call", call_id="c", name="bash")
    usage = {"input_tokens": 5, "output_tokens": 2}
    end = ended("incomplete", incomplete_details={"reason": reason}, usage=usage)
    message = message_of(text_delta("Half"), call, end)
    assert (message.text, message.stop_reason) == ("Half", stop)
    assert message.usage == Usage(5, 2)


@pytest.mark.spec("STR-1")
@pytest.mark.parametrize(
    ("code", "text", "kind", "retryable"),
    [
        ("server_error", "The model failed", ErrorKind.SERVER, True),
        ("rate_limit_exceeded", "Rate limit. Try again in 1.898s.", ErrorKind.RATE_LIMIT, True),
        ("server_is_overloaded", "Busy", ErrorKind.OVERLOADED, True),
        ("slow_down", "Busy", ErrorKind.OVERLOADED, True),
        ("insufficient_quota", "You exceeded your quota", ErrorKind.RATE_LIMIT, False),
        (
            "context_length_exceeded",
            "Your input exceeds the context window of this model.",
            ErrorKind.CONTEXT_OVERFLOW,
            False,
        ),
        ("invalid_prompt", "Invalid prompt: limited access", ErrorKind.BAD_REQUEST, False),
        ("image_too_large", "Too large", ErrorKind.BAD_REQUEST, False),
        ("bio_policy", "Not allowed", ErrorKind.BAD_REQUEST, False),
    ],
)
def test_a_failed_reply_is_a_typed_error(
    code: str, text: str, kind: ErrorKind, retryable: bool
) -> None:
    error = {"code": code, "message": text}
    flat = {"type": "error", **error, "param": None, "sequence_number": 3}
    nested = {"type": "error", "error": {"type": code, **error}}
    for event in (ended("failed", error=error), flat, nested):
        found = failure_of(text_delta("x"), event)
        assert (found.kind, found.retryable) == (kind, retryable)
        assert found.message.startswith("openai at api.openai.com")
        assert found.advice
        assert found.retry_after_s == (1.898 if "1.898" in text else None)
    unnamed = decoder()
    decode(unnamed, [b"data: " + json.dumps(flat).encode() + b"\n\n"])
    assert unnamed.failure is not None
    assert unnamed.failure.kind is kind


def test_a_failure_without_a_reason_is_one_as_well() -> None:
    assert failure_of(ended("failed", error=None)).kind is ErrorKind.SERVER
    assert failure_of({"type": "response.completed", "response": {"status": "cancelled"}})


@pytest.mark.spec("CAN-5", "STR-5")
@pytest.mark.parametrize("tail", [b"", b"data: [DONE]\n\n", b"event: response.completed\ndata: {"])
def test_bytes_that_end_without_an_end_event_are_a_cut_reply(tail: bytes) -> None:
    made = decoder()
    events = decode(made, [sse(text_delta("Half a")), tail])
    assert [type(event) for event in events] == [TextDelta]
    assert made.failure is None


def test_nothing_counts_after_the_end() -> None:
    events = decode(decoder(), [sse(text_delta("a"), ended(), text_delta("b"), ended("failed"))])
    assert [type(event) for event in events] == [TextDelta, StreamEnd]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_item.added", "output_index": 0, "item": "x"},
        {"type": "response.output_item.done", "output_index": 0},
        {"type": "response.output_text.delta", "output_index": "x", "delta": "a"},
        {"type": "response.output_text.delta", "output_index": 0, "delta": 5},
        {"type": "response.content_part.done", "output_index": 0, "part": []},
        {"type": "response.function_call_arguments.delta", "output_index": 5, "delta": "{"},
        item("done", type="reasoning", summary="x", content=5),
        item("done", type="function_call", name=5, call_id=5, arguments=5),
        item("done", type="message", content=[5, {"type": "output_text", "text": 5}]),
        {"type": 5, "output_index": 0},
    ],
)
def test_events_of_the_wrong_shape_crash_nothing(event: dict[str, Any]) -> None:
    message = message_of(event, text_delta("ok", 9), ended(usage={"input_tokens": "x"}, output=5))
    assert message.text == "ok"
    assert not message.usage.is_known


def test_a_call_id_of_a_wrong_type_is_made_up() -> None:
    events = decode(decoder(), [sse(item("added", type="function_call", name="bash", call_id=5))])
    assert events == [ToolCallStart(0, "", "bash")]


def test_a_long_reply_is_linear_in_its_size() -> None:
    data = sse(*(text_delta("word ") for _ in range(20_000)), ended())
    message = fold(decode(decoder(), [data[i : i + 65_536] for i in range(0, len(data), 65_536)]))
    assert message is not None
    assert len(message.text) == 100_000
