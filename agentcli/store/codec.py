"""Messages to rows and back: a role and a JSON body that says its version.

Law: ``decode(*encode(message)) == message`` for every message, lone surrogates included
(HIS-8: the original stays in the store). Image bytes live in the ``blob`` table; a body names
them by SHA-256. Bodies are always valid JSON text, so that SQL can query them; a part that an
older or another version wrote in another way never makes the session unreadable. Plain code on
purpose: this runs before the first request of a session, where nothing heavy is imported.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from agentcli.domain.clean import MAX_VALUES, as_object, read_json
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
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

_SHOWN_CHARACTERS = 200
_MOST_VALUES = 2 * MAX_VALUES  # of a row: those of a reply's calls, and what stands around them
_PIECE_CHARS = 1 << 16

E = TypeVar("E", bound=StrEnum)
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


def checksum(role: str, body: str) -> int:
    """The CRC-32 of a row of ``message``: it finds what has changed since it was written.

    It is no proof against anyone who means to deceive: they would write another checksum, too.
    """
    proof = zlib.crc32(f"{role}\n".encode())
    for at in range(0, len(body), _PIECE_CHARS):  # a second copy of a long one is not needed
        proof = zlib.crc32(body[at : at + _PIECE_CHARS].encode(), proof)
    return proof


def prove(role: str, body: str, proof: int | None) -> None:
    """Raises ``MalformedBody`` for a row that has changed since it was written.

    ``proof`` is its checksum, ``None`` where none was written.
    """
    if proof is not None and proof != checksum(role, body):
        raise MalformedBody("it has changed since it was written (its checksum differs)")


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


def from_json(text: Any, *, strict: bool = True) -> Any:
    """The value of a JSON text of a session file, in memory of a bound (SEC-13).

    Raises ``MalformedBody``, or ``TypeError`` for what is no text.
    """
    try:
        return read_json(text, most=_MOST_VALUES, strict=strict)
    except ValueError as error:
        raise MalformedBody(str(error)) from error


def _encode_part(part: Part, put_blob: PutBlob) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ThinkingPart):
        fields = {"signature": part.signature, "redacted": part.redacted}
        known = {key: value for key, value in fields.items() if value is not None}
        return {"type": "thinking", "text": part.text, **known}
    if isinstance(part, DocumentPart):
        facts = {"media_type": part.media_type, "name": part.name, "pages": part.pages}
        return {"type": "document", **facts, "text": part.text, "blob": put_blob(part.data)}
    if isinstance(part, ImagePart):
        return {"type": "image", "media_type": part.media_type, "blob": put_blob(part.data)}
    call = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
    return call if part.malformed is None else {**call, "malformed": part.malformed}


def _encode_usage(usage: Usage) -> dict[str, int]:
    found = {}
    for name in USAGE_FIELDS:
        value = getattr(usage, name)
        if value is not None:
            found[name] = value
    return found


def decode(role: str, body: str, get_blob: GetBlob) -> Message:
    """The message of a row; raises ``MalformedBody`` or ``NewerBody``.

    ``get_blob`` returns the bytes of a name and raises ``KeyError`` when there are none. A part
    that is not of ours becomes a text that says so; only what would be lost without a word, or
    belongs nowhere, is refused: bytes that are gone, a result of no call, a row that is no JSON.
    """
    try:
        data = from_json(body)
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
            _only(parts, (TextPart, ImagePart)) or (TextPart("(no output)"),),
            _member(ResultStatus, data.get("status"), ResultStatus.ERROR),
        )
    if role == "assistant":
        return AssistantMessage(
            _only(parts, (TextPart, ThinkingPart, ToolCall)),
            _text_or(data.get("provider"), ""),
            _text_or(data.get("model"), ""),
            _member(StopReason, data.get("stop_reason"), StopReason.OTHER),
            _decode_usage(data.get("usage")),
        )
    raise MalformedBody(f"unknown role {role!r:.40}")


def _only(parts: Sequence[Part], kinds: tuple[type, ...]) -> Any:
    """``parts``, with a text in the place of what does not belong into such a message."""
    return tuple(
        part if isinstance(part, kinds) else _left_out(f"{type(part).__name__} in the wrong place")
        for part in parts
    )


def _left_out(what: str) -> TextPart:
    return TextPart(f"[left out: {what}]")


def _decode_image(data: Any, get_blob: GetBlob) -> ImagePart:
    media_type, content = _text_or(data.get("media_type"), ""), get_blob(_text(data, "blob"))
    if data["type"] == "image":
        return ImagePart(media_type, content)
    name, text, pages = (data.get(key) for key in ("name", "text", "pages"))
    count = pages if isinstance(pages, int) else 0
    return DocumentPart(media_type, content, _text_or(name, ""), _text_or(text, ""), count)


def _decode_part(data: Any, get_blob: GetBlob) -> Part:
    if isinstance(data, str):
        return TextPart(data)
    kind = data.get("type") if isinstance(data, dict) else None
    if kind == "text":
        return TextPart(_text_or(data.get("text"), "[left out: a text without text]"))
    if kind == "thinking":
        text, signature, redacted = data.get("text"), data.get("signature"), data.get("redacted")
        return ThinkingPart(_text_or(text, ""), _text_or_none(signature), _text_or_none(redacted))
    if kind in {"image", "document"}:
        return _decode_image(data, get_blob)
    if kind == "tool_call":
        return _decode_call(data)
    return _left_out(f"a part of unknown kind, {to_json(data)[:_SHOWN_CHARACTERS]}")


def _decode_call(data: dict[str, Any]) -> TextPart | ToolCall:
    """Arguments that are no object are kept as the text that could not be read (HIS-5)."""
    arguments: Any = data.get("arguments")
    malformed = _text_or_none(data.get("malformed"))
    if isinstance(arguments, str):
        arguments, malformed = _object_in(arguments), malformed or arguments
        malformed = None if arguments else malformed
    elif arguments is not None and not isinstance(arguments, dict):
        arguments, malformed = {}, to_json(arguments)
    call_id = _text_or_none(data.get("id"))
    if call_id is None:
        return _left_out("a tool call without an id")
    return ToolCall(call_id, _text_or(data.get("name"), ""), arguments or {}, malformed)


def _object_in(text: str) -> dict[str, Any]:
    try:
        value = from_json(text)
    except ValueError:
        return {}
    return as_object(value)


def _decode_usage(data: Any) -> Usage:
    known = as_object(data)
    values = {name: known.get(name) for name in USAGE_FIELDS}
    return Usage(**{name: value for name, value in values.items() if type(value) is int})


def _member(kind: type[E], value: object, otherwise: E) -> E:
    return next((member for member in kind if member.value == value), otherwise)


def _text(data: dict[str, Any], key: str) -> str:
    value = data[key]
    if not isinstance(value, str):
        raise MalformedBody(f"{key} is not text")
    return value


def _text_or(value: object, otherwise: str) -> str:
    return value if isinstance(value, str) else otherwise


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


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
