"""The strict checks can pass and can fail: Chat Completions."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.strict import check_openai

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 24
Body = dict[str, Any]
Spoil = Callable[[Body], object]


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
