"""The Responses API: the body that is sent, and what a service that refuses a part of it gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import Effort, ModelInfo, ProviderConfig
from agentcli.domain.stream import StreamEvent
from agentcli.providers._base import to_json
from agentcli.providers._responses_reply import seal
from agentcli.providers.openai_responses import ResponsesProvider, encode, responses_url
from agentcli.store import codec as _codec
from tests.providers.streams import BASH, fold, request
from tests.support.model_server import ModelServer
from tests.support.replies import Reply, say
from tests.support.strict import check_responses

IMAGE = ImagePart("image/png", b"\x89PNG\r\n\x1a\n")
URL = {
    "type": "input_image",
    "image_url": "data:image/png;base64,iVBORw0KGgo=",
    "detail": "auto",
}
RS = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "I see."}],
    "encrypted_content": "gAAAAABx+/=\u00e9",
}


def thinking(item: Any = None, **following: Any) -> ThinkingPart:
    return ThinkingPart("I see.", seal(item or RS, following or None))


def assistant(*parts: Any) -> AssistantMessage:
    return AssistantMessage(parts, "openai", "gpt-5.2")


def result(call_id: str, *parts: Any) -> ToolResult:
    return ToolResult(call_id, "bash", parts or (TextPart("out"),))


def body_for(history: Any = "hi", model: Any = "gpt-5.2", **more: Any) -> dict[str, Any]:
    body = encode(request(history, model, **more))
    assert check_responses(json.loads(to_json(body))) is None
    return body


def input_for(*history: Message, **more: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = body_for(history, **more)["input"]
    return items


def types(items: Sequence[dict[str, Any]]) -> list[str]:
    return [item["type"] for item in items]


@pytest.mark.spec("HIS-1", "HIS-4", "HIS-5", "HIS-7")
def test_the_whole_shape_of_a_conversation() -> None:
    history = [
        user_text("hi"),
        assistant(
            thinking(type="message", id="msg_a", phase="commentary"),
            TextPart("Two."),
            ToolCall("c1", "bash", {"command": "a"}),
            ToolCall("c2", "bash", {}, malformed='{"x'),
        ),
        result("c1", TextPart("one"), TextPart("more")),
        ToolResult("c2", "bash", (TextPart("no"), IMAGE), ResultStatus.ERROR),
        UserMessage((TextPart("see"), IMAGE)),
    ]
    body = body_for(history, tools=(BASH,), effort=Effort.HIGH, max_output_tokens=99)
    text = {"type": "output_text", "text": "Two.", "annotations": []}
    assert body == {
        "model": "gpt-5.2",
        "stream": True,
        "store": False,
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            RS,
            {
                "type": "message",
                "id": "msg_a",
                "role": "assistant",
                "status": "completed",
                "content": [text],
                "phase": "commentary",
            },
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "bash",
                "arguments": '{"command":"a"}',
            },
            {"type": "function_call", "call_id": "c2", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "one\nmore"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "no"}, URL],
            },
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "see"}, URL],
            },
        ],
        "tools": [
            {
                "type": "function",
                "name": "bash",
                "description": "Runs a command.",
                "parameters": dict(BASH.parameters),
                "strict": False,
            }
        ],
        "max_output_tokens": 99,
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": body["prompt_cache_key"],
    }


@pytest.mark.spec("HIS-4")
def test_reasoning_survives_the_store_and_goes_back_text_for_text() -> None:
    odd = {**RS, "encrypted_content": '\U0001f642"\\/\u2028', "status": None, "content": []}
    message = assistant(thinking(odd, type="function_call", id="fc_1"), ToolCall("c", "bash", {}))
    blobs: dict[str, bytes] = {}
    stored = _codec.encode(message, lambda data: blobs.setdefault("x", data) and "x")
    back = _codec.decode(*stored, blobs.__getitem__)
    sent = input_for(user_text("a"), back, result("c"))
    assert sent[1] == {**RS, "encrypted_content": odd["encrypted_content"]}
    assert sent[2]["id"] == "fc_1"


@pytest.mark.spec("HIS-7")
@pytest.mark.parametrize(
    "parts",
    [
        (thinking(type="message", id="msg_1"), ToolCall("c", "bash", {})),
        (TextPart("x"), ToolCall("c", "bash", {}), thinking()),
        (thinking(type="function_call"), thinking(type="message"), ToolCall("c", "bash", {})),
        (ThinkingPart("made by Chat Completions"), ToolCall("c", "bash", {})),
        (ThinkingPart("x", signature="foreign=="), ToolCall("c", "bash", {})),
        (ThinkingPart("x", signature='{"item":{"type":"tool"}}'), ToolCall("c", "bash", {})),
        (ThinkingPart("x", signature='{"a'), ToolCall("c", "bash", {})),
        (ThinkingPart("x", signature="{}"), ToolCall("c", "bash", {})),
    ],
)
def test_reasoning_without_its_own_item_is_left_out(parts: tuple[Any, ...]) -> None:
    items = input_for(user_text("a"), assistant(*parts), result("c"))
    assert "reasoning" not in types(items)
    assert types(items)[-2:] == ["function_call", "function_call_output"]


@pytest.mark.spec("HIS-7")
def test_several_reasoning_items_in_a_row_lead_to_one_item() -> None:
    second = {**RS, "id": "rs_2"}
    message = assistant(
        thinking(RS, type="reasoning"),
        thinking(second, type="function_call", id="fc_9"),
        ToolCall("c", "bash", {}),
        ToolCall("d", "bash", {}),
    )
    items = input_for(user_text("a"), message, result("c"), result("d"))
    assert [item.get("id") for item in items[1:4]] == ["rs_1", "rs_2", "fc_9"]
    assert types(items)[1:5] == ["reasoning", "reasoning", "function_call", "function_call"]


def test_reasoning_that_cannot_be_resolved_without_storage_has_no_seal() -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert seal(bare, None) is None
    open_text = {**bare, "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert json.loads(seal(open_text, None) or "")["item"] == open_text
    assert seal(None, {"type": "message", "id": "msg_1"}) is None


def test_ids_that_the_service_would_refuse_are_not_sent() -> None:
    for known in ("item_1", "msg " + "x", "msg_" + "x" * 80, ""):
        items = input_for(
            user_text("a"), assistant(thinking(type="message", id=known), TextPart("b"))
        )
        assert types(items) == ["message", "reasoning", "message"]
        assert items[2]["id"] == "msg_1"
    odd = "functions.bash:0|" + "x" * 80
    call, output = input_for(assistant(ToolCall(odd, "a b", {"x": "\ud83d"})), result(odd))
    assert call["call_id"] == output["call_id"]


def test_neighbouring_texts_are_parts_of_one_message() -> None:
    phase = ThinkingPart("", seal(None, {"type": "message", "phase": "final_answer"}))
    items = input_for(user_text("a"), assistant(TextPart("b"), TextPart("c"), phase, TextPart("d")))
    assert [len(item["content"]) for item in items] == [1, 2, 1]
    assert [item.get("phase") for item in items] == [None, None, "final_answer"]


def test_a_model_without_eyes_gets_a_note_instead_of_an_image() -> None:
    blind = ModelInfo("p", "o3-mini", supports_images=False)
    history = [UserMessage((IMAGE,)), assistant(ToolCall("c", "bash", {})), result("c", IMAGE)]
    text = json.dumps(body_for(history, blind))
    assert "input_image" not in text
    assert text.count("image left out") == 2


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("gpt-5", None, {"summary": "auto"}),
        ("gpt-5-mini", Effort.NONE, {"effort": "minimal"}),
        ("gpt-5-mini", Effort.MINIMAL, {"effort": "minimal", "summary": "auto"}),
        ("gpt-5.2", Effort.NONE, {"effort": "none"}),
        ("gpt-5.2", Effort.MINIMAL, {"effort": "low", "summary": "auto"}),
        ("gpt-6-sol", Effort.HIGH, {"effort": "high", "summary": "auto"}),
        ("gpt-5.3-codex", Effort.NONE, {"effort": "low"}),
        ("gpt-5-pro", Effort.LOW, {"summary": "auto"}),
        ("gpt-5-pro", Effort.HIGH, {"effort": "high", "summary": "auto"}),
        ("gpt-5.2-pro", Effort.MEDIUM, {"effort": "medium", "summary": "auto"}),
        ("o3", Effort.MINIMAL, {"effort": "low", "summary": "auto"}),
        ("gpt-4.1", Effort.HIGH, None),
        ("gpt-5-chat-latest", Effort.HIGH, None),
        (ModelInfo("p", "gpt-oss-20b"), Effort.HIGH, None),
    ],
)
def test_effort_is_asked_for_as_the_model_takes_it(
    model: Any, effort: Effort | None, expected: dict[str, str] | None
) -> None:
    body = body_for("hi", model, effort=effort, tools=(BASH,))
    assert body.get("reasoning") == expected
    assert ("include" in body) is (expected is not None)


def test_an_unknown_model_that_thinks_is_asked_to() -> None:
    body = encode(request("hi", ModelInfo("p", "qwen", supports_thinking=True), effort=Effort.NONE))
    assert body["reasoning"] == {"effort": "low"}


def test_the_smallest_output_limit_is_the_services() -> None:
    assert body_for(max_output_tokens=1)["max_output_tokens"] == 16
    assert "max_output_tokens" not in body_for()


def test_a_growing_conversation_extends_what_was_sent_before() -> None:
    history: list[Message] = [user_text("a")]
    before = body_for(history, tools=(BASH,))
    history += [assistant(thinking(type="function_call"), ToolCall("c", "bash", {})), result("c")]
    after = body_for(history, tools=(BASH,))
    assert after["input"][: len(before["input"])] == before["input"]
    assert {k: v for k, v in after.items() if k != "input"} == {
        k: v for k, v in before.items() if k != "input"
    }
    assert body_for("other")["prompt_cache_key"] != before["prompt_cache_key"]


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com", "https://api.openai.com/v1/responses"),
        ("http://h/openai/v1/responses", "http://h/openai/v1/responses"),
    ],
)
def test_the_address_of_the_api(base: str, expected: str) -> None:
    assert responses_url(base) == expected


# --- a service that does not take a part ---------------------------------------------------


def refusal(text: str, code: str | None = None, param: str | None = None) -> Reply:
    error = {"message": text, "type": "invalid_request_error", "param": param, "code": code}
    return Reply(status=400, body=json.dumps({"error": error}).encode())


def ask_all(server: ModelServer, *requests: Any) -> list[AssistantMessage | ProviderError]:
    async def one(provider: ResponsesProvider, what: Any) -> AssistantMessage | ProviderError:
        events: list[StreamEvent] = []
        try:
            async for event in provider.stream(what, CancelToken()):
                events.append(event)
        except ProviderError as error:
            return error
        message = fold(events)
        assert message is not None
        return message

    async def main() -> list[AssistantMessage | ProviderError]:
        config = ProviderConfig("openai", "openai-responses", server.openai_url, api_key="sk-x")
        provider = ResponsesProvider(config)
        try:
            return [await one(provider, what) for what in requests]
        finally:
            await provider.aclose()

    return asyncio.run(main())


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    ("text", "without"),
    [
        (
            "Your organization must be verified to generate reasoning summaries.",
            lambda body: "summary" not in body["reasoning"],
        ),
        (
            "Unsupported value: 'reasoning.effort' does not support 'high' with this model.",
            lambda body: "effort" not in body["reasoning"],
        ),
        (
            "Unsupported value: 'medium' is not supported with the 'gpt-6-sol' model.",
            lambda body: "effort" not in body["reasoning"],
        ),
        (
            "Encrypted content is not supported with this model.",
            lambda body: "include" not in body,
        ),
    ],
)
def test_what_the_service_does_not_take_is_left_out_from_then_on(
    model_server: ModelServer, text: str, without: Any
) -> None:
    model_server.add(refusal(text), say("one"), say("two"))
    what = request("hi", "gpt-6-sol", effort=Effort.HIGH)
    first, second = ask_all(model_server, what, what)
    assert isinstance(first, AssistantMessage)
    assert isinstance(second, AssistantMessage)
    assert (first.text, second.text) == ("one", "two")
    bodies = [each.body for each in model_server.requests]
    assert [without(body) for body in bodies] == [False, True, True]


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    "text",
    [
        "The encrypted content gAAA...DQ== could not be verified.",
        "The encrypted content for item rs_1 could not be verified. Reason: it was not parsed.",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ],
)
def test_reasoning_that_the_service_refuses_stops_no_session(text: str) -> None:
    history = (user_text("a"), assistant(thinking(), TextPart("b")), user_text("c"))
    newer = (*history, assistant(thinking({**RS, "id": "rs_2"}), TextPart("d")), user_text("e"))
    with ModelServer([refusal(text), "one", "two"], strict=False) as server:
        ask_all(server, request(history, "gpt-5.2"), request(newer, "gpt-5.2"))
        sent = [[i["id"] for i in r.messages if i["type"] == "reasoning"] for r in server.requests]
    assert sent == [["rs_1"], [], ["rs_2"]]


def test_a_refusal_after_the_reply_has_begun_is_told(model_server: ModelServer) -> None:
    late = b'data: {"error":{"code":400,"message":"Unsupported parameter: reasoning.summary"}}\n\n'
    model_server.add(say("Once upon", garbage_at="text:1", garbage=late))
    [error] = ask_all(model_server, request("hi", "gpt-5.2"))
    assert isinstance(error, ProviderError)
    assert (error.kind, error.status) == (ErrorKind.BAD_REQUEST, 400)
    assert len(model_server.requests) == 1


def test_any_other_refusal_is_told_at_once(model_server: ModelServer) -> None:
    model_server.add(refusal("Unsupported parameter: 'reasoning.effort'.", param="x"))
    model_server.add(refusal("Invalid schema for function 'bash'."))
    for error in ask_all(model_server, request("hi", "gpt-4.1"), request("hi", "gpt-5.2")):
        assert isinstance(error, ProviderError)
        assert error.kind is ErrorKind.BAD_REQUEST
    assert len(model_server.requests) == 2


@pytest.mark.spec("HIS-7")
def test_a_session_of_chat_completions_goes_on(model_server: ModelServer) -> None:
    history = (
        user_text("a"),
        AssistantMessage(
            (ThinkingPart("hm"), TextPart("b"), ToolCall("call_1", "bash", {})),
            "openai",
            "gpt-5.2",
        ),
        result("call_1"),
    )
    model_server.add(say("fine"))
    [reply] = ask_all(model_server, request(history, "gpt-5.2"))
    assert isinstance(reply, AssistantMessage)
    assert reply.stop_reason is StopReason.END_TURN
