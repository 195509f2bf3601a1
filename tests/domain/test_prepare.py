"""What is sent: any history becomes what every provider accepts, and stays the same while it grows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.clean import MAX_DEPTH, MAX_TEXT_BYTES, clean_id, cut_text, plain_text
from agentcli.domain.errors import HistoryViolation
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
from agentcli.domain.ports import ModelInfo
from agentcli.domain.prepare import Preparer, check_request, clean_text, prepare
from tests.support.histories import HOME, PNG, balanced, calls_of, makers, png, thinking_of


@pytest.mark.spec("HIS-1", "HIS-2", "HIS-6", "HIS-7", "HIS-8")
@settings(max_examples=100)
@given(balanced(), makers)
def test_what_is_prepared_is_accepted_for_any_provider_and_model(
    messages: list[Message], target: tuple[str, str]
) -> None:
    prepared = prepare(messages, *target)
    check_request(prepared)
    for message in prepared:
        for part in message.parts:
            if isinstance(part, TextPart):
                assert part.text.strip()
                assert "\0" not in part.text
                part.text.encode()
    for call in calls_of(prepared):
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call.name)
        encoded = json.dumps(call.arguments, ensure_ascii=False)
        encoded.encode()
        assert "\\u0000" not in encoded


@pytest.mark.spec("HIS-4")
@settings(max_examples=100)
@given(balanced(), makers)
def test_prepare_is_idempotent_and_keeps_every_call_with_its_result(
    messages: list[Message], target: tuple[str, str]
) -> None:
    prepared = prepare(messages, *target)
    assert prepare(prepared, *target) == prepared
    assert [c.id for c in calls_of(prepared)] == [c.id for c in calls_of(messages)]
    ids = [m.call_id for m in messages if isinstance(m, ToolResult)]
    assert [m.call_id for m in prepared if isinstance(m, ToolResult)] == ids


@pytest.mark.spec("HIS-4", "HIS-7")
@settings(max_examples=100)
@given(balanced())
def test_thinking_goes_back_unaltered_to_its_maker_and_to_nobody_else(
    messages: list[Message],
) -> None:
    prepared = prepare(messages, *HOME)
    own = [m for m in messages if isinstance(m, AssistantMessage) and (m.provider, m.model) == HOME]
    visible = [
        m for m in own
        if m.tool_calls or any(isinstance(p, TextPart) and p.text.strip() for p in m.parts)
    ]  # fmt: skip
    expected = [p for p in thinking_of(visible) if p.signature or p.redacted or p.text.strip()]
    assert thinking_of(prepared) == expected
    assert not thinking_of(prepare(messages, "nobody", "else"))


@pytest.mark.spec("HIS-4")
def test_thinking_with_only_a_signature_or_only_ciphertext_is_kept_in_order() -> None:
    parts = (
        ThinkingPart("", "s1"), ThinkingPart("hm ", "s2"), ThinkingPart("", redacted="x"),
        TextPart("so"), ToolCall("a", "look", {}),
    )  # fmt: skip
    messages = [
        user_text("x"),
        AssistantMessage(parts, *HOME),
        ToolResult("a", "look", (TextPart("r"),)),
    ]
    assert prepare(messages, *HOME)[1].parts == parts
    assert prepare(messages, "anthropic", "haiku")[1].parts == parts[3:]


@pytest.mark.spec("HIS-5")
def test_a_clean_call_comes_through_as_the_same_value() -> None:
    call = ToolCall("a", "look", {"path": "x", "deep": [{"n": 1.5}, None, True]})
    messages = [
        user_text("x"),
        AssistantMessage((call,), *HOME),
        ToolResult("a", "look", (TextPart("r"),)),
    ]
    assert calls_of(prepare(messages, *HOME))[0] is call


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize("name", ["", "read file", "x" * 300, "läs", "a.b/c", "\ud800", "look\n"])
def test_a_made_up_tool_name_does_not_poison_the_session(name: str) -> None:
    messages = [
        user_text("x"),
        AssistantMessage((ToolCall("a", name, {}),), *HOME),
        ToolResult("a", name, (TextPart("no such tool"),), ResultStatus.ERROR),
    ]
    _, asked, answered = prepare(messages, *HOME)
    assert isinstance(asked, AssistantMessage)
    assert isinstance(answered, ToolResult)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", asked.tool_calls[0].name)
    assert answered.name == asked.tool_calls[0].name
    assert answered.status is ResultStatus.ERROR


@pytest.mark.spec("HIS-2")
def test_empty_text_goes_and_a_result_of_nothing_says_so() -> None:
    image = ImagePart("image/png", PNG)
    messages = [
        UserMessage((TextPart(" \n"), image)),
        AssistantMessage((TextPart(""), ToolCall("a", "look", {})), *HOME),
        ToolResult("a", "look", (TextPart("\t"),)),
        AssistantMessage((TextPart("  "),), *HOME),
        user_text("go on"),
    ]
    prepared = prepare(messages, *HOME)
    assert prepared[0] == UserMessage((image,))
    assert prepared[2].parts == (TextPart("(no output)"),)
    assert len(prepared) == 4


@pytest.mark.spec("HIS-6")
def test_only_a_final_assistant_text_loses_its_trailing_space() -> None:
    said = AssistantMessage((TextPart("a \n"),), *HOME)
    messages = [user_text("x"), said, user_text("y "), said]
    prepared = prepare(messages, *HOME)
    assert prepared[1] == said
    assert prepared[2] == user_text("y ")
    assert prepared[3].parts == (TextPart("a"),)


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"), ("a\0b", "a\ufffdb"), ("\ud83d\ude00", "😀"), ("x\udc80y", "x\ufffdy"),
        ("\ud800", "\ufffd"), ("😀\ud83d", "😀\ufffd"),
    ],
)  # fmt: skip
def test_surrogates_are_joined_or_replaced_and_nul_is_replaced(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@pytest.mark.spec("HIS-8")
def test_arguments_are_mended_down_to_the_last_key() -> None:
    call = ToolCall("a", "look", {"k\0": ["\ud800", {"x": "fine"}]})
    messages = [
        user_text("x"),
        AssistantMessage((call,), *HOME),
        ToolResult("a", "look", (TextPart("r"),)),
    ]
    (mended,) = calls_of(prepare(messages, *HOME))
    assert mended.arguments == {"k\ufffd": ["\ufffd", {"x": "fine"}]}
    assert call.arguments == {"k\0": ["\ud800", {"x": "fine"}]}


@pytest.mark.spec("HIS-1", "HIS-2")
@pytest.mark.parametrize(
    "messages",
    [
        [],
        [UserMessage(())],
        [user_text(" ")],
        [user_text("x"), AssistantMessage((ToolCall("a", "look", {}),))],
        [user_text("x"), ToolResult("a", "look", (TextPart("r"),))],
    ],
)
def test_the_check_refuses_what_a_provider_would_refuse(messages: list[Message]) -> None:
    with pytest.raises(HistoryViolation):
        check_request(messages)
