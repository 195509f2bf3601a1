"""Anthropic Messages: what the service answers 400 to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.strict_anthropic_blocks import (
    ALLOWED_IN,
    block_problems,
    cache_control_problems,
    text_problems,
)
from tests.support.strict_responses_items import Issued as ResponsesIssued
from tests.support.strict_shared import TOOL_NAME, Problem

_TOP = {
    "model", "max_tokens", "messages", "system", "metadata", "stop_sequences", "stream",
    "temperature", "top_k", "top_p", "tools", "tool_choice", "thinking", "service_tier",
    "container", "output_config", "inference_geo", "cache_control", "context_management",
}  # fmt: skip
_TOOL_FIELDS = {
    "name", "description", "input_schema", "cache_control", "type", "strict",
    "eager_input_streaming", "defer_loading", "allowed_callers", "input_examples",
}  # fmt: skip
_THINKING = {"thinking", "redacted_thinking"}
_MAX_BREAKPOINTS = 4


@dataclass
class Issued:
    """What the server has said so far: the only thinking that may come back (HIS-4).

    ``signatures`` maps a signature to (model, text); ``redacted`` holds (model, data);
    ``shapes`` lists each reply's blocks in order; ``plain_calls`` are calls of replies that
    held no thinking although it was enabled: those need none when they come back.
    ``on_parts`` maps a signature of Gemini to (model, mark of the part that carried it).
    """

    signatures: dict[str, tuple[str, str]] = field(default_factory=dict)
    redacted: set[tuple[str, str]] = field(default_factory=set)
    shapes: list[list[tuple[str, str]]] = field(default_factory=list)
    plain_calls: set[str] = field(default_factory=set)
    responses: ResponsesIssued = field(default_factory=ResponsesIssued)
    on_parts: dict[str, tuple[str, str]] = field(default_factory=dict)


def check_anthropic(body: Mapping[str, Any], issued: Issued | None = None) -> str | None:
    """The first reason to refuse ``body``, or ``None``. Without ``issued`` any signature goes."""
    return next(_problems(body, issued), None)


def _problems(body: Mapping[str, Any], issued: Issued | None) -> Iterator[str]:
    yield from _top_level(body)
    yield from _tools(body.get("tools"))
    messages = body["messages"]
    for index, message in enumerate(messages):
        yield from _message(f"messages.{index}", message, final=index == len(messages) - 1)
    yield from _roles(messages)
    yield from _calls_and_results(messages)
    yield from _ending(body, messages)
    yield from _thinking(body, messages, issued)
    used = any(b["type"] in {"tool_use", "tool_result"} for m in messages for b in _blocks(m))
    if used and not body.get("tools"):
        yield Problem("Requests which include `tool_use` or `tool_result` blocks must define tools")
    count = _count_breakpoints(body)
    if count > _MAX_BREAKPOINTS:
        yield Problem(f"A maximum of 4 blocks with cache_control may be provided. Found {count}.")


def _top_level(body: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(set(body) - _TOP):
        yield Problem(f"{name}: Extra inputs are not permitted")
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            yield Problem(f"{name}: Field required")
    if not isinstance(body["model"], str) or not body["model"]:
        yield Problem("model: String should have at least 1 character")
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        yield Problem("max_tokens: Input should be a valid integer")
    if limit < 1:
        yield Problem("max_tokens: Input should be greater than or equal to 1")
    if not isinstance(body["messages"], list):
        yield Problem("messages: Input should be a valid list")
    if not body["messages"]:
        yield Problem("messages: at least one message is required")
    yield from _thinking_setting(body)
    system = body.get("system", "")
    if isinstance(system, list):
        for index, block in enumerate(system):
            yield from text_problems(f"system.{index}", block, "system")
    elif not isinstance(system, str):
        yield Problem("system: Input should be a valid string or list")


def _thinking_setting(body: Mapping[str, Any]) -> Iterator[str]:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in {"enabled", "disabled", "adaptive"}:
        yield Problem("thinking.type: Input tag found does not match any of the expected tags")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int):
            yield Problem("thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            yield Problem(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            )
        if body["max_tokens"] <= budget:
            yield Problem("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if kind != "disabled":
        if body.get("temperature", 1) != 1:
            yield Problem("`temperature` may only be set to 1 when thinking is enabled.")
        if (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
            yield Problem("Thinking may not be enabled when tool_choice forces tool use.")


def _tools(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, list):
        yield Problem("tools: Input should be a valid list")
    seen = set()
    for index, tool in enumerate(tools):
        where = f"tools.{index}.custom"
        for name in sorted(set(tool) - _TOOL_FIELDS):
            yield Problem(f"{where}.{name}: Extra inputs are not permitted")
        name = tool.get("name")
        if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
            yield Problem(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if name in seen:
            yield Problem("tools: Tool names must be unique.")
        seen.add(name)
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            yield Problem(f"{where}.input_schema: Field required")
        if "type" not in schema:
            yield Problem(f"{where}.input_schema.type: Field required")
        if schema["type"] != "object":
            yield Problem(f"{where}.input_schema.type: Input should be 'object'")
        yield from cache_control_problems(where, tool)


def _count_breakpoints(node: Any) -> int:
    if isinstance(node, list):
        return sum(_count_breakpoints(item) for item in node)
    if isinstance(node, dict):
        own = 1 if isinstance(node.get("cache_control"), dict) else 0
        skipped = {"input", "input_schema", "cache_control"}
        return own + sum(_count_breakpoints(v) for k, v in node.items() if k not in skipped)
    return 0


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message(where: str, message: Any, *, final: bool) -> Iterator[str]:
    for name in sorted(set(message) - {"role", "content"}):
        yield Problem(f"{where}.{name}: Extra inputs are not permitted")
    role = message.get("role")
    if role not in ALLOWED_IN:
        yield Problem(f"{where}.role: Input should be 'user' or 'assistant'")
    content = message.get("content")
    if not isinstance(content, str | list):
        yield Problem(f"{where}.content: Input should be a valid list")
    if not content:
        if final and role == "assistant":
            return
        yield Problem(
            f"{where}: all messages must have non-empty content except for the optional final"
            " assistant message"
        )
    for index, block in enumerate(_blocks(message)):
        yield from block_problems(f"{where}.content.{index}", block, role)


def _roles(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield Problem('messages: first message must use the "user" role')
    for before, after in itertools.pairwise(messages):
        if before["role"] == after["role"]:
            yield Problem(
                'messages: roles must alternate between "user" and "assistant", but found multiple'
                f' "{after["role"]}" roles in a row'
            )


def _calls_and_results(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    pending: list[str] = []
    for index, message in enumerate(messages):
        blocks = _blocks(message)
        if message["role"] == "user":
            yield from _results_of(index, blocks, pending)
            pending = []
            continue
        calls = [(i, b["id"]) for i, b in enumerate(blocks) if b["type"] == "tool_use"]
        for position, call_id in calls:
            if call_id in seen:
                yield Problem(f"messages.{index}.content.{position}: `tool_use` ids must be unique")
            seen.add(call_id)
        pending = [call_id for _, call_id in calls]
    if pending:
        yield _unanswered(len(messages) - 1, pending)


def _results_of(
    index: int, blocks: Sequence[Mapping[str, Any]], pending: Sequence[str]
) -> Iterator[str]:
    answered: list[str] = []
    other_came_first = False
    for position, block in enumerate(blocks):
        where = f"messages.{index}.content.{position}"
        if block["type"] != "tool_result":
            other_came_first = True
            continue
        call_id = block["tool_use_id"]
        if call_id not in pending:
            yield Problem(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each"
                " `tool_result` block must have a corresponding `tool_use` block in the previous"
                " message."
            )
        if call_id in answered:
            yield Problem(
                f"{where}: each tool_use must have a single result. Found multiple `tool_result`"
                f" blocks with id: {call_id}"
            )
        if not other_came_first:
            answered.append(call_id)
    missing = [call_id for call_id in pending if call_id not in answered]
    if missing:
        yield _unanswered(index - 1, missing)


def _unanswered(index: int, call_ids: Sequence[str]) -> str:
    return Problem(
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately"
        f" after: {', '.join(call_ids)}. Each `tool_use` block must have a corresponding"
        " `tool_result` block in the next message."
    )


def _ending(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if messages[-1]["role"] != "assistant" or not messages[-1]["content"]:
        return
    last = _blocks(messages[-1])[-1]
    if last["type"] == "text" and last["text"] != last["text"].rstrip():
        yield Problem("messages: final assistant content cannot end with trailing whitespace")
    if _enabled(body) or (body.get("thinking") or {}).get("type") == "adaptive":
        yield Problem(
            "This model does not support assistant message prefill. The conversation must end with"
            " a user message."
        )


def _enabled(body: Mapping[str, Any]) -> bool:
    return (body.get("thinking") or {}).get("type") == "enabled"


def _thinking(
    body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], issued: Issued | None
) -> Iterator[str]:
    answers = [(i, _blocks(m)) for i, m in enumerate(messages) if m["role"] == "assistant"]
    for index, blocks in answers:
        if blocks and blocks[-1]["type"] in _THINKING:
            yield Problem(
                f"messages.{index}: The final block in an assistant message cannot be `thinking`."
            )
        if issued is not None:
            yield from _as_issued(str(body["model"]), index, blocks, issued)
    if _enabled(body):
        yield from _starts_with_thinking(messages, issued)


def _as_issued(
    model: str, index: int, blocks: Sequence[Mapping[str, Any]], issued: Issued
) -> Iterator[str]:
    for position, block in enumerate(blocks):
        where = f"messages.{index}.content.{position}"
        if block["type"] == "thinking":
            if issued.signatures.get(block["signature"]) != (model, block["thinking"]):
                yield Problem(f"{where}: Invalid `signature` in `thinking` block")
        elif block["type"] == "redacted_thinking" and (model, block["data"]) not in issued.redacted:
            yield Problem(f"{where}: Invalid `data` in `redacted_thinking` block")
    marks = [mark for block in blocks if (mark := mark_of(block)) is not None]
    if any(kind in _THINKING for kind, _ in marks) and marks not in issued.shapes:
        yield Problem(
            f"messages.{index}.content.0: `thinking` or `redacted_thinking` blocks in the latest"
            " assistant message cannot be modified. These blocks must remain as they were in the"
            " original response."
        )


def mark_of(block: Mapping[str, Any]) -> tuple[str, str] | None:
    """What identifies a block whose place among the others may not change."""
    if block["type"] == "thinking":
        return "thinking", str(block["signature"])
    if block["type"] == "redacted_thinking":
        return "redacted_thinking", str(block["data"])
    if block["type"] == "tool_use":
        return "tool_use", str(block["id"])
    return None


def _starts_with_thinking(
    messages: Sequence[Mapping[str, Any]], issued: Issued | None
) -> Iterator[str]:
    prompts = [
        index
        for index, message in enumerate(messages)
        if message["role"] == "user"
        and any(block["type"] != "tool_result" for block in _blocks(message))
    ]
    first = (prompts[-1] if prompts else -1) + 1
    if first >= len(messages):
        return
    blocks = _blocks(messages[first])
    ids = {block["id"] for block in blocks if block["type"] == "tool_use"}
    if issued is not None and ids and ids <= issued.plain_calls:
        return
    if blocks[0]["type"] not in _THINKING:
        yield Problem(
            f"messages.{first}.content.0.type: Expected `thinking` or `redacted_thinking`, but"
            f" found `{blocks[0]['type']}`. When `thinking` is enabled, a final `assistant` message"
            " must start with a thinking block (preceeding the lastmost set of `tool_use` and"
            " `tool_result` blocks). To avoid this requirement, disable `thinking`."
        )
