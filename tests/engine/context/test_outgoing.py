"""What is sent: any history becomes what every provider accepts, stays the same while it grows.

Images are repaired once, the quarantine is kept, transforms report true sizes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.clean import MAX_TEXT_BYTES, clean_id
from agentcli.domain.errors import ErrorKind, HistoryViolation, PersistenceError, ProviderError
from agentcli.domain.events import ContextTransformed
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
from agentcli.domain.ports import ModelInfo, ModelRequest, StepFacts
from agentcli.engine.context.outgoing import (
    STATE_KEY,
    Outgoing,
    Preparer,
    TransformChain,
    check_request,
    clean_text,
    prepare,
)
from tests.support.histories import HOME, PNG, balanced, calls_of, makers, png, thinking_of
from tests.support.turns import MemoryStore, PlayedProvider

pytestmark = pytest.mark.sampled

MODEL = ModelInfo(*HOME)
SOUND = ImagePart("image/png", PNG)
WIDES = [ImagePart("image/png", png(3_000 + number, 2)) for number in range(3)]
REFUSED = ProviderError("Could not process image", kind=ErrorKind.BAD_REQUEST, status=400)


class Repairer:
    """Makes one sound image of every image; counts how many are decoded at the same time."""

    def __init__(self) -> None:
        self.seen: list[ImagePart] = []
        self.at_work = 0

    async def __call__(self, image: ImagePart) -> ImagePart | str:
        self.at_work += 1
        assert self.at_work == 1
        self.seen.append(image)
        await asyncio.sleep(0)
        self.at_work -= 1
        return "" if image is WIDES[2] else SOUND


@pytest.mark.spec("HIS-8")
def test_each_image_is_decoded_once_one_after_another() -> None:
    async def main() -> None:
        repairer = Repairer()
        outgoing = Outgoing(MemoryStore(), repairer)
        messages = [UserMessage((TextPart("see"), *WIDES, WIDES[0])), user_text("more")]
        for model in (MODEL, MODEL, ModelInfo("openai", "gpt-4.1")):
            first, _ = await outgoing.messages(messages, model)
            assert first.parts[1:3] == (SOUND, SOUND)
            assert "3,002x2 px" in first.text
            assert first.parts[4] == SOUND
        assert repairer.seen == WIDES

    asyncio.run(main())


@pytest.mark.spec("HIS-8")
def test_without_a_decoder_such_images_are_texts() -> None:
    async def main() -> None:
        (message,) = await Outgoing(MemoryStore()).messages([UserMessage((WIDES[0], SOUND))], MODEL)
        assert "longer than" in message.text
        assert message.parts[1] == SOUND

    asyncio.run(main())


@pytest.mark.spec("HIS-8")
def test_the_person_is_told_once_of_an_image_that_cannot_be_sent() -> None:
    async def main() -> None:
        outgoing = Outgoing(MemoryStore(), Repairer())
        bad = ImagePart("image/png", b"")
        messages = [UserMessage((TextPart("see"), bad, SOUND, WIDES[0]))]
        await outgoing.messages(messages, MODEL)
        assert outgoing.news == ["image left out: image/png, 0 bytes; it is empty"]
        await outgoing.messages(messages, MODEL)
        assert not outgoing.news
        later = Outgoing(MemoryStore())
        answered = [*messages, AssistantMessage((TextPart("I see."),), *HOME), user_text("more")]
        await later.messages(answered, MODEL)
        assert not later.news

    asyncio.run(main())


def request(outgoing_messages: Any) -> ModelRequest:
    return ModelRequest(MODEL, "", outgoing_messages)


@pytest.mark.spec("HIS-8")
def test_what_was_refused_is_remembered_in_the_session() -> None:
    async def main() -> None:
        store, messages = MemoryStore(), [UserMessage((TextPart("see"), SOUND))]
        outgoing, provider = Outgoing(store), PlayedProvider()
        sent = await outgoing.messages(messages, MODEL)
        assert not store.state
        answer = await outgoing.refused(REFUSED, request(sent), provider, again=False)
        assert answer.ask_again
        assert STATE_KEY in store.state
        for known in (outgoing, Outgoing(store)):
            (message,) = await known.messages(messages, MODEL)
            assert "refused" in message.text
        again = await outgoing.refused(REFUSED, request(sent), provider, again=True)
        assert not again.ask_again

    asyncio.run(main())


class FullDisk(MemoryStore):
    async def get(self, key: str) -> Any:
        raise PersistenceError("cannot read")

    async def set(self, key: str, value: Any) -> None:
        raise PersistenceError("disk is full")


@pytest.mark.spec("HIS-8", "FAIL-2")
def test_a_store_that_fails_does_not_keep_it_from_helping() -> None:
    async def main() -> None:
        outgoing, messages = Outgoing(FullDisk()), [UserMessage((TextPart("see"), SOUND))]
        sent = await outgoing.messages(messages, MODEL)
        answer = await outgoing.refused(REFUSED, request(sent), PlayedProvider(), again=False)
        assert answer.ask_again
        (message,) = await outgoing.messages(messages, MODEL)
        assert "refused" in message.text

    asyncio.run(main())


def test_a_history_that_no_provider_takes_is_our_bug() -> None:
    async def main() -> None:
        messages = [user_text("x"), AssistantMessage((ToolCall("a", "look", {}),), *HOME)]
        with pytest.raises(HistoryViolation):
            await Outgoing(MemoryStore()).messages(messages, MODEL)

    asyncio.run(main())


@dataclass
class Edit:
    """Cuts a part out and puts other texts in its place."""

    name: str
    start: int
    end: int
    texts: list[str] = field(default_factory=list)

    def apply(self, messages: Sequence[Message], facts: StepFacts) -> Sequence[Message]:
        if self.start >= self.end and not self.texts:
            return messages
        new = [user_text(text) for text in self.texts]
        return [*messages[: self.start], *new, *messages[max(self.start, self.end) :]]


def facts_of(messages: Sequence[Message]) -> StepFacts:
    return StepFacts(1, frozenset(), messages=tuple(messages))


def size(messages: Sequence[Message]) -> int:
    return sum(len(message.text) for message in messages)


texts = st.lists(st.text(max_size=4), max_size=4)
edits = st.lists(st.builds(Edit, st.just("e"), st.integers(0, 6), st.integers(0, 6), texts), max_size=3)  # fmt: skip


@pytest.mark.spec("CTRL-8")
@settings(max_examples=80)
@given(st.lists(st.tuples(texts, st.booleans(), edits), min_size=1, max_size=5))
def test_what_is_reported_is_what_was_there_and_what_is_sent(
    steps: list[tuple[list[str], bool, list[Edit]]],
) -> None:
    chain = TransformChain()
    history: list[Message] = []
    for appended, is_folded, transforms in steps:
        if is_folded:
            del history[: len(history) // 2]
        history += [user_text(text) for text in appended]
        before = tuple(history)
        told: list[ContextTransformed] = []
        sent = chain.apply(transforms, facts_of(history), told.append)
        assert tuple(history) == before
        at, now = 0, list(before)
        for transform in transforms:
            after = transform.apply(now, facts_of(history))
            if after is now:
                continue
            event, at = told[at], at + 1
            assert (event.messages_before, event.messages_after) == (len(now), len(after))
            assert (event.characters_before, event.characters_after) == (size(now), size(after))
            now = list(after)
        assert at == len(told) and [m.text for m in sent] == [m.text for m in now]


@pytest.mark.spec("CTRL-8")
def test_without_a_change_nothing_is_copied_and_nothing_reported() -> None:
    facts = facts_of([user_text("a")])
    told: list[ContextTransformed] = []
    chain = TransformChain()
    assert chain.apply((), facts, told.append) is facts.messages
    assert chain.apply([Edit("none", 0, 0)], facts, told.append) is facts.messages
    assert told == []


@pytest.mark.spec("HIS-1", "HIS-2", "HIS-6", "HIS-7", "HIS-8")
@settings(max_examples=50)
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
        assert "\\u0000" not in encoded.replace("\\\\", "")  # which may name it


@pytest.mark.spec("HIS-4")
@settings(max_examples=50)
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
@settings(max_examples=50)
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
    (repaired,) = calls_of(prepare(messages, *HOME))
    assert repaired.arguments == {"k\ufffd": ["\ufffd", {"x": "fine"}]}
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


# --- images ----------------------------------------------------------------------------------


SEES = ModelInfo("anthropic", "opus", 200_000)
BLIND = ModelInfo("openai", "o3-mini", 200_000, supports_images=False)
WIDE = ImagePart("image/png", png(3_000, 2))


def results(*parts: TextPart | ImagePart, number: int = 0) -> list[Message]:
    return [
        AssistantMessage((ToolCall(f"c{number}", "look", {}),), *HOME),
        ToolResult(f"c{number}", "look", parts),
    ]


@pytest.mark.spec("HIS-8")
def test_a_model_without_sight_is_told_type_and_size_of_each_image() -> None:
    messages = [UserMessage((TextPart("see"), SOUND)), *results(WIDE)]
    prepared = Preparer().prepare(messages, BLIND)
    assert f"image/png, 2x2 px, {len(PNG)} bytes" in prepared[0].text
    assert "3,000x2 px" in prepared[2].text
    assert not any(isinstance(part, ImagePart) for m in prepared for part in m.parts)
    assert Preparer().prepare(messages[:1], SEES)[0] == messages[0]


@pytest.mark.spec("HIS-8")
def test_what_a_decoder_should_see_is_asked_for_once_and_what_it_made_is_sent_from_then_on() -> (
    None
):
    preparer = Preparer()
    messages = [UserMessage((TextPart("see"), WIDE)), *results(WIDE)]
    before = preparer.prepare(messages, SEES)
    assert "longer than 2,000 px" in before[0].text
    assert preparer.wanted == [WIDE]
    preparer.repair({WIDE: SOUND})
    assert not preparer.wanted
    after = preparer.prepare([*messages, user_text("more")], SEES)
    assert after[0].parts[1] == after[2].parts[0] == SOUND
    assert not preparer.wanted
    assert messages[0].parts[1] is WIDE


@pytest.mark.spec("HIS-8")
def test_what_cannot_be_mended_stays_a_text_and_is_not_asked_for_again() -> None:
    preparer = Preparer()
    messages = [UserMessage((WIDE,))]
    preparer.prepare(messages, SEES)
    preparer.repair({WIDE: "install it"})
    assert preparer.prepare(messages, SEES)[0].text.endswith("2,000 px; install it]")
    assert not preparer.wanted


@pytest.mark.spec("HIS-8")
def test_too_many_images_lose_the_oldest_and_the_beginning_stays_the_same_for_many_steps() -> None:
    images = [ImagePart("image/png", png(2 + number, 1)) for number in range(260)]
    changes, last = 0, ()
    for count in range(1, 261):
        messages: list[Message] = [user_text("look")]
        for number, image in enumerate(images[:count]):
            messages += results(image, number=number)
        prepared = prepare(messages, *HOME)
        sent = [part for m in prepared for part in m.parts if isinstance(part, ImagePart)]
        assert min(count, 50) <= len(sent) <= 100
        assert sent == images[:count][-len(sent) :]
        changes += prepared[: len(last)] != last
        last = prepared
    assert changes <= 260 // 50


@pytest.mark.spec("HIS-8")
def test_a_prompt_of_150_images_keeps_its_newest() -> None:
    images = tuple(ImagePart("image/png", png(2 + number, 1)) for number in range(150))
    (prepared,) = prepare([UserMessage(images)], *HOME)
    sent = [part for part in prepared.parts if isinstance(part, ImagePart)]
    assert 50 <= len(sent) <= 100
    assert tuple(sent) == images[-len(sent) :]
    assert len(prepared.parts) == 150


@pytest.mark.spec("HIS-8")
def test_the_bytes_of_all_images_together_are_bounded() -> None:
    heavy = png(1_000, 3_000, noise=True)[:-12]
    messages: list[Message] = [user_text("look")]
    for number in range(8):
        chunk = b"\0\0\0\x01teXt" + bytes([number])
        from zlib import crc32

        data = heavy + chunk + crc32(chunk[4:]).to_bytes(4) + png()[-12:]
        messages += results(ImagePart("image/png", data), number=number)
    preparer = Preparer()
    preparer.prepare(messages, SEES)
    preparer.repair({image: image for image in preparer.wanted})
    prepared = preparer.prepare(messages, SEES)
    sent = [len(part.data) for m in prepared for part in m.parts if isinstance(part, ImagePart)]
    assert sent
    assert sum(sent) * 4 / 3 <= 12_000_000


# --- size ------------------------------------------------------------------------------------


@pytest.mark.spec("HIS-8")
def test_a_result_of_six_megabytes_leaves_most_of_the_window_free_and_says_what_is_cut() -> None:
    text = "head\n" + "x" * 6_000_000 + "\ntail"
    messages = [user_text("go"), *results(TextPart(text), TextPart("short"))]
    for model in (
        SEES,
        replace(SEES, context_tokens=1_000_000),
        replace(SEES, context_tokens=8_000),
    ):
        result = Preparer().prepare(messages, model)[2]
        assert len(result.text) <= max(model.context_tokens, 30_000)
        assert result.text.startswith("head")
        assert "tail\nshort" in result.text
        assert "characters are left out here" in result.text
    assert messages[2].text.startswith(text)


@pytest.mark.spec("HIS-8")
def test_long_text_of_a_person_and_of_a_model_is_bounded_too() -> None:
    messages = [user_text("x" * 3_000_000), AssistantMessage((TextPart("y" * 3_000_000),), *HOME)]
    prepared = prepare(messages, *HOME)
    assert all(len(message.text) <= MAX_TEXT_BYTES for message in prepared)
    assert Preparer().prepare([user_text("x" * 300_000)], SEES)[0].text == "x" * 300_000


@pytest.mark.spec("HIS-8")
def test_a_session_full_of_huge_results_stays_below_what_a_request_may_hold() -> None:
    messages: list[Message] = [user_text("go")]
    for number in range(60):
        messages += results(TextPart(f"{number} " + "x" * 400_000), number=number)
    prepared = prepare(messages, *HOME)
    check_request(prepared)
    assert sum(len(message.text) for message in prepared) < 7_000_000
    assert prepared[-1].text == messages[-1].text
    assert "left out" in prepared[2].text


@pytest.mark.spec("HIS-1", "HIS-8")
@pytest.mark.parametrize("count", [128, 129, 3_000])
def test_thousands_of_parallel_calls_come_in_groups_that_every_provider_takes(count: int) -> None:
    calls = tuple(ToolCall(f"c{number}", "look", {}) for number in range(count))
    answers = [ToolResult(call.id, "look", (TextPart(call.id),)) for call in calls]
    asked = AssistantMessage((TextPart("All."), *calls), *HOME)
    messages = [user_text("go"), asked, *answers, user_text("more")]
    prepared = prepare(messages, *HOME)
    check_request(prepared)
    groups = [len(m.tool_calls) for m in prepared if isinstance(m, AssistantMessage)]
    assert sum(groups) == count
    assert max(groups) <= 128
    assert calls_of(prepared) == list(calls)
    assert [m for m in prepared if isinstance(m, ToolResult)] == answers
    assert prepare(prepared, *HOME) == prepared


@pytest.mark.spec("HIS-4")
def test_calls_that_came_with_sealed_thinking_stay_together() -> None:
    calls = tuple(ToolCall(f"c{number}", "look", {}) for number in range(200))
    asked = AssistantMessage((ThinkingPart("hm", "sealed"), *calls), *HOME)
    answers = [ToolResult(call.id, "look", (TextPart("x"),)) for call in calls]
    prepared = prepare([user_text("go"), asked, *answers], *HOME)
    assert prepared[1] == asked
    assert len(prepare([user_text("go"), asked, *answers], "openai", "x")[1].parts) == 128


# --- names, ids, order -----------------------------------------------------------------------


@pytest.mark.spec("HIS-1")
def test_an_odd_id_is_the_same_for_the_call_and_its_result() -> None:
    odd = "functions.bash:0|" + "x" * 80
    messages = [
        user_text("x"),
        AssistantMessage((ToolCall(odd, "look", {}),), *HOME),
        ToolResult(odd, "look", (TextPart("r"),)),
    ]
    _, asked, answered = prepare(messages, *HOME)
    assert isinstance(asked, AssistantMessage)
    assert isinstance(answered, ToolResult)
    assert asked.tool_calls[0].id == answered.call_id == clean_id(odd)


@pytest.mark.spec("HIS-2", "HIS-3")
def test_an_empty_message_of_a_person_keeps_its_place_between_two_replies() -> None:
    reply = AssistantMessage((ThinkingPart("hm", "sealed"), TextPart("yes")), *HOME)
    prepared = prepare([user_text("a"), reply, user_text(" "), reply, user_text("b")], *HOME)
    assert [type(message) for message in prepared] == [
        UserMessage, AssistantMessage, UserMessage, AssistantMessage, UserMessage,
    ]  # fmt: skip
    assert prepared[2].text == "(empty message)"


@pytest.mark.spec("HIS-3")
def test_a_history_whose_beginning_is_gone_still_begins_with_the_user() -> None:
    prepared = prepare([AssistantMessage((TextPart("a"),), *HOME), user_text("b")], *HOME)
    assert isinstance(prepared[0], UserMessage)
    assert len(prepared) == 3


def test_a_summary_stays_one() -> None:
    summary = UserMessage((TextPart("so far \0"),), is_summary=True)
    assert prepare([summary], *HOME)[0] == UserMessage(
        (TextPart("so far \ufffd"),), is_summary=True
    )


# --- remembered ------------------------------------------------------------------------------


class Counted(Preparer):
    """Counts the messages that it really prepares."""

    count = 0

    def _one(self, source: Message, model: ModelInfo) -> Any:
        type(self).count += 1
        return super()._one(source, model)


def test_a_message_of_a_long_history_is_prepared_once_and_stays_the_same_object() -> None:
    Counted.count = 0
    preparer = Counted()
    messages: list[Message] = [user_text("go")]
    for number in range(5_000):
        messages += results(TextPart("x"), number=number)
    first = preparer.prepare(messages, SEES)
    assert Counted.count == len(messages)
    messages += [user_text("more")]
    second = preparer.prepare(messages, SEES)
    assert Counted.count == len(messages)
    assert all(one is other for one, other in zip(first, second[:-1], strict=True))
    preparer.prepare(messages[-3:], SEES)
    assert len(preparer._entries) == 3
    preparer.prepare(messages, BLIND)
    assert preparer.prepare(messages, SEES) == second


@pytest.mark.spec("HIS-4", "HIS-8")
@settings(max_examples=60)
@given(balanced(), st.lists(makers, min_size=1, max_size=4), st.data())
def test_remembering_changes_nothing(
    messages: list[Message], targets: list[tuple[str, str]], data: st.DataObject
) -> None:
    preparer = Preparer()
    for target in targets:
        part: Sequence[Message] = messages[data.draw(st.integers(0, len(messages) - 1)) :]
        model = ModelInfo(*target, context_tokens=MAX_TEXT_BYTES)
        assert preparer.prepare(part, model) == prepare(part, *target)


def test_what_is_quarantined_is_asked_of_prepared_messages() -> None:
    def replaced(message: Message) -> Message | None:
        return user_text("instead") if isinstance(message, UserMessage) else None

    messages = [user_text("a\0"), AssistantMessage((TextPart("x"),), *HOME), user_text("b")]
    prepared = Preparer().prepare(messages, SEES, replaced)
    assert prepared == (user_text("instead"), user_text("instead"))
