"""Single input items of the Responses API: what is wrong with each by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.strict_shared import (
    IMAGE_TYPES,
    TOOL_NAME,
    Problem,
    decode_base64,
    sniff_image,
)

_MAX_ID = 64
_GOOD_ID = re.compile(r"[A-Za-z0-9_-]+")
_FIELDS = {
    "message": {"type", "id", "role", "content", "status", "phase"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status", "namespace"},
    "function_call_output": {"type", "id", "call_id", "output", "status", "name"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content"},
}
_PREFIX = {"message": "msg", "function_call": "fc", "function_call_output": "fc", "reasoning": "rs"}
_PARTS = {
    "assistant": {"output_text", "refusal"},
    "user": {"input_text", "input_image", "input_file"},
    "system": {"input_text", "input_image", "input_file"},
    "developer": {"input_text", "input_image", "input_file"},
}
Item = Mapping[str, Any]


@dataclass
class Issued:
    """The items that the server has said, per reply: the only reasoning that may come back."""

    items: dict[str, tuple[str, Item]] = field(default_factory=dict)
    """Item id -> (model, item)."""
    _follower: dict[str, Item] = field(default_factory=dict)
    _leader: dict[str, str] = field(default_factory=dict)

    def remember(self, model: str, output: Sequence[Item]) -> None:
        """Note the items of one reply."""
        for item, after in zip(output, [*output[1:], None], strict=False):
            self.items[item["id"]] = (model, item)
            if item["type"] == "reasoning" and after is not None:
                self._follower[item["id"]] = after
                if after["type"] != "reasoning":
                    self._leader[after["id"]] = item["id"]

    def follower(self, reasoning_id: str) -> Item | None:
        """The item that came after a reasoning item."""
        return self._follower.get(reasoning_id)

    def leader(self, item_id: str | None) -> str | None:
        """The id of the reasoning that led to an item."""
        return self._leader.get(item_id or "")


def unknown(where: str) -> Problem:
    return Problem(f"Unknown parameter: '{where}'.", where, "unknown_parameter")


def missing(where: str) -> Problem:
    return Problem(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")


def wrong_type(where: str, expected: str) -> Problem:
    return Problem(f"Invalid type for '{where}': expected {expected}.", where, "invalid_type")


def wrong_value(where: str, value: object, allowed: Collection[str]) -> Problem:
    known = ", ".join(f"'{each}'" for each in sorted(allowed))
    return Problem(
        f"Invalid value: '{value}'. Supported values are: {known}.", where, "invalid_value"
    )


def empty_array(where: str) -> Problem:
    return Problem(
        f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty"
        " array instead.",
        where,
        "empty_array",
    )


def bad_items(
    items: Sequence[Any], body: Mapping[str, Any], issued: Issued | None
) -> Iterator[Problem]:
    """What is wrong with any item by itself."""
    seen: set[str] = set()
    for index, item in enumerate(items):
        where = f"input[{index}]"
        if not isinstance(item, dict):
            yield wrong_type(where, "an object")
        kind = item.get("type", "message")
        if kind not in _FIELDS:
            yield wrong_value(f"{where}.type", kind, _FIELDS)
        for name in sorted(set(item) - _FIELDS[kind]):
            yield unknown(f"{where}.{name}")
        yield from _item_id(f"{where}.id", item, kind, seen)
        if kind == "message":
            yield from _message(where, item)
        elif kind == "reasoning":
            yield from _reasoning(where, item, str(body["model"]), issued)
        else:
            yield from _call_id(f"{where}.call_id", item)
            yield from (_call if kind == "function_call" else _output)(where, item)


def _item_id(where: str, item: Item, kind: str, seen: set[str]) -> Iterator[Problem]:
    if "id" not in item:
        if kind == "reasoning" or (item.get("status") and item.get("role") == "assistant"):
            yield missing(where)
        return
    item_id = item["id"]
    if not isinstance(item_id, str) or not _GOOD_ID.fullmatch(item_id):
        yield Problem(
            f"Invalid '{where}': '{item_id}'. Expected an ID that contains letters, numbers,"
            " underscores, or dashes, but this value contained additional characters.",
            where,
            "invalid_value",
        )
    if not item_id.startswith(_PREFIX[kind]):
        yield Problem(
            f"Invalid '{where}': '{item_id}'. Expected an ID that begins with '{_PREFIX[kind]}'.",
            where,
            "invalid_value",
        )
    if len(item_id) > _MAX_ID:
        yield _too_long(where, item_id)
    if item_id in seen:
        yield Problem(
            f"Duplicate item found with id {item_id}. Remove duplicate items from your input and"
            " try again.",
            "input",
        )
    seen.add(item_id)


def _too_long(where: str, value: str) -> Problem:
    return Problem(
        f"Invalid '{where}': string too long. Expected a string with maximum length {_MAX_ID}, but"
        f" got a string with length {len(value)} instead.",
        where,
        "string_above_max_length",
    )


def _too_short(where: str) -> Problem:
    return Problem(
        f"Invalid '{where}': string too short. Expected a string with minimum length 1, but got an"
        " empty string instead.",
        where,
        "string_below_min_length",
    )


def _message(where: str, item: Item) -> Iterator[Problem]:
    role, content = item.get("role"), item.get("content")
    if role not in _PARTS:
        yield wrong_value(f"{where}.role", role, _PARTS)
    if "phase" in item and (
        role != "assistant" or item["phase"] not in {"commentary", "final_answer"}
    ):
        yield wrong_value(f"{where}.phase", item["phase"], {"commentary", "final_answer"})
    if isinstance(content, str):
        if not content.strip():
            yield _too_short(f"{where}.content")
        return
    yield from _content(f"{where}.content", content, _PARTS[str(role)])


def _content(where: str, content: Any, allowed: Collection[str]) -> Iterator[Problem]:
    if not isinstance(content, list):
        yield wrong_type(where, "one of an array of objects or string")
    if not content:
        yield empty_array(where)
    for index, part in enumerate(content):
        place = f"{where}[{index}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            yield wrong_value(f"{place}.type", kind, allowed)
        if kind == "input_image":
            yield from _image(place, part)
            continue
        if kind == "input_file":
            yield from _file(place, part)
            continue
        known = {"type", "text"} | ({"annotations", "logprobs"} if kind == "output_text" else set())
        for name in sorted(set(part) - known):
            yield unknown(f"{place}.{name}")
        if not isinstance(part.get("text"), str):
            yield missing(f"{place}.text")
        if not part["text"].strip():
            yield _too_short(f"{place}.text")


def _file(where: str, part: Item) -> Iterator[Problem]:
    """https://developers.openai.com/api/docs/guides/pdf-files."""
    for name in sorted(set(part) - {"type", "filename", "file_data"}):
        yield unknown(f"{where}.{name}")
    head, _, data = str(part.get("file_data")).partition(";base64,")
    content = decode_base64(data)
    if head != "data:application/pdf" or content is None or not content.startswith(b"%PDF-"):
        yield Problem(f"Invalid file data: '{where}.file_data'", where, "invalid_value")
    if not part.get("filename"):
        yield missing(f"{where}.filename")


