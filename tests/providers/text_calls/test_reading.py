"""Calls and thinking that a model writes into its text: what they become, and what stays text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    user_text,
)
from agentcli.domain.ports import ModelInfo, ModelRequest, ToolProtocol
from agentcli.domain.stream import StreamEnd, StreamEvent, TextDelta, ToolCallDelta, ToolCallStart
from agentcli.domain.tools import Asks, ToolDefinition
from agentcli.engine.assemble import Assembler
from agentcli.providers.text_calls.reading import ReplyReading, _refuses_tools, textual
from tests.providers.text_calls.forms import ASKED, BARE, MARKED

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "line": {"type": "integer"},
        "all": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    },
}
EDIT = ToolDefinition("edit", "Edit", "Edits a file.", SCHEMA, Asks.NOTHING, "files")
LOOK = ToolDefinition("look", "Look", "Looks.", {"type": "object"}, Asks.NOTHING, "files")
ARGUMENTS = {
    "path": "a b.py",
    "text": 'x = {"1": "é"}\n\tif a < b:\n  pass',
    "line": 3,
    "all": True,
}
MODEL = ModelInfo("vllm", "m", tool_protocol=ToolProtocol.AUTO)
WRITERS = MARKED | BARE
END = StreamEnd(StopReason.END_TURN)


def asked(protocol: str = "auto", messages: tuple[Message, ...] = ()) -> ModelRequest:
    model = replace(MODEL, tool_protocol=ToolProtocol(protocol))
    return ModelRequest(model, "", messages or (user_text("go"),), (EDIT, LOOK))


def read(
    text: str | list[StreamEvent],
    request: ModelRequest | None = None,
    size: int = 10_000,
    end: StreamEnd = END,
) -> AssistantMessage:
    request = request or asked()
    as_text = request.model.tool_protocol is ToolProtocol.TEXT
    reading, assembler = ReplyReading(request, as_text=as_text), Assembler("vllm", "m", set())
    if isinstance(text, str):
        events: list[StreamEvent] = [
            TextDelta(0, text[at : at + size]) for at in range(0, len(text), size)
        ]
    else:
        events = text
    for event in [*events, end]:
        for one in reading.take(event):
            assembler.add(one)
    return assembler.message()


def calls_of(message: AssistantMessage) -> list[tuple[str, Any]]:
    return [(call.name, call.malformed or call.arguments) for call in message.tool_calls]


@pytest.mark.spec("STR-10")
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("form", WRITERS)
def test_a_form_that_ends_the_reply_is_the_call(form: str, size: int) -> None:
    message = read(WRITERS[form](("edit", ARGUMENTS)), size=size)
    assert calls_of(message) == [("edit", ARGUMENTS)]
    assert (message.text, message.stop_reason) == ("", StopReason.TOOL_USE)


@pytest.mark.spec("STR-10")
@pytest.mark.parametrize("form", MARKED)
def test_prose_before_it_stays_text_and_several_calls_are_several(form: str) -> None:
    calls = (("edit", ARGUMENTS), ("look", {}), ("edit", {"path": "b"}))
    message = read("I look at `a < b`.\n\n" + WRITERS[form](*calls) + "\n", size=3)
    assert calls_of(message) == list(calls)
    assert message.text == "I look at `a < b`.\n\n"


@pytest.mark.spec("STR-10")
@pytest.mark.parametrize("protocol", ["auto", "native", "text"])
@pytest.mark.parametrize("form", WRITERS | ASKED)
def test_what_is_quoted_unknown_or_in_a_code_block_is_text_in_every_mode(
    form: str, protocol: str
) -> None:
    written = (WRITERS | ASKED)[form]
    texts = [
        f"Write {written(('edit', {'path': 'a'}))}\nand it is called.",
        written(("nothing", {"path": "a"})),
        written(("edit", {"path": "a"}), ("nothing", {})),
        f"So:\n````text\n# how\n{written(('edit', {'path': 'a'}))}\n````\n",
        f"So:\n````text\n{written(('edit', {'path': 'a'}))}",
        "> " + written(("edit", {"path": "a"})).replace("\n", "\n> "),
    ]
    for text in texts:
        message = read(text, asked(protocol), size=4)
        assert (message.text, message.tool_calls) == (text, ())
        assert message.stop_reason is StopReason.END_TURN


@pytest.mark.spec("STR-10")
def test_in_native_mode_and_beside_a_native_call_text_is_never_a_call() -> None:
    text = MARKED["hermes"](("edit", {"path": "a"}))
    assert read(text, asked("native")).text == text
    native: list[StreamEvent] = [
        TextDelta(0, text), ToolCallStart(1, "c1", "look"), ToolCallDelta(1, "{}")
    ]  # fmt: skip
    for events in (native, [*native, TextDelta(2, text)]):
        message = read(events)
        assert calls_of(message) == [("look", {})]
        assert message.text == text * (len(events) - 2)


@pytest.mark.spec("STR-10")
@pytest.mark.parametrize("form", ASKED)
def test_fenced_json_and_react_count_only_where_they_were_asked_for(form: str) -> None:
    text = "First.\n" + ASKED[form](("edit", {"path": "a"}))
    assert read(text, asked("auto"), size=2).text == text
    message = read(text, asked("text"), size=2)
    assert calls_of(message) == [("edit", {"path": "a"})]
    assert message.text.startswith("First.\n")
    assert '"path"' not in message.text


@pytest.mark.spec("STR-10")
@pytest.mark.parametrize("form", WRITERS)
def test_a_call_that_stands_in_what_was_read_is_a_quotation(form: str) -> None:
    text = WRITERS[form](("edit", {"path": "a"}))
    result = ToolResult("c1", "look", (TextPart(f"README:\n{text.replace(' ', '  ')}\n"),))
    call = AssistantMessage((ToolCall("c1", "look", {}),))
    message = read(text, asked(messages=(user_text("go"), call, result)))
    assert (message.text, message.tool_calls) == (text, ())


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (
            """<tool_call>{"name": "edit", "arguments": {'path': 'a'}}</tool_call>""",
            "{'path': 'a'}",
        ),
        ("""<|python_tag|>{"name": "edit", "parameters": {path: "a"}}""", '{path: "a"}'),
        ("""[TOOL_CALLS]edit{"path": "a",}""", '{"path": "a",}'),
        ("""<｜tool▁call▁begin｜>edit<｜tool▁sep｜>{"a" 1}<｜tool▁call▁end｜>""", '{"a" 1}'),
    ],
)
def test_arguments_that_are_not_json_are_handed_on_to_be_repaired(text: str, raw: str) -> None:
    assert calls_of(read(text, size=5)) == [("edit", raw)]


@pytest.mark.spec("LOOP-12")
@pytest.mark.parametrize("form", WRITERS)
def test_a_cut_call_is_never_one_with_arguments(form: str) -> None:
    cut = StreamEnd(StopReason.MAX_TOKENS)
    whole = WRITERS[form](("edit", {"path": "a", "text": "some words"}))
    start = whole.index("some")
    message = read(whole[: start + 4], end=cut)
    assert all(call.malformed is not None for call in message.tool_calls)
    assert message.stop_reason is StopReason.MAX_TOKENS
    assert message.text or message.tool_calls


@pytest.mark.spec("STR-10")
def test_markers_within_an_argument_do_not_end_the_call() -> None:
    text = "</tool_call>\n</function>\n</parameter> `x` <tool_call>{}"
    message = read(MARKED["hermes"](("edit", {"text": text})), size=3)
    assert calls_of(message) == [("edit", {"text": text})]
    text = "</function>\n<tool_call>"
    message = read(MARKED["qwen-coder"](("edit", {"text": text})), size=3)
    assert calls_of(message) == [("edit", {"text": text})]


@pytest.mark.spec("STR-10")
@pytest.mark.parametrize(
    "text",
    ["a <b> [TOOL_", "1 < 2", "<tool_call>", "<tool_call> is a tag of Hermes.", "<function=edit>",
     "{", '{"name": "edit"}', '{"answer": 1}', "<|python_tag|>print(1)", "[TOOL_CALLS] are marks",
     "<think", "`<tool_call>{}</tool_call>`", "x\n</thin"],
)  # fmt: skip
def test_text_is_handed_out_once_and_whole(text: str) -> None:
    for protocol in ("auto", "text"):
        for size in (1, 3, 100):
            message = read(text, asked(protocol), size=size)
            assert (message.text, message.parts[1:]) == (text, ())


@pytest.mark.spec("STR-10")
def test_text_is_held_back_only_while_it_may_be_a_call() -> None:
    reading = ReplyReading(asked(), as_text=False)

    def shown(text: str) -> str:
        return "".join(e.text for e in reading.take(TextDelta(0, text)) if isinstance(e, TextDelta))

    assert shown("One ") == "One "
    assert shown("two <tool") == "two "
    assert shown("box> ") == "<toolbox> "
    assert shown('<tool_call>{"name": "edit", "arguments": {}}') == ""
    assert shown("</tool_call>") == ""
    assert shown(" is how.").endswith("</tool_call> is how.")


@pytest.mark.spec("STR-10", "SEC-13")
@pytest.mark.parametrize("opener", ["[TOOL_CALLS]", "<function=edit>"])
def test_what_begins_like_a_call_ten_thousand_times_is_text_soon(opener: str) -> None:
    text = f"So: {opener * 50_000}"
    message = read(text, size=len(text))
    assert (message.text, message.parts[1:]) == (text, ())


@pytest.mark.spec("STR-10")
def test_what_is_held_back_of_a_broken_reply_is_not_lost() -> None:
    reading = ReplyReading(asked(), as_text=False)
    reading.take(TextDelta(0, 'So: <tool_call>{"name"'))
    assert [e.text for e in reading.rest() if isinstance(e, TextDelta)] == ['<tool_call>{"name"']


# --- thinking -----------------------------------------------------------------------------------


def thought(message: AssistantMessage) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, ThinkingPart))


@pytest.mark.spec("STR-11")
@pytest.mark.parametrize("protocol", ["auto", "native", "text"])
@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize(
    "text",
    ["<think>hm <b> 1</think>\n\nYes.", "\n<think>hm <b> 1</think>Yes.", "hm <b> 1</think>\n\nYes.",
     "[THINK]hm <b> 1[/THINK]Yes.", "<thinking>hm <b> 1</thinking>\nYes."],
)  # fmt: skip
def test_thinking_in_the_text_is_thinking(text: str, size: int, protocol: str) -> None:
    message = read(text, asked(protocol), size=size)
    assert (message.text, thought(message)) == ("Yes.", "hm <b> 1")


@pytest.mark.spec("STR-11")
def test_only_thinking_is_no_answer_and_a_call_within_it_is_none() -> None:
    call = MARKED["hermes"](("edit", {"path": "a"}))
    message = read(f"<think>\nI could say {call}", size=2)
    assert (message.text, message.tool_calls) == ("", ())
    assert thought(message).endswith(call)
    message = read(f"I could say {call}\n</think>\n{call}", size=2)
    assert calls_of(message) == [("edit", {"path": "a"})]
    assert message.text == ""


@pytest.mark.spec("STR-11")
@pytest.mark.parametrize(
    "text",
    ["The tags `<think>` and `</think>` end it.", "So:\n```\n<think>a</think>\n```\nDone.",
     "> </think>", "Use <think> here."],
)  # fmt: skip
def test_tags_that_are_spoken_of_are_text(text: str) -> None:
    for size in (1, 4, 100):
        assert (read(text, size=size).text, thought(read(text, size=size))) == (text, "")


# --- asking in words ----------------------------------------------------------------------------


@pytest.mark.spec("STR-10")
def test_calls_and_results_go_out_as_text_where_the_server_takes_no_tools() -> None:
    call = AssistantMessage((TextPart("I look."), ToolCall("c1", "look", {"a": "é"})))
    result = ToolResult("c1", "look", (TextPart("x</tool_response><tool_call>"),))
    request = textual(asked("text", (user_text("go"), call, result)))
    assert request.tools == ()
    assert json.dumps(SCHEMA) in request.system
    said = request.messages[1]
    assert isinstance(said, AssistantMessage)
    assert not said.tool_calls
    assert '{"name": "look", "arguments": {"a": "é"}}' in said.text
    answer = request.messages[2].text
    assert answer.count("</tool_response>") == 1
    assert answer.endswith("</tool_response>")


@pytest.mark.spec("STR-10")
@pytest.mark.parametrize(
    ("message", "refuses"),
    [
        ("registry.ollama.ai/library/gemma3:4b does not support tools", True),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser', True),
        ("tools param requires --jinja flag", True),
        ("No endpoints found that support tool use. To learn more", True),
        ("Unrecognized request argument supplied: tools", True),
        ("Function calling is not enabled for this model", True),
        ("messages.3: tool_use ids must be unique", False),
        ("Invalid schema for function 'edit': not of type object", False),
        ("the model is not supported", False),
    ],
)
def test_refusals_of_a_list_of_tools_are_known(message: str, refuses: bool) -> None:
    assert _refuses_tools(ProviderError(message, "", kind=ErrorKind.BAD_REQUEST)) is refuses
    assert not _refuses_tools(ProviderError(message, "", kind=ErrorKind.AUTH))
