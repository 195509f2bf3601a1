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
from agentcli.domain.ports import ModelInfo, ModelRequest, ProviderConfig
from agentcli.engine.context.outgoing import Preparer, check_request, prepare
from agentcli.engine.context.quarantine import (
    WHY,
    Block,
    BlockKind,
    How,
    Quarantine,
    Remedy,
    Topic,
    all_suspects,
    blocks_of,
    how_to,
    suspects,
    topic_of,
)
from agentcli.providers._registry import create
from tests.support.histories import HOME, PNG, balanced, png

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


def tell(quarantine: Quarantine, text: str, *, again: bool = False) -> Remedy:
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
    assert tell(quarantine, text) == Remedy(is_news=False)


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


KINDS = ("anthropic", "gemini", "openai", "openai-responses")
NAMES = {
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3.6-flash",
    "openai": "gpt-4.1",
    "openai-responses": "gpt-6-sol",
}
SMALL = ImagePart("image/png", png(3, 3))


def history(kind: str) -> list[Message]:
    maker = (kind, NAMES[kind])
    return [
        UserMessage((TextPart("first question"), SOUND)),
        user_text("steered while it worked"),
        AssistantMessage(
            (
                TextPart("I shall look at two places."),
                ToolCall("call_one_1", "read_file", {"path": "a.png"}),
                ToolCall("call_two_2", "bash", {"command": "make a mess"}),
            ),
            *maker,
        ),
        ToolResult("call_one_1", "read_file", (TextPart("a.png (image/png)"), SMALL)),
        ToolResult("call_two_2", "bash", (TextPart("the output of make"),)),
        AssistantMessage((TextPart("So much for that."),), *maker),
        user_text("the newest question"),
    ]


def request(kind: str, messages: list[Message] | None = None) -> ModelRequest:
    model = ModelInfo(kind, NAMES[kind])
    prepared = prepare(history(kind) if messages is None else messages, kind, model.name)
    return ModelRequest(model, "You are terse.", prepared)


def found(text: str, kind: str, status: int = 400) -> list[Block]:
    asked = request(kind)
    provider = create(ProviderConfig(kind, kind, "http://127.0.0.1:9", api_key="k"))
    return suspects(text, topic_of(text, status), asked, provider.encode(asked))  # type: ignore[attr-defined]


PLACES = {
    "anthropic": {
        "image": "messages.0.content.1.image.source.base64.data: invalid",
        "result image": "messages.2.content.0.tool_result.content.1.image.source: too large",
        "result": "messages.2.content.1: this text cannot be processed",
        "arguments": "messages.1.content.2.tool_use.input: Input should be a valid dictionary",
        "prompt": "messages.0.content.2.text.text: odd characters",
        "answer": "messages.3.content.0: bad text",
    },
    "openai": {
        "image": "Invalid 'messages[1].content[1].image_url.url': invalid data",
        "result": "Invalid parameter: 'messages.[4].content' cannot be processed",
        "arguments": "Invalid 'messages[2].tool_calls[1].function.arguments': bad JSON",
        "prompt": '[{"loc": ["body", "messages", 1, "content", 2], "msg": "bad text"}]',
        "answer": "messages[6].content: bad text",
    },
    "openai-responses": {
        "image": "Invalid 'input[0].content[1].image_url'. Expected a valid URL",
        "result image": "Invalid 'input[5].output[1].image_url'. Expected base64",
        "result": "Invalid 'input[6].output': string too long",
        "arguments": "Invalid 'input[4].arguments': bad JSON",
        "prompt": "Invalid 'input[1].content[0].text': odd characters",
        "answer": "Invalid 'input[7].content[0].text': odd characters",
    },
    "gemini": {
        "image": "* GenerateContentRequest.contents[0].parts[1].inline_data: not an image",
        "result": "Invalid value at 'contents[2].parts[1].function_response.response'",
        "arguments": "* GenerateContentRequest.contents[1].parts[2].function_call.args: bad",
        "prompt": "contents[0].parts[2].text is bad",
        "answer": "Invalid value at 'contents[3].parts[0].text'",
    },
}  # fmt: skip
MEANT = {
    "image": SOUND,
    "result image": SMALL,
    "result": TextPart("the output of make"),
    "arguments": ToolCall("call_two_2", "bash", {"command": "make a mess"}),
    "prompt": TextPart("steered while it worked"),
    "answer": TextPart("So much for that."),
}


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize(
    ("kind", "what"), [(kind, what) for kind, places in PLACES.items() for what in places]
)
def test_a_place_in_the_providers_own_count_is_found(kind: str, what: str) -> None:
    blocks = found(PLACES[kind][what], kind)
    assert MEANT[what] in [block.part for block in blocks]
    assert len(blocks) <= 2  # neighbours that a service's format joins in one text
    if kind != "openai" or what != "prompt":
        assert [block.part for block in blocks] == [MEANT[what]]


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_is_named_by_its_id_is_found(kind: str) -> None:
    blocks = found("tool call call_two_2 could not be processed", kind)
    assert [block.part for block in blocks] == [MEANT["arguments"]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["messages.999.content.0: x", "input[77]: x", "contents[9].parts[9]"]
)
def test_a_place_that_does_not_exist_is_no_crash(kind: str, text: str) -> None:
    found(text, kind)
    asked = request(kind)
    assert suspects(text, Topic.TEXT, asked, None) == suspects(text, Topic.TEXT, asked, {})


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("Could not process image", Topic.IMAGE),
        ("messages.3.content.1.image.source.base64: image exceeds 5 MB maximum", Topic.IMAGE),
        ("Unsupported MIME type: image/gif", Topic.IMAGE),
        ("this model does not support image input", Topic.IMAGE),
        ("messages.1.content.0: Invalid `signature` in `thinking` block", Topic.THINKING),
        ("Corrupted thought signature.", Topic.THINKING),
        ("Item 'rs_1' of type 'reasoning' was provided without its item", Topic.THINKING),
        ("Invalid 'messages[3].content': string too long", Topic.TEXT),
        ("no low surrogate in string: line 1 column 7", Topic.TEXT),
        ("The response was filtered due to the prompt triggering content management", Topic.POLICY),
        ("Invalid prompt: your prompt was flagged", Topic.POLICY),
        ("No tool output found for function call call_1", Topic.CALLS),
        ("Bad request", Topic.VAGUE),
        ("", Topic.VAGUE),
        ("max_tokens must be greater than thinking.budget_tokens", Topic.OTHER),
        ("Unknown parameter: 'reasoning_effort'", Topic.OTHER),
        ("tools.3.custom.name: String should match pattern", Topic.OTHER),
        ("Invalid schema for function 'x'", Topic.OTHER),
        ("Your credit balance is too low", Topic.OTHER),
    ],
)
def test_what_a_refusal_is_about_is_read_from_its_words(text: str, topic: Topic) -> None:
    assert topic_of(text, 400) is topic
    assert topic_of(text, 404) is Topic.OTHER


