"""OpenAI Chat Completions: what the service answers 400 to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.strict_shared import (
    IMAGE_TYPES,
    TOOL_NAME,
    Problem,
    decode_base64,
    sniff_image,
)

_TOP = {
    "model", "messages", "stream", "stream_options", "temperature", "top_p", "max_tokens",
    "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort",
    "n", "stop", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs",
    "top_logprobs", "user", "seed", "response_format", "service_tier", "store", "metadata",
    "modalities", "audio", "prediction", "verbosity", "web_search_options", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "functions", "function_call",
}  # fmt: skip
_MESSAGE_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal", "audio", "function_call"},
    "tool": {"role", "content", "tool_call_id"},
    "function": {"role", "content", "name"},
}
_PART_KINDS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
    "function": set[str](),
}
_MAX_ID = 40
_MAX_TOOLS = 128
_NEEDS_COMPLETION_LIMIT = re.compile(r"(o\d|gpt-5)")
_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: "
)
_ORPHAN = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'."
)


def check_openai(body: Mapping[str, Any], *, allow_reasoning: bool = False) -> str | None:
    """The first reason to refuse ``body``, or ``None``.

    ``allow_reasoning`` is for compatible servers which take their ``reasoning_content`` back;
    the service itself does not know the field.
    """
    return next(_problems(body, allow_reasoning=allow_reasoning), None)


def _problems(body: Mapping[str, Any], *, allow_reasoning: bool) -> Iterator[str]:
    yield from _top_level(body)
    yield from _tools(body)
    messages = body["messages"]
    for index, message in enumerate(messages):
        yield from _message(index, message, allow_reasoning=allow_reasoning)
    yield from _calls_and_results(messages)


def _empty_array(where: str) -> Problem:
    return Problem(
        f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty"
        " array instead.",
        where,
        "empty_array",
    )


def _wrong_type(where: str, expected: str) -> Problem:
    return Problem(f"Invalid type for '{where}': expected {expected}.", where, "invalid_type")


def _top_level(body: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(set(body) - _TOP):
        yield Problem(f"Unrecognized request argument supplied: {name}")
    for name in ("model", "messages"):
        if name not in body:
            yield Problem(
                f"Missing required parameter: '{name}'.", name, "missing_required_parameter"
            )
    if not isinstance(body["model"], str) or not body["model"]:
        yield Problem("you must provide a model parameter")
    if not isinstance(body["messages"], list):
        yield _wrong_type("messages", "an array of objects")
    if not body["messages"]:
        yield _empty_array("messages")
    if "stream_options" in body and not body.get("stream"):
        yield Problem(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options",
        )
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield Problem(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            "max_tokens",
            "invalid_parameter_combination",
        )
    if "max_tokens" in body and _NEEDS_COMPLETION_LIMIT.match(body["model"]):
        yield Problem(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
            " 'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    for name in ("max_tokens", "max_completion_tokens"):
        limit = body.get(name, 1)
        if not isinstance(limit, int) or isinstance(limit, bool):
            yield _wrong_type(name, "an integer")
        if limit < 1:
            yield Problem(
                f"Invalid '{name}': integer below minimum value. Expected a value >= 1, but got"
                f" {limit} instead.",
                name,
                "integer_below_min_value",
            )


def _tools(body: Mapping[str, Any]) -> Iterator[str]:
    if "tools" not in body:
        for name in ("tool_choice", "parallel_tool_calls"):
            if name in body:
                yield Problem(f"'{name}' is only allowed when 'tools' are specified.", name)
        return
    tools = body["tools"]
    if not isinstance(tools, list):
        yield _wrong_type("tools", "an array of objects")
    if not tools:
        yield _empty_array("tools")
    if len(tools) > _MAX_TOOLS:
        yield Problem(
            f"Invalid 'tools': array too long. Expected an array with maximum length {_MAX_TOOLS},"
            f" but got an array with length {len(tools)} instead.",
            "tools",
            "array_above_max_length",
        )
    for index, tool in enumerate(tools):
        yield from _tool(f"tools[{index}]", tool)


def _tool(where: str, tool: Any) -> Iterator[str]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        yield Problem(
            f"Missing required parameter: '{where}.type'.",
            f"{where}.type",
            "missing_required_parameter",
        )
    function = tool.get("function")
    if not isinstance(function, dict):
        yield Problem(
            f"Missing required parameter: '{where}.function'.",
            f"{where}.function",
            "missing_required_parameter",
        )
    for name in sorted(set(function) - {"name", "description", "parameters", "strict"}):
        yield Problem(f"Unknown parameter: '{where}.function.{name}'.", None, "unknown_parameter")
    name = function.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield Problem(
            f"Invalid '{where}.function.name': string does not match pattern. Expected a string"
            " that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            f"{where}.function.name",
            "invalid_value",
        )
    schema = function.get("parameters", {"type": "object"})
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind != "object":
        yield Problem(
            f"Invalid schema for function '{name}': schema must be a JSON Schema of"
            f" 'type: \"object\"', got 'type: \"{kind}\"'.",
            f"{where}.function.parameters",
            "invalid_function_parameters",
        )


def _message(index: int, message: Any, *, allow_reasoning: bool) -> Iterator[str]:
    where = f"messages[{index}]"
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _MESSAGE_FIELDS:
        yield Problem(
            f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user',"
            " 'function', 'tool', and 'developer'.",
            f"{where}.role",
            "invalid_value",
        )
    known = _MESSAGE_FIELDS[role]
    if allow_reasoning and role == "assistant":
        known = known | {"reasoning_content", "reasoning"}
    for name in sorted(set(message) - known):
        yield Problem(
            f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}", "unknown_parameter"
        )
    calls = message.get("tool_calls")
    yield from _content(where, role, message.get("content"), has_calls=calls is not None)
    if calls is not None:
        yield from _tool_calls(where, calls)
    if role == "tool":
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            yield Problem(
                f"Missing parameter 'tool_call_id': messages with role 'tool' must have a"
                f" 'tool_call_id'. ({where})",
                f"{where}.tool_call_id",
            )
        yield from _id_length(f"{where}.tool_call_id", call_id)


def _content(where: str, role: str, content: Any, *, has_calls: bool) -> Iterator[str]:
    if content is None:
        if not (role == "assistant" and has_calls):
            yield Problem(
                "Invalid value for 'content': expected a string, got null.", f"{where}.content"
            )
        return
    if isinstance(content, str):
        if not content.strip() and not has_calls and role != "tool":
            yield Problem(
                f"Invalid '{where}.content': string too short. Expected a string with minimum"
                " length 1, but got an empty string instead.",
                f"{where}.content",
                "string_below_min_length",
            )
        return
    if not isinstance(content, list):
        yield _wrong_type(f"{where}.content", "one of an array of objects or string")
    if not content:
        yield _empty_array(f"{where}.content")
    for position, part in enumerate(content):
        yield from _part(where, f"{where}.content[{position}]", role, part)


def _part(message: str, where: str, role: str, part: Any) -> Iterator[str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "image_url" and role != "user":
        yield Problem(
            f"Invalid '{message}'. Image URLs are only allowed for messages with role 'user', but"
            f" this message with role '{role}' contains an image URL.",
            message,
            "invalid_value",
        )
    if kind not in _PART_KINDS[role]:
        allowed = ", ".join(f"'{name}'" for name in sorted(_PART_KINDS[role]))
        yield Problem(
            f"Invalid value: '{kind}'. Supported values are: {allowed}.",
            f"{where}.type",
            "invalid_value",
        )
    if kind == "text":
        text = part.get("text")
        if not isinstance(text, str) or not text.strip():
            yield Problem(
                f"Invalid '{where}.text': string too short.",
                f"{where}.text",
                "string_below_min_length",
            )
    if kind == "image_url":
        yield from _image(where, part)


def _image(where: str, part: Mapping[str, Any]) -> Iterator[str]:
    url = (part.get("image_url") or {}).get("url")
    if not isinstance(url, str):
        yield Problem(
            f"Missing required parameter: '{where}.image_url.url'.",
            f"{where}.image_url.url",
            "missing_required_parameter",
        )
    if url.startswith(("http://", "https://")):
        return
    found = re.fullmatch(r"data:([^;,]+);base64,(.*)", url, re.DOTALL)
    data = decode_base64(found[2]) if found else None
    if found is None or data is None:
        yield Problem("Invalid base64 image_url.", f"{where}.image_url.url", "invalid_base64")
        return
    if found[1] not in IMAGE_TYPES or sniff_image(data) != found[1]:
        yield Problem(
            "You uploaded an unsupported image. Please make sure your image has of one the"
            " following formats: ['png', 'jpeg', 'gif', 'webp'].",
            None,
            "invalid_image_format",
        )


def _id_length(where: str, value: str) -> Iterator[str]:
    if len(value) > _MAX_ID:
        yield Problem(
            f"Invalid '{where}': string too long. Expected a string with maximum length {_MAX_ID},"
            f" but got a string with length {len(value)} instead.",
            where,
            "string_above_max_length",
        )


def _tool_calls(where: str, calls: Any) -> Iterator[str]:
    where = f"{where}.tool_calls"
    if not isinstance(calls, list):
        yield _wrong_type(where, "an array of objects")
    if not calls:
        yield _empty_array(where)
    for position, call in enumerate(calls):
        place = f"{where}[{position}]"
        for name in sorted(set(call) - {"id", "type", "function"}):
            yield Problem(
                f"Unknown parameter: '{place}.{name}'.", f"{place}.{name}", "unknown_parameter"
            )
        if not isinstance(call.get("id"), str) or not call["id"]:
            yield Problem(
                f"Missing required parameter: '{place}.id'.",
                f"{place}.id",
                "missing_required_parameter",
            )
        yield from _id_length(f"{place}.id", call["id"])
        if call.get("type") != "function":
            yield Problem(
                f"Missing required parameter: '{place}.type'.",
                f"{place}.type",
                "missing_required_parameter",
            )
        yield from _function(f"{place}.function", call.get("function"))


def _function(where: str, function: Any) -> Iterator[str]:
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        yield Problem(
            f"Invalid '{where}.name': string does not match pattern. Expected a string that matches"
            " the pattern '^[a-zA-Z0-9_-]+$'.",
            f"{where}.name",
            "invalid_value",
        )
    arguments = function.get("arguments")
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError):
        is_object = False
    if not is_object:
        yield Problem(
            f"Invalid '{where}.arguments': expected a string that holds a JSON object.",
            f"{where}.arguments",
            "invalid_value",
        )


def _calls_and_results(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    pending: list[str] = []
    answered: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            if call_id not in pending or call_id in answered:
                yield Problem(_ORPHAN, f"messages.[{index}].role")
            answered.append(call_id)
            continue
        missing = [call_id for call_id in pending if call_id not in answered]
        if missing:
            yield Problem(_UNANSWERED + ", ".join(missing), f"messages.[{index}].role")
        pending, answered = [call["id"] for call in message.get("tool_calls") or ()], []
        for call_id in pending:
            if call_id in seen:
                yield Problem(
                    f"Duplicate value for 'tool_calls' id: '{call_id}'.",
                    f"messages.[{index}].tool_calls",
                )
            seen.add(call_id)
    missing = [call_id for call_id in pending if call_id not in answered]
    if missing:
        yield Problem(_UNANSWERED + ", ".join(missing), f"messages.[{len(messages)}].role")
