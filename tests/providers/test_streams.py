"""Recorded replies of the real services decode alike however their bytes are cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.messages import AssistantMessage, StopReason, TextPart
from agentcli.providers import _responses_reply as _responses_decoder
from agentcli.providers import anthropic, openai
from agentcli.providers import gemini as _gemini_decoder
from agentcli.providers._base import StreamDecoder
from agentcli.wire.http import Endpoint
from tests.providers.streams import SUITES, cuts, decode, fold

STREAMS = SUITES / "streams"
DECODERS = {
    "anthropic.messages": anthropic.MessagesDecoder,
    "openai.chat.completions": openai.ChatDecoder,
}
pytestmark = pytest.mark.spec("STR-8")


def recorded() -> list[Any]:
    index = STREAMS / "index.json"
    if not index.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{STREAMS} is not here"))]
    return [pytest.param(row, id=row["file"]) for row in json.loads(index.read_text())]


def decoder_for(api: str) -> StreamDecoder:
    return DECODERS[api](Endpoint("p", "http://host"))


def message_of(api: str, chunks: list[bytes]) -> AssistantMessage | None:
    decoder = decoder_for(api)
    message = fold(decode(decoder, chunks))
    assert decoder.failure is None
    return message


def json_events(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines()
    data = [line[5:].strip() for line in lines if line.startswith("data:")]
    return [json.loads(item) for item in data if item != "[DONE]"]


def plain_text(path: Path, api: str) -> str:
    """The text of the first choice, gathered the simplest way that can be right."""
    text = ""
    for event in json_events(path):
        if api == "anthropic.messages":
            delta = event.get("delta", {})
            text += delta.get("text", "") if delta.get("type") == "text_delta" else ""
        else:
            for choice in event["choices"]:
                if choice["index"] == 0:
                    delta = choice["delta"]
                    text += (delta.get("content") or "") + (delta.get("refusal") or "")
    return text


@pytest.mark.parametrize("row", recorded())
def test_a_recorded_reply_is_the_same_message_for_every_chunking(row: dict[str, Any]) -> None:
    path = STREAMS / row["file"]
    data = path.read_bytes()
    whole = message_of(row["api"], [data])
    assert whole is not None
    assert whole.text == plain_text(path, row["api"])
    for name, chunks in cuts(data).items():
        assert message_of(row["api"], chunks) == whole, name


@pytest.mark.parametrize("row", recorded())
def test_line_ends_do_not_matter(row: dict[str, Any]) -> None:
    data = (STREAMS / row["file"]).read_bytes()
    for end in (b"\r\n", b"\r"):
        changed = data.replace(b"\n", end)
        assert message_of(row["api"], [changed]) == message_of(row["api"], [data])


@pytest.mark.parametrize("row", recorded())
def test_no_cut_anywhere_makes_a_message_or_a_crash(row: dict[str, Any]) -> None:
    data = (STREAMS / row["file"]).read_bytes().rstrip()
    whole = message_of(row["api"], [data])
    step = max(1, len(data) // 60)
    for end in range(0, len(data) - 1, step):
        cut = message_of(row["api"], [data[:end]])
        # A stop reason is enough where it comes last: [DONE] or message_stop may be missing.
        is_enough = row["api"] in {"openai.chat.completions", "anthropic.messages"}
        assert cut is None or (is_enough and cut.parts == whole.parts)


@pytest.mark.spec("LOOP-12")
def test_a_call_cut_by_the_output_limit_stays_unreadable() -> None:
    path = STREAMS / "anthropic_sdk/incomplete_partial_json_response.sse"
    if not path.exists():
        pytest.skip("no recorded streams")
    message = message_of("anthropic.messages", [path.read_bytes()])
    assert message is not None
    assert message.stop_reason is StopReason.MAX_TOKENS
    [call] = message.tool_calls
    assert call.name == "make_file"
    assert call.arguments == {}
    assert call.malformed is not None
    assert call.malformed.startswith('{"filename": "taxes.txt')


def test_parallel_calls_are_told_apart() -> None:
    path = STREAMS / "openai_python/f82268f2fefd.sse"
    if not path.exists():
        pytest.skip("no recorded streams")
    message = message_of("openai.chat.completions", [path.read_bytes()])
    assert message is not None
    assert message.stop_reason is StopReason.TOOL_USE
    assert [call.name for call in message.tool_calls] == ["GetWeatherArgs", "get_stock_price"]
    assert all(call.arguments and call.malformed is None for call in message.tool_calls)


def test_a_refusal_is_text_with_its_own_stop_reason() -> None:
    path = STREAMS / "openai_python/173417d55340.sse"
    if not path.exists():
        pytest.skip("no recorded streams")
    message = message_of("openai.chat.completions", [path.read_bytes()])
    assert message is not None
    assert message.stop_reason is StopReason.REFUSAL
    assert isinstance(message.parts[0], TextPart)


ARGUMENTS = {"command": "echo a\0b \ud800 \ufeff"}
_CALL = {"index": 0, "id": "c", "function": {"name": "bash", "arguments": ARGUMENTS}}
_BLOCK = {"type": "tool_use", "id": "c", "name": "bash", "input": ARGUMENTS}
_ITEM = {"type": "function_call", "call_id": "c", "name": "bash", "arguments": ARGUMENTS}
_PART = {"functionCall": {"id": "c", "name": "bash", "args": ARGUMENTS}}
WHOLE_CALLS: dict[type[StreamDecoder], list[dict[str, Any]]] = {
    anthropic.MessagesDecoder: [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": _BLOCK},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ],
    openai.ChatDecoder: [
        {"choices": [{"index": 0, "delta": {"tool_calls": [_CALL]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ],
    _responses_decoder.ResponsesDecoder: [
        {"type": "response.output_item.done", "output_index": 0, "item": _ITEM},
        {"type": "response.completed", "response": {"status": "completed"}},
    ],
    _gemini_decoder.GeminiDecoder: [
        {"candidates": [{"content": {"parts": [_PART]}, "finishReason": "STOP"}]},
    ],
}


@pytest.mark.spec("LOOP-9", "LOOP-10")
@pytest.mark.parametrize("kind", WHOLE_CALLS, ids=lambda kind: kind.__module__.split(".")[-1])
def test_arguments_that_come_as_an_object_are_not_altered_on_the_way_to_the_tool(
    kind: type[StreamDecoder],
) -> None:
    sent = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in WHOLE_CALLS[kind])
    message = fold(decode(kind(Endpoint("p", "http://host")), [sent]))
    assert message is not None
    assert [call.arguments for call in message.tool_calls] == [ARGUMENTS]


@pytest.mark.parametrize("junk", [b"data: {\xff not json\n\n", b"\0\xff\r\r\n", b"data: 1\n\n"])
def test_damage_at_any_byte_loses_nothing_in_silence(junk: bytes) -> None:
    """A thought without one of its pieces would be refused for ever after (STR-12)."""
    deltas = [{"type": "thinking_delta", "thinking": text} for text in ("one ", "two")]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
    whole = message_of("anthropic.messages", [body])
    assert whole is not None
    for place in range(body.rindex(b"event:")):
        decoder = decoder_for("anthropic.messages")
        found = fold(decode(decoder, [body[:place] + junk + body[place:]]))
        assert decoder.failure or found == whole, body[place - 9 : place + 9]
    assert message_of("anthropic.messages", [body + b"<html>a proxy's word\n\n"]) == whole
