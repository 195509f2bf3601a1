"""Anthropic Messages: the body that is sent and the events that come of a reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
    Usage,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import Effort, ModelInfo, ProviderConfig
from agentcli.domain.stream import TextDelta, ThinkingDelta, ThinkingSeal, UsageReport
from agentcli.providers.anthropic import AnthropicProvider, MessagesDecoder, encode, messages_url
from agentcli.wire.http import Endpoint
from tests.providers.streams import BASH, READ, decode, fold, request
from tests.support.strict import check_anthropic

IMAGE = ImagePart("image/png", b"\x89PNG")


def assistant(*parts: Any) -> AssistantMessage:
    return AssistantMessage(parts, "anthropic", "m")


def call(call_id: str, **arguments: Any) -> ToolCall:
    return ToolCall(call_id, "bash", arguments)


def result(call_id: str, *parts: Any, status: ResultStatus = ResultStatus.OK) -> ToolResult:
    return ToolResult(call_id, "bash", parts or (TextPart("out"),), status)


def unmarked(node: Any) -> Any:
    if isinstance(node, list):
        return [unmarked(item) for item in node]
    if isinstance(node, dict):
        return {key: unmarked(value) for key, value in node.items() if key != "cache_control"}
    return node


def marks(node: Any) -> int:
    if isinstance(node, list):
        return sum(map(marks, node))
    if isinstance(node, dict):
        return ("cache_control" in node) + sum(map(marks, node.values()))
    return 0


CONVERSATION: list[Message] = [
    user_text("hi"),
    assistant(
        ThinkingPart("", signature="sig=="),
        ThinkingPart("", redacted="blob"),
        TextPart("Two."),
        call("c1", command="a"),
        call("c2", command="b"),
    ),
    result("c1"),
    result("c2", TextPart("no"), IMAGE, status=ResultStatus.CANCELLED),
    user_text("stop"),
    assistant(TextPart("OK.")),
    UserMessage((TextPart("see"), IMAGE)),
]


@pytest.mark.spec("HIS-1", "HIS-3", "HIS-4")
def test_the_whole_shape_of_a_conversation() -> None:
    body = encode(request(CONVERSATION, tools=(BASH, READ)))
    assert body["system"][0]["text"] == "Be brief."
    assert [tool["name"] for tool in body["tools"]] == ["bash", "read_file"]
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
    }
    assert unmarked(body["messages"]) == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "sig=="},
                {"type": "redacted_thinking", "data": "blob"},
                {"type": "text", "text": "Two."},
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "a"}},
                {"type": "tool_use", "id": "c2", "name": "bash", "input": {"command": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "out"}],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": [{"type": "text", "text": "no"}],
                    "is_error": True,
                },
                image,
                {"type": "text", "text": "stop"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "OK."}]},
        {"role": "user", "content": [{"type": "text", "text": "see"}, image]},
    ]


def test_images_of_a_successful_result_stay_in_it() -> None:
    history = [user_text("a"), assistant(call("c1")), result("c1", TextPart("x"), IMAGE)]
    block = encode(request(history))["messages"][-1]["content"][0]
    assert [part["type"] for part in block["content"]] == ["text", "image"]
    assert "is_error" not in block


@pytest.mark.spec("LOOP-3")
def test_the_prefix_stays_byte_identical_and_has_at_most_four_marks() -> None:
    previous: str | None = None
    ends = [1, 4, 5, 7]
    for end in ends:
        body = encode(request(CONVERSATION[:end], tools=(BASH, READ)))
        assert 3 <= marks(body) <= 4
        assert "cache_control" in body["system"][-1]
        assert "cache_control" in body["tools"][-1]
        assert "cache_control" in body["messages"][-1]["content"][-1]
        text = json.dumps(unmarked([body["tools"], body["system"], body["messages"]]))
        if previous is not None:
            # The last message may grow: cut the closing brackets of the earlier request.
            assert text.startswith(previous.rstrip("]}"))
        previous = text


def test_no_message_ends_in_thinking() -> None:
    history = [
        user_text("a"),
        assistant(TextPart("x"), ThinkingPart("t", signature="s")),
        user_text("b"),
    ]
    [_, reply, _] = encode(request(history))["messages"]
    assert [block["type"] for block in reply["content"]] == ["text"]


@pytest.mark.spec("HIS-1")
def test_odd_ids_and_names_are_mapped_alike_in_call_and_result() -> None:
    odd = "functions.bash:0"
    history = [user_text("a"), assistant(ToolCall(odd, "no such tool!", {})), result(odd)]
    messages = encode(request(history))["messages"]
    use, answer = messages[1]["content"][0], messages[2]["content"][0]
    assert use["id"] == answer["tool_use_id"]
    assert use["id"].replace("_", "").isalnum()
    assert use["name"] == "no_such_tool_"


# --- thinking ------------------------------------------------------------------------------


def thinking_of(name: str, effort: Effort | None, **more: Any) -> dict[str, Any]:
    info = ModelInfo("anthropic", name, 200_000, more.pop("limit", 64_000), True, True)
    history = more.pop("history", "hi")
    body = encode(request(history, info, effort=effort, **more))
    assert body["max_tokens"] > body.get("thinking", {}).get("budget_tokens", 0)
    return {key: body[key] for key in ("thinking", "output_config") if key in body}


ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("name", "effort", "expected"),
    [
        ("claude-3-5-sonnet-20241022", Effort.HIGH, {}),
        ("claude-3-7-sonnet-20250219", Effort.LOW,
         {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("claude-sonnet-4-20250514", Effort.MEDIUM,
         {"thinking": {"type": "enabled", "budget_tokens": 10_000}}),
        ("claude-sonnet-4-5", Effort.HIGH,
         {"thinking": {"type": "enabled", "budget_tokens": 24_000}}),
        ("claude-sonnet-4-5", Effort.NONE, {}),
        ("claude-sonnet-4-5", None, {}),
        ("claude-opus-4-6", Effort.XHIGH,
         {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("claude-opus-4-6", Effort.MAX,
         {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
        ("claude-opus-4-6", Effort.HIGH,
         {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("claude-opus-4-6", None, {}),
        ("claude-opus-4-7", Effort.MINIMAL,
         {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("claude-opus-4-7", Effort.NONE, {"thinking": {"type": "disabled"}}),
        ("claude-opus-5", None, {"thinking": ADAPTIVE}),
        ("claude-opus-5-5", Effort.NONE,
         {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("claude-sonnet-5-5", Effort.NONE, {"thinking": {"type": "between_tools"}}),
        ("claude-fable-5-1", Effort.NONE,
         {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", Effort.LOW,
         {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
        ("some-other-model", Effort.LOW, {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
    ],
)  # fmt: skip
def test_effort_is_asked_for_as_the_model_wants_it(
    name: str, effort: Effort | None, expected: dict[str, Any]
) -> None:
    assert thinking_of(name, effort) == expected


def test_the_budget_fits_under_the_limit() -> None:
    small = thinking_of("claude-sonnet-4-5", Effort.HIGH, limit=8_192)
    assert small["thinking"]["budget_tokens"] == 7_168
    capped = thinking_of("claude-sonnet-4-5", Effort.HIGH, max_output_tokens=3_000)
    assert capped["thinking"]["budget_tokens"] == 1_976
    assert thinking_of("claude-sonnet-4-5", Effort.HIGH, max_output_tokens=1_500) == {}


@pytest.mark.spec("HIS-4")
def test_a_tool_loop_begun_without_thinking_goes_on_without() -> None:
    plain = [user_text("a"), assistant(call("c1")), result("c1")]
    thoughtful = [user_text("a"), assistant(ThinkingPart("t", "s"), call("c1")), result("c1")]
    name = "claude-sonnet-4-5"
    assert thinking_of(name, Effort.LOW, history=plain) == {}
    assert thinking_of(name, Effort.LOW, history=thoughtful) != {}
    assert thinking_of(name, Effort.LOW, history=[*plain, user_text("b")]) != {}
    assert thinking_of("claude-opus-4-7", Effort.LOW, history=plain) != {}


# --- reply ---------------------------------------------------------------------------------


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events
    )


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(reason: str | None = "end_turn") -> tuple[dict[str, Any], ...]:
    return (
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    )


def decoder() -> MessagesDecoder:
    return MessagesDecoder(Endpoint("anthropic", "https://api.anthropic.com/v1/messages"))


def reply(*events: dict[str, Any]) -> AssistantMessage:
    message = fold(decode(decoder(), [sse(*events)]))
    assert message is not None
    return message


@pytest.mark.spec("HIS-4", "LOOP-7")
def test_thinking_keeps_its_signature_even_without_text() -> None:
    events = [
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="signature_delta", signature="sig=="),
        start(1, type="redacted_thinking", data="blob"),
        start(2, type="thinking", thinking=""),
        delta(2, type="thinking_delta", thinking="Hm"),
        delta(2, type="thinking_delta", thinking="m."),
        delta(2, type="signature_delta", signature="s2"),
        *stop(),
    ]
    assert reply(*events).parts == (
        ThinkingPart("", signature="sig=="),
        ThinkingPart("", redacted="blob"),
        ThinkingPart("Hmm.", signature="s2"),
    )
    shown = [e for e in decode(decoder(), [sse(*events)]) if isinstance(e, ThinkingDelta)]
    assert shown == [ThinkingDelta(2, "Hmm.")]
    seals = [e for e in decode(decoder(), [sse(*events)]) if isinstance(e, ThinkingSeal)]
    assert seals[0] == ThinkingSeal(0, signature="sig==")


def test_arguments_come_in_pieces_or_whole_or_not_at_all() -> None:
    message = reply(
        start(0, type="tool_use", id="a", name="x", input={}),
        delta(0, type="input_json_delta", partial_json=""),
        delta(0, type="input_json_delta", partial_json='{"k": '),
        start(1, type="tool_use", id="b", name="y", input={"whole": 1}),
        {"type": "content_block_stop", "index": 1},
        delta(0, type="input_json_delta", partial_json="2}"),
        start(2, type="tool_use", id="c", name="z", input={}),
        start(3, type="tool_use", id="d", name="w", input={"late": True}),
        *stop(None),
    )
    assert [(c.id, c.arguments) for c in message.tool_calls] == [
        ("a", {"k": 2}),
        ("b", {"whole": 1}),
        ("c", {}),
        ("d", {"late": True}),
    ]
    assert message.stop_reason is StopReason.TOOL_USE


@pytest.mark.spec("STR-8", "STR-3")
def test_pings_unknown_events_and_unknown_blocks_mean_nothing() -> None:
    events = decode(
        decoder(),
        [
            sse(
                {"type": "ping"},
                {"type": "news_of_tomorrow", "index": 0},
                start(0, type="hologram", text="x"),
                delta(0, type="text_delta", text="y"),
                delta(0, type="wave_delta"),
                {"type": "content_block_delta", "index": "0", "delta": []},
                {"type": "message_start", "message": None},
            ),
            b"data: 3\n\ndata: []\n\ndata: null\n\n",
        ],
    )
    assert events == []


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", StopReason.END_TURN),
        ("stop_sequence", StopReason.END_TURN),
        ("tool_use", StopReason.TOOL_USE),
        ("max_tokens", StopReason.MAX_TOKENS),
        ("model_context_window_exceeded", StopReason.MAX_TOKENS),
        ("refusal", StopReason.REFUSAL),
        ("pause_turn", StopReason.OTHER),
        (None, StopReason.END_TURN),
    ],
)
def test_stop_reasons(reason: str | None, expected: StopReason) -> None:
    assert reply(*stop(reason)).stop_reason is expected


@pytest.mark.spec("LOOP-6")
def test_usage_counts_the_cache_and_ignores_a_late_zero() -> None:
    usage = {"input_tokens": 7, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3,
             "output_tokens": 1}  # fmt: skip
    final = {"input_tokens": 0, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
    message = reply(
        {"type": "message_start", "message": {"usage": usage}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": final},
        {"type": "message_stop"},
    )
    assert message.usage == Usage(7, 9, 5, 3, 4)
    assert reply({"type": "message_stop"}).usage == Usage()
    absurd = {"input_tokens": 2**62, "output_tokens": 10**30, "cache_read_input_tokens": 6}
    message = reply(
        {"type": "message_start", "message": {"usage": absurd}}, {"type": "message_stop"}
    )
    assert message.usage == Usage(None, None, 6)


@pytest.mark.spec("STR-8")
def test_an_error_event_keeps_what_came_before_it_and_ends_everything() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    broken = decoder()
    events = decode(broken, [sse(delta(0, type="text_delta", text="so far"), error, *stop())])
    assert events == [TextDelta(0, "so far")]
    assert isinstance(broken.failure, ProviderError)
    assert broken.failure.kind is ErrorKind.OVERLOADED
    assert broken.feed(sse(*stop())) == []


@pytest.mark.spec("CAN-5")
def test_without_a_stop_reason_there_is_no_end() -> None:
    cut = sse(delta(0, type="text_delta", text="x"))
    assert fold(decode(decoder(), [cut])) is None


@pytest.mark.spec("STR-4")
def test_with_a_stop_reason_a_reply_is_whole() -> None:
    dropped = decoder()
    message = fold(decode(dropped, [sse(delta(0, type="text_delta", text="x"), stop()[0])]))
    assert message is not None
    assert (message.text, message.stop_reason) == ("x", StopReason.END_TURN)
    assert dropped.complete  # and the rest is not waited for


def test_the_last_event_may_lack_its_blank_line() -> None:
    whole = sse(*stop(None))
    assert fold(decode(decoder(), [whole.rstrip()])) is not None
    assert fold(decode(decoder(), [whole.rstrip()[:-3]])) is None


def test_deltas_of_one_read_are_joined() -> None:
    pieces = [delta(0, type="text_delta", text=str(n)) for n in range(100)]
    events = decode(decoder(), [sse(start(0, type="text", text=""), *pieces)])
    assert events == [TextDelta(0, "".join(map(str, range(100))))]
    assert not any(isinstance(event, UsageReport) for event in events)


# --- provider ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base",
    ["https://h/p", "https://h/p/", "https://h/p/v1", "https://h/p/v1/", "https://h/p/v1/messages"],
)
def test_the_base_url_may_hold_the_version_or_not(base: str) -> None:
    assert messages_url(base) == "https://h/p/v1/messages"


def test_headers_carry_key_and_version() -> None:
    provider = AnthropicProvider(
        ProviderConfig("anthropic", "anthropic", "https://h", api_key="sk-x")
    )
    assert provider.headers({}) == {"anthropic-version": "2023-06-01", "x-api-key": "sk-x"}
    assert "anthropic-beta" in provider.headers({"thinking": {"type": "enabled"}})


@pytest.mark.spec("HIS-7")
def test_calls_of_the_history_are_declared_where_nothing_may_be_called_any_more() -> None:
    history = (user_text("go"), assistant(call("a"), call("b")), result("a"), result("b"))
    body = encode(request(history, tools=()))
    assert body["tools"] == [{"name": "bash", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}
    assert check_anthropic(body) is None
    assert not {"tools", "tool_choice"} & set(encode(request((user_text("go"),), tools=())))


@pytest.mark.spec("STR-12")
def test_a_server_that_does_not_stream_is_understood() -> None:
    document = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Look:"},
            {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
            {"type": "tool_use", "id": "t2", "name": "bash", "input": {}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 7, "output_tokens": 5},
    }
    message = fold(decode(decoder(), [b"data: " + json.dumps(document).encode() + b"\n\n"]))
    assert message.text == "Look:"
    assert [(call.id, call.arguments) for call in message.tool_calls] == [
        ("t1", {"command": "ls"}),
        ("t2", {}),
    ]
    assert message.parts[0] == ThinkingPart("hm", "s")
    assert (message.usage.input_tokens, message.usage.output_tokens) == (7, 5)
    assert message.stop_reason is StopReason.TOOL_USE
