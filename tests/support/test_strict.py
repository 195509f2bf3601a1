"""The strict checks can pass and can fail: one good body per service and many ways to spoil it."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.strict import Issued, check_anthropic, check_openai, parse_body

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 24
Body = dict[str, Any]
Spoil = Callable[[Body], object]


def image(data: bytes = PNG, media_type: str = "image/png") -> Body:
    text = base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": text}}


def anthropic_body() -> Body:
    tool = {"name": "read_file", "description": "d", "input_schema": {"type": "object"}}
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [tool, {**tool, "name": "bash"}],
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello"}, image()]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "a", "name": "read_file", "input": {"path": "x"}},
                    {"type": "tool_use", "id": "b", "name": "bash", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "is_error": True,
                        "content": [{"type": "text", "text": "Cancelled by user"}],
                    },
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    }


def answer(body: Body) -> list[Body]:
    content: list[Body] = body["messages"][1]["content"]
    return content


def results(body: Body) -> list[Body]:
    content: list[Body] = body["messages"][2]["content"]
    return content


ANTHROPIC: dict[str, tuple[Spoil, str]] = {
    "unknown field": (lambda b: b.update(colour=1), "colour: Extra inputs are not permitted"),
    "no max_tokens": (lambda b: b.pop("max_tokens"), "max_tokens: Field required"),
    "max_tokens below the budget": (
        lambda b: b.update(max_tokens=2048),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "no messages": (lambda b: b.update(messages=[]), "at least one message is required"),
    "assistant first": (lambda b: b["messages"].pop(0), 'first message must use the "user" role'),
    "two users in a row": (
        lambda b: b["messages"].insert(0, {"role": "user", "content": "hi"}),
        "roles must alternate",
    ),
    "system as a role": (
        lambda b: b["messages"].insert(0, {"role": "system", "content": "hi"}),
        "messages.0.role: Input should be 'user' or 'assistant'",
    ),
    "empty content": (
        lambda b: b["messages"][0].update(content=[]),
        "messages.0: all messages must have non-empty content",
    ),
    "empty text": (
        lambda b: answer(b)[1].update(text=""),
        "text content blocks must be non-empty",
    ),
    "white space text": (
        lambda b: answer(b)[1].update(text=" \n"),
        "text content blocks must contain non-whitespace text",
    ),
    "empty text in a result": (
        lambda b: results(b)[1].update(content=[{"type": "text", "text": ""}]),
        "text content blocks must be non-empty",
    ),
    "no results at all": (
        lambda b: b["messages"].pop(),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a, b",
    ),
    "one result missing": (lambda b: results(b).pop(0), "immediately after: a."),
    "text before the results": (
        lambda b: results(b).insert(0, {"type": "text", "text": "wait"}),
        "immediately after: a, b",
    ),
    "a result too many": (
        lambda b: results(b).insert(2, {"type": "tool_result", "tool_use_id": "c"}),
        "messages.2.content.2: unexpected `tool_use_id` found in `tool_result` blocks: c",
    ),
    "two results for one call": (
        lambda b: results(b).insert(2, copy.deepcopy(results(b)[0])),
        "each tool_use must have a single result",
    ),
    "ids twice": (lambda b: answer(b)[3].update(id="a"), "`tool_use` ids must be unique"),
    "id with odd characters": (
        lambda b: answer(b)[2].update(id="functions.read:0"),
        "tool_use.id: String should match pattern",
    ),
    "input as text": (
        lambda b: answer(b)[2].update(input='{"path": "x"}'),
        "tool_use.input: Input should be a valid dictionary",
    ),
    "error without content": (
        lambda b: results(b)[1].update(content=[]),
        "content cannot be empty if `is_error` is true",
    ),
    "error with an image": (
        lambda b: results(b)[1]["content"].append(image()),
        "all content must be type `text` if `is_error` is true",
    ),
    "unknown block field": (
        lambda b: results(b)[0].update(name="bash"),
        "messages.2.content.0.tool_result.name: Extra inputs are not permitted",
    ),
    "tool result by the assistant": (
        lambda b: answer(b).append(results(b)[0]),
        "`tool_result` blocks can only be in `user` messages",
    ),
    "calls without tools": (lambda b: b.pop("tools"), "must define tools"),
    "tool name": (
        lambda b: b["tools"][0].update(name="read.file"),
        "tools.0.custom.name: String should match pattern",
    ),
    "tool names twice": (
        lambda b: b["tools"][1].update(name="read_file"),
        "Tool names must be unique",
    ),
    "schema without a type": (
        lambda b: b["tools"][0].update(input_schema={}),
        "tools.0.custom.input_schema.type: Field required",
    ),
    "schema of an array": (
        lambda b: b["tools"][0].update(input_schema={"type": "array"}),
        "Input should be 'object'",
    ),
    "five breakpoints": (
        lambda b: [
            block.update(cache_control={"type": "ephemeral"})
            for block in [*b["tools"], *b["messages"][0]["content"]]
        ],
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "prefill with thinking": (
        lambda b: b["messages"].append({"role": "assistant", "content": "Sure:"}),
        "does not support assistant message prefill",
    ),
    "prefill with trailing space": (
        lambda b: b["messages"].append({"role": "assistant", "content": "Sure: "}),
        "final assistant content cannot end with trailing whitespace",
    ),
    "no thinking in the tool loop": (
        lambda b: (answer(b).pop(0), results(b).pop()),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`",
    ),
    "thinking at the end": (
        lambda b: b["messages"].__setitem__(
            slice(1, 3),
            [
                {"role": "assistant", "content": [answer(b)[0]]},
                {"role": "user", "content": "well?"},
            ],
        ),
        "The final block in an assistant message cannot be `thinking`",
    ),
    "image of another type": (
        lambda b: b["messages"][0]["content"].append(image(media_type="image/jpeg")),
        "appears to be a image/png image",
    ),
    "image type unknown": (
        lambda b: b["messages"][0]["content"].append(image(media_type="image/bmp")),
        "media_type: Input should be",
    ),
    "image not base64": (
        lambda b: b["messages"][0]["content"][1]["source"].update(data="!!"),
        "invalid base64 data",
    ),
    "image broken": (
        lambda b: b["messages"][0]["content"].append(image(b"not an image")),
        "Could not process image",
    ),
}


@pytest.mark.spec("HIS-1", "HIS-2", "HIS-3", "HIS-5", "HIS-6")
def test_a_well_formed_anthropic_body_is_accepted() -> None:
    assert check_anthropic(anthropic_body()) is None


@pytest.mark.parametrize("name", ANTHROPIC)
def test_a_spoilt_anthropic_body_is_refused_in_the_services_words(name: str) -> None:
    spoil, message = ANTHROPIC[name]
    body = anthropic_body()
    spoil(body)
    assert message in (check_anthropic(body) or "accepted")


def test_thinking_comes_back_as_issued_or_not_at_all() -> None:
    model = "claude-sonnet-4-5"
    issued = Issued(
        signatures={"sig": (model, "hm")},
        shapes=[[("thinking", "sig"), ("tool_use", "a"), ("tool_use", "b")]],
    )
    assert check_anthropic(anthropic_body(), issued) is None

    altered = anthropic_body()
    answer(altered)[0]["thinking"] = "hm!"
    assert "Invalid `signature`" in (check_anthropic(altered, issued) or "")

    moved = anthropic_body()
    answer(moved)[0], answer(moved)[2] = answer(moved)[2], answer(moved)[0]
    moved["thinking"] = {"type": "disabled"}
    assert "cannot be modified" in (check_anthropic(moved, issued) or "")

    elsewhere = anthropic_body()
    elsewhere["model"] = "claude-opus-4-1"
    assert "Invalid `signature`" in (check_anthropic(elsewhere, issued) or "")

    dropped = anthropic_body()
    del answer(dropped)[0]
    dropped.pop("thinking")
    assert check_anthropic(dropped, issued) is None


def openai_body() -> Body:
    function = {"name": "read_file", "description": "d", "parameters": {"type": "object"}}
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    return {
        "model": "gpt-4.1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hello"},
                    {"type": "image_url", "image_url": {"url": url}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [openai_call("a"), openai_call("b")],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
            {"role": "user", "content": "go on"},
        ],
    }


def openai_call(call_id: str, arguments: str = '{"path": "x"}') -> Body:
    function = {"name": "read_file", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def first_call(body: Body) -> Body:
    found: Body = body["messages"][2]["tool_calls"][0]
    return found


OPENAI: dict[str, tuple[Spoil, str]] = {
    "unknown field": (
        lambda b: b.update(thinking={}),
        "Unrecognized request argument supplied: thinking",
    ),
    "no messages": (lambda b: b.update(messages=[]), "Invalid 'messages': empty array."),
    "no model": (lambda b: b.pop("model"), "Missing required parameter: 'model'."),
    "unknown role": (lambda b: b["messages"][0].update(role="root"), "Invalid value: 'root'."),
    "no results": (
        lambda b: b["messages"].__delitem__(slice(3, 5)),
        "responding to each 'tool_call_id'. The following tool_call_ids did not have",
    ),
    "one result missing": (
        lambda b: b["messages"].pop(4),
        "did not have response messages: b",
    ),
    "results missing at the end": (
        lambda b: b["messages"].__delitem__(slice(4, 6)),
        "did not have response messages: b",
    ),
    "user between the results": (
        lambda b: b["messages"].insert(4, {"role": "user", "content": "wait"}),
        "did not have response messages: b",
    ),
    "result without a call": (
        lambda b: b["messages"].pop(2),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'",
    ),
    "result of another call": (
        lambda b: b["messages"][3].update(tool_call_id="c"),
        "messages with role 'tool' must be a response",
    ),
    "two results for one call": (
        lambda b: b["messages"].insert(4, b["messages"][3]),
        "messages with role 'tool' must be a response",
    ),
    "no tool_call_id": (lambda b: b["messages"][3].pop("tool_call_id"), "tool_call_id"),
    "empty tool_calls": (
        lambda b: b["messages"][2].update(content="x", tool_calls=[]),
        "Invalid 'messages[2].tool_calls': empty array.",
    ),
    "content null": (
        lambda b: b["messages"][5].update(content=None),
        "Invalid value for 'content': expected a string, got null.",
    ),
    "content an empty array": (
        lambda b: b["messages"][5].update(content=[]),
        "Invalid 'messages[5].content': empty array.",
    ),
    "content empty": (lambda b: b["messages"][5].update(content=""), "string too short"),
    "empty text part": (
        lambda b: b["messages"][1]["content"][0].update(text=" "),
        "Invalid 'messages[1].content[0].text'",
    ),
    "arguments as an object": (
        lambda b: first_call(b)["function"].update(arguments={"path": "x"}),
        "expected a string that holds a JSON object",
    ),
    "arguments cut": (
        lambda b: first_call(b)["function"].update(arguments='{"path": "x'),
        "expected a string that holds a JSON object",
    ),
    "arguments a list": (
        lambda b: first_call(b)["function"].update(arguments="[]"),
        "expected a string that holds a JSON object",
    ),
    "id too long": (
        lambda b: first_call(b).update(id="a" * 41),
        "maximum length 40, but got a string with length 41",
    ),
    "ids used again": (
        lambda b: b["messages"].append(
            {"role": "assistant", "content": None, "tool_calls": [openai_call("a")]}
        ),
        "Duplicate value",
    ),
    "function name": (
        lambda b: first_call(b)["function"].update(name="read file"),
        "string does not match pattern",
    ),
    "image in a result": (
        lambda b: b["messages"][3].update(content=[b["messages"][1]["content"][1]]),
        "Image URLs are only allowed for messages with role 'user'",
    ),
    "image not base64": (
        lambda b: b["messages"][1]["content"][1]["image_url"].update(url="data:image/png;base64,!"),
        "Invalid base64 image_url.",
    ),
    "image type": (
        lambda b: b["messages"][1]["content"][1]["image_url"].update(
            url="data:image/tiff;base64,AAAA"
        ),
        "You uploaded an unsupported image.",
    ),
    "empty tools": (lambda b: b.update(tools=[]), "Invalid 'tools': empty array."),
    "tool schema": (
        lambda b: b["tools"][0]["function"].update(parameters={"type": "array"}),
        "Invalid schema for function 'read_file'",
    ),
    "tool name": (
        lambda b: b["tools"][0]["function"].update(name="a b"),
        "Invalid 'tools[0].function.name'",
    ),
    "reasoning sent back": (
        lambda b: b["messages"][2].update(reasoning_content="hm"),
        "Unknown parameter: 'messages[2].reasoning_content'.",
    ),
    "max_tokens for a reasoning model": (
        lambda b: b.update(model="gpt-5.1", max_tokens=100),
        "Use 'max_completion_tokens' instead.",
    ),
    "both limits": (
        lambda b: b.update(max_tokens=1, max_completion_tokens=1),
        "at the same time is not supported",
    ),
    "stream_options without stream": (
        lambda b: b.pop("stream"),
        "only allowed when 'stream' is enabled",
    ),
}


@pytest.mark.spec("HIS-1", "HIS-2", "HIS-5")
def test_a_well_formed_openai_body_is_accepted() -> None:
    assert check_openai(openai_body()) is None


@pytest.mark.parametrize("name", OPENAI)
def test_a_spoilt_openai_body_is_refused_in_the_services_words(name: str) -> None:
    spoil, message = OPENAI[name]
    body = openai_body()
    spoil(body)
    assert message in (check_openai(body) or "accepted")


def test_compatible_servers_may_take_their_reasoning_back() -> None:
    body = openai_body()
    body["messages"][2]["reasoning_content"] = "hm"
    assert check_openai(body, allow_reasoning=True) is None


@pytest.mark.parametrize("raw", [b"{", b"\xff", b'{"a": "\\ud800"}', b"[]", b'{"a": NaN}'])
def test_a_body_that_is_not_clean_json_is_refused(raw: bytes) -> None:
    assert parse_body(raw)[1] is not None


def test_escaped_pairs_are_clean_json() -> None:
    assert parse_body(b'{"a": "\\ud83d\\ude00"}') == ({"a": "\N{GRINNING FACE}"}, None)
