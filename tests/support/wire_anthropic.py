"""A reply as Anthropic Messages sends it: server-sent events, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.replies import Call, Reply, Text, Thinking, Tokens

Event = tuple[str, bytes]
PING = b'event: ping\ndata: {"type": "ping"}\n\n'

_ERRORS = {
    "bad_request": ("invalid_request_error", "The request is invalid."),
    "auth": ("authentication_error", "invalid x-api-key"),
    "permission": ("permission_error", "Your API key does not have permission to use this model."),
    "not_found": ("not_found_error", "model: not found"),
    "too_large": ("request_too_large", "Request exceeds the maximum size"),
    "rate_limit": (
        "rate_limit_error",
        "This request would exceed your account's rate limit. Please try again later.",
    ),
    "overloaded": ("overloaded_error", "Overloaded"),
    "api_error": ("api_error", "Internal server error"),
    "context": ("invalid_request_error", "prompt is too long: 201234 tokens > 200000 maximum"),
    "credit": (
        "invalid_request_error",
        (
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing"
            " to upgrade or purchase credits."
        ),
    ),
}


def error_value(kind: str, message: str | None = None) -> dict[str, Any]:
    """The error object for a neutral kind, or with another message."""
    type_, default = _ERRORS[kind]
    return {"type": "error", "error": {"type": type_, "message": message or default}}


def error_event(kind: str) -> bytes:
    """The ``error`` event of a stream that has already begun."""
    return event("error", error_value(kind))


def event(name: str, value: dict[str, Any]) -> bytes:
    """One server-sent event."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode("utf-8", "surrogatepass")


def encode(reply: Reply, model: str, number: int) -> list[Event]:
    """(kind, bytes) of every event. Calls must have their ids, thinking its signatures."""
    return list(_events(reply, model, number))


def _events(reply: Reply, model: str, number: int) -> Iterator[Event]:
    tokens = reply.tokens or Tokens()
    usage = {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": 1,
        "service_tier": "standard",
    }
    message = {
        "id": f"msg_{number:024d}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield "start", event("message_start", {"type": "message_start", "message": message})
    for _ in range(reply.pings):
        yield "ping", PING
    for index, block in enumerate(reply.blocks):
        yield from _block(index, block, reply.piece)
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": None}
    end: dict[str, Any] = {"type": "message_delta", "delta": delta}
    end["usage"] = {"output_tokens": tokens.output}
    yield "end", event("message_delta", end)
    yield "end", event("message_stop", {"type": "message_stop"})


def _block(index: int, block: Any, size: int) -> Iterator[Event]:
    def start(content: dict[str, Any]) -> Event:
        value = {"type": "content_block_start", "index": index, "content_block": content}
        return "block", event("content_block_start", value)

    def delta(kind: str, value: dict[str, Any]) -> Event:
        whole = {"type": "content_block_delta", "index": index, "delta": value}
        return kind, event("content_block_delta", whole)

    if isinstance(block, Text):
        yield start({"type": "text", "text": ""})
        for piece in pieces(block.text, size):
            yield delta("text", {"type": "text_delta", "text": piece})
    elif isinstance(block, Call):
        yield start({"type": "tool_use", "id": block.id, "name": block.name, "input": {}})
        for piece in ["", *pieces(block.json_text, size)]:
            yield delta(
                "call" if piece else "block", {"type": "input_json_delta", "partial_json": piece}
            )
    elif block.redacted is not None:
        yield start({"type": "redacted_thinking", "data": block.redacted})
    else:
        yield from _thinking(block, size, start, delta)
    stop = {"type": "content_block_stop", "index": index}
    yield "block", event("content_block_stop", stop)


def _thinking(block: Thinking, size: int, start: Any, delta: Any) -> Iterator[Event]:
    yield start({"type": "thinking", "thinking": "", "signature": ""})
    for piece in pieces(block.text, size):
        yield delta("thinking", {"type": "thinking_delta", "thinking": piece})
    yield delta("seal", {"type": "signature_delta", "signature": block.signature})


def pieces(text: str, size: int) -> list[str]:
    """``text`` in parts of ``size`` characters."""
    return [text[i : i + size] for i in range(0, len(text), size)]
