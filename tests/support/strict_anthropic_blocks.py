"""The content blocks of Anthropic Messages: what the service refuses inside one block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.strict_shared import IMAGE_TYPES, Problem, decode_base64, sniff_image

_BLOCK_FIELDS = {
    "text": {"type", "text", "citations", "cache_control"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "title", "context", "citations", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
ALLOWED_IN = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_IMAGE_BYTES = 5 * 1024 * 1024


def cache_control_problems(where: str, block: Mapping[str, Any]) -> Iterator[str]:
    control = block.get("cache_control")
    if control is None:
        return
    if not isinstance(control, dict) or control.get("type") != "ephemeral":
        yield Problem(f"{where}.cache_control.type: Input should be 'ephemeral'")
    if control.get("ttl", "5m") not in {"5m", "1h"}:
        yield Problem(f"{where}.cache_control.ephemeral.ttl: Input should be '5m' or '1h'")


def block_problems(where: str, block: Any, role: str) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in _BLOCK_FIELDS:
        yield Problem(
            f"{where}: Input tag {kind!r} found using 'type' does not match any of the expected tags"
        )
    if kind not in ALLOWED_IN[role]:
        yield Problem(
            f"{where}: `{kind}` blocks can only be in `{'user' if role == 'assistant' else 'assistant'}` messages"
        )
    for name in sorted(set(block) - _BLOCK_FIELDS[kind]):
        yield Problem(f"{where}.{kind}.{name}: Extra inputs are not permitted")
    yield from cache_control_problems(where, block)
    if kind == "text":
        yield from text_problems(where, block, "messages")
    elif kind == "document":
        yield from _document(where, block)
    elif kind == "image":
        yield from _image(where, block.get("source"))
    elif kind == "tool_use":
        yield from _tool_use(where, block)
    elif kind == "tool_result":
        yield from _tool_result(where, block)
    elif kind == "thinking":
        for name in ("thinking", "signature"):
            if not isinstance(block.get(name), str):
                yield Problem(f"{where}.thinking.{name}: Field required")
    elif kind == "redacted_thinking" and not isinstance(block.get("data"), str):
        yield Problem(f"{where}.redacted_thinking.data: Field required")


def text_problems(where: str, block: Any, place: str) -> Iterator[str]:
    text = block.get("text")
    if not isinstance(text, str):
        yield Problem(f"{where}.text.text: Input should be a valid string")
    if not text:
        yield Problem(f"{place}: text content blocks must be non-empty")
    if not text.strip():
        yield Problem(f"{place}: text content blocks must contain non-whitespace text")
    yield from cache_control_problems(where, block)


def _document(where: str, block: Mapping[str, Any]) -> Iterator[str]:
    """https://platform.claude.com/docs/en/build-with-claude/pdf-support."""
    source = block.get("source")
    source = source if isinstance(source, dict) else {}
    data = decode_base64(source.get("data"))
    if source.get("type") != "base64" or source.get("media_type") != "application/pdf":
        yield Problem(
            f"{where}.document.source.base64.media_type: Input should be 'application/pdf'"
        )
    elif data is None or not data.startswith(b"%PDF-"):
        yield Problem("The PDF specified was not valid.")


def _image(where: str, source: Any) -> Iterator[str]:
    if not isinstance(source, dict) or source.get("type") not in {"base64", "url", "file"}:
        yield Problem(f"{where}.image.source: Field required")
    if source["type"] != "base64":
        return
    declared = source.get("media_type")
    if declared not in IMAGE_TYPES:
        yield Problem(
            f"{where}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png',"
            " 'image/gif' or 'image/webp'"
        )
    data = decode_base64(source.get("data"))
    if data is None:
        yield Problem(f"{where}.image.source.base64: invalid base64 data")
        return
    if len(source["data"]) > _MAX_IMAGE_BYTES:
        yield Problem(
            f"{where}.image.source.base64: image exceeds 5 MB maximum:"
            f" {len(source['data'])} bytes > {_MAX_IMAGE_BYTES} bytes"
        )
    found = sniff_image(data)
    if found is None:
        yield Problem("Could not process image")
    if found != declared:
        yield Problem(
            f"{where}.image.source.base64.data: The image was specified using the {declared} media"
            f" type, but the image appears to be a {found} image"
        )


def _tool_use(where: str, block: Mapping[str, Any]) -> Iterator[str]:
    call_id = block.get("id")
    if not isinstance(call_id, str) or not _CALL_ID.fullmatch(call_id):
        yield Problem(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    name = block.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= 200:
        yield Problem(f"{where}.tool_use.name: String should have 1 to 200 characters")
    if not isinstance(block.get("input"), dict):
        yield Problem(f"{where}.tool_use.input: Input should be a valid dictionary")


def _tool_result(where: str, block: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(block.get("tool_use_id"), str):
        yield Problem(f"{where}.tool_result.tool_use_id: Field required")
    if not isinstance(block.get("is_error", False), bool):
        yield Problem(f"{where}.tool_result.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    failed = block.get("is_error", False)
    if failed and not content:
        yield Problem(f"{where}.tool_result: content cannot be empty if `is_error` is true")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield Problem(f"{where}.tool_result.content: Input should be a valid list")
    for index, part in enumerate(content):
        place = f"{where}.tool_result.content.{index}"
        if part.get("type") not in {"text", "image", "document"}:
            yield Problem(f"{place}: Input tag {part.get('type')!r} does not match")
        if failed and part["type"] != "text":
            yield Problem(
                f"{where}.tool_result: all content must be type `text` if `is_error` is true"
            )
        yield from block_problems(place, part, "user")
