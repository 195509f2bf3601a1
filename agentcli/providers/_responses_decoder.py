"""The reply side of the Responses API: its stream events to ours.

https://developers.openai.com/api/reference/responses-streaming. Law: what was streamed is never
told twice, and what a ``done`` event knows beyond the deltas is added; a reply is over at
``response.completed``, ``response.incomplete`` or ``response.failed``; events and items that we
do not know mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcli.domain.messages import StopReason, Usage
from agentcli.domain.stream import (
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.providers._base import StreamDecoder, received_json, token_count
from agentcli.providers._errors import event_error
from agentcli.providers._responses_items import seal

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
_TEXTS = {
    "response.output_text.done": ("text", "content_index", "text"),
    "response.refusal.done": ("refusal", "content_index", "refusal"),
    "response.reasoning_summary_text.done": ("summary", "summary_index", "text"),
    "response.reasoning_text.done": ("reasoning", "content_index", "text"),
    "response.function_call_arguments.done": ("arguments", "", "arguments"),
}

Json = Mapping[str, Any]
# Which text of an item: its kind and the index of the part.
Part = tuple[str, int]


class _Item:
    """An output item that is being received.

    ``value`` is what the service said of it last, ``texts`` what was streamed of each part.
    """

    __slots__ = ("block", "done", "last_part", "texts", "value")

    def __init__(self, value: Json) -> None:
        self.value = value
        self.done = False
        self.block: int | None = None
        self.texts: dict[Part, list[str]] = {}
        self.last_part: Part | None = None

    @property
    def type(self) -> object:
        return self.value.get("type")

    def told(self, part: Part) -> str:
        return "".join(self.texts.get(part, ()))


class Decoder(StreamDecoder):
    """The events of one Responses stream."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._items: dict[int, _Item] = {}
        self._text_blocks: dict[tuple[int, int], int] = {}
        self._blocks = 0
        self._refused = False
        self._has_calls = False

    def handle(self, value: Json) -> None:
        """Take one event, or the one document of a server that does not stream."""
        kind = value.get("type")
        if kind in _ENDINGS:
            self._finish(_object(value.get("response")))
        elif kind == "error":
            self._fail({"error": value})
        elif kind is None and value.get("object") == "response":
            self._finish(value)
        elif isinstance(kind, str) and isinstance(index := value.get("output_index"), int):
            self._item_event(kind, index, value)

    def _item_event(self, kind: str, index: int, value: Json) -> None:
        if kind in _DELTAS:
            name, counter = _DELTAS[kind]
            self._delta(index, (name, _index(value.get(counter))), value.get("delta"))
        elif kind in _TEXTS:
            name, counter, field = _TEXTS[kind]
            self._whole(index, (name, _index(value.get(counter))), value.get(field))
        elif kind == "response.output_item.added":
            self._added(index, _object(value.get("item")))
        elif kind == "response.output_item.done":
            self._done(index, _object(value.get("item")))
        elif kind == "response.content_part.done":
            number = _index(value.get("content_index"))
            self._content(index, number, _object(value.get("part")))
        elif kind == "response.reasoning_summary_part.done":
            text = _object(value.get("part")).get("text")
            self._whole(index, ("summary", _index(value.get("summary_index"))), text)

    # --- items -------------------------------------------------------------------------------

    def _added(self, index: int, value: Json) -> None:
        if index in self._items:
            self._items[index].value = value
        else:
            self._items[index] = _Item(value)
        self._tell(index)

    def _done(self, index: int, value: Json) -> None:
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
            for number, part in enumerate(_list(value.get("content"))):
                self._content(index, number, _object(part))
        elif item.type == "reasoning":
            for number, part in enumerate(_list(value.get("summary"))):
                self._whole(index, ("summary", number), _object(part).get("text"))
            for number, part in enumerate(_list(value.get("content"))):
                self._whole(index, ("reasoning", number), _object(part).get("text"))
            self._seal(index)

    def _tell(self, index: int) -> None:
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
                self.out.delta(ToolCallDelta, item.block, item.told(("arguments", 0)))
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
        """The signature of a finished reasoning item; told again when its follower is known."""
        item, following = self._items[index], self._items.get(index + 1)
        signature = seal(item.value, following.value if following is not None else None)
        if signature is not None:
            if item.block is None:
                item.block = self._new_block()
            self.out.add(ThinkingSeal(item.block, signature=signature))

    def _content(self, index: int, number: int, part: Json) -> None:
        kind = part.get("type")
        if kind == "output_text":
            self._whole(index, ("text", number), part.get("text"))
        elif kind == "refusal":
            self._whole(index, ("refusal", number), part.get("refusal"))
        elif kind == "reasoning_text":
            self._whole(index, ("reasoning", number), part.get("text"))

    def _new_block(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    # --- texts -------------------------------------------------------------------------------

    def _whole(self, index: int, part: Part, text: object) -> None:
        """The full text of a part: tell what is missing of it; what was told stays told."""
        if isinstance(text, str):
            item = self._items.get(index)
            told = item.told(part) if item is not None else ""
            if text.startswith(told):
                self._delta(index, part, text[len(told) :])

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
        item.texts.setdefault(part, []).append(text)

    # --- endings -----------------------------------------------------------------------------

    def _finish(self, response: Json) -> None:
        status = response.get("status")
        if status in {"failed", "cancelled"} or response.get("error"):
            self._fail({"error": response.get("error") or {"message": f"the reply was {status}"}})
            return
        for index, value in enumerate(_list(response.get("output"))):
            known = self._items.get(index)
            if known is None or not known.done:
                self._done(index, _object(value))
        usage = response.get("usage")
        if isinstance(usage, dict):
            self.out.add(UsageReport(_usage(usage)))
        self.end(StreamEnd(self._stop(response, status)))

    def _stop(self, response: Json, status: object) -> StopReason:
        if status == "incomplete":
            reason = _object(response.get("incomplete_details")).get("reason")
            return _STOP_OF_INCOMPLETE.get(str(reason), StopReason.OTHER)
        if self._has_calls:
            return StopReason.TOOL_USE
        return StopReason.REFUSAL if self._refused else StopReason.END_TURN

    def _fail(self, value: Json) -> None:
        self.failure = event_error(self.endpoint, value)


def _index(value: object) -> int:
    return value if isinstance(value, int) else 0


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _usage(usage: Json) -> Usage:
    """Cached input is part of ``input_tokens`` on the wire, not in ours."""
    total = token_count(usage.get("input_tokens"))
    details = _object(usage.get("input_tokens_details"))
    cached = token_count(details.get("cached_tokens"))
    written = token_count(details.get("cache_write_tokens"))
    if total is not None:
        total = max(0, total - (cached or 0) - (written or 0))
    reasoning = _object(usage.get("output_tokens_details")).get("reasoning_tokens")
    return Usage(
        input_tokens=total,
        output_tokens=token_count(usage.get("output_tokens")),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=token_count(reasoning),
    )
