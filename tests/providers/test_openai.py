"""Chat Completions: the body that is sent and the events that come of a reply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcli.domain.errors import ErrorKind
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
    user_text,
)
from agentcli.domain.ports import Effort, ModelInfo, ProviderConfig
from agentcli.domain.stream import TextDelta, ToolCallStart
from agentcli.providers.openai import (
    ChatDecoder,
    OpenAIProvider,
    completions_url,
    encode,
    quirks_of,
)
from agentcli.wire.http import Endpoint
from tests.providers.streams import BASH, cuts, decode, fold, request

IMAGE = ImagePart("image/png", b"\x89PNG")
URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}


def assistant(*parts: Any) -> AssistantMessage:
    return AssistantMessage(parts, "openai", "m")


def result(call_id: str, *parts: Any) -> ToolResult:
    return ToolResult(call_id, "bash", parts or (TextPart("out"),))


def body_for(name: str, history: Any = "hi", url: str = "", **more: Any) -> dict[str, Any]:
    config = ProviderConfig(name, "openai", url or "https://api.example.com/v1")
    return encode(request(history, **more), name, quirks_of(config))


def wire(call_id: str, arguments: str = '{"command":"a"}') -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "bash", "arguments": arguments},
    }


@pytest.mark.spec("HIS-1", "HIS-3", "HIS-5")
def test_the_whole_shape_of_a_conversation() -> None:
    history = [
        user_text("hi"),
        assistant(
            ThinkingPart("private"),
            TextPart("Two."),
            ToolCall("c1", "bash", {"command": "a"}),
            ToolCall("c2", "bash", {}, malformed='{"x'),
        ),
        result("c1", TextPart("one"), TextPart("more"), IMAGE),
        ToolResult("c2", "bash", (IMAGE,), ResultStatus.ERROR),
        user_text("stop"),
        assistant(TextPart("OK.")),
        UserMessage((TextPart("see"), IMAGE)),
    ]
    body = body_for("p", history, tools=(BASH,))
    note = {"type": "text", "text": "The images of the tool results above:"}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "Two.",
            "tool_calls": [wire("c1"), wire("c2", "{}")],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one\nmore"},
        {"role": "tool", "tool_call_id": "c2", "content": "The result is an image; it follows."},
        {"role": "user", "content": [note, URL, URL, {"type": "text", "text": "stop"}]},
        {"role": "assistant", "content": "OK."},
        {"role": "user", "content": [{"type": "text", "text": "see"}, URL]},
    ]
    assert body["tools"][0]["function"]["name"] == "bash"
    assert body["stream_options"] == {"include_usage": True}
    assert "max_tokens" not in body
    assert "max_completion_tokens" not in body


def test_neighbouring_messages_of_one_role_are_merged() -> None:
    history = [
        user_text("a"),
        UserMessage((TextPart("b"), TextPart("c"))),
        assistant(TextPart("x")),
        assistant(ToolCall("c1", "bash", {"command": "a"})),
        result("c1"),
    ]
    messages = body_for("p", history)["messages"]
    assert messages[1:3] == [
        {"role": "user", "content": "a\nb\nc"},
        {"role": "assistant", "content": "x", "tool_calls": [wire("c1")]},
    ]


def test_a_call_without_text_has_null_content() -> None:
    history = [user_text("a"), assistant(ToolCall("c1", "bash", {"command": "a"})), result("c1")]
    assert body_for("p", history)["messages"][2]["content"] is None


def test_a_model_without_eyes_gets_a_note_instead_of_an_image() -> None:
    blind = ModelInfo("p", "m", supports_images=False)
    history = [UserMessage((IMAGE,)), assistant(ToolCall("c", "bash", {})), result("c", IMAGE)]
    text = json.dumps(body_for("p", history, model=blind))
    assert "image_url" not in text
    assert text.count("image left out") == 2


def test_the_output_limit_has_two_names() -> None:
    assert body_for("p", max_output_tokens=9)["max_tokens"] == 9
    official = body_for("openai", url="https://api.openai.com/v1", max_output_tokens=9)
    assert official["max_completion_tokens"] == 9
    assert "max_tokens" not in official


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("model", "effort", "tools", "expected"),
    [
        ("gpt-4.1", Effort.HIGH, (), None),
        ("gpt-5-chat-latest", Effort.HIGH, (), None),
        ("gpt-5-mini", Effort.MINIMAL, (BASH,), "minimal"),
        ("gpt-5-mini", Effort.NONE, (BASH,), "minimal"),
        ("gpt-5.2", Effort.NONE, (BASH,), "none"),
        ("gpt-5.2", Effort.MINIMAL, (BASH,), "low"),
        ("gpt-5.2", Effort.HIGH, (BASH,), "high"),
        ("gpt-5.2", None, (BASH,), None),
        ("gpt-6-sol", Effort.HIGH, (BASH,), "none"),
        ("gpt-6-sol", None, (BASH,), "none"),
        ("gpt-6-sol", Effort.HIGH, (), "high"),
        ("gpt-6.1-sol", Effort.NONE, (), "low"),
        ("gpt-6.1-sol", Effort.HIGH, (BASH,), "high"),
        ("gpt-6.2-sol", None, (BASH,), None),
        ("o3", Effort.MINIMAL, (BASH,), "low"),
    ],
)
def test_effort_is_sent_only_where_openai_takes_it(
    model: str, effort: Effort | None, tools: Any, expected: str | None
) -> None:
    info = ModelInfo("openai", model, supports_thinking=True)
    for url in ("https://api.openai.com/v1", "http://proxy.example/v1"):
        body = body_for("openai", url=url, model=info, effort=effort, tools=tools)
        assert body.get("reasoning_effort") == expected


def test_other_servers_get_effort_only_where_it_is_known_to_work() -> None:
    thinks = ModelInfo("xai", "grok-4.6", supports_thinking=True)
    assert body_for("xai", model=thinks, effort=Effort.HIGH)["reasoning_effort"] == "high"
    assert "reasoning_effort" not in body_for("xai", effort=Effort.HIGH)
    assert "reasoning_effort" not in body_for("xai", model=thinks)
    for local in ("ollama", "vllm", "lmstudio", "llamacpp", "home"):
        body = body_for(local, model=thinks, effort=Effort.HIGH)
        assert not {"reasoning", "reasoning_effort", "thinking"} & set(body)
    routed = ModelInfo("openrouter", "anthropic/claude-sonnet-4.5", supports_thinking=True)
    assert body_for("openrouter", model=routed, effort=Effort.LOW)["reasoning"] == {"effort": "low"}
    plain = ModelInfo("openrouter", "openai/gpt-4.1")
    assert "reasoning" not in body_for("openrouter", model=plain, effort=Effort.LOW)


def test_mistral_gets_its_own_ids_and_an_answer_between_tool_and_user() -> None:
    history = [
        user_text("a"),
        assistant(ToolCall("call_long_id", "bash", {}), ToolCall("abc123XYZ", "bash", {})),
        result("call_long_id"),
        result("abc123XYZ"),
        user_text("b"),
    ]
    body = body_for("mistral", history)
    messages = body["messages"]
    ids = [call["id"] for call in messages[2]["tool_calls"]]
    assert all(len(call_id) == 9 and call_id.isalnum() for call_id in ids)
    assert ids[1] == "abc123XYZ"
    assert [m["tool_call_id"] for m in messages[3:5]] == ids
    assert [m["role"] for m in messages[4:]] == ["tool", "assistant", "user"]
    assert "stream_options" not in body


@pytest.mark.spec("HIS-4")
def test_reasoning_goes_back_only_to_servers_that_demand_it() -> None:
    loop = [
        user_text("a"),
        assistant(ThinkingPart("hm"), ToolCall("c", "bash", {})),
        result("c"),
    ]
    assert "reasoning_content" not in json.dumps(body_for("openrouter", loop))
    assert body_for("deepseek", loop)["messages"][2]["reasoning_content"] == "hm"


@pytest.mark.spec("HIS-8")
def test_lone_surrogates_and_nul_never_reach_the_wire() -> None:
    from agentcli.providers._base import to_json

    call = ToolCall("c", "bash", {"command": "\ud83d \0 \\u0000"})
    sent = to_json(body_for("p", [user_text("a"), assistant(call), result("c")]))
    arguments = json.loads(sent)["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"command": "\ufffd \ufffd \\u0000"}


# --- reply ---------------------------------------------------------------------------------


def decoder() -> ChatDecoder:
    return ChatDecoder(Endpoint("openai", "https://api.openai.com/v1/chat/completions"))


def chunk(finish: str | None = None, index: int | None = 0, **delta: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"delta": delta, "finish_reason": finish}
    if index is not None:
        choice["index"] = index
    return {"object": "chat.completion.chunk", "choices": [choice]}


def sse(*events: Any, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


def reply(*events: Any, done: bool = True) -> AssistantMessage:
    data = sse(*events, done=done)
    messages = [fold(decode(decoder(), pieces)) for pieces in cuts(data).values()]
    assert all(message == messages[0] for message in messages)
    assert messages[0] is not None
    return messages[0]


def piece(name: str | None = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**fields, "function": {k: v for k, v in function.items() if v is not None}}


def calls_of(*pieces: dict[str, Any]) -> list[tuple[str, Any]]:
    message = reply(*[chunk(tool_calls=[one]) for one in pieces], chunk("tool_calls"))
    assert message.stop_reason is StopReason.TOOL_USE
    return [(call.name, call.malformed or call.arguments) for call in message.tool_calls]


A, B = ("a", {"x": 1}), ("b", {"y": 2})


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            [piece("a", "", index=0, id="1"), piece(None, '{"x"', index=0),
             piece("b", "", index=1, id="2"), piece(None, '{"y":', index=1),
             piece(None, ": 1}", index=0), piece(None, " 2}", index=1)],
            id="interleaved by index",
        ),
        pytest.param(
            [piece("a", '{"x": 1}', index=0, id="1"), piece("b", '{"y": 2}', index=1, id="2")],
            id="whole calls",
        ),
        pytest.param(
            [piece("a", '{"x": 1}', index=0, id="1"), piece("b", '{"y": 2}', index=0, id="2")],
            id="every index 0",
        ),
        pytest.param(
            [piece("a", '{"x": 1}', id="1"), piece("b", '{"y": 2}', id="2")], id="no index"
        ),
        pytest.param([piece("a", '{"x": 1}'), piece("b", '{"y": 2}')], id="neither index nor id"),
        pytest.param(
            [piece("a", '{"x"', id="1"), piece(None, ": 1}", id="1"),
             piece("b", '{"y"', id="2"), piece(None, ": 2}")],
            id="no index, pieces",
        ),
        pytest.param(
            [piece("a", '{"x"', index=0, id="1"), piece("a", ": 1}", index=0, id="1"),
             piece("b", '{"y"', index=1, id="2"), piece("b", ": 2}", index=1, id="2")],
            id="name and id repeated",
        ),
        pytest.param(
            [piece("a", {"x": 1}, index=0, id="1"), piece("b", {"y": 2}, index=1, id="2")],
            id="arguments as objects",
        ),
        pytest.param(
            [piece(None, None, index=0, id="1"), piece("a", '{"x": 1}', index=0),
             piece(None, '{"y"', index=1, id="2"), piece("b", ": 2}", index=1)],
            id="name later than id",
        ),
        pytest.param(
            [piece("a", '{"x": 1}', index=0, id="same"), piece("b", '{"y": 2}', index=1, id="same")],
            id="one id for both",
        ),
    ],
)  # fmt: skip
def test_parallel_calls_are_told_apart_however_they_are_numbered(pieces: list[Any]) -> None:
    assert calls_of(*pieces) == [A, B]


def test_two_like_calls_without_index_or_id_stay_two() -> None:
    assert calls_of(piece("a", '{"x": 1}'), piece("a", '{"x": 1}')) == [A, A]


@pytest.mark.spec("STR-12")
@pytest.mark.parametrize("where", [{"index": 0}, {"index": 1}, {}])
def test_a_call_that_is_said_again_is_one_call(where: dict[str, int]) -> None:
    first = [
        piece("a", "", index=0, id="1"),
        piece(None, '{"x": ', index=0),
        piece(None, "1}", index=0),
    ]
    again = piece("a", '{"x":1}', id="1", **where)
    assert calls_of(*first, again) == calls_of(again, again) == [A]


@pytest.mark.spec("STR-12")
def test_a_last_chunk_with_all_of_the_reply_adds_nothing() -> None:
    call = piece("a", '{"x": 1}', index=0, id="1")
    whole = {"role": "assistant", "content": "Hi", "tool_calls": [{**call, "id": "2"}]}
    last = {"choices": [{"index": 0, "delta": {}, "message": whole, "finish_reason": "tool_calls"}]}
    message = reply(chunk(content="Hi"), chunk(tool_calls=[call]), last)
    assert message.text == "Hi"
    assert [(c.name, c.arguments) for c in message.tool_calls] == [A]


def test_a_call_without_arguments_is_empty() -> None:
    assert calls_of(piece("a", index=0, id="1"), piece("b", "", index=1)) == [("a", {}), ("b", {})]


def test_the_old_single_function_call_is_understood() -> None:
    message = reply(
        chunk(function_call={"name": "a", "arguments": '{"x"'}),
        chunk(function_call={"arguments": ": 1}"}),
        chunk("function_call"),
    )
    assert [(c.name, c.arguments) for c in message.tool_calls] == [A]


def test_a_call_starts_as_soon_as_its_name_is_known() -> None:
    events = decoder().feed(sse(chunk(tool_calls=[piece("a", "", index=0, id="1")]), done=False))
    assert events == [ToolCallStart(0, "1", "a")]


@pytest.mark.spec("LOOP-7")
@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_text_is_thinking(key: str) -> None:
    message = reply(
        chunk(**{key: "Hm"}), chunk(**{key: "m."}), chunk(content="Yes."), chunk("stop")
    )
    assert message.parts == (ThinkingPart("Hmm."), TextPart("Yes."))


def test_content_may_be_a_list_of_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    message = reply(
        chunk(content=[thinking]), chunk(content=[{"type": "text", "text": "Yes"}]), chunk("stop")
    )
    assert message.parts == (ThinkingPart("Hm."), TextPart("Yes"))


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", StopReason.END_TURN),
        ("length", StopReason.MAX_TOKENS),
        ("content_filter", StopReason.REFUSAL),
        ("eos", StopReason.END_TURN),
        ("weird", StopReason.OTHER),
    ],
)
def test_finish_reasons(reason: str, expected: StopReason) -> None:
    assert reply(chunk(content="x"), chunk(reason)).stop_reason is expected


@pytest.mark.spec("LOOP-8")
def test_a_stop_with_calls_means_that_the_calls_run() -> None:
    message = reply(chunk(content="x", tool_calls=[piece("a", "{}", index=0)]), chunk("stop"))
    assert message.stop_reason is StopReason.TOOL_USE
    assert message.text == "x"


def test_the_end_is_done_or_a_finish_reason_and_nothing_less() -> None:
    assert reply(chunk(content="x"), chunk("stop"), done=False).text == "x"
    assert reply(chunk(content="x")).text == "x"
    assert fold(decode(decoder(), [sse(chunk(content="x"), done=False)])) is None
    assert fold(decode(decoder(), [sse()])) is None
    unterminated = sse(chunk(content="x"))[:-2]
    assert fold(decode(decoder(), [unterminated])) is not None


@pytest.mark.spec("LOOP-6")
def test_usage_tells_cached_from_fresh_and_unknown_from_zero() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    last = {"choices": [], "usage": usage}
    assert reply(chunk(content="x"), chunk("stop"), last).usage == Usage(30, 9, 60, 10, 4)
    deepseek = {"choices": [], "usage": {"prompt_tokens": 8, "prompt_cache_hit_tokens": 5}}
    assert reply(chunk("stop"), deepseek).usage == Usage(3, None, 5, None, None)
    groq = {**chunk("stop"), "x_groq": {"usage": {"prompt_tokens": 8}}}
    assert reply(groq).usage == Usage(8)
    assert reply(chunk(content="x"), chunk("stop")).usage == Usage()
    assert reply({**chunk("stop"), "usage": None}).usage == Usage()
    absurd = {"prompt_tokens": 2**62, "completion_tokens": 3}
    assert reply({**chunk("stop"), "usage": absurd}).usage == Usage(None, 3)


def test_only_the_first_choice_counts() -> None:
    message = reply(chunk(content="a"), chunk(index=1, content="b"), chunk("stop", index=None))
    assert message.text == "a"


def test_a_server_that_does_not_stream_is_understood() -> None:
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "x", "tool_calls": [wire("c1")]}}  # fmt: skip
    message = reply({"object": "chat.completion", "choices": [choice]}, done=False)
    assert message.text == "x"
    assert message.tool_calls[0].arguments == {"command": "a"}


@pytest.mark.spec("STR-8")
def test_an_error_object_in_the_stream_keeps_what_came_before() -> None:
    broken = decoder()
    error = {"error": {"code": 429, "message": "slow down"}}
    assert decode(broken, [sse(chunk(content="so far"), error)]) == [TextDelta(0, "so far")]
    assert broken.failure is not None
    assert broken.failure.kind is ErrorKind.RATE_LIMIT


@pytest.mark.spec("STR-8")
@pytest.mark.parametrize(
    "odd",
    [
        {}, {"choices": None}, {"choices": [None, 3]}, {"choices": [{"delta": None}]},
        {"choices": [{"index": [], "delta": {"content": 3, "tool_calls": [None, {}, {"function": 3}]}}]},
        {"choices": [{"delta": {"content": [3, {"text": 4}, {"thinking": [3]}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": 3}}]}}]},
        {"usage": 3}, {"usage": {"prompt_tokens": "x", "prompt_tokens_details": 3}},
        [], 3, "x", None, True,
    ],
    ids=json.dumps,
)  # fmt: skip
def test_odd_shapes_are_ignored(odd: Any) -> None:
    assert reply(chunk(content="x"), odd, chunk("stop")).text == "x"


# --- provider ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("http://h:1", "http://h:1/v1/chat/completions"),
        ("http://h:1/", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/", "http://h:1/v1/chat/completions"),
        ("http://h:1/api/v1", "http://h:1/api/v1/chat/completions"),
        ("http://h/v1beta/openai/", "http://h/v1beta/openai/chat/completions"),
        (
            "https://generativelanguage.googleapis.com",
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        ("http://h/v1/chat/completions", "http://h/v1/chat/completions"),
    ],
)
def test_the_base_url_may_hold_the_version_or_not(base: str, expected: str) -> None:
    assert completions_url(base) == expected


def test_the_key_is_optional() -> None:
    with_key = OpenAIProvider(ProviderConfig("p", "openai", "http://h", api_key="k"))
    assert with_key.headers({}) == {"authorization": "Bearer k"}
    assert OpenAIProvider(ProviderConfig("p", "openai", "http://h")).headers({}) == {}
