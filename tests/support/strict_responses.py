"""OpenAI's Responses API without storage: what the service answers 400 to.

Texts as in the service's answers that people have reported. Where the service is more lenient
than the law in SPEC (HIS-4: reasoning goes back unaltered and only to its maker), the law wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.strict_responses_items import (
    Issued,
    bad_items,
    empty_array,
    missing,
    unknown,
    wrong_type,
    wrong_value,
)
from tests.support.strict_shared import TOOL_NAME, Problem

__all__ = ["Issued", "check_responses", "is_reasoning_model"]

_TOP = {
    "background", "context_management", "conversation", "include", "input", "instructions",
    "max_output_tokens", "max_tool_calls", "metadata", "model", "moderation",
    "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier",
    "service_tier", "store", "stream", "stream_options", "temperature", "text", "tool_choice",
    "tools", "top_logprobs", "top_p", "truncation", "user",
}  # fmt: skip
_INCLUDABLE = {
    "file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
    "message.input_image.image_url", "computer_call_output.output.image_url",
    "code_interpreter_call.outputs", "reasoning.encrypted_content",
    "message.output_text.logprobs",
}  # fmt: skip
_TOOL = {"type", "name", "description", "parameters", "strict", "defer_loading", "output_schema"}
_MAX_TOOLS = 128
_MIN_OUTPUT = 16
_MAX_CACHE_KEY = 64
_REASONING = re.compile(r"(?:o\d|gpt-(?:[5-9]|\d\d))(?!.*chat)")
_OUTPUTS = "function_call_output"


def is_reasoning_model(model: str) -> bool:
    """Whether the service knows the model as one that reasons."""
    return _REASONING.match(model) is not None


def check_responses(body: Mapping[str, Any], issued: Issued | None = None) -> str | None:
    """The first reason to refuse ``body``, or ``None``. Without ``issued`` any reasoning goes."""
    return next(_problems(body, issued), None)


def _problems(body: Mapping[str, Any], issued: Issued | None) -> Iterator[str]:
    yield from _top_level(body)
    yield from _reasoning(body)
    yield from _tools(body)
    items = body["input"]
    if isinstance(items, str):
        return
    yield from bad_items(items, body, issued)
    yield from _calls_and_outputs(items)
    yield from _followers(items, issued)


def _top_level(body: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(set(body) - _TOP):
        yield unknown(name)
    for name in ("model", "input"):
        if name not in body:
            yield missing(name)
    if not isinstance(body["model"], str) or not body["model"]:
        yield wrong_type("model", "a string")
    if not isinstance(body["input"], str | list):
        yield wrong_type("input", "one of an array of objects or string")
    if not body["input"]:
        yield empty_array("input")
    if body.get("store") is not False:
        yield Problem("law: nothing is left on the server, store must be false", "store")
    if body.get("previous_response_id") is not None:
        name = body["previous_response_id"]
        yield Problem(f"Previous response with id '{name}' not found.", "previous_response_id")
    for name, kinds in (("instructions", str), ("stream", bool), ("prompt_cache_key", str)):
        if not isinstance(body.get(name), kinds | None):
            yield wrong_type(name, f"a {kinds.__name__}")
    if len(body.get("prompt_cache_key") or "") > _MAX_CACHE_KEY:
        yield Problem("Invalid 'prompt_cache_key': string too long.", "prompt_cache_key")
    limit = body.get("max_output_tokens", _MIN_OUTPUT)
    if not isinstance(limit, int) or isinstance(limit, bool):
        yield wrong_type("max_output_tokens", "an integer")
    if limit < _MIN_OUTPUT:
        yield Problem(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >="
            f" {_MIN_OUTPUT}, but got {limit} instead.",
            "max_output_tokens",
            "integer_below_min_value",
        )
    for index, name in enumerate(body.get("include") or ()):
        if name not in _INCLUDABLE:
            yield wrong_value(f"include[{index}]", name, _INCLUDABLE)


def _reasoning(body: Mapping[str, Any]) -> Iterator[str]:
    model, reasoning = body["model"].removeprefix("openai."), body.get("reasoning") or {}
    if not is_reasoning_model(model):
        for name in reasoning:
            yield Problem(
                f"Unsupported parameter: 'reasoning.{name}' is not supported with this model.",
                f"reasoning.{name}",
                "unsupported_parameter",
            )
        if "reasoning.encrypted_content" in (body.get("include") or ()):
            yield Problem("Encrypted content is not supported with this model.", "include")
        return
    for name in sorted(set(reasoning) - {"effort", "summary", "context", "mode"}):
        yield unknown(f"reasoning.{name}")
    effort, summary = reasoning.get("effort"), reasoning.get("summary")
    known = _efforts(model)
    if effort is not None and effort not in known:
        allowed = ", ".join(f"'{each}'" for each in known)
        yield Problem(
            f"Unsupported value: '{effort}' is not supported with the '{model}' model. Supported"
            f" values are: {allowed}.",
            "reasoning.effort",
            "unsupported_value",
        )
    if summary not in {None, "auto", "concise", "detailed"}:
        yield wrong_value("reasoning.summary", summary, {"auto", "concise", "detailed"})


def _efforts(model: str) -> list[str]:
    found = re.match(r"gpt-(\d+)(?:\.(\d+))?", model)
    version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    if "pro" in model:
        return ["high"] if version == (5, 0) else ["medium", "high", "xhigh"]
    usual = ["low", "medium", "high"]
    if "codex" in model or version == (0, 0):
        return usual
    if version >= (5, 2):  # https://developers.openai.com/api/docs/guides/reasoning
        usual.append("xhigh")
    return ["minimal", *usual] if version == (5, 0) else ["none", *usual]


def _tools(body: Mapping[str, Any]) -> Iterator[str]:
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        yield wrong_type("tools", "an array of objects")
    if len(tools) > _MAX_TOOLS:
        yield Problem("Invalid 'tools': array too long.", "tools", "array_above_max_length")
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            yield missing(f"{where}.type")
        if "name" not in tool:
            yield missing(f"{where}.name")
        for name in sorted(set(tool) - _TOOL):
            yield unknown(f"{where}.{name}")
        if not TOOL_NAME.fullmatch(str(tool["name"])):
            yield Problem(
                f"Invalid '{where}.name': string does not match pattern. Expected a string that"
                " matches the pattern '^[a-zA-Z0-9_-]+$'.",
                f"{where}.name",
                "invalid_value",
            )
        schema = tool.get("parameters")
        kind = schema.get("type") if isinstance(schema, dict) else None
        strict = tool.get("strict", True)
        if kind != "object" or (strict and schema.get("additionalProperties") is not False):
            yield Problem(
                f"Invalid schema for function '{tool['name']}': In context=(),"
                " 'additionalProperties' is required to be supplied and to be false."
                if kind == "object"
                else f"Invalid schema for function '{tool['name']}': schema must be a JSON Schema"
                f" of 'type: \"object\"', got 'type: \"{kind}\"'.",
                f"{where}.parameters",
                "invalid_function_parameters",
            )


def _calls_and_outputs(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each call is answered once, and by the first item that is not the model's own."""
    seen: set[str] = set()
    pending: list[str] = []
    answering = False
    for item in items:
        if item.get("type") == _OUTPUTS:
            call_id = item["call_id"]
            if call_id not in pending:
                yield Problem(
                    f"No tool call found for function call output with call_id {call_id}.", "input"
                )
            pending.remove(call_id)
            answering = True
            continue
        is_own = item.get("type") in {"reasoning", "function_call"} or (
            item.get("role") == "assistant"
        )
        if pending and (answering or not is_own):
            yield Problem(f"No tool output found for function call {pending[0]}.", "input")
        answering = False
        if item.get("type") == "function_call":
            if item["call_id"] in seen:
                yield Problem(f"Duplicate function call id {item['call_id']}.", "input")
            seen.add(item["call_id"])
            pending.append(item["call_id"])
    if pending:
        yield Problem(f"No tool output found for function call {pending[0]}.", "input")


def _followers(items: Sequence[Mapping[str, Any]], issued: Issued | None) -> Iterator[str]:
    """A reasoning item is followed by the item that it led to, and that one knows it."""
    for index, item in enumerate(items):
        after = items[index + 1] if index + 1 < len(items) else {}
        before = items[index - 1] if index else {}
        if item.get("type") == "reasoning":
            own = issued.follower(item["id"]) if issued is not None else None
            kinds = {"reasoning", "function_call", "message"} if own is None else {own["type"]}
            is_own = after.get("type") in kinds and after.get("role", "assistant") == "assistant"
            if own is not None and after.get("id", own["id"]) != own["id"]:
                is_own = False
            if not is_own:
                yield Problem(
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required"
                    " following item.",
                    "input",
                )
        elif issued is not None and (reasoning := issued.leader(item.get("id"))) is not None:
            if before.get("id") != reasoning:
                yield Problem(
                    f"Item '{item['id']}' of type '{item['type']}' was provided without its"
                    f" required 'reasoning' item: '{reasoning}'.",
                    "input",
                )