def test_a_limit_on_the_number_of_images_leaves_the_newest() -> None:
    blocks = found("At most 1 image(s) may be provided in one request.", "openai")
    assert [block.part for block in blocks] == [SOUND]
    assert len(found("Too many images: the limit is 0 images", "openai")) == 2


def test_without_a_name_what_is_new_is_suspected_before_what_was_accepted() -> None:
    messages = history("openai")
    call = ToolCall("call_three", "bash", {"command": "x"})
    result = ToolResult("call_three", "bash", (TextPart("new output"),))
    messages += [AssistantMessage((call,), "openai", NAMES["openai"]), result]
    asked = request("openai", messages)
    blocks = suspects("Bad request", Topic.VAGUE, asked, None)
    assert [block.part for block in blocks] == [TextPart("new output")]


def test_without_an_answer_of_this_model_images_come_first_then_the_latest_results() -> None:
    asked = ModelRequest(ModelInfo("new", "model"), "", request("openai").messages)
    blocks = suspects("Bad request", Topic.VAGUE, asked, None)
    assert {block.kind for block in blocks} == {BlockKind.IMAGE}
    bare = [m for m in history("openai")[1:] if not isinstance(m, UserMessage)]
    bare = [user_text("q"), bare[0], ToolResult("call_one_1", "x", (TextPart("one"),)), *bare[2:3]]
    asked = ModelRequest(ModelInfo("new", "model"), "", tuple(bare))
    blocks = suspects("Bad request", Topic.VAGUE, asked, None)
    assert [block.kind for block in blocks] == [BlockKind.RESULT, BlockKind.RESULT]


def test_odd_characters_are_made_plain_before_a_text_is_left_out() -> None:
    odd, fine = TextPart("a\x1b[0m"), TextPart("fine")
    asked = request("openai", [UserMessage((odd, fine))])
    (block,) = suspects("invalid unicode in text", Topic.TEXT, asked, None)
    assert (block.part, how_to(block)) == (odd, How.PLAIN)
    assert {how_to(b) for b in blocks_of(asked.messages) if b.part == fine} == {How.STUB}


def test_reasoning_is_suspected_as_a_whole() -> None:
    maker = ("anthropic", NAMES["anthropic"])
    replies = [
        AssistantMessage((ThinkingPart(str(n), f"s{n}"), TextPart("x")), *maker) for n in range(3)
    ]
    messages: list[Message] = [user_text("q")]
    for reply in replies:
        messages += [reply, user_text("more")]
    asked = request("anthropic", messages)
    blocks = suspects("messages.3.content.0: Invalid `signature`", Topic.THINKING, asked, None)
    assert [block.kind for block in blocks] == [BlockKind.THINKING] * 3


def test_in_the_end_everything_that_breaks_sessions_is_suspected() -> None:
    asked = request("openai")
    kinds = [block.kind for block in all_suspects(Topic.VAGUE, asked)]
    assert kinds.count(BlockKind.IMAGE) == 2
    assert BlockKind.RESULT not in kinds  # accepted before
    assert kinds[-1] is BlockKind.PROMPT
    assert {block.kind for block in all_suspects(Topic.IMAGE, asked)} == {BlockKind.IMAGE}
