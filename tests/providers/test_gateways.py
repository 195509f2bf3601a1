"""Streams of gateways and local servers: recorded ones, and the shapes of their sources (STR-12).

``streams/index.json`` says where each comes from and what it has to become.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import AssistantMessage, StopReason, ThinkingPart
from agentcli.domain.stream import StreamEnd, ToolCallStart
from agentcli.providers._base import StreamDecoder
from agentcli.providers._responses_reply import ResponsesDecoder
from agentcli.providers.anthropic import MessagesDecoder
from agentcli.providers.gemini import GeminiDecoder
from agentcli.providers.openai import ChatDecoder
from agentcli.wire.http import Endpoint
from tests.providers.streams import cuts, decode, fold
from tests.providers.test_conformance import Client
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer
from tests.support.replies import Reply

STREAMS = Path(__file__).with_name("streams")
ROWS: list[dict[str, Any]] = json.loads((STREAMS / "index.json").read_text())
PROTOCOLS: Mapping[str, tuple[str, type[StreamDecoder]]] = {
    "anthropic.messages": (ANTHROPIC, MessagesDecoder),
    "openai.chat.completions": (OPENAI, ChatDecoder),
    "openai.responses": (RESPONSES, ResponsesDecoder),
    "google.generate_content": (GEMINI, GeminiDecoder),
}
pytestmark = pytest.mark.spec("STR-12")


def matches(message: AssistantMessage, row: Mapping[str, Any]) -> None:
    thoughts = "".join(part.text for part in message.parts if isinstance(part, ThinkingPart))
    assert thoughts == row["thinking"]
    assert message.text == row["text"]
    assert [[call.name, dict(call.arguments)] for call in message.tool_calls] == row["calls"]
    expected = StopReason.TOOL_USE if row["calls"] else StopReason.END_TURN
    assert message.stop_reason is expected


@pytest.mark.parametrize("row", ROWS, ids=[row["file"] for row in ROWS])
def test_a_reply_of_a_gateway_is_one_message_and_its_calls_are_answered(
    row: dict[str, Any],
) -> None:
    protocol, _ = PROTOCOLS[row["api"]]
    kind = "application/json" if row["file"].endswith(".json") else "text/event-stream"
    body = (STREAMS / row["file"]).read_bytes()
    replies = [Reply(body=body, headers={"content-type": kind}), "done"]
    # servers with open reasoning take it back, OpenAI's own does not
    with ModelServer(replies, strict=protocol != RESPONSES) as server:
        client = Client(protocol, server)

        async def talk() -> AssistantMessage:
            try:
                message = await client.ask("go")
                client.answer(*("ok" for _ in message.tool_calls))
                assert (await client.ask()).text == "done"
            finally:
                await client.provider.aclose()
            return message

        matches(asyncio.run(talk()), row)
        assert not server.violations


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["file"].endswith(".sse")], ids=lambda row: row["file"]
)
def test_it_is_the_same_message_however_its_bytes_are_cut_and_a_cut_one_starts_nothing_twice(
    row: dict[str, Any],
) -> None:
    _, kind = PROTOCOLS[row["api"]]
    data = (STREAMS / row["file"]).read_bytes()
    for chunks in cuts(data).values():
        message = fold(decode(kind(Endpoint("p", "http://host")), chunks))
        assert message is not None
        matches(message, row)
    pieces = data.split(b"\n\n")
    for end in range(len(pieces)):
        events = decode(kind(Endpoint("p", "http://host")), [b"\n\n".join(pieces[:end]) + b"\n\n"])
        started = [event.name for event in events if isinstance(event, ToolCallStart)]
        assert len(started) <= len(row["calls"])


def added(index: int, kind: str, **more: Any) -> dict[str, Any]:
    item = {"type": kind, **more}
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def block(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}


def begins(name: str) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": name, "usage": {"input_tokens": 1}}}


def chunk(name: str, **delta: Any) -> dict[str, Any]:
    return {"id": name, "choices": [{"index": 0, "delta": delta}]}


A_CALL = {"id": "fc_1", "call_id": "c1", "name": "bash", "arguments": ""}
ARGUMENTS = {
    "type": "response.function_call_arguments.delta",
    "item_id": "fc_1",
    "output_index": 0,
    "delta": '{"command":"rm a"}',
}
TEXT = {"type": "response.output_text.delta", "output_index": 0, "delta": "x"}


def completed(*output: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "response.completed",
        "response": {"status": "completed", "output": list(output)},
    }


@pytest.mark.spec("STR-1")
@pytest.mark.parametrize(
    ("kind", "events"),
    [
        pytest.param(
            MessagesDecoder, [begins("m1"), block(0, "text", text="a"), begins("m2")], id="start"
        ),
        pytest.param(
            MessagesDecoder, [begins("m1"), block(0, "text", text="a"), begins("m1")], id="again"
        ),
        pytest.param(
            MessagesDecoder,
            [begins("m1"), block(0, "text"), block(0, "tool_use", id="c", name="bash")],
            id="kind",
        ),
        pytest.param(
            MessagesDecoder,
            [block(0, "tool_use", id="c", name="bash"), block(0, "tool_use", id="d", name="bash")],
            id="block id",
        ),
        pytest.param(
            ChatDecoder,
            [
                chunk("a", role="assistant", content=""),
                chunk("a", content="rm "),
                chunk("b", role="assistant", content="ls"),
            ],
            id="reply id",
        ),
        pytest.param(
            ResponsesDecoder,
            [added(0, "function_call", **A_CALL), added(0, "message", id="m")],
            id="item kind",
        ),
        pytest.param(
            ResponsesDecoder,
            [
                added(0, "function_call", **A_CALL),
                added(0, "function_call", **{**A_CALL, "id": "fc_2", "call_id": "c2"}),
            ],
            id="item id",
        ),
        pytest.param(
            ResponsesDecoder, [added(0, "function_call", **A_CALL), TEXT], id="text in a call"
        ),
        pytest.param(
            ResponsesDecoder,
            [
                added(0, "function_call", **A_CALL),
                ARGUMENTS,
                completed({"type": "function_call", **A_CALL, "call_id": "c9", "id": "fc_9"}),
            ],
            id="other call at the end",
        ),
        pytest.param(
            ResponsesDecoder,
            [
                {"type": "response.created", "response": {"id": "r1"}},
                added(0, "message", id="m"),
                TEXT,
                {"type": "response.created", "response": {"id": "r2"}},
            ],
            id="created",
        ),
    ],
)
def test_what_cannot_be_put_together_is_a_server_error_and_never_a_reply(
    kind: type[StreamDecoder], events: list[dict[str, Any]]
) -> None:
    decoder = kind(Endpoint("p", "http://host"))
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    found = decode(decoder, [data])
    assert not any(isinstance(event, StreamEnd) for event in found)
    assert isinstance(decoder.failure, ProviderError)
    assert decoder.failure.kind is ErrorKind.SERVER and decoder.failure.retryable
    assert "cannot be put together" in decoder.failure.message


def test_a_call_that_is_repeated_is_one_call() -> None:
    call = {"type": "function_call", **A_CALL, "arguments": '{"command":"rm a"}'}
    done = {"type": "response.output_item.done", "output_index": 0, "item": call}
    late = {**done, "output_index": 3}
    events = [added(0, "function_call", **A_CALL), ARGUMENTS, done, done, late, completed(call)]
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    message = fold(decode(ResponsesDecoder(Endpoint("p", "http://host")), [data]))
    assert message is not None
    assert [dict(each.arguments) for each in message.tool_calls] == [{"command": "rm a"}]


@pytest.mark.parametrize(("second", "count"), [("rm a", 1), ("rm b", 2)])
def test_a_block_with_a_known_id_is_another_call_only_if_it_says_something_else(
    second: str, count: int
) -> None:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m"}}]
    for index, command in enumerate(("rm a", second)):
        block = {"type": "tool_use", "id": "t", "name": "bash", "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        for text in ('{"command":', f' "{command}"}}'):
            delta = {"type": "input_json_delta", "partial_json": text}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    stop = b'data: {"type": "message_stop"}\n\n'
    message = fold(decode(MessagesDecoder(Endpoint("p", "http://host")), [data, stop]))
    assert message is not None
    said = [dict(each.arguments) for each in message.tool_calls]
    assert said == [{"command": "rm a"}, {"command": second}][:count]


def test_an_id_for_each_chunk_says_nothing_about_the_reply() -> None:
    events = [chunk(str(number), content="x") for number in range(4)]
    data = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    message = fold(decode(ChatDecoder(Endpoint("p", "http://host")), [data, b"data: [DONE]\n\n"]))
    assert message is not None and message.text == "xxxx"
