"""What a request tells the model, the same for every wire protocol: texts, calls, results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.service import ANTHROPIC, GEMINI, RESPONSES, Recorded


@dataclass
class WireFacts:
    """``results`` maps a call id to its text; ``errors`` are the ids of failed calls, where told."""

    prompts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    errors: set[str] = field(default_factory=set)


def facts_of(request: Recorded) -> WireFacts:
    """The facts of a request that the server has accepted."""
    facts = WireFacts()
    for message in request.messages:
        if request.protocol == ANTHROPIC:
            _anthropic(message, facts)
        elif request.protocol == RESPONSES:
            _responses(message, facts)
        elif request.protocol == GEMINI:
            _gemini(message, facts)
        else:
            _openai(message, facts)
    return facts


def _blocks(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    else:
        yield from content or ()


def _text(content: Any) -> str:
    kinds = {"text", "input_text", "output_text"}
    return "\n".join(block["text"] for block in _blocks(content) if block["type"] in kinds)


def _anthropic(message: dict[str, Any], facts: WireFacts) -> None:
    for block in _blocks(message["content"]):
        if block["type"] == "text":
            said = facts.prompts if message["role"] == "user" else facts.answers
            said.append(block["text"])
        elif block["type"] == "tool_use":
            facts.calls.append(block["id"])
        elif block["type"] == "tool_result":
            facts.results[block["tool_use_id"]] = _text(block.get("content"))
            if block.get("is_error"):
                facts.errors.add(block["tool_use_id"])


def _openai(message: dict[str, Any], facts: WireFacts) -> None:
    text = _text(message.get("content"))
    if message["role"] == "user":
        facts.prompts.append(text)
    elif message["role"] == "assistant":
        facts.answers += [text] if text else []
        facts.calls += [one["id"] for one in message.get("tool_calls", ())]
    elif message["role"] == "tool":
        facts.results[message["tool_call_id"]] = text


def _responses(item: dict[str, Any], facts: WireFacts) -> None:
    if item["type"] == "message":
        said = facts.prompts if item["role"] == "user" else facts.answers
        said.append(_text(item["content"]))
    elif item["type"] == "function_call":
        facts.calls.append(item["call_id"])
    elif item["type"] == "function_call_output":
        facts.results[item["call_id"]] = _text(item["output"])


def _gemini(content: dict[str, Any], facts: WireFacts) -> None:
    for part in content["parts"]:
        if part.get("text"):
            said = facts.prompts if content["role"] == "user" else facts.answers
            said.append(part["text"])
        elif "functionCall" in part:
            facts.calls.append(part["functionCall"]["id"])
        elif "functionResponse" in part:
            result = part["functionResponse"]
            facts.results[result["id"]] = "\n".join(result["response"].values())
            if "error" in result["response"]:
                facts.errors.add(result["id"])
