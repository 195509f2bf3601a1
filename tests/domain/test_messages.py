"""Values of a conversation."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.domain.messages import (
    ABOUT_RUNS,
    ADDED_BY_HOOK,
    AssistantMessage,
    ImagePart,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    user_text,
)

counts = st.none() | st.integers(0, 10**9)
usages = st.builds(Usage, counts, counts, counts, counts, counts)


@pytest.mark.spec("LOOP-6")
@given(usages, usages)
def test_usage_adds_field_by_field_and_unknown_is_not_zero(left: Usage, right: Usage) -> None:
    total = left + right
    for name in Usage.__dataclass_fields__:
        a, b = getattr(left, name), getattr(right, name)
        expected = None if a is None and b is None else (a or 0) + (b or 0)
        assert getattr(total, name) == expected


@pytest.mark.spec("LOOP-6")
def test_nothing_reported_is_told_apart_from_zero() -> None:
    assert not Usage().is_known
    assert Usage(0).is_known
    assert not (Usage() + Usage()).is_known


def test_an_assistants_text_and_calls_are_its_parts_in_order() -> None:
    call = ToolCall("a", "look", {})
    message = AssistantMessage((ThinkingPart("hm"), TextPart("a"), call, TextPart("b")))
    assert message.text == "ab"
    assert message.tool_calls == (call,)


def test_a_users_text_leaves_images_out() -> None:
    message = UserMessage((TextPart("a"), ImagePart("image/png", b""), TextPart("b")))
    assert message.text == "a\nb"
    assert user_text("x").text == "x"


@pytest.mark.parametrize("status", list(ResultStatus))
def test_every_status_but_ok_is_an_error_to_the_model(status: ResultStatus) -> None:
    result = ToolResult("a", "look", (TextPart("x"), TextPart("y")), status)
    assert result.is_error is (status is not ResultStatus.OK)
    assert result.text == "x\ny"


def test_a_result_of_nothing_cannot_be_built_and_values_do_not_change() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        ToolResult("a", "look", ())
    with pytest.raises(FrozenInstanceError):
        user_text("x").parts = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("texts", "typed"),
    [
        (("go", f"{ADDED_BY_HOOK}more)"), "go"),
        (("go", f"{ADDED_BY_HOOK}more)", "and on"), "go\nand on"),
        ((f"{ADDED_BY_HOOK}quoted)",), f"{ADDED_BY_HOOK}quoted)"),
        ((f"{ABOUT_RUNS}>", "go", f"{ADDED_BY_HOOK}more)"), "go"),
        ((f"{ABOUT_RUNS}>", f"{ADDED_BY_HOOK}more)"), f"{ABOUT_RUNS}>"),
    ],
)
def test_what_a_hook_added_was_not_typed(texts: tuple[str, ...], typed: str) -> None:
    message = UserMessage(tuple(map(TextPart, texts)))
    assert message.typed == typed and message.text == "\n".join(texts)
