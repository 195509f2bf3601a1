"""Gemini: the events that come of a reply, however it is cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    user_text,
)
from agentcli.domain.ports import ModelInfo, ProviderConfig
from agentcli.domain.stream import StreamEvent, TextDelta, UsageReport
from agentcli.providers.gemini import GeminiDecoder, GeminiProvider, encode
from agentcli.wire.http import Endpoint
from tests.providers.streams import cuts, decode, fold, request
from tests.support.model_server import ModelServer
from tests.support.replies import Call, Reply, Text, Thinking, Tokens, say
from tests.support.wire_gemini import encode as wire

SIGNATURE = "CiQBVKhc7vB+vaaq6rA/4Gkk=="


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **more}


def sse(*values: Any) -> bytes:
    return b"".join(f"data: {json.dumps(value)}\r\n\r\n".encode() for value in values)


def decoder() -> GeminiDecoder:
    return GeminiDecoder(Endpoint("gemini", "https://host/v1beta"))


def events_of(*values: Any) -> list[StreamEvent]:
    one = decoder()
    events = decode(one, [sse(*values)])
    assert one.failure is None
    return events


def message_of(*values: Any) -> AssistantMessage:
    message = fold(events_of(*values))
    assert message is not None
    return message


def failure_of(*chunks: bytes) -> ProviderError:
    one = decoder()
    decode(one, chunks)
    assert one.failure is not None
    assert "gemini at host" in one.failure.message
    assert one.failure.advice
    return one.failure


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"text": words, **more}


def call(name: str, args: Any = None, **more: Any) -> dict[str, Any]:
    own = {key: more.pop(key) for key in ("id",) if key in more}
    return {"functionCall": {"name": name, "args": args or {}, **own}, **more}


def test_several_parts_of_a_chunk_and_text_over_several_chunks() -> None:
    message = message_of(
        chunk(text("I wonder", thought=True)),
        chunk(text(" why.", thought=True), text("Be")),
        chunk(text("cause.")),
        chunk(call("bash", {"command": "ls"}, id="a1"), call("bash", {}, id="a2")),
        chunk(finish="STOP"),
    )
    assert message.parts == (
        ThinkingPart("I wonder why."),
        TextPart("Because."),
        ToolCall("a1", "bash", {"command": "ls"}),
        ToolCall("a2", "bash", {}),
    )
    assert message.stop_reason is StopReason.TOOL_USE


@pytest.mark.spec("HIS-4", "LOOP-7")
def test_signed_parts_come_back_as_they_were_received() -> None:
    parts = [
        text("hm", thought=True, thoughtSignature="dGhvdWdodA=="),
        text("A"),
        text("B", thoughtSignature="dGV4dA=="),
        text("C"),
        call("bash", {"command": "a"}, id="a1", thoughtSignature=SIGNATURE),
        call("bash", {"command": "b"}, id="a2"),
        text("", thoughtSignature="ZW5k"),
    ]
    message = message_of(*(chunk(part) for part in parts), chunk(finish="STOP"))
    made = AssistantMessage(message.parts, "p", "gemini-3.6-flash")
    results = [ToolResult(c.id, c.name, (TextPart("x"),)) for c in made.tool_calls]
    body = encode(request([user_text("hi"), made, *results], ModelInfo("p", "gemini-3.6-flash")))
    assert body["contents"][1]["parts"] == parts


def test_a_signature_alone_shows_nothing() -> None:
    events = events_of(chunk(text("", thoughtSignature="ZW5k")), chunk(text("x"), finish="STOP"))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["x"]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", StopReason.END_TURN),
        ("MAX_TOKENS", StopReason.MAX_TOKENS),
        ("SAFETY", StopReason.REFUSAL),
        ("RECITATION", StopReason.REFUSAL),
        ("PROHIBITED_CONTENT", StopReason.REFUSAL),
        ("MALFORMED_FUNCTION_CALL", StopReason.OTHER),
        ("UNEXPECTED_TOOL_CALL", StopReason.OTHER),
        ("MALFORMED_RESPONSE", StopReason.OTHER),
        ("SOMETHING_NEW", StopReason.OTHER),
    ],
)
def test_finish_reasons(reason: str, stop: StopReason) -> None:
    assert message_of(chunk(text("words"), finish=reason)).stop_reason is stop


def test_a_malformed_call_and_nothing_else_is_an_empty_reply_that_may_be_asked_again() -> None:
    message = message_of(chunk(finish="MALFORMED_FUNCTION_CALL"))
    assert (message.parts, message.stop_reason) == ((), StopReason.OTHER)


@pytest.mark.spec("STR-9")
@pytest.mark.parametrize(
    "values",
    [
        [{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {}}],
        [chunk(finish="PROHIBITED_CONTENT")],
    ],
)
def test_a_blocked_request_says_so_and_is_not_tried_again(values: list[Any]) -> None:
    error = failure_of(sse(*values))
    assert "PROHIBITED_CONTENT" in error.message
    assert (error.kind, error.retryable) == (ErrorKind.OTHER, False)


@pytest.mark.spec("CAN-5")
def test_without_a_finish_reason_the_reply_was_cut() -> None:
    events = events_of(chunk(text("Once upon"), usageMetadata={"promptTokenCount": 7}))
    assert fold(events) is None
    assert UsageReport(Usage(input_tokens=7)) in events


@pytest.mark.spec("LOOP-6")
@pytest.mark.parametrize(
    ("sent", "usage"),
    [
        (
            {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 30,
                "candidatesTokenCount": 20,
                "thoughtsTokenCount": 5,
                "totalTokenCount": 125,
            },
            Usage(70, 25, 30, None, 5),
        ),
        ({"promptTokenCount": 3, "toolUsePromptTokenCount": 4}, Usage(input_tokens=7)),
        ({"promptTokenCount": 3, "cachedContentTokenCount": 9}, Usage(0, None, 9)),
        ({"promptTokenCount": -1, "candidatesTokenCount": "many"}, Usage()),
        ({}, Usage()),
    ],
)
def test_usage_is_counted_as_everywhere(sent: dict[str, Any], usage: Usage) -> None:
    message = message_of(chunk(text("x"), finish="STOP", usageMetadata=sent))
    assert message.usage == usage


def test_the_last_usage_wins_and_what_only_an_early_chunk_knew_stays() -> None:
    message = message_of(
        chunk(text("x"), usageMetadata={"promptTokenCount": 9, "cachedContentTokenCount": 4}),
        chunk(finish="STOP"),
        {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}},
    )
    assert message.usage == Usage(9, 2, 4)


def test_a_call_that_is_sent_twice_is_one_call() -> None:
    same = call("bash", {"command": "a"}, id="a1", thoughtSignature=SIGNATURE)
    message = message_of(
        chunk(same), chunk(call("bash", {"command": "a"}, id="a1")), chunk(finish="STOP")
    )
    assert len(message.tool_calls) == 1
    twins = message_of(chunk(call("bash"), call("bash")), chunk(finish="STOP"))
    assert len(twins.tool_calls) == 2


def test_arguments_are_an_object_or_marked_malformed() -> None:
    bare = {"functionCall": {"name": "now", "id": "a"}}
    odd = {"functionCall": {"name": "now", "id": "b", "args": '{"x'}}
    message = message_of(chunk(bare, odd), chunk(finish="STOP"))
    assert [(c.arguments, c.malformed) for c in message.tool_calls] == [({}, None), ({}, '{"x')]


@pytest.mark.spec("STR-8")
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"candidates": []},
        {"candidates": None},
        {"candidates": [None, {"index": 1, "content": {"parts": [{"text": "other"}]}}]},
        {"candidates": [{"content": None}, {"content": {"parts": "no"}}]},
        chunk(None, {}, {"text": None}, {"functionCall": None}, {"functionCall": {"name": ""}}),
        chunk({"executableCode": {"code": "1"}}, {"inlineData": {"data": "AA=="}}, {"new": {}}),
        {"usageMetadata": [], "promptFeedback": {}},
        {"promptFeedback": {"safetyRatings": []}},
    ],
)
def test_what_is_unknown_or_odd_means_nothing(value: dict[str, Any]) -> None:
    message = message_of(value, chunk(text("x"), finish="STOP"))
    assert message.text == "x"
    assert message.tool_calls == ()


def test_a_reply_that_is_wrapped_once_more_is_understood() -> None:
    assert message_of({"response": chunk(text("x"), finish="STOP")}).text == "x"


# --- not a stream --------------------------------------------------------------------------


@pytest.mark.spec("STR-1", "STR-8")
def test_an_error_object_inside_a_stream_is_typed() -> None:
    broken = {
        "error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    }
    one = decoder()
    events = decode(one, [sse(chunk(text("Once")), broken, chunk(text("more"), finish="STOP"))])
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Once"]
    assert one.failure is not None
    assert (one.failure.kind, one.failure.retryable) == (ErrorKind.OVERLOADED, True)


# --- however it is cut ---------------------------------------------------------------------

_BLOCKS = st.lists(
    st.one_of(
        st.builds(Text, st.text(min_size=1, max_size=30)),
        st.builds(Thinking, st.text(min_size=1, max_size=30), st.just("c2ln")),
        st.builds(lambda a, n: Call("bash", {"a": a}, f"call{n}"), st.text(max_size=9), st.uuids()),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.spec("STR-8")
@settings(max_examples=60, deadline=None)
@given(_BLOCKS, st.integers(1, 20), st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_the_message_does_not_depend_on_the_chunks(
    blocks: list[Any], piece: int, end: bytes, data: st.DataObject
) -> None:
    reply = Reply(tuple(blocks), piece=piece, tokens=Tokens(5, 4, 3, reasoning=1))
    sent = b"".join(part for _, part in wire(reply, "gemini-3.6-flash", 1))
    sent = sent.replace(b"\r\n", end)
    whole = fold(decode(decoder(), [sent]))
    assert whole is not None
    assert whole.text.strip() == "".join(b.text for b in blocks if isinstance(b, Text)).strip()
    places = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    pieces = [sent[a:b] for a, b in zip([0, *places], [*places, len(sent)], strict=True)]
    assert fold(decode(decoder(), pieces)) == whole


def test_every_single_byte_may_be_a_chunk_and_no_cut_makes_a_message() -> None:
    reply = Reply(
        (Thinking("hm", "c2ln"), Text("Gr\u00fc\u00dfe"), Call("bash", {"a": "\U0001f642"}, "c1"))
    )
    data = b"".join(part for _, part in wire(reply, "gemini-3.6-flash", 1))
    whole = fold(decode(decoder(), [data]))
    for name, chunks in cuts(data).items():
        assert fold(decode(decoder(), chunks)) == whole, name
    for end in range(0, len(data.rstrip()) - 1, 7):
        assert fold(decode(decoder(), [data[:end]])) is None


# --- over the network ----------------------------------------------------------------------


def ask(server: ModelServer) -> AssistantMessage | None:
    provider = GeminiProvider(ProviderConfig("gemini", "gemini", server.url, needs_key=False))
    sent = request("hi", ModelInfo("gemini", "gemini-3.6-flash"))

    async def main() -> list[StreamEvent]:
        try:
            return [event async for event in provider.stream(sent, CancelToken())]
        finally:
            await provider.aclose()

    return fold(asyncio.run(main()))


@pytest.mark.spec("STR-4")
@pytest.mark.parametrize("fault", [{"stall_at": "last"}, {"drop_at": "last"}])
def test_a_reply_that_has_said_its_finish_reason_is_complete_whatever_follows(
    model_server: ModelServer, fault: dict[str, Any]
) -> None:
    model_server.add(say("All of it.", **fault))
    message = ask(model_server)
    assert message is not None
    assert message.text == "All of it."
    assert message.usage.output_tokens == 20


def test_the_address_and_the_headers_are_those_of_the_api(model_server: ModelServer) -> None:
    model_server.add(say("x"))
    ask(model_server)
    [recorded] = model_server.requests
    assert recorded.path == "/v1beta/models/gemini-3.6-flash:streamGenerateContent?alt=sse"
    assert "model" not in recorded.body