def _image(where: str, part: Item) -> Iterator[Problem]:
    for name in sorted(set(part) - {"type", "image_url", "detail", "file_id"}):
        yield unknown(f"{where}.{name}")
    url = part.get("image_url")
    if not isinstance(url, str):
        yield wrong_type(f"{where}.image_url", "an image URL, but got an object instead")
        return
    if part.get("detail", "auto") not in {"auto", "low", "high", "original"}:
        yield wrong_value(f"{where}.detail", part["detail"], {"auto", "low", "high", "original"})
    if url.startswith("https://"):
        return
    found = re.fullmatch(r"data:([^;,]+);base64,(.*)", url, re.DOTALL)
    data = decode_base64(found[2]) if found else None
    if found is None or data is None:
        text = f"Invalid '{where}.image_url'. Expected a base64-encoded data URL with an image"
        yield Problem(
            f"{text} MIME type (e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got an"
            " invalid base64-encoded value.",
            f"{where}.image_url",
            "invalid_value",
        )
    elif found[1] not in IMAGE_TYPES or sniff_image(data) != found[1]:
        yield Problem(
            "The image data you provided does not represent a valid image. Please check your input"
            " and try again with one of the supported image formats: ['image/jpeg', 'image/png',"
            " 'image/gif', 'image/webp'].",
            "input",
            "invalid_value",
        )


def _call_id(where: str, item: Item) -> Iterator[Problem]:
    call_id = item.get("call_id")
    if not isinstance(call_id, str):
        yield missing(where)
    elif not call_id:
        yield _too_short(where)
    elif len(call_id) > _MAX_ID:
        yield _too_long(where, call_id)


def _call(where: str, item: Item) -> Iterator[Problem]:
    if not isinstance(item.get("name"), str) or not TOOL_NAME.fullmatch(item["name"]):
        yield Problem(
            f"Invalid '{where}.name': string does not match pattern. Expected a string that matches"
            " the pattern '^[a-zA-Z0-9_-]+$'.",
            f"{where}.name",
            "invalid_value",
        )
    try:
        is_object = isinstance(json.loads(item.get("arguments", "")), dict)
    except (TypeError, ValueError):
        is_object = False
    if not is_object:
        yield Problem(
            f"Invalid '{where}.arguments': expected a string that holds a JSON object.",
            f"{where}.arguments",
            "invalid_value",
        )


def _output(where: str, item: Item) -> Iterator[Problem]:
    output = item.get("output")
    if output is None:
        yield missing(f"{where}.output")
    if not isinstance(output, str):
        yield from _content(f"{where}.output", output, _PARTS["user"])


def _reasoning(where: str, item: Item, model: str, issued: Issued | None) -> Iterator[Problem]:
    if not isinstance(item.get("summary"), list):
        yield missing(f"{where}.summary")
    if item.get("content"):
        yield Problem(
            f"Invalid '{where}.content': array too long. Expected an array with maximum length 0,"
            f" but got an array with length {len(item['content'])} instead.",
            f"{where}.content",
            "array_above_max_length",
        )
    secret = item.get("encrypted_content")
    if not secret:
        yield Problem(
            f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to"
            " false. Try again with `store` set to true, or remove this item from your input.",
            "input",
        )
    if issued is None:
        return
    maker, original = issued.items.get(item["id"], ("", {}))
    if maker != model or original.get("encrypted_content") != secret:
        shown = f"{secret[:4]}...{secret[-4:]}"
        yield Problem(
            f"The encrypted content {shown} could not be verified.",
            None,
            "invalid_encrypted_content",
        )
    if original.get("summary") != item["summary"]:
        yield Problem(f"law: the summary of {item['id']} was altered", f"{where}.summary")
