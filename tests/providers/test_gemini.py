"""Gemini: the body that is sent, where it is sent, and how signatures find their parts again."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import ModelInfo, ProviderConfig
from agentcli.domain.tools import Asks, ToolDefinition
from agentcli.engine.context.outgoing import prepare
from agentcli.providers._registry import create, provider_config
from agentcli.providers.gemini import GeminiProvider, api_base, encode, stream_url
from tests.providers.streams import BASH, READ, request
from tests.support.strict_gemini import check_gemini

NEW = "gemini-3.6-flash"
OLD = "gemini-2.5-flash"
# one black dot each
PNG64 = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
GIF64 = "R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAUwAOw=="
IMAGE = ImagePart("image/png", b64decode(PNG64))
GIF = ImagePart("image/gif", b64decode(GIF64))
DATA = {"mimeType": "image/png", "data": PNG64}
KEY = "AIzaSyTest0123456789abcdefghijklmnopqr"


def assistant(*parts: Any, model: str = NEW) -> AssistantMessage:
    return AssistantMessage(parts, "gemini", model)


def result(call_id: str, *parts: Any, name: str = "bash") -> ToolResult:
    return ToolResult(call_id, name, parts or (TextPart("out"),))


def body_of(history: Any, model: str = NEW, **more: Any) -> dict[str, Any]:
    """The body as it is sent after ``prepare``; the strict check has nothing against it."""
    messages = [user_text(history)] if isinstance(history, str) else history
    info = more.pop("info", ModelInfo("gemini", model, supports_thinking=True))
    prepared = prepare(messages, "gemini", model)
    body = encode(request(prepared, info, **more))
    assert check_gemini(body, model) is None
    return body


def contents(history: Any, model: str = NEW, **more: Any) -> list[dict[str, Any]]:
    return list(body_of(history, model, **more)["contents"])


def call_part(name: str, call_id: str, signature: str | None = None) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": {"command": "a"}, "id": call_id}}
    return part if signature is None else {**part, "thoughtSignature": signature}


@pytest.mark.spec("HIS-1", "HIS-3", "HIS-4", "HIS-5")
def test_the_whole_shape_of_a_conversation() -> None:
    history = [
        user_text("hi"),
        assistant(
            ThinkingPart("a summary that the service does not want back"),
            TextPart("Two."),
            ThinkingPart("", redacted="call:c2ln"),
            ToolCall("c1", "bash", {"command": "a"}),
            ToolCall("c2", "read_file", {}, malformed='{"x'),
        ),
        result("c1", TextPart("one"), TextPart("more"), IMAGE),
        ToolResult("c2", "read_file", (TextPart("no"),), ResultStatus.ERROR),
        user_text("stop"),
        assistant(TextPart("OK."), ThinkingPart("", redacted="alone:ZW5k")),
        UserMessage((TextPart("see"), IMAGE)),
    ]
    body = body_of(history, tools=(BASH, READ), max_output_tokens=9)
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Two."},
                call_part("bash", "c1", "c2ln"),
                {"functionCall": {"name": "read_file", "args": {}, "id": "c2"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "name": "bash",
                        "id": "c1",
                        "response": {"output": "one\nmore"},
                        "parts": [{"inlineData": DATA}],
                    }
                },
                {
                    "functionResponse": {
                        "name": "read_file",
                        "id": "c2",
                        "response": {"error": "no"},
                    }
                },
            ],
        },
        {"role": "model", "parts": [{"text": "Understood."}]},
        {"role": "user", "parts": [{"text": "stop"}]},
        {"role": "model", "parts": [{"text": "OK."}, {"text": "", "thoughtSignature": "ZW5k"}]},
        {"role": "user", "parts": [{"text": "see"}, {"inlineData": DATA}]},
    ]
    assert [t["name"] for t in body["tools"][0]["functionDeclarations"]] == ["bash", "read_file"]
    assert body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == BASH.parameters
    assert body["generationConfig"] == {
        "maxOutputTokens": 9,
        "thinkingConfig": {"includeThoughts": True},
    }


def test_earlier_models_get_no_ids_no_stand_in_signature_and_images_after_the_results() -> None:
    history = [
        user_text("hi"),
        assistant(ToolCall("c1", "bash", {"command": "a"}), model="other"),
        result("c1", IMAGE),
        user_text("and?"),
    ]
    sent = contents(history, OLD)
    assert sent[1]["parts"] == [{"functionCall": {"name": "bash", "args": {"command": "a"}}}]
    response = {"name": "bash", "response": {"output": "The result is an image."}}
    assert sent[2]["parts"] == [{"functionResponse": response}]
    assert sent[4]["parts"] == [
        {"text": "The images of the tool results above:"},
        {"inlineData": DATA},
        {"text": "and?"},
    ]


def test_results_come_in_the_order_and_under_the_names_of_their_calls() -> None:
    calls = (ToolCall("a", "odd name!", {}), ToolCall("b", "9lives", {}), ToolCall("c", "bash", {}))
    results = (result("c"), result("b", name="x"), result("a"))
    sent = contents([user_text("go"), assistant(*calls), *results], OLD)
    named = [part["functionCall"]["name"] for part in sent[1]["parts"]]
    assert named == ["odd_name_", "_9lives", "bash"]
    assert [part["functionResponse"]["name"] for part in sent[2]["parts"]] == named


def test_neighbours_of_one_role_are_merged() -> None:
    history = [
        user_text("a"),
        UserMessage((TextPart("b"), TextPart("c"))),
        assistant(TextPart("x")),
        assistant(ToolCall("c1", "bash", {"command": "a"})),
        result("c1"),
    ]
    sent = contents(history)
    assert sent[0]["parts"] == [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    assert len(sent[1]["parts"]) == 2
    assert len(sent) == 3


def test_a_history_that_begins_or_ends_with_the_model_gets_a_user_there() -> None:
    history = [assistant(ToolCall("c1", "bash", {})), result("c1"), assistant(TextPart("x"))]
    sent = encode(request(history, ModelInfo("gemini", NEW)))["contents"]
    assert [content["role"] for content in sent] == ["user", "model", "user", "model", "user"]
    assert sent[0] == sent[-1] == {"role": "user", "parts": [{"text": "Continue."}]}


def test_images_that_would_be_refused_become_words() -> None:
    history = [
        UserMessage((TextPart("see"), GIF)),
        assistant(ToolCall("c", "bash", {})),
        result("c", GIF),
    ]
    text = json.dumps(contents(history))
    assert text.count("[image left out: image/gif]") == 2
    blind = ModelInfo("gemini", NEW, supports_images=False)
    history[0] = UserMessage((IMAGE,))
    text = json.dumps(contents(history, info=blind))
    assert "inlineData" not in text
    assert text.count("this model takes no images") == 2


@pytest.mark.spec("HIS-8")
def test_the_same_history_and_more_begins_with_the_same_contents() -> None:
    history: list[Message] = [
        user_text("hi"),
        assistant(ThinkingPart("", redacted="call:AA=="), ToolCall("c1", "bash", {})),
        result("c1"),
    ]
    before = contents(history)
    after = contents([*history, assistant(TextPart("Done.")), user_text("more")])
    assert after[: len(before)] == before


# --- signatures ----------------------------------------------------------------------------


@pytest.mark.spec("HIS-4", "HIS-7")
@pytest.mark.parametrize("model", [NEW, "gemini-3-pro-preview", "gemini-flash-latest"])
def test_the_first_call_of_another_model_gets_the_documented_stand_in(model: str) -> None:
    foreign = AssistantMessage(
        (
            ThinkingPart("hm", signature="foreign"),
            ThinkingPart("", redacted="call:Zm9yZWlnbg=="),
            ToolCall("c1", "bash", {"command": "a"}),
            ToolCall("c2", "bash", {"command": "a"}),
        ),
        "anthropic",
        "claude",
    )
    sent = contents([user_text("hi"), foreign, result("c1"), result("c2")], model)
    assert sent[1]["parts"] == [
        call_part("bash", "c1", "skip_thought_signature_validator"),
        call_part("bash", "c2"),
    ]


@pytest.mark.spec("HIS-4")
def test_a_signature_goes_to_no_other_part_than_its_own() -> None:
    message = assistant(
        ThinkingPart("", redacted="text:dGV4dA=="),
        TextPart(" "),  # dropped by prepare
        ToolCall("c1", "bash", {"command": "a"}),
        ThinkingPart("thought", signature="dGg="),
        ThinkingPart("", redacted="text:bGFzdA=="),
        TextPart("words"),
        TextPart("more"),
    )
    sent = contents([user_text("hi"), message, result("c1"), user_text("x")])
    assert sent[1]["parts"] == [
        call_part("bash", "c1", "skip_thought_signature_validator"),
        {"text": "thought", "thought": True, "thoughtSignature": "dGg="},
        {"text": "words", "thoughtSignature": "bGFzdA=="},
        {"text": "more"},
    ]


# --- tools, addresses, keys ----------------------------------------------------------------


def test_a_tool_without_parameters_is_declared_without_a_schema() -> None:
    bare = ToolDefinition("now", "Now", "The time.", {"type": "object"}, Asks.NOTHING, "time")
    odd = replace(bare, name="1st.tool")
    body = body_of("hi", tools=(bare, odd))
    assert body["tools"][0]["functionDeclarations"] == [
        {"name": "now", "description": "The time."},
        {"name": "_1st_tool", "description": "The time."},
    ]


@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("https://h", "https://h/v1beta"),
        ("https://h/", "https://h/v1beta"),
        ("https://h/v1beta", "https://h/v1beta"),
        ("https://h/v1beta/", "https://h/v1beta"),
        ("https://h/v1beta/openai/", "https://h/v1beta"),
        ("https://h/v1alpha/models", "https://h/v1alpha"),
        ("https://h/proxy", "https://h/proxy/v1beta"),
        ("https://h/v1/publishers/google", "https://h/v1/publishers/google"),
    ],
)
def test_the_base_url_may_name_the_version_or_not(base: str, expected: str) -> None:
    assert api_base(base) == expected


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (NEW, f"models/{NEW}"),
        (f"models/{NEW}", f"models/{NEW}"),
        ("tunedModels/mine", "tunedModels/mine"),
        ("odd/../x?key=1", "models/odd%2F..%2Fx%3Fkey%3D1"),
    ],
)
def test_the_model_is_a_part_of_the_path(model: str, path: str) -> None:
    expected = f"https://h/v1beta/{path}:streamGenerateContent?alt=sse"
    assert stream_url("https://h", model) == expected


@pytest.mark.spec("SEC-9")
def test_the_key_is_a_header_and_in_no_address() -> None:
    config = provider_config("gemini", {"GEMINI_API_KEY": KEY}, {})
    provider = create(config)
    assert isinstance(provider, GeminiProvider)
    assert provider.headers({}) == {"x-goog-api-key": KEY}
    endpoint = provider.endpoint(NEW)
    assert KEY not in endpoint.url
    assert KEY not in provider.url()
    assert endpoint.host == "generativelanguage.googleapis.com"
    assert endpoint.base_env == "GEMINI_BASE_URL"
    assert GeminiProvider(ProviderConfig("g", "gemini", "http://h")).headers({}) == {}


def test_the_chat_completions_way_stays_open() -> None:
    own = ProviderConfig("g", "openai", "https://generativelanguage.googleapis.com/v1beta/openai")
    assert provider_config("g", {}, {"g": own}).kind == "openai"
    chat = provider_config("gemini", {}, {"gemini": ProviderConfig("gemini", "openai")})
    google = "https://generativelanguage.googleapis.com"
    assert create(chat).endpoint(NEW).url == f"{google}/v1beta/openai/chat/completions"
    native = ProviderConfig("h", "gemini", "https://h.example")
    assert isinstance(create(provider_config("h", {}, {"h": native})), GeminiProvider)


# --- any history ---------------------------------------------------------------------------

_WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_SIGNATURE = st.sampled_from(["c2ln", "AAAA", "Zm9v+/=="])
_PLACED = st.builds(
    lambda place, s: f"{place}:{s}", st.sampled_from(["text", "alone", "call"]), _SIGNATURE
)
_PARTS = st.lists(
    st.one_of(
        st.builds(TextPart, _WORDS),
        st.builds(ThinkingPart, _WORDS),
        st.builds(ThinkingPart, _WORDS, _SIGNATURE),
        st.builds(lambda seal: ThinkingPart("", None, seal), _PLACED),
        st.just("call"),
    ),
    min_size=1,
    max_size=5,
)
_USER = st.lists(st.one_of(st.builds(TextPart, _WORDS), st.just(IMAGE)), min_size=1, max_size=2)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = [user_text("hi")]
    for turn in range(draw(st.integers(1, 4))):
        made_by = draw(st.sampled_from([("gemini", NEW), ("gemini", OLD), ("openai", "gpt")]))
        drawn = enumerate(draw(_PARTS))
        parts = [
            ToolCall(f"c{turn}-{n}", "bash", {"n": n}) if part == "call" else part
            for n, part in drawn
        ]
        message = AssistantMessage(tuple(parts), *made_by)
        messages.append(message)
        for call in message.tool_calls:
            status = draw(st.sampled_from(ResultStatus))
            parts_of_result = draw(_USER)
            messages.append(ToolResult(call.id, "bash", tuple(parts_of_result), status))
        if not message.tool_calls or draw(st.booleans()):
            messages.append(UserMessage(tuple(draw(_USER))))
    return messages


@pytest.mark.spec("HIS-1", "HIS-2", "HIS-3", "HIS-7")
@settings(max_examples=80, deadline=None)
@given(histories(), st.sampled_from([NEW, OLD, "gemini-3.1-pro-preview", "gemma-4"]))
def test_every_balanced_history_makes_a_request_that_is_accepted(
    history: list[Message], model: str
) -> None:
    prepared = prepare(history, "gemini", model)
    if prepared:
        body = encode(request(prepared, ModelInfo("gemini", model)))
        assert check_gemini(body, model) is None


def test_an_address_that_is_none_is_refused_as_such() -> None:
    with pytest.raises(Exception, match="not an http or https address"):
        provider_config("gemini", {"GEMINI_BASE_URL": "nowhere"}, {})


def test_a_missing_key_is_named() -> None:
    provider = create(provider_config("gemini", {}, {}))

    async def ask() -> None:
        from agentcli.domain.cancel import CancelToken

        async for _ in provider.stream(request(), CancelToken()):
            pass

    import asyncio

    with pytest.raises(ProviderError, match="GEMINI_API_KEY is not set") as caught:
        asyncio.run(ask())
    assert caught.value.kind is ErrorKind.AUTH
