"""A reply as OpenAI Chat Completions sends it: server-sent events, byte for byte."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tests.support.replies import Call, Reply, Text, Thinking, Tokens
from tests.support.wire_anthropic import Event, pieces

PING = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"

_FINISH = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}
_ERRORS: dict[str, tuple[str, str, str | None]] = {
    "bad_request": ("invalid_request_error", "The request is invalid.", None),
    "auth": (
        "invalid_request_error",
        (
            "Incorrect API key provided. You can find your API key at"
            " https://platform.openai.com/account/api-keys."
        ),
        "invalid_api_key",
    ),
    "permission": ("invalid_request_error", "You have insufficient permissions.", None),
    "not_found": (
        "invalid_request_error",
        "The model does not exist or you do not have access to it.",
        "model_not_found",
    ),
    "too_large": ("invalid_request_error", "Request too large.", None),
    "rate_limit": (
        "requests",
        "Rate limit reached. Please try again in 1s.",
        "rate_limit_exceeded",
    ),
    "quota": (
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
    "overloaded": ("server_error", "The server is overloaded or not ready yet.", None),
    "api_error": (
        "server_error",
        "The server had an error while processing your request. Sorry about that!",
        None,
    ),
    "context": (
        "invalid_request_error",
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in"
            " 128123 tokens. Please reduce the length of the messages."
        ),
        "context_length_exceeded",
    ),
}


def error_value(
    kind: str, message: str | None = None, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The error object for a neutral kind, or with another message."""
    type_, default, default_code = _ERRORS[kind]
    error = {
        "message": message or default,
        "type": type_,
        "param": param,
        "code": code if message else default_code,
    }
    return {"error": error}


def error_event(kind: str) -> bytes:
    """An error inside a stream that has already begun."""
    return _data(error_value(kind))


def _data(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode("utf-8", "surrogatepass")


def encode(
    reply: Reply, model: str, number: int, *, usage: bool, reasoning: str = "reasoning_content"
) -> list[Event]:
    """(kind, bytes) of every event. ``usage`` is the request's ``include_usage``."""
    head = {
        "id": f"chatcmpl-{number:024d}",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": model,
        "system_fingerprint": "fp_0000000000",
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        tail = {"usage": None} if usage else {}
        return _data({**head, "choices": [choice], **tail})

    events: list[Event] = []
    has_text = any(isinstance(block, Text) for block in reply.blocks)
    role = {"role": "assistant", "content": "" if has_text else None, "refusal": None}
    events.append(("start", chunk(role)))
    events += [("ping", PING)] * reply.pings
    for block in reply.blocks:
        if isinstance(block, Text):
            events += [("text", chunk({"content": p})) for p in pieces(block.text, reply.piece)]
        elif isinstance(block, Thinking) and block.redacted is None:
            parts = pieces(block.text, reply.piece)
            events += [("thinking", chunk({reasoning: p})) for p in parts]
    events += [(kind, chunk({"tool_calls": [d]})) for kind, d in _calls(reply)]
    events.append(("end", chunk({}, _FINISH[reply.stop_reason])))
    if usage and reply.tokens is not None:
        events.append(("end", _data({**head, "choices": [], "usage": usage_value(reply.tokens)})))
    events.append(("end", DONE))
    return events


def _calls(reply: Reply) -> Iterator[tuple[str, dict[str, Any]]]:
    several = [block for block in reply.blocks if isinstance(block, Call)]
    each = [list(_call(index, one, reply.piece)) for index, one in enumerate(several)]
    if reply.interleave:
        for row in itertools.zip_longest(*each):
            yield from (item for item in row if item is not None)
    else:
        yield from itertools.chain.from_iterable(each)


def _call(index: int, one: Call, size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    function = {"name": one.name, "arguments": ""}
    yield "block", {"index": index, "id": one.id, "type": "function", "function": function}
    for piece in pieces(one.json_text or "{}", size):
        yield "call", {"index": index, "function": {"arguments": piece}}


def usage_value(tokens: Tokens) -> dict[str, Any]:
    """The usage object; the prompt includes what was read from the cache."""
    prompt = tokens.input + tokens.cache_read
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
