"""A reply as Gemini's ``streamGenerateContent?alt=sse`` sends it, byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.replies import Block, Call, Reply, Text, Thinking, Tokens
from tests.support.strict_gemini import is_modern
from tests.support.wire_anthropic import Event, pieces

PING = b": keep-alive\n\n"
Part = dict[str, Any]

_FINISH = {
    "end_turn": "STOP",
    "tool_use": "STOP",
    "max_tokens": "MAX_TOKENS",
    "refusal": "SAFETY",
}
_QUOTA = "generativelanguage.googleapis.com/generate_content_paid_tier_input_token_count"
_RPC = "type.googleapis.com/google.rpc."
_OVER_QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more"
    " information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits."
)


def _quota(period: str) -> list[dict[str, Any]]:
    violation = {"quotaMetric": _QUOTA, "quotaId": f"GenerateRequestsPer{period}PerProjectPerModel"}
    return [
        {"@type": f"{_RPC}QuotaFailure", "violations": [violation]},
        {"@type": f"{_RPC}Help", "links": [{"url": "https://ai.google.dev"}]},
        {"@type": f"{_RPC}RetryInfo", "retryDelay": "12s"},
    ]


_INVALID_KEY = [
    {
        "@type": f"{_RPC}ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }
]
_ERRORS: dict[str, tuple[int, str, str, list[dict[str, Any]]]] = {
    "bad_request": (400, "INVALID_ARGUMENT", "Request contains an invalid argument.", []),
    "auth": (401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", []),
    "key": (
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
        _INVALID_KEY,
    ),
    "no_key": (
        403,
        "PERMISSION_DENIED",
        "Method doesn't allow unregistered callers (callers without established identity).",
        [],
    ),
    "permission": (403, "PERMISSION_DENIED", "The caller does not have permission", []),
    "not_found": (
        404,
        "NOT_FOUND",
        (
            "models/nobody is not found for API version v1beta, or is not supported for"
            " generateContent."
        ),
        [],
    ),
    "too_large": (
        400,
        "INVALID_ARGUMENT",
        "Request payload size exceeds the limit: 20971520 bytes.",
        [],
    ),
    "rate_limit": (429, "RESOURCE_EXHAUSTED", _OVER_QUOTA, _quota("Minute")),
    "quota": (429, "RESOURCE_EXHAUSTED", _OVER_QUOTA, _quota("Day")),
    "overloaded": (
        503,
        "UNAVAILABLE",
        "The model is overloaded. Please try again later.",
        [],
    ),
    "busy": (
        503,
        "UNAVAILABLE",
        "This model is currently experiencing high demand. Please try again later.",
        [],
    ),
    "api_error": (500, "INTERNAL", "An internal error has occurred.", []),
    "context": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
        [],
    ),
}


def error_value(kind: str, message: str | None = None) -> dict[str, Any]:
    """The error object for a neutral kind, or with another message."""
    code, status, default, details = _ERRORS[kind]
    error: dict[str, Any] = {"code": code, "message": message or default, "status": status}
    if details and message is None:
        error["details"] = details
    return {"error": error}


def error_event(kind: str) -> bytes:
    """An error inside a stream that has already begun."""
    return event(error_value(kind))


def event(value: dict[str, Any]) -> bytes:
    """One server-sent event."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\r\n\r\n".encode("utf-8", "surrogatepass")


def whole_parts(blocks: Sequence[Block], model: str, number: int) -> list[Part]:
    """The parts of a reply before they are cut in pieces, with their signatures.

    Gemini 3 signs the first call of a reply or, where it has none, an empty text at its end;
    earlier models sign only after they have thought.
    """
    parts: list[Part] = []
    pending = ""
    for block in blocks:
        if isinstance(block, Thinking):
            pending = block.signature or pending
            parts.append({"text": block.text, "thought": True})
        elif isinstance(block, Text):
            parts.append({"text": block.text})
        else:
            parts.append(_call(block, model))
    calls = [part for part in parts if "functionCall" in part]
    if not pending and is_modern(model):
        pending = signature_for(f"{model}/{number}")
    if pending and calls:
        calls[0]["thoughtSignature"] = pending
    elif pending:
        parts.append({"text": "", "thoughtSignature": pending})
    return parts


def signature_for(seed: str) -> str:
    """An opaque value, different for each seed."""
    return base64.b64encode(hashlib.sha384(seed.encode()).digest()).decode()


def _call(block: Call, model: str) -> Part:
    call: dict[str, Any] = {"name": block.name}
    try:
        call["args"] = json.loads(block.json_text or "{}")
    except ValueError:
        call["args"] = block.json_text  # not Gemini itself, but servers in between
    if is_modern(model):
        call["id"] = block.id
    return {"functionCall": call}


def encode(reply: Reply, model: str, number: int) -> list[Event]:
    """(kind, bytes) of every event. Thinking must have its signatures, calls their ids."""
    return list(_events(reply, model, number))


def _events(reply: Reply, model: str, number: int) -> Iterator[Event]:
    tokens = reply.tokens
    head = {"modelVersion": model, "responseId": f"resp{number:08d}"}

    def chunk(part: Part | None, finish: str | None = None) -> bytes:
        candidate: dict[str, Any] = {"index": 0}
        if part is not None:
            candidate["content"] = {"parts": [part], "role": "model"}
        if finish is not None:
            candidate["finishReason"] = finish
        value: dict[str, Any] = {"candidates": [candidate]}
        if tokens is not None:
            value["usageMetadata"] = usage_value(tokens, final=finish is not None)
        return event({**value, **head})

    parts = whole_parts(reply.blocks, model, number)
    last = parts.pop() if parts and parts[-1].get("text") == "" else None
    yield "start", chunk({"text": ""})
    for _ in range(reply.pings):
        yield "ping", PING
    for part in parts:
        if "functionCall" in part:
            yield "call", chunk(part)
            continue
        kind = "thinking" if part.get("thought") else "text"
        for piece in pieces(part["text"], reply.piece):
            yield kind, chunk({**part, "text": piece})
    yield "end", chunk(last, _FINISH[reply.stop_reason])


def usage_value(tokens: Tokens, *, final: bool) -> dict[str, Any]:
    """The usage so far; the prompt includes what was read from the cache."""
    prompt = tokens.input + tokens.cache_read
    usage: dict[str, Any] = {"promptTokenCount": prompt, "totalTokenCount": prompt}
    if final:
        usage["candidatesTokenCount"] = tokens.output - tokens.reasoning
        usage["totalTokenCount"] = prompt + tokens.output
    if tokens.cache_read:
        usage["cachedContentTokenCount"] = tokens.cache_read
    if tokens.reasoning:
        usage["thoughtsTokenCount"] = tokens.reasoning
    return usage
