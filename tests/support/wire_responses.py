"""A reply as OpenAI's Responses API sends it: server-sent events, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.replies import Block, Call, Reply, Text, Thinking, Tokens
from tests.support.wire_anthropic import Event, event, pieces
from tests.support.wire_openai import PING, error_value

__all__ = ["PING", "encode", "error_event", "error_value", "output_of"]

ENCRYPTED = "reasoning.encrypted_content"
_STOPS = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
_PADDING = "aGJ3p"
Item = dict[str, Any]


def error_event(kind: str) -> bytes:
    """The ``error`` event of a stream that has already begun."""
    error = error_value(kind)["error"]
    code = error["code"] or error["type"]
    value = {"type": "error", "sequence_number": 7, "code": code, "param": error["param"]}
    return event("error", {**value, "message": error["message"]})


def output_of(reply: Reply, body: Mapping[str, Any], number: int) -> list[Item]:
    """The output items of ``reply``, whole."""
    wants = body.get("reasoning") or {}
    is_encrypted = ENCRYPTED in (body.get("include") or ())
    has_calls = any(isinstance(block, Call) for block in reply.blocks)
    items: list[Item] = []
    for index, block in enumerate(reply.blocks):
        unique = f"{number:08x}{index:04x}{'0' * 36}"
        if isinstance(block, Text):
            part = {"type": "output_text", "annotations": [], "logprobs": [], "text": block.text}
            item: Item = {"id": f"msg_{unique}", "type": "message", "status": "completed"}
            if str(body["model"]).startswith("gpt-6"):
                item["phase"] = "commentary" if has_calls else "final_answer"
            items.append({**item, "content": [part], "role": "assistant"})
        elif isinstance(block, Thinking):
            shown = block.text if wants.get("summary") else ""
            texts = shown.split("\n\n") if shown else []
            item = {"id": f"rs_{unique}", "type": "reasoning"}
            if is_encrypted:
                item["encrypted_content"] = block.redacted or block.signature
            items.append(
                {**item, "summary": [{"type": "summary_text", "text": text} for text in texts]}
            )
        else:
            items.append(_call_item(block, unique))
    return items


def _call_item(block: Call, unique: str) -> Item:
    return {
        "id": f"fc_{unique}",
        "type": "function_call",
        "status": "completed",
        "arguments": block.json_text or "{}",
        "call_id": block.id,
        "name": block.name,
    }


class _Numbered:
    """Builds events; each carries the next sequence number."""

    def __init__(self) -> None:
        self.number = -1

    def __call__(self, kind: str, name: str, /, **fields: Any) -> Event:
        self.number += 1
        return kind, event(name, {"type": name, "sequence_number": self.number, **fields})


def encode(reply: Reply, body: Mapping[str, Any], number: int) -> list[Event]:
    """(kind, bytes) of every event. Calls must have their ids, thinking its signatures."""
    make = _Numbered()
    head = _response(body, number, "in_progress")
    output = output_of(reply, body, number)
    events = [make("start", "response.created", response=head)]
    events += [("ping", PING)] * reply.pings
    events.append(make("block", "response.in_progress", response=head))
    for index, (block, item) in enumerate(zip(reply.blocks, output, strict=True)):
        events += _item(make, index, block, item, reply.piece)
    reason = _STOPS.get(reply.stop_reason)
    status = "incomplete" if reason else "completed"
    whole = _response(body, number, status, output)
    if reply.tokens is not None:
        whole["usage"] = usage_value(reply.tokens)
    if reason:
        whole["incomplete_details"] = {"reason": reason}
    events.append(make("end", f"response.{status}", response=whole))
    return events


def _item(make: _Numbered, index: int, block: Block, item: Item, size: int) -> Iterator[Event]:
    place = {"output_index": index, "item_id": item["id"]}
    begun = {key: value for key, value in item.items() if key != "encrypted_content"}
    if "status" in item:
        begun["status"] = "in_progress"
    begun |= {key: [] for key in ("content", "summary") if key in item}
    begun |= {key: "" for key in ("arguments",) if key in item}
    yield make("block", "response.output_item.added", output_index=index, item=begun)
    if isinstance(block, Text):
        yield from _text(make, place, item["content"][0], size)
    elif isinstance(block, Call):
        name = "response.function_call_arguments"
        for piece in pieces(item["arguments"], size):
            yield make("call", f"{name}.delta", **place, delta=piece, obfuscation=_PADDING)
        yield make("block", f"{name}.done", **place, arguments=item["arguments"], name=block.name)
    else:
        for number, part in enumerate(item["summary"]):
            yield from _summary(make, {**place, "summary_index": number}, part, size)
    yield make("block", "response.output_item.done", output_index=index, item=item)


def _text(make: _Numbered, place: Item, part: Item, size: int) -> Iterator[Event]:
    place = {**place, "content_index": 0}
    yield make("block", "response.content_part.added", **place, part={**part, "text": ""})
    for piece in pieces(part["text"], size):
        more = {"delta": piece, "logprobs": [], "obfuscation": _PADDING}
        yield make("text", "response.output_text.delta", **place, **more)
    yield make("block", "response.output_text.done", **place, text=part["text"], logprobs=[])
    yield make("block", "response.content_part.done", **place, part=part)


def _summary(make: _Numbered, place: Item, part: Item, size: int) -> Iterator[Event]:
    name = "response.reasoning_summary"
    yield make("block", f"{name}_part.added", **place, part={**part, "text": ""})
    for piece in pieces(part["text"], size):
        yield make("thinking", f"{name}_text.delta", **place, delta=piece, obfuscation=_PADDING)
    yield make("block", f"{name}_text.done", **place, text=part["text"])
    yield make("block", f"{name}_part.done", **place, part=part)


def _response(
    body: Mapping[str, Any], number: int, status: str, output: list[Item] | None = None
) -> Item:
    return {
        "id": f"resp_{number:048x}",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": body["model"],
        "output": output or [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": body.get("store", True),
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
    }


def usage_value(tokens: Tokens) -> Item:
    """The usage object; the input includes what the cache held and what went into it."""
    total = tokens.input + tokens.cache_read + tokens.cache_write
    details = {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write}
    return {
        "input_tokens": total,
        "input_tokens_details": details,
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": total + tokens.output,
    }
