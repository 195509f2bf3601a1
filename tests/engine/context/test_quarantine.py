"""What was refused stays out, for that model, in any later request; wrong guesses are given back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import ModelInfo, ModelRequest
from agentcli.domain.prepare import Preparer, check_request
from agentcli.engine.context.quarantine import Answer, Quarantine
from agentcli.engine.context.suspects import WHY, blocks_of
from tests.support.histories import HOME, PNG, balanced

MODEL = ModelInfo(*HOME)
OTHER = ModelInfo("openai", "gpt")
SOUND = ImagePart("image/png", PNG)
CALL = ToolCall("call_1", "look", {"path": "x"})
HISTORY: list[Message] = [
    UserMessage((TextPart("look"), SOUND)),
    AssistantMessage((ThinkingPart("hm", "sealed"), TextPart("So:"), CALL), *HOME),
    ToolResult("call_1", "look", (TextPart("odd \x1b[1m text"), SOUND)),
]


def refused(text: str) -> ProviderError:
    return ProviderError(text, kind=ErrorKind.BAD_REQUEST, status=400)


def send(quarantine: Quarantine, model: ModelInfo = MODEL) -> ModelRequest:
    prepared = Preparer().prepare(HISTORY, model, quarantine.replaced(model.id))
    check_request(prepared)
    return ModelRequest(model, "", prepared)


def tell(quarantine: Quarantine, text: str, *, again: bool = False) -> Answer:
    return quarantine.answer(refused(text), send(quarantine), None, again=again)


@pytest.mark.spec("HIS-8")
def test_each_kind_of_block_has_its_stub_and_the_rest_is_untouched() -> None:
    quarantine = Quarantine()
    assert tell(quarantine, "Could not process image").ask_again
    user, reply, result = send(quarantine).messages
    assert user.parts[0] == TextPart("look")
    assert f"2x2 px, {len(PNG)} bytes; {WHY}" in user.text
    assert reply == HISTORY[1]
    assert WHY in result.text
    assert "odd \x1b[1m text" in result.text
    assert tell(quarantine, "call_1 has bad arguments").ask_again
    assert send(quarantine).messages[1].tool_calls[0].arguments == {
        "left_out": f"the arguments; {WHY}"
    }
    assert tell(quarantine, "Invalid `signature` in `thinking` block").ask_again
    assert send(quarantine).messages[1].parts[0] == TextPart("So:")
    assert tell(quarantine, "invalid unicode in text").ask_again
    assert "odd \ufffd[1m text" in send(quarantine).messages[2].text
    assert send(quarantine, OTHER).messages[0] == HISTORY[0]


@pytest.mark.spec("HIS-8", "HIS-4")
def test_of_a_reply_all_reasoning_goes_or_none() -> None:
    thoughts = (ThinkingPart("a", "s1"), ThinkingPart("b", "s2"), TextPart("x"))
    reply = AssistantMessage(thoughts, *HOME)
    stored = {MODEL.id: {"blocks": {next(iter(blocks_of([reply]))).key: "stub"}}}
    quarantine = Quarantine()
    quarantine.restore(stored)
    replaced = quarantine.replaced(MODEL.id)
    assert replaced is not None
    changed = replaced(reply)
    assert changed is not None
    assert changed.parts == (TextPart("x"),)


@pytest.mark.spec("HIS-8")
def test_it_is_the_same_after_a_restart() -> None:
    quarantine = Quarantine()
    tell(quarantine, "Could not process image")
    tell(quarantine, "Bad request", again=True)
    later = Quarantine()
    later.restore(json.loads(json.dumps(quarantine.to_json())))
    assert later.to_json() == quarantine.to_json()
    assert send(later).messages == send(quarantine).messages


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    "stored",
    [
        7, [], "x", {"m": 7}, {"m": {"blocks": 7, "met": 7, "hopeless": {}, "because": []}},
        {HOME[0] + "/" + HOME[1]: {"blocks": {"image:x": 7, "text:y": "what"}, "flat": "yes"}},
    ],
)  # fmt: skip
def test_a_damaged_note_is_no_note(stored: Any) -> None:
    quarantine = Quarantine()
    quarantine.restore(stored)
    assert send(quarantine).messages == tuple(HISTORY)


@pytest.mark.spec("HIS-8")
def test_an_odd_text_is_made_plain_then_left_out() -> None:
    quarantine = Quarantine()
    place = "messages[2].content is bad: invalid unicode"
    assert tell(quarantine, place).ask_again
    assert "odd \ufffd" in send(quarantine).messages[2].text
    sent = send(quarantine)
    body = {"messages": [{}, {}, {"content": sent.messages[2].text.splitlines()[0]}]}
    assert quarantine.answer(refused(place), sent, lambda _: body, again=False).ask_again
    assert "odd" not in send(quarantine).messages[2].text


@pytest.mark.spec("HIS-8")
def test_a_guess_that_does_not_help_leads_on_and_is_taken_back_in_the_end() -> None:
    quarantine = Quarantine()
    text = "Bad request (req_123)"
    first = tell(quarantine, text)
    assert first.ask_again
    second = tell(quarantine, "Bad request (req_456)", again=True)
    assert not second.ask_again
    assert "next request" in second.notice
    third = tell(quarantine, text)
    assert third.ask_again
    flat = send(quarantine).messages
    assert not any(isinstance(m, ToolResult) for m in flat)
    assert all(isinstance(part, TextPart) for m in flat for part in m.parts)
    assert "[called look with {'path': 'x'}]" in flat[1].text
    assert "[what look returned]\nodd \ufffd[1m text" in flat[2].text
    tell(quarantine, text, again=True)
    last = tell(quarantine, text)
    assert (last.ask_again, last.notice) == (False, "")
    assert send(quarantine).messages == tuple(HISTORY)
    assert tell(quarantine, text) == Answer(is_news=False)


@pytest.mark.spec("HIS-8")
def test_what_another_refusal_proved_stays_when_a_wrong_guess_is_taken_back() -> None:
    quarantine = Quarantine()
    tell(quarantine, "Could not process image")
    for again in (False, True, False, True, False):
        tell(quarantine, "Bad request", again=again)
    user, reply, result = send(quarantine).messages
    assert WHY in user.text
    assert reply == HISTORY[1]
    assert "odd \x1b" in result.text


refusals = st.tuples(
    st.sampled_from(
        [
            "Bad request", "Could not process image", "invalid text", "flagged by a filter",
            "thinking is bad", "call_1", "messages.0.content.0", "no such model", "at most 1 image",
        ]
    ),
    st.booleans(),
)  # fmt: skip


@pytest.mark.spec("HIS-1", "HIS-2", "HIS-8")
@settings(max_examples=80, deadline=None)
@given(balanced(), st.lists(refusals, max_size=8))
def test_whatever_is_refused_the_request_stays_lawful(
    messages: list[Message], told: list[tuple[str, bool]]
) -> None:
    quarantine = Quarantine()
    preparer = Preparer()
    messages = [*messages, user_text("go")]
    for text, again in [*told, ("", False)]:
        prepared = preparer.prepare(messages, MODEL, quarantine.replaced(MODEL.id))
        check_request(prepared)
        request = ModelRequest(MODEL, "", prepared)
        quarantine.answer(refused(text), request, None, again=again)
        json.dumps(quarantine.to_json())
