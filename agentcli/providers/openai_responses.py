"""OpenAI's Responses API, streamed and without storage on the server.

https://developers.openai.com/api/reference/responses. Law: ``encode`` is pure and extends its own
earlier output as a conversation grows (prompt cache); reasoning goes back as it came, before the
item that it led to and to the model that made it (HIS-4, HIS-7); the outputs of a batch follow
its calls at once (HIS-1). What a service proves not to take (a summary, encrypted reasoning of
another account) is left out and the request is made again: it stops no session (HIS-8).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.cancel import CancelToken
from agentcli.domain.clean import clean_id, clean_name, digest
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from agentcli.domain.ports import Effort, ModelRequest, ProviderConfig
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSeal,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.providers._base import (
    HttpProvider,
    StreamDecoder,
    arguments_json,
    base64_text,
    openai_usage,
    received_json,
    with_own_fields,
)
from agentcli.providers._efforts import at_least_low, effort_for, gpt_version, is_reasoning_version
from agentcli.providers._errors import event_error

_NO_IMAGES = "[image left out: this model takes no images]"
_MAX_ITEM_ID = 64
# The service asks for at least 16; a smaller limit is refused.
_MIN_OUTPUT_TOKENS = 16
_ENCRYPTED = "reasoning.encrypted_content"


# Parts of a request that a service may not take, by what it says about them.
SUMMARY = "summary"
EFFORT = "effort"
ENCRYPTION = "encryption"
_NOT_TAKEN = {
    SUMMARY: r"(?i)reasoning\.summary|reasoning summar",
    EFFORT: r"(?i)reasoning\.effort|unsupported value: '(none|minimal|low|medium|xhigh)'",
    ENCRYPTION: r"(?i)encrypted content is not supported|reasoning\.encrypted",
}
_BAD_REASONING = (
    r"(?i)encrypted.content.{0,200}could not be|items are not persisted"
    r"|type 'reasoning' was provided without|without its required 'reasoning' item"
)


# --- request -----------------------------------------------------------------------------


def encode(
    request: ModelRequest,
    not_taken: frozenset[str] = frozenset(),
    bad_reasoning: frozenset[str] = frozenset(),
) -> Json:
    """The body of a Responses request. ``request.messages`` is a prepared history.

    ``not_taken`` names parts to leave out, ``bad_reasoning`` the signatures of reasoning that
    the service has refused.
    """
    body: Json = {"model": request.model.name, "stream": True, "store": False}
    if request.system:
        body["instructions"] = request.system
    body["input"] = _Input(request, bad_reasoning).items
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,
            }
            for tool in request.tools
        ]
        if request.tool_choice:
            named = {"type": "function", "name": request.tool_choice}
            body["tool_choice"] = "required" if request.tool_choice == "*" else named
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = max(request.max_output_tokens, _MIN_OUTPUT_TOKENS)
    if thinks(request):
        reasoning = _reasoning(request, not_taken)
        if reasoning:
            body["reasoning"] = reasoning
        if ENCRYPTION not in not_taken:
            body["include"] = [_ENCRYPTED]
    body["prompt_cache_key"] = _cache_key(request)
    return with_own_fields(body, request)


def thinks(request: ModelRequest) -> bool:
    """Whether the model is a reasoning model: others refuse the fields for it."""
    version = gpt_version(request.model.name)
    return request.model.supports_thinking if version is None else is_reasoning_version(version)


def _reasoning(request: ModelRequest, not_taken: frozenset[str]) -> Json:
    name, effort = request.model.name, request.effort
    fields: Json = {}
    if effort is not None and EFFORT not in not_taken:
        version = gpt_version(name)
        level = at_least_low(effort) if version is None else effort_for(name, version, effort)
        if level is not None:
            fields["effort"] = level
    if SUMMARY not in not_taken and effort is not Effort.NONE:
        fields["summary"] = "auto"
    return fields


def _cache_key(request: ModelRequest) -> str:
    """The same for all requests of a conversation, so that they meet the same cache."""
    said = request.messages[0].text if request.messages else ""
    return digest(f"{request.system}\0{said}", 32)


class _Input:
    """The input items of a request."""

    def __init__(self, request: ModelRequest, bad_reasoning: frozenset[str]) -> None:
        self.items: list[Json] = []
        self._takes_images = request.model.supports_images
        self._bad_reasoning = bad_reasoning
        for message in request.messages:
            self._add(message)

    def _add(self, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            self._add_assistant(message)
        elif isinstance(message, ToolResult):
            self.items.append(
                {
                    "type": "function_call_output",
                    "call_id": clean_id(message.call_id),
                    "output": self._output(message.parts),
                }
            )
        else:
            content = [self._content(part) for part in message.parts]
            self.items.append({"type": "message", "role": "user", "content": content})

    def _content(self, part: TextPart | ImagePart) -> Json:
        if isinstance(part, TextPart):
            return {"type": "input_text", "text": part.text}
        if not self._takes_images:
            return {"type": "input_text", "text": _NO_IMAGES}
        url = f"data:{part.media_type};base64,{base64_text(part.data)}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}

    def _output(self, parts: Sequence[TextPart | ImagePart]) -> str | list[Json]:
        content = [self._content(part) for part in parts]
        if all(part["type"] == "input_text" for part in content):
            return "\n".join(part["text"] for part in content)
        return content

    def _add_assistant(self, message: AssistantMessage) -> None:
        """Items in their order; reasoning whose own item is gone, or comes last, is left out."""
        waiting: list[Json] = []
        following: Json = {}
        is_fresh = True
        for part in message.parts:
            if isinstance(part, ThinkingPart):
                known = None if part.signature in self._bad_reasoning else unseal(part)
                if known is None:
                    continue
                if following.get("type", "reasoning") != "reasoning":
                    waiting = []
                item, following = known
                waiting += [item] if item is not None else []
                is_fresh = True
                continue
            if isinstance(part, TextPart) and not is_fresh and self._continues_text():
                self.items[-1]["content"].append(_output_text(part))
                continue
            own = self._call(part) if isinstance(part, ToolCall) else self._message(part)
            if following.get("type", own["type"]) == own["type"]:
                self.items += waiting
                self._name(own, following)
            self.items.append(own)
            waiting, following, is_fresh = [], {}, False

    def _continues_text(self) -> bool:
        last = self.items[-1]
        return (last["type"], last.get("role")) == ("message", "assistant")

    def _call(self, call: ToolCall) -> Json:
        return {
            "type": "function_call",
            "call_id": clean_id(call.id),
            "name": clean_name(call.name),
            "arguments": arguments_json(call.arguments),
        }

    def _message(self, part: TextPart) -> Json:
        return {
            "type": "message",
            "id": f"msg_{len(self.items)}",
            "role": "assistant",
            "status": "completed",
            "content": [_output_text(part)],
        }

    def _name(self, item: Json, known: Mapping[str, Any]) -> None:
        """Give ``item`` the id and the phase that the service had given it."""
        item_id = known.get("id")
        prefix = "msg" if item["type"] == "message" else "fc"
        if isinstance(item_id, str) and _is_item_id(item_id, prefix):
            item["id"] = item_id
        if item["type"] == "message" and isinstance(known.get("phase"), str):
            item["phase"] = known["phase"]


def _output_text(part: TextPart) -> Json:
    return {"type": "output_text", "text": part.text, "annotations": []}


def _is_item_id(item_id: str, prefix: str) -> bool:
    return item_id.startswith(prefix) and clean_id(item_id, _MAX_ITEM_ID) == item_id


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
        following if isinstance(following, dict) else {},
    )


# --- reply -------------------------------------------------------------------------------

# https://developers.openai.com/api/reference/responses-streaming. Law: what was streamed is never
# passed on twice, and what a ``done`` event knows beyond the deltas is added; a reply is over at
# ``response.completed``, ``response.incomplete`` or ``response.failed``; events and items that we
# do not know mean nothing.

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

Value = Mapping[str, Any]
# Which text of an item: its kind and the index of the part.
Part = tuple[str, int]


class _Item:
    """An output item that is being received.

    ``value`` is what the service said of it last, ``texts`` what was streamed of each part.
    """

    __slots__ = ("block", "done", "last_part", "texts", "value")

    def __init__(self, value: Value) -> None:
        self.value = value
        self.done = False
        self.block: int | None = None
        self.texts: dict[Part, list[str]] = {}
        self.last_part: Part | None = None

    @property
    def type(self) -> object:
        return self.value.get("type")

    def streamed(self, part: Part) -> str:
        return "".join(self.texts.get(part, ()))


class ResponsesDecoder(StreamDecoder):
    """The events of one Responses stream."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._items: dict[int, _Item] = {}
        self._text_blocks: dict[tuple[int, int], int] = {}
        self._blocks = 0
        self._refused = False
        self._has_calls = False

    def handle(self, value: Value) -> None:
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

    def _item_event(self, kind: str, index: int, value: Value) -> None:
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

    def _added(self, index: int, value: Value) -> None:
        if index in self._items:
            self._items[index].value = value
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
            for number, part in enumerate(_list(value.get("content"))):
                self._content(index, number, _object(part))
        elif item.type == "reasoning":
            for number, part in enumerate(_list(value.get("summary"))):
                self._whole(index, ("summary", number), _object(part).get("text"))
            for number, part in enumerate(_list(value.get("content"))):
                self._whole(index, ("reasoning", number), _object(part).get("text"))
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

    def _content(self, index: int, number: int, part: Value) -> None:
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
        """The full text of a part: pass on what is missing of it; what was streamed stays."""
        if isinstance(text, str):
            item = self._items.get(index)
            before = item.streamed(part) if item is not None else ""
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

    def _finish(self, response: Value) -> None:
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
            self.out.add(UsageReport(openai_usage(usage, "input", "output")))
        self.end(StreamEnd(self._stop(response, status)))

    def _stop(self, response: Value, status: object) -> StopReason:
        if status == "incomplete":
            reason = _object(response.get("incomplete_details")).get("reason")
            return _STOP_OF_INCOMPLETE.get(str(reason), StopReason.OTHER)
        if self._has_calls:
            return StopReason.TOOL_USE
        return StopReason.REFUSAL if self._refused else StopReason.END_TURN

    def _fail(self, value: Value) -> None:
        self.failure = event_error(self.endpoint, value)


