"""Any history with poison in any place becomes a request that every strict service accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from agentcli.domain.ports import Effort, ModelInfo, ModelRequest, ProviderConfig
from agentcli.engine.context.outgoing import Preparer, check_request
from agentcli.providers._base import to_json
from agentcli.providers._registry import create
from agentcli.tools.files.images import reencoded
from tests.providers.streams import BASH, READ
from tests.support.histories import PNG, json_values, texts
from tests.support.poisons import IMAGES, TEXTS, refused_images
from tests.support.strict import (
    check_anthropic,
    check_gemini,
    check_openai,
    check_responses,
    parse_body,
)

pytestmark = pytest.mark.sampled

# kind, provider, model
TARGETS = [
    ("anthropic", "anthropic", "claude-sonnet-4-5"),
    ("anthropic", "anthropic", "claude-opus-5-5"),
    ("openai", "openai", "gpt-4.1"),
    ("openai", "mistral", "mistral-medium-latest"),
    ("openai", "deepseek", "deepseek-v4-pro"),
    ("openai-responses", "openai-responses", "gpt-6-sol"),
    ("gemini", "gemini", "gemini-3.6-flash"),
    ("gemini", "gemini", "gemini-2.5-flash"),
]
PIXEL = ImagePart("image/png", PNG)

words = texts | st.sampled_from([*TEXTS.values(), "usual words", "x" * 9_000])
images = st.deferred(
    lambda: st.sampled_from([i for i in (PIXEL, *IMAGES.values()) if len(i.data) < 20_000])
)
shown = st.builds(TextPart, words) | images
signed = st.none() | st.just("c2lnbmVk")
thinking = st.builds(ThinkingPart, words, signed, signed)
odd_ids = st.sampled_from(
    ["a b", "functions.x:0", "fc_1|call_9", "\ud800", "y" * 64, "z" * 65, "é"]
)
odd_names = st.sampled_from(["bash", "", "no such tool", "läs", "9lives", "n" * 200, "a.b/c", "\0"])
arguments = st.dictionaries(words, json_values | st.just(float("nan")) | st.just(2**80), max_size=3)
makers = st.sampled_from([(provider, model) for _, provider, model in TARGETS])


@st.composite
def poisoned(draw: st.DrawFn) -> list[Message]:
    """Balanced, as the store guarantees, and otherwise as bad as can be."""
    messages: list[Message] = []
    number = 0
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            parts = tuple(draw(st.lists(shown, min_size=1, max_size=3)))
            messages.append(UserMessage(parts, is_summary=draw(st.booleans())))
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            call_id = f"{draw(odd_ids | st.just('call_'))}{number}"
            malformed = draw(st.none() | words)
            calls.append(ToolCall(call_id, draw(odd_names), draw(arguments), malformed))
        spoken = draw(st.lists(st.builds(TextPart, words) | thinking, max_size=3))
        messages.append(AssistantMessage((*spoken, *calls), *draw(makers)))
        for call in calls:
            found = tuple(draw(st.lists(shown, min_size=1, max_size=3)))
            status = draw(st.sampled_from(ResultStatus))
            messages.append(ToolResult(call.id, call.name, found, status))
    return [*messages, UserMessage(tuple(draw(st.lists(shown, max_size=2))))]


def complaint(kind: str, model: str, body: dict[str, Any]) -> str | None:
    if kind == "anthropic":
        return check_anthropic(body)
    if kind == "gemini":
        return check_gemini(body, model)
    if kind == "openai-responses":
        return check_responses(body)
    body.pop("thinking", None)  # of compatible servers; the history is judged here
    return check_openai(body, allow_reasoning=True)


_MENDED: dict[ImagePart, ImagePart | str] = {}


def prepared(messages: list[Message], model: ModelInfo) -> tuple[Message, ...]:
    preparer = Preparer()
    preparer.prepare(messages, model)
    for image in tuple(preparer.wanted):
        if image not in _MENDED:
            _MENDED[image] = reencoded(image) or ""
        preparer.repair({image: _MENDED[image]})
    result = preparer.prepare(messages, model)
    check_request(result)
    return result


@pytest.mark.spec("HIS-1", "HIS-2", "HIS-3", "HIS-5", "HIS-6", "HIS-7", "HIS-8")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[2])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages=poisoned(), effort=st.none() | st.sampled_from(Effort), sees=st.booleans())
def test_any_poisoned_history_is_accepted(
    target: tuple[str, str, str], messages: list[Message], effort: Effort | None, sees: bool
) -> None:
    kind, provider, name = target
    model = ModelInfo(provider, name, supports_images=sees, supports_thinking=True)
    config = ProviderConfig(provider, kind, "http://127.0.0.1:9", api_key="k")
    request = ModelRequest(
        model, "Be terse.", prepared(messages, model), (BASH, READ), None, effort
    )
    sent = create(config).encode(request)  # type: ignore[attr-defined]
    body, broken = parse_body(to_json(sent))
    assert broken is None
    assert complaint(kind, name, body) is None
    assert not refused_images(body)


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[2])
def test_three_thousand_parallel_calls_are_accepted(target: tuple[str, str, str]) -> None:
    kind, provider, name = target
    calls = tuple(ToolCall(f"call_{number}", "bash", {}) for number in range(3_000))
    results = [ToolResult(call.id, "bash", (TextPart("x"),)) for call in calls]
    messages = [user_text("go"), AssistantMessage(calls, "elsewhere", "x"), *results]
    model = ModelInfo(provider, name)
    config = ProviderConfig(provider, kind, "http://127.0.0.1:9", api_key="k")
    request = ModelRequest(model, "", prepared(messages, model), (BASH, READ))
    body = create(config).encode(request)  # type: ignore[attr-defined]
    assert complaint(kind, name, body) is None
    for message in body.get("messages", ()):
        assert len(message.get("tool_calls") or ()) <= 128
