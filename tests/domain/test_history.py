"""The law about calls and results: every append, every repair, every request."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import CannotContinue, HistoryViolation
from agentcli.domain.history import (
    CANCELLED_TEXT,
    CRASHED_TEXT,
    History,
    RepairReason,
    RunDetail,
    repair_results,
)
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
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.prepare import check_request, clean_text, prepare

HOME = ("anthropic", "opus")

texts = st.text(
    st.one_of(st.characters(), st.sampled_from("\0 \n\t\ud83d\ude00\ud800")), max_size=8
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
thinking = st.builds(
    ThinkingPart, texts, st.none() | st.just("signature"), st.none() | st.just("redacted")
)
makers = st.sampled_from([HOME, ("anthropic", "haiku"), ("openai", "opus")])


@st.composite
def balanced(draw: st.DrawFn) -> list[Message]:
    """A history as a session could hold it: it begins and ends with what asks for a reply."""
    messages: list[Message] = [UserMessage((TextPart("start"),))]
    number = 0
    for _ in range(draw(st.integers(0, 5))):
        provider, model = draw(makers)
        parts: list[TextPart | ThinkingPart | ToolCall] = list(
            draw(st.lists(st.builds(TextPart, texts) | thinking, max_size=4))
        )
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            arguments = draw(st.dictionaries(texts, json_values, max_size=2))
            calls.append(ToolCall(f"c{number}", draw(st.just("look") | texts), arguments))
            number += 1
        messages.append(AssistantMessage((*parts, *calls), provider, model))
        for call in draw(st.permutations(calls)):
            result = st.builds(TextPart, texts)
            found = draw(st.lists(result, min_size=1, max_size=2))
            messages.append(ToolResult(call.id, call.name, tuple(found)))
        if not calls or draw(st.booleans()):
            messages.append(UserMessage((TextPart(draw(texts)), TextPart("more"))))
    return messages


def calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    return [call for m in messages if isinstance(m, AssistantMessage) for call in m.tool_calls]


def thinking_of(messages: Sequence[Message]) -> list[ThinkingPart]:
    return [
        part
        for m in messages
        if isinstance(m, AssistantMessage)
        for part in m.parts
        if isinstance(part, ThinkingPart)
    ]


def is_balanced(messages: Sequence[Message]) -> bool:
    """The law, said once more and in another way than the code says it."""
    seen: set[str] = set()
    open_ids: list[str] = []
    for message in messages:
        if isinstance(message, ToolResult):
            if message.call_id not in open_ids:
                return False
            open_ids.remove(message.call_id)
            continue
        if open_ids:
            return False
        if isinstance(message, AssistantMessage):
            ids = [call.id for call in message.tool_calls]
            if "" in ids or max(Counter(ids).values(), default=0) > 1 or seen & set(ids):
                return False
            seen |= set(ids)
            open_ids = ids
    return True


any_message = st.one_of(
    st.just(user_text("hi")),
    st.builds(
        lambda ids: AssistantMessage(tuple(ToolCall(i, "look", {}) for i in ids)),
        st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=2),
    ),
    st.builds(lambda i: ToolResult(i, "look", (TextPart("x"),)), st.sampled_from("abc")),
)


@pytest.mark.spec("HIS-1")
@settings(max_examples=200)
@given(st.lists(any_message, max_size=8))
def test_an_append_is_accepted_exactly_when_the_law_allows_it(messages: list[Message]) -> None:
    history = History()
    for message in messages:
        wanted = [*history.messages, message]
        if is_balanced(wanted):
            history.append(message)
            assert list(history.messages) == wanted
        else:
            before = history.messages
            with pytest.raises(HistoryViolation):
                history.append(message)
            assert history.messages == before
    answered = {m.call_id for m in history.messages if isinstance(m, ToolResult)}
    assert [c.id for c in history.pending] == [
        c.id for c in calls_of(history.messages) if c.id not in answered
    ]
    assert history.call_ids == {c.id for c in calls_of(history.messages)}
    assert len(history) == len(history.messages)


@pytest.mark.spec("HIS-1", "REC-1", "CAN-1")
@settings(max_examples=60)
@given(balanced(), st.data(), st.sampled_from(list(RepairReason)))
def test_repair_balances_any_cut_of_any_history(
    messages: list[Message], data: st.DataObject, reason: RepairReason
) -> None:
    cut = messages[: data.draw(st.integers(1, len(messages)))]
    history = History(cut)
    pending = history.pending
    truth = ToolResult("", "", (TextPart("parked"),))
    runs = {}
    for call in pending:
        kind = data.draw(st.sampled_from(["none", "pending", "running", "parked"]))
        if kind != "none":
            result = replace(truth, call_id=call.id, name=call.name) if kind == "parked" else None
            status = RunStatus.FINISHED if kind == "parked" else RunStatus(kind)
            runs[call.id] = ToolRun(call.id, call.name, status, result=result)
    results = repair_results(pending, runs, reason)
    assert [result.call_id for result in results] == [call.id for call in pending]
    for result in results:
        history.append(result)
        run = runs.get(result.call_id)
        if run is not None and run.result is not None:
            assert result.text == "parked"
            continue
        assert result.is_error
        first, second = result.parts
        cancelled = reason is RepairReason.CANCELLED
        assert first == TextPart(CANCELLED_TEXT if cancelled else CRASHED_TEXT)
        assert isinstance(second, TextPart)
        assert ("had not started" in second.text) is (
            run is not None and run.status is RunStatus.PENDING
        )
    assert not history.pending


@pytest.mark.spec("CAN-1", "REC-1")
def test_the_texts_of_a_repair_are_exactly_those_of_the_contract() -> None:
    assert CANCELLED_TEXT == "Cancelled by user"
    assert CRASHED_TEXT == "Tool execution was interrupted by a crash. Please retry."


@pytest.mark.spec("CAN-1")
def test_the_second_block_says_how_long_it_ran_and_what_it_had_printed() -> None:
    call = ToolCall("a", "bash", {})
    runs = {"a": ToolRun("a", "bash", RunStatus.RUNNING)}
    details = {"a": RunDetail(3.21, "building…")}
    (result,) = repair_results([call], runs, RepairReason.CANCELLED, details)
    assert result.status is ResultStatus.CANCELLED
    assert "3.2 s" in result.text
    assert "side effects are possible" in result.text
    assert "building…" in result.text


@pytest.mark.spec("CAN-1")
def test_a_cancel_between_intent_and_run_says_that_nothing_was_done() -> None:
    call = ToolCall("a", "bash", {})
    runs = {"a": ToolRun("a", "bash", RunStatus.RUNNING)}
    details = {"a": RunDetail(0.0, started=False)}
    (result,) = repair_results([call], runs, RepairReason.CANCELLED, details)
    assert "had not started" in result.text


@pytest.mark.spec("REC-1")
def test_a_call_without_a_row_is_never_said_not_to_have_run() -> None:
    (result,) = repair_results([ToolCall("a", "bash", {})], {}, RepairReason.CRASHED)
    assert "outcome is unknown" in result.text
    assert result.status is ResultStatus.INTERRUPTED


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
    image = ImagePart("image/png", b"x")
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


@pytest.mark.spec("REC-5")
def test_going_on_needs_a_last_message_that_is_not_the_assistants() -> None:
    with pytest.raises(CannotContinue, match="empty"):
        History().require_continuable()
    with pytest.raises(CannotContinue, match="assistant"):
        History([user_text("x"), AssistantMessage((TextPart("y"),))]).require_continuable()
    History([user_text("x")]).require_continuable()
