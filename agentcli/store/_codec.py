"""Messages to rows and back: a role and a JSON body that says its version.

Law: ``decode(*encode(message)) == message`` for every message, lone surrogates included
(HIS-8: the original stays in the store). Image bytes live in the ``blob`` table; a body names
them by SHA-256. Bodies are always valid JSON text, so that SQL can query them. Plain code on
purpose: this runs before the first request of a session, where nothing heavy is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ResultStatus,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)

BODY_VERSION = 1
USAGE_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)

PutBlob = Callable[[bytes], str]
GetBlob = Callable[[str], bytes]
Part = TextPart | ThinkingPart | ImagePart | ToolCall


class MalformedBody(ValueError):
    """A row that is not a message of ours."""


class NewerBody(ValueError):
    """A body written by a newer version of this program."""


def encode(message: Message, put_blob: PutBlob) -> tuple[str, str]:
    """``(role, body)`` of ``message``; ``put_blob`` stores bytes and returns their name."""
    parts = [_encode_part(part, put_blob) for part in message.parts]
    body: dict[str, Any] = {"v": BODY_VERSION, "parts": parts}
    if isinstance(message, UserMessage):
        return "summary" if message.is_summary else "user", to_json(body)
    if isinstance(message, ToolResult):
        body |= {"call_id": message.call_id, "name": message.name, "status": message.status.value}
        return "tool", to_json(body)
    body |= {
        "provider": message.provider,
        "model": message.model,
        "stop_reason": message.stop_reason.value,
        "usage": _encode_usage(message.usage),
    }
    return "assistant", to_json(body)


def to_json(value: Any) -> str:
    """Compact JSON text that SQLite can hold; escapes everything only where it must."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))
    return text


def _encode_part(part: Part, put_blob: PutBlob) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ThinkingPart):
        fields = {"signature": part.signature, "redacted": part.redacted}
        known = {key: value for key, value in fields.items() if value is not None}
        return {"type": "thinking", "text": part.text, **known}
    if isinstance(part, ImagePart):
        return {"type": "image", "media_type": part.media_type, "blob": put_blob(part.data)}
    call = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
    return call if part.malformed is None else {**call, "malformed": part.malformed}


def _encode_usage(usage: Usage) -> dict[str, int]:
    values = ((name, getattr(usage, name)) for name in USAGE_FIELDS)
    return {name: value for name, value in values if value is not None}


def decode(role: str, body: str, get_blob: GetBlob) -> Message:
    """The message of a row; raises ``MalformedBody`` or ``NewerBody``.

    ``get_blob`` returns the bytes of a name and raises ``KeyError`` when there are none.
    """
    try:
        data = json.loads(body)
        _check_version(data["v"])
        parts = [_decode_part(part, get_blob) for part in data["parts"]]
        return _build(role, parts, data)
    except NewerBody:
        raise
    except KeyError as error:
        raise MalformedBody(f"missing {error.args[0]}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedBody(str(error) or type(error).__name__) from error


def _check_version(version: int) -> None:
    if version > BODY_VERSION:
        raise NewerBody(f"message body of version {version}")


def _build(role: str, parts: Sequence[Part], data: dict[str, Any]) -> Message:
    if role in {"user", "summary"}:
        return UserMessage(_only(parts, (TextPart, ImagePart)), role == "summary")
    if role == "tool":
        return ToolResult(
            _text(data, "call_id"),
            _text(data, "name"),
            _only(parts, (TextPart, ImagePart)),
            ResultStatus(data["status"]),
        )
    if role == "assistant":
        return AssistantMessage(
            _only(parts, (TextPart, ThinkingPart, ToolCall)),
            _text(data, "provider"),
            _text(data, "model"),
            StopReason(data["stop_reason"]),
            _decode_usage(data["usage"]),
        )
    raise MalformedBody(f"unknown role {role!r}")


def _only(parts: Sequence[Part], kinds: tuple[type, ...]) -> Any:
    for part in parts:
        if not isinstance(part, kinds):
            raise MalformedBody(f"a {type(part).__name__} in the wrong place")
    return tuple(parts)


def _decode_part(data: dict[str, Any], get_blob: GetBlob) -> Part:
    kind = data["type"]
    if kind == "text":
        return TextPart(_text(data, "text"))
    if kind == "thinking":
        signature = _text(data, "signature") if "signature" in data else None
        redacted = _text(data, "redacted") if "redacted" in data else None
        return ThinkingPart(_text(data, "text"), signature, redacted)
    if kind == "image":
        return ImagePart(_text(data, "media_type"), get_blob(_text(data, "blob")))
    if kind == "tool_call":
        arguments = data["arguments"]
        if not isinstance(arguments, dict):
            raise MalformedBody("arguments are not an object")
        malformed = _text(data, "malformed") if "malformed" in data else None
        return ToolCall(_text(data, "id"), _text(data, "name"), arguments, malformed)
    raise MalformedBody(f"unknown part {kind!r}")


def _decode_usage(data: dict[str, Any]) -> Usage:
    values = {name: data.get(name) for name in USAGE_FIELDS}
    if not all(value is None or isinstance(value, int) for value in values.values()):
        raise MalformedBody("usage is not numbers")
    return Usage(**values)


def _text(data: dict[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str):
        raise MalformedBody(f"{key} is not text")
    return value


def to_column(text: str) -> str | bytes:
    """``text`` as a parameter of SQL: bytes where lone surrogates rule out a TEXT value.

    File names that are not UTF-8 reach us as such text, and must come back unchanged.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def from_column(value: Any) -> str:
    """The inverse of ``to_column``; a missing value is an empty text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogatepass")
    return "" if value is None else str(value)
