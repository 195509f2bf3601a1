"""Replies of the Responses API: a stream's events to ours, and reasoning as a part of a message.

https://developers.openai.com/api/reference/responses-streaming. Law: what was streamed is never
passed on twice, and what a ``done`` event knows beyond the deltas is added; a reply is over at
``response.completed``, ``response.incomplete`` or ``response.failed``; events and items that we
do not know mean nothing. An item is known by its call_id and its id, the index is only the second
key (STR-12): gateways number the items of the final list otherwise than those of the stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from io import StringIO
from typing import Any

from agentcli.domain.clean import as_list, as_object, read_json
from agentcli.domain.messages import StopReason, ThinkingPart
from agentcli.domain.stream import (
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.providers._base import StreamDecoder, openai_usage, received_json
from agentcli.providers._errors import event_error

_ENDINGS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_STOP_OF_INCOMPLETE = {
    "max_output_tokens": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}
# event -> kind of the part, field that counts the parts (and, at the end, field of the whole text)
_DELTAS = {
    "response.output_text.delta": ("text", "content_index"),
    "response.refusal.delta": ("refusal", "content_index"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content_index"),
    "response.function_call_arguments.delta": ("arguments", ""),
}
_TYPES = {
    "text": "message",
    "refusal": "message",
    "summary": "reasoning",
    "reasoning": "reasoning",
    "arguments": "function_call",
}
_APART = 1_000_000  # from here on: items that the stream has no index of their own for
_TEXTS = {
    "response.output_text.done": ("text", "content_index", "text"),
    "response.refusal.done": ("refusal", "content_index", "refusal"),
    "response.reasoning_summary_text.done": ("summary", "summary_index", "text"),
    "response.reasoning_text.done": ("reasoning", "content_index", "text"),
    "response.function_call_arguments.done": ("arguments", "", "arguments"),
}

# type of a content part -> kind of the part, field of its text
_CONTENTS = {
    "output_text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("reasoning", "text"),
}

# what a piece costs beside its text, and a value in memory beside the text that it was read from
_PIECE_CHARS = 50
_AS_VALUE = 8

Value = Mapping[str, Any]
# Which text of an item: its kind and the index of the part.
Part = tuple[str, int]


class _Item:
    """An output item that is being received.

    ``value`` is what the service said of it last, ``texts`` what was streamed of each part.
    ``type`` may be known by its texts before the service has said what it is.
    """

    __slots__ = ("block", "done", "ids", "last_part", "size", "texts", "type", "value")

    def __init__(self, value: Value, kind: object = None) -> None:
        self.type = kind
        self.ids: set[str] = set()
        self.learn(value)
        self.done = False
        self.block: int | None = None
        self.texts: dict[Part, StringIO] = {}
        self.last_part: Part | None = None
        self.size = 0

    def learn(self, value: Value) -> None:
        """What the service says of it now."""
        self.value = value
        self.type = value.get("type") or self.type
        self.ids |= {value[key] for key in ("id", "call_id") if _is_id(value.get(key))}

    def differs(self, value: Value, key: str) -> bool:
        """Whether ``value`` is of another item by what both have under ``key``."""
        ours, theirs = self.value.get(key), value.get(key)
        return _is_id(ours) and _is_id(theirs) and ours != theirs

    def streamed(self, part: Part) -> str:
        return self.texts[part].getvalue() if part in self.texts else ""

    def has_thought(self, text: str) -> bool:
        """Whether ``text`` was streamed as thinking, maybe under another name."""
        thought = "".join(self.streamed(part) for part in self.texts)
        return bool(text) and "".join(text.split()) in "".join(thought.split())


class ResponsesDecoder(StreamDecoder):
    """The events of one Responses stream."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._items: dict[int, _Item] = {}
        self._text_blocks: dict[tuple[int, int], int] = {}
        self._blocks = 0
        self._refused = False
        self._has_calls = False
        self._response_id: object = None

    def handle(self, value: Value) -> None:
        """Take one event, or the one document of a server that does not stream."""
        kind = value.get("type")
        if kind in _ENDINGS:
            self._finish(as_object(value.get("response")))
        elif kind == "error":
            self._fail({"error": value})
        elif kind is None and value.get("object") == "response":
            self._finish(value)
        elif kind == "response.created":
            response_id = as_object(value.get("response")).get("id")
            if self._items and response_id != self._response_id:
                self.mixed_up("a second reply begins in it")
            self._response_id = response_id
        elif isinstance(kind, str):
            index = value["output_index"] if "output_index" in value else self._place(value)
            if isinstance(index, int):
                self._item_event(kind, index, value)

    def _item_event(self, kind: str, index: int, value: Value) -> None:
        self.bound(self._items)
        if kind in {"response.output_item.added", "response.output_item.done"}:
            self.bound(again=_AS_VALUE * self.event_chars)
            item = as_object(value.get("item"))
            is_done = kind.endswith("done")
            slot = self._slot_of(index, item, is_done=is_done)
            if slot is not None:
                (self._done if is_done else self._added)(slot, item)
            return
        found = _text_of(kind, value)
        slot = None if found is None else self._slot(index, value.get("item_id"), found[0][0])
        if found is None or slot is None:
            return
        part, text = found
        if kind not in _DELTAS:
            self._whole(slot, part, text)
        elif not self._items[slot].done:
            self._delta(slot, part, text)

    # --- which item it is (STR-12) -----------------------------------------------------------

    def _place(self, value: Value) -> int:
        """The index of an event that has none, as llama.cpp's: by its id, else a new one."""
        item = as_object(value.get("item"))
        names = [value.get("item_id"), item.get("call_id"), item.get("id")]
        for at, known in self._items.items():
            if any(name in known.ids for name in names if _is_id(name)):
                return at
        return max((at for at in self._items if at < _APART), default=-1) + 1

    def _slot(self, index: int, item_id: object, name: str) -> int | None:
        """Where the item is that a text of the kind ``name`` belongs to; ``None``: nowhere."""
        kind, here = _TYPES[name], self._items.get(index)
        if _is_id(item_id) and (here is None or item_id not in here.ids):
            known = (at for at, item in self._items.items() if item_id in item.ids)
            index = next((at for at in known if self._items[at].type == kind), index)
            here = self._items.get(index)
        if here is None:
            here = self._items[index] = _Item({}, kind)
        if here.type == kind:
            return index
        if here.type is None:
            here.type = kind
            return index
        if kind == "reasoning":  # a gateway's thoughts, at the place of what they led to
            apart = _APART + 2 * index
            self._items.setdefault(apart, _Item({}, kind))
            return apart
        if here.type in _TYPES.values():
            self.mixed_up(f"output {index} is {here.type} and {kind}")
        return None

    def _slot_of(self, index: int, value: Value, *, is_done: bool) -> int | None:
        """Where the item ``value`` of the stream is; ``None`` where it cannot be."""
        kind = value.get("type")
        here, known = self._items.get(index), self._known(index, value)
        if known is not None and (is_done or kind == "function_call"):
            if known != index and not is_done and self._items[known].differs(value, "id"):
                self.mixed_up(f"the id of output {index} belongs to another output")
                return None
            return known
        if here is not None and here.type not in {None, kind}:
            self.mixed_up(f"output {index} is {here.type} and {kind}")
            return None
        if here is not None and (
            here.differs(value, "call_id") or (not is_done and here.differs(value, "id"))
        ):
            self.mixed_up(f"the id of output {index} changes")
            return None
        return index

    def _known(self, index: int, value: Value) -> int | None:
        """Where an item with the call_id or the id of ``value`` is, at ``index`` if there."""
        for name in filter(_is_id, (value.get("call_id"), value.get("id"))):
            for at in sorted(self._items, key=lambda at: at != index):
                item = self._items[at]
                is_alike = item.type == value.get("type") and not item.differs(value, "call_id")
                if name in item.ids and is_alike:
                    return at
        return None

    def _slot_at_the_end(self, index: int, value: Value, taken: AbstractSet[int]) -> int | None:
        """Where the item ``value`` of the final list is; ``taken`` are those found already."""
        known = self._known(index, value)
        if known is not None:
            return known
        kind = value.get("type")
        alike = [
            at
            for at in (index, *sorted(self._items))
            if at in self._items and at not in taken and self._items[at].type in {kind, None}
        ]
        if kind == "function_call":
            if not alike:
                return self._free(index)
            same = [at for at in alike if self._is_same_call(self._items[at], value)]
            if not same:
                self.mixed_up("its calls are others at its end")
                return None
            return same[0]
        return alike[0] if alike else self._free(index)

    def _is_same_call(self, item: _Item, value: Value) -> bool:
        """Whether both are one call, though an id of it has changed or was never said."""
        if not item.differs(value, "call_id"):
            return True
        self.bound(again=item.size + len(str(value.get("arguments"))))
        streamed = _read(item.streamed(("arguments", 0)))
        return item.value.get("name") == value.get("name") and (
            streamed == _read(value.get("arguments"))
        )

    def _free(self, index: int) -> int:
        return index if index not in self._items else _APART + 2 * max(self._items)

    # --- items -------------------------------------------------------------------------------

    def _added(self, index: int, value: Value) -> None:
        if index in self._items:
            self._items[index].learn(value)
        else:
            self._items[index] = _Item(value)
        self._pass_on(index)

    def _done(self, index: int, value: Value) -> None:
        """The item is whole: add what the deltas left out."""
        self._added(index, value)
        item = self._items[index]
        item.done = True
        if item.type == "function_call":
            arguments = value.get("arguments")
            if isinstance(arguments, dict):
                arguments = received_json(arguments)
            self._whole(index, ("arguments", 0), arguments)
        elif item.type == "message":
            for number, part in enumerate(as_list(value.get("content"))):
                if found := _content_of(as_object(part), number):
                    self._whole(index, *found)
        elif item.type == "reasoning":
            for number, part in enumerate(as_list(value.get("summary"))):
                self._whole(index, ("summary", number), as_object(part).get("text"))
            for number, part in enumerate(as_list(value.get("content"))):
                self._whole(index, ("reasoning", number), as_object(part).get("text"))
            if index < _APART:  # else nothing says which item it was for
                self._seal(index)

    def _pass_on(self, index: int) -> None:
        """Start a call whose name is known; keep what a message and its reasoning need."""
        item = self._items[index]
        if item.type == "function_call":
            name, call_id = item.value.get("name"), item.value.get("call_id")
            if item.block is None and isinstance(name, str) and name:
                item.block = self._new_block()
                self._has_calls = True
                self.out.add(
                    ToolCallStart(item.block, call_id if isinstance(call_id, str) else "", name)
                )
                self.out.delta(ToolCallDelta, item.block, item.streamed(("arguments", 0)))
        before = self._items.get(index - 1)
        if before is not None and before.type == "reasoning":
            if before.done:
                self._seal(index - 1)
        elif item.type == "message" and item.block is None and not item.texts:
            signature = seal(None, item.value)
            if signature is not None:
                item.block = self._new_block()
                self.out.add(ThinkingSeal(item.block, signature=signature))

    def _seal(self, index: int) -> None:
        """The signature of a finished reasoning item; made again when its follower is known."""
        item, following = self._items[index], self._items.get(index + 1)
        signature = seal(item.value, following.value if following is not None else None)
        if signature is not None:
            if item.block is None:
                item.block = self._new_block()
            self.out.add(ThinkingSeal(item.block, signature=signature))

    def _new_block(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    # --- texts -------------------------------------------------------------------------------

    def _whole(self, index: int, part: Part, text: object) -> None:
        """The full text of a part: pass on what is missing of it; what was streamed stays."""
        if isinstance(text, str):
            item = self._items.get(index)
            before = item.streamed(part) if item is not None else ""
            self.bound(again=len(before))
            if item is not None and item.type == "reasoning" and before != text:
                self.bound(again=item.size)
                if item.has_thought(text):
                    return
            if text.startswith(before):
                self._delta(index, part, text[len(before) :])

    def _delta(self, index: int, part: Part, text: object) -> None:
        if not isinstance(text, str) or not text:
            return
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _Item({})
        kind, number = part
        if kind == "arguments":
            if item.block is not None:
                self.out.delta(ToolCallDelta, item.block, text)
            else:
                self.bound(again=len(text))
        elif kind in {"text", "refusal"}:
            self._refused = self._refused or kind == "refusal"
            place = (index, number)
            if place not in self._text_blocks:
                self._text_blocks[place] = self._new_block()
            self.out.delta(TextDelta, self._text_blocks[place], text)
        else:
            if item.block is None:
                item.block = self._new_block()
            if item.last_part not in {None, part}:
                self.out.delta(ThinkingDelta, item.block, "\n\n")
            self.out.delta(ThinkingDelta, item.block, text)
        item.last_part = part
        item.texts.setdefault(part, StringIO()).write(text)
        self.bound(item.texts)
        item.size += len(text) + _PIECE_CHARS

    # --- endings -----------------------------------------------------------------------------

    def _finish(self, response: Value) -> None:
        status = response.get("status")
        if status in {"failed", "cancelled"} or response.get("error"):
            self._fail({"error": response.get("error") or {"message": f"the reply was {status}"}})
            return
        taken: set[int] = set()
        for index, value in enumerate(map(as_object, as_list(response.get("output")))):
            slot = self._slot_at_the_end(index, value, taken)
            if slot is None:
                return
            taken.add(slot)
            self.bound(taken)
            known = self._items.get(slot)
            if known is None or not known.done:
                self._done(slot, value)
        usage = response.get("usage")
        if isinstance(usage, dict):
            self.out.add(UsageReport(openai_usage(usage, "input", "output")))
        self.end(StreamEnd(self._stop(response, status)))

    def _stop(self, response: Value, status: object) -> StopReason:
        if status == "incomplete":
            reason = as_object(response.get("incomplete_details")).get("reason")
            return _STOP_OF_INCOMPLETE.get(str(reason), StopReason.OTHER)
        if self._has_calls:
            return StopReason.TOOL_USE
        return StopReason.REFUSAL if self._refused else StopReason.END_TURN

    def _fail(self, value: Value) -> None:
        self.failure = event_error(self.endpoint, value)


def _text_of(kind: str, value: Value) -> tuple[Part, object] | None:
    """Which text of an item an event brings, a piece of it or all of it."""
    if kind in _DELTAS:
        name, counter = _DELTAS[kind]
        return (name, _index(value.get(counter))), value.get("delta")
    if kind in _TEXTS:
        name, counter, field = _TEXTS[kind]
        return (name, _index(value.get(counter))), value.get(field)
    part = as_object(value.get("part"))
    if kind == "response.reasoning_summary_part.done":
        return ("summary", _index(value.get("summary_index"))), part.get("text")
    if kind == "response.content_part.done":
        return _content_of(part, _index(value.get("content_index")))
    return None


def _content_of(part: Value, number: int) -> tuple[Part, object] | None:
    known = _CONTENTS.get(str(part.get("type")))
    return None if known is None else ((known[0], number), part.get(known[1]))


def _read(arguments: object) -> object:
    try:
        return read_json(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _is_id(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _index(value: object) -> int:
    return value if isinstance(value, int) else 0


# --- reasoning as a part of a message, and back ------------------------------------------

# A part's signature is the JSON text of a *seal*: ``item`` is the reasoning item to send back and
# ``next`` says which item has to follow it (type, id, phase). A seal without ``item`` only keeps
# what has no place in a ``TextPart``: the id and the phase of the message behind it.
# https://developers.openai.com/api/docs/guides/reasoning. Law: every text of an item comes back as
# it was sent; an item that a request without storage cannot resolve is never sent (HIS-4, HIS-7).

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# "status" is refused in input; "content" is the service's own, unless nothing is encrypted.
_KEPT = ("type", "id", "summary", "encrypted_content")
_NEXT = ("type", "id", "phase")

Json = dict[str, Any]


def seal(item: Mapping[str, Any] | None, following: Mapping[str, Any] | None) -> str | None:
    """The signature for a reasoning ``item`` and the item after it; ``None`` if there is no use.

    ``item`` is the service's own object, ``following`` too.
    """
    value: Json = {}
    if item is not None:
        kept = {key: item[key] for key in _KEPT if item.get(key) is not None}
        if not item.get("encrypted_content"):
            if not item.get("content"):
                return None
            kept["content"] = item["content"]
        kept.setdefault("summary", [])
        value["item"] = kept
    if following is not None:
        after = {key: text for key in _NEXT if isinstance(text := following.get(key), str)}
        value["next"] = after
        if item is None and "phase" not in after:
            return None
    return _ENCODER.encode(value) if value else None


def unseal(part: ThinkingPart) -> tuple[Json | None, Json] | None:
    """The reasoning item of ``part``, if it has one, and what follows it.

    ``None`` for a part that this protocol did not make.
    """
    if not part.signature or not part.signature.startswith("{"):
        return None
    try:
        value = json.loads(part.signature)
    except (ValueError, RecursionError):
        return None
    item, following = value.get("item"), value.get("next")
    if isinstance(item, dict) and item.get("type") != "reasoning":
        return None
    if not isinstance(item, dict) and not isinstance(following, dict):
        return None
    return (
        item if isinstance(item, dict) else None,
        as_object(following),
    )