def _index(value: object) -> int:
    return value if isinstance(value, int) else 0


def _object(value: object) -> Value:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# --- provider ----------------------------------------------------------------------------


def responses_url(base_url: str) -> str:
    """The address of the Responses API under ``base_url``; a bare host means ``/v1``."""
    base = base_url.rstrip("/").removesuffix("/responses")
    if not urlsplit(base).path.strip("/"):
        base += "/v1"
    return f"{base}/responses"


class ResponsesProvider(HttpProvider):
    """The Responses API of OpenAI or of a server that speaks it."""

    decoder_type = ResponsesDecoder

    def __init__(self, config: ProviderConfig) -> None:
        super().__init__(config)
        self._not_taken: dict[str, frozenset[str]] = {}
        self._bad_reasoning: frozenset[str] = frozenset()

    def url(self) -> str:
        """The address that requests are posted to."""
        return responses_url(self.config.base_url)

    def encode(self, request: ModelRequest) -> Json:
        """The body of the request."""
        not_taken = self._not_taken.get(request.model.name, frozenset())
        return encode(request, not_taken, self._bad_reasoning)

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The reply as it comes; a request with a part that is not taken is made without it."""
        begun = False
        while True:
            try:
                async with aclosing(super().stream(request, cancel)) as events:
                    async for event in events:
                        begun = True
                        yield event
            except ProviderError as error:
                if begun or cancel.cancelled or not self._learn(request, error):
                    raise
            else:
                return

    def _learn(self, request: ModelRequest, error: ProviderError) -> bool:
        """Whether ``error`` names a part of ``request`` that was sent and can be left out."""
        if error.kind is not ErrorKind.BAD_REQUEST or error.status is None:
            return False
        model, text = request.model.name, error.message
        sent = self.encode(request)
        if re.search(_BAD_REASONING, text):
            self._bad_reasoning |= _signatures(request.messages)
        else:
            for name, says_so in _NOT_TAKEN.items():
                if re.search(says_so, text):
                    known = self._not_taken.get(model, frozenset())
                    self._not_taken[model] = known | {name}
                    break
        return self.encode(request) != sent


def _signatures(messages: Sequence[Message]) -> frozenset[str]:
    return frozenset(
        part.signature
        for message in messages
        if isinstance(message, AssistantMessage)
        for part in message.parts
        if isinstance(part, ThinkingPart) and part.signature
    )


PROVIDER = ResponsesProvider
