"""The strict checks can pass and can fail: one good body per service and many ways to spoil it."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.strict import Issued, check_anthropic, parse_body

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


@pytest.mark.parametrize("raw", [b"{", b"\xff", b'{"a": "\\ud800"}', b"[]", b'{"a": NaN}'])
def test_a_body_that_is_not_clean_json_is_refused(raw: bytes) -> None:
    assert parse_body(raw)[1] is not None


def test_escaped_pairs_are_clean_json() -> None:
    assert parse_body(b'{"a": "\\ud83d\\ude00"}') == ({"a": "\N{GRINNING FACE}"}, None)
