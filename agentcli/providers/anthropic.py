"""Anthropic's Messages API, streamed: https://platform.claude.com/docs/en/api/messages.

Law: ``encode`` is pure and, cache marks apart, extends its own earlier output byte for byte as a
conversation grows (prompt cache); thinking goes back exactly as it came (HIS-4); the results of
a batch come first in the one user message after it (HIS-1, HIS-3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from agentcli.domain.clean import as_object, as_text, clean_id, clean_name
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    Message,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.patterns import LazyPattern
from agentcli.domain.ports import Effort, ModelRequest
from agentcli.domain.stream import (
    StreamEnd,
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
    base64_text,
    received_json,
    token_count,
    with_own_fields,
)
from agentcli.providers._errors import auth_headers

API_VERSION = "2023-06-01"
# Lets a model of the Claude 4 family think between tool calls too.
INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
DEFAULT_MAX_TOKENS = 32_000
_CACHE_MARK = {"type": "ephemeral"}
_STOP_REASONS = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.END_TURN,
    "tool_use": StopReason.TOOL_USE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSAL,
}


# --- request -----------------------------------------------------------------------------


def encode(request: ModelRequest) -> Json:
    """The body of a Messages request. ``request.messages`` is a prepared history."""
    body: Json = {"model": request.model.name, "stream": True}
    limit = request.max_output_tokens or min(request.model.max_output_tokens, DEFAULT_MAX_TOKENS)
    body["max_tokens"] = limit
    body.update(thinking_fields(request, limit))
    if request.system:
        body["system"] = [
            {"type": "text", "text": request.system, "cache_control": dict(_CACHE_MARK)}
        ]
    if request.tools:
        tools: list[Json] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": dict(tool.parameters),
            }
            for tool in request.tools
        ]
        tools[-1]["cache_control"] = dict(_CACHE_MARK)
        body["tools"] = tools
        # https://platform.claude.com/docs/en/build-with-claude/extended-thinking#extended-thinking-with-tool-use
        if request.tool_choice and body.get("thinking", {}).get("type") in {None, "disabled"}:
            any_of_them = request.tool_choice == "*"
            named = {"type": "tool", "name": request.tool_choice}
            body["tool_choice"] = {"type": "any"} if any_of_them else named
    elif names := _called(request.messages):
        # calls in the history need a declaration, also where nothing may be called any more
        body["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        body["tool_choice"] = {"type": "none"}
    messages = _encode_messages(request.messages)
    _mark_for_cache(messages)
    body["messages"] = messages
    return with_own_fields(body, request)


def _called(messages: Sequence[Message]) -> list[str]:
    """The names of the tools that the history calls, each once."""
    made = (
        call for one in messages if isinstance(one, AssistantMessage) for call in one.tool_calls
    )
    return list(dict.fromkeys(call.name for call in made))


def _encode_messages(messages: Sequence[Message]) -> list[Json]:
    encoded: list[Json] = []
    loose_images: list[Json] = []

    def add(role: str, blocks: Iterable[Json]) -> None:
        if encoded and encoded[-1]["role"] == role:
            encoded[-1]["content"].extend(blocks)
        else:
            encoded.append({"role": role, "content": list(blocks)})

    for message in messages:
        if isinstance(message, ToolResult):
            add("user", [_tool_result(message)])
            if message.is_error:
                loose_images += [_image(p) for p in message.parts if isinstance(p, ImagePart)]
            continue
        if loose_images:
            add("user", loose_images)
            loose_images = []
        if isinstance(message, UserMessage):
            add("user", (_content(part) for part in message.parts))
        else:
            add("assistant", _assistant_blocks(message))
    if loose_images:
        add("user", loose_images)
    return encoded


def _content(part: TextPart | ImagePart) -> Json:
    return _image(part) if isinstance(part, ImagePart) else {"type": "text", "text": part.text}


def _image(part: ImagePart) -> Json:
    source = {
        "type": "base64",
        "media_type": part.media_type,
        "data": base64_text(part.data),
    }
    return {"type": "document" if isinstance(part, DocumentPart) else "image", "source": source}


def _tool_result(result: ToolResult) -> Json:
    """A result block. The API takes text only in an error; its images follow the results."""
    block: Json = {"type": "tool_result", "tool_use_id": clean_id(result.call_id)}
    if result.is_error:
        block["content"] = [_content(p) for p in result.parts if isinstance(p, TextPart)] or [
            {"type": "text", "text": "The call failed; an image follows."}
        ]
        block["is_error"] = True
    else:
        block["content"] = [_content(part) for part in result.parts]
    return block


def _assistant_blocks(message: AssistantMessage) -> list[Json]:
    blocks: list[Json] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCall):
            blocks.append(
                {
                    "type": "tool_use",
                    "id": clean_id(part.id),
                    "name": clean_name(part.name),
                    "input": part.arguments,
                }
            )
        elif part.redacted is not None:
            blocks.append({"type": "redacted_thinking", "data": part.redacted})
        elif part.signature is not None:
            blocks.append({"type": "thinking", "thinking": part.text, "signature": part.signature})
    # A message may not end in thinking; the API refuses it.
    while len(blocks) > 1 and blocks[-1]["type"] in {"thinking", "redacted_thinking"}:
        blocks.pop()
    return blocks


def _mark_for_cache(messages: list[Json]) -> None:
    """Marks on the last two user messages: this request's end and the one before (4 in all)."""
    marked = 0
    for message in reversed(messages):
        if message["role"] == "user":
            last = message["content"][-1]
            message["content"][-1] = {**last, "cache_control": dict(_CACHE_MARK)}
            marked += 1
            if marked == 2:  # noqa: PLR2004 - the API allows four, system and tools take two
                return


# --- thinking, by model version ----------------------------------------------------------

# Sources: https://platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting and
# /extended-thinking. Law: a combination that the API refuses is never sent; where thinking cannot
# be had as asked, the nearest that is accepted is sent.

MIN_BUDGET = 1_024
_BUDGETS = {
    Effort.MINIMAL: MIN_BUDGET,
    Effort.LOW: 4_096,
    Effort.MEDIUM: 10_000,
    Effort.HIGH: 24_000,
    Effort.XHIGH: 32_000,
    Effort.MAX: 64_000,
}
_EFFORT_NAMES = {
    Effort.MINIMAL: "low",
    Effort.LOW: "low",
    Effort.MEDIUM: "medium",
    Effort.HIGH: "high",
    Effort.XHIGH: "xhigh",
    Effort.MAX: "max",
}
_CLAUDE = LazyPattern(
    r"claude-(?:(?P<family>[a-z]+)-)?(?:(?P<major>\d{1,2})(?!\d)(?:[-.](?P<minor>\d{1,2})(?!\d))?)?"
)
# First versions with: thinking at all, adaptive thinking, text left out unless asked for,
# thinking unless told otherwise, thinking that cannot be switched off.
_FIRST_THINKING = (3, 7)
_FIRST_ADAPTIVE = (4, 6)
_FIRST_HIDDEN = (4, 7)
_FIRST_XHIGH = (4, 7)  # https://platform.claude.com/docs/en/build-with-claude/effort
_FIRST_DEFAULT_ON = (5, 0)
_FIRST_PRESERVED = (5, 5)
_UNNUMBERED = (99, 0)

Json = dict[str, Any]


def _version(model: str) -> tuple[str, tuple[int, int] | None]:
    """Family and version of a Claude model in any provider's spelling."""
    match = _CLAUDE.search(model)
    if match is None:
        return "", None
    family = match["family"] or ""
    if match["major"] is None:
        return family, _UNNUMBERED
    return family, (int(match["major"]), int(match["minor"] or 0))


def thinking_fields(request: ModelRequest, limit: int) -> Json:
    """The fields that ask for thinking; may raise ``max_tokens`` above the budget."""
    effort = request.effort
    family, version = _version(request.model.name)
    if version is not None and version >= _FIRST_ADAPTIVE:
        return _adaptive_thinking(family, version, effort)
    knows_thinking = request.model.supports_thinking if version is None else True
    if version is not None and version < _FIRST_THINKING:
        knows_thinking = False
    if effort in {None, Effort.NONE} or not knows_thinking:
        return {}
    if not _loop_has_thinking(request.messages):
        return {}
    ceiling = request.max_output_tokens or max(limit, request.model.max_output_tokens)
    budget = min(_BUDGETS[effort or Effort.LOW], ceiling - MIN_BUDGET)
    if budget < MIN_BUDGET:
        return {}
    return {
        "thinking": {"type": "enabled", "budget_tokens": budget},
        "max_tokens": min(max(limit, budget + 4 * MIN_BUDGET), ceiling),
    }


def _adaptive_thinking(family: str, version: tuple[int, int], effort: Effort | None) -> Json:
    always_on = family in {"fable", "mythos"} or (family == "opus" and version >= _FIRST_PRESERVED)
    adaptive: Json = {"type": "adaptive"}
    if version >= _FIRST_HIDDEN:
        adaptive["display"] = "summarized"
    if effort is None:
        return {"thinking": adaptive} if version >= _FIRST_DEFAULT_ON else {}
    if effort is not Effort.NONE:
        name = _EFFORT_NAMES[effort]
        name = "high" if name == "xhigh" and version < _FIRST_XHIGH else name
        return {"thinking": adaptive, "output_config": {"effort": name}}
    if always_on:
        return {"thinking": adaptive, "output_config": {"effort": "low"}}
    if family == "sonnet" and version >= _FIRST_PRESERVED:
        return {"thinking": {"type": "between_tools"}}
    return {"thinking": {"type": "disabled"}}


def _loop_has_thinking(messages: Sequence[Message]) -> bool:
    """Whether every assistant message since the last user message begins with thinking.

    With a budget, the API refuses a tool loop that was begun without thinking.
    """
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            return True
        if isinstance(message, AssistantMessage):
            first = message.parts[0] if message.parts else None
            if not isinstance(first, ThinkingPart):
                return False
            if first.signature is None and first.redacted is None:
                return False
    return True


# --- reply -------------------------------------------------------------------------------


class MessagesDecoder(StreamDecoder):
    """The events of one Messages stream.

    A second message in it, or a block in the place of another, is an error (STR-12). With its stop
    reason, which comes after all blocks, it is whole, also where ``message_stop`` is missing:
    https://docs.anthropic.com/en/api/messages-streaming#event-types.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kinds: dict[int, str] = {}
        self._call_ids: dict[int, object] = {}
        self._begun: object = None
        self._whole_inputs: dict[int, str] = {}
        self._inputs: dict[int, StringIO] = {}
        self._held: dict[int, ToolCallStart] = {}  # calls whose id is known already
        self._stop: StopReason | None = None

    def handle(self, value: Mapping[str, Any]) -> None:
        """Take one event; unknown ones, and ``ping``, mean nothing."""
        kind = value.get("type")
        if kind == "message" and isinstance(blocks := value.get("content"), list):
            self._whole_message(value, blocks)
        elif kind == "message_start":
            message = value.get("message")
            message = as_object(message)
            known, self._begun = self._begun, message.get("id") or True
            if known is not None and (self._kinds or known != self._begun):
                self.mixed_up("a second message begins in it")
                return
            self._usage(message.get("usage"))
        elif kind == "message_delta":
            delta = value.get("delta")
            if isinstance(delta, dict) and isinstance(reason := delta.get("stop_reason"), str):
                self._stop = _STOP_REASONS.get(reason, StopReason.OTHER)
            self._usage(value.get("usage"), final=True)
            self.complete = self._stop is not None
        elif kind == "message_stop":
            for unfinished in [*self._whole_inputs, *self._held]:
                self._flush_input(unfinished)
            has_calls = "tool_use" in self._kinds.values()
            guess = StopReason.TOOL_USE if has_calls else StopReason.END_TURN
            self.end(StreamEnd(self._stop or guess))
        elif isinstance(index := value.get("index"), int):
            self._block_event(kind, index, value)

    def finish(self) -> None:
        """The bytes have ended: in good order when a stop reason was given."""
        if self._stop is not None:
            self.handle({"type": "message_stop"})

    def _whole_message(self, message: Mapping[str, Any], blocks: Sequence[object]) -> None:
        """The one document of a server that does not stream."""
        for index, block in enumerate(blocks):
            if isinstance(block, dict):
                self._start(index, block)
        self.handle({"type": "message_delta", "delta": message, "usage": message.get("usage")})
        self.handle({"type": "message_stop"})

    def _block_event(self, kind: object, index: int, value: Mapping[str, Any]) -> None:
        self.bound(self._kinds)
        if kind == "content_block_delta":
            if isinstance(delta := value.get("delta"), dict):
                self._delta(index, delta)
        elif kind == "content_block_start":
            if isinstance(block := value.get("content_block"), dict):
                self._start(index, block)
        elif kind == "content_block_stop":
            self._flush_input(index)

    def _start(self, index: int, block: Json) -> None:
        kind = block.get("type")
        if not isinstance(kind, str):
            return
        known, call_id = self._kinds.get(index), block.get("id")
        if known is not None:
            if known != kind or self._call_ids.get(index) != call_id:
                self.mixed_up(f"block {index} is {known}, then another {kind}")
            return
        self._kinds[index], self._call_ids[index] = kind, call_id
        self.bound(self._kinds, len(kind) + len(str(call_id)))
        if kind == "text":
            self.out.delta(TextDelta, index, as_text(block.get("text")))
        elif kind == "thinking":
            self.out.delta(ThinkingDelta, index, as_text(block.get("thinking")))
            if signature := as_text(block.get("signature")):
                self.out.add(ThinkingSeal(index, signature=signature))
        elif kind == "redacted_thinking":
            self.out.add(ThinkingSeal(index, redacted=as_text(block.get("data"))))
        elif kind == "tool_use":
            self._start_call(index, block)

    def _start_call(self, index: int, block: Json) -> None:
        start = ToolCallStart(index, as_text(block.get("id")), as_text(block.get("name")))
        self._inputs[index] = StringIO()
        if start.id and list(self._call_ids.values()).count(start.id) > 1:
            self._held[index] = start
        else:
            self.out.add(start)
        if isinstance(whole := block.get("input"), dict) and whole:
            self._whole_inputs[index] = text = received_json(whole)
            self.bound(again=len(text))

    def _delta(self, index: int, delta: Json) -> None:
        kind = delta.get("type")
        if kind == "text_delta":
            if self._is_for(index, "text"):
                self.out.delta(TextDelta, index, as_text(delta.get("text")))
        elif kind == "input_json_delta":
            text = as_text(delta.get("partial_json"))
            if text and index in self._kinds and self._is_for(index, "tool_use"):
                self._whole_inputs.pop(index, None)
                self._input(index, text)
        elif kind == "thinking_delta":
            if self._kinds.setdefault(index, "thinking") == "thinking":
                self.out.delta(ThinkingDelta, index, as_text(delta.get("thinking")))
        elif kind == "signature_delta" and self._kinds.get(index) == "thinking":
            self.out.add(ThinkingSeal(index, signature=as_text(delta.get("signature"))))

    def _is_for(self, index: int, kind: str) -> bool:
        """Whether the block is of ``kind``; a piece of another kind than ours is an error."""
        known = self._kinds.setdefault(index, kind)
        if known != kind and known in {"text", "thinking", "tool_use"}:
            self.mixed_up(f"block {index} is {known} and {kind}")
        return known == kind

    def _flush_input(self, index: int) -> None:
        """Some servers put a call's whole input into its start."""
        if index in self._whole_inputs:
            self._input(index, self._whole_inputs.pop(index))
        if held := self._held.pop(index, None):
            known = [place for place, call_id in self._call_ids.items() if call_id == held.id]
            inputs = {at: self._inputs[at].getvalue() for at in known if at in self._inputs}
            self.bound(again=sum(map(len, inputs.values())))
            if not any(inputs[place] == inputs[index] for place in inputs if place != index):
                self.out.add(held)
                self.out.delta(ToolCallDelta, index, inputs[index])

    def _input(self, index: int, text: str) -> None:
        """A piece of a call's input; of one that may be known already it waits for its end."""
        self._inputs.setdefault(index, StringIO()).write(text)
        if index not in self._held:
            self.out.delta(ToolCallDelta, index, text)
        else:
            self.bound(again=len(text))

    def _usage(self, usage: object, *, final: bool = False) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("output_tokens_details")
        thinking = details.get("thinking_tokens") if isinstance(details, dict) else None
        # In the final report a zero of the input side means "see above" at some servers.
        report = Usage(
            input_tokens=_count(usage.get("input_tokens"), or_none=final),
            output_tokens=_count(usage.get("output_tokens")),
            cache_read_tokens=_count(usage.get("cache_read_input_tokens"), or_none=final),
            cache_write_tokens=_count(usage.get("cache_creation_input_tokens"), or_none=final),
            reasoning_tokens=_count(thinking),
        )
        if report.is_known:
            self.out.add(UsageReport(report))


def _count(value: object, *, or_none: bool = False) -> int | None:
    count = token_count(value)
    return None if or_none and count == 0 else count


# --- provider ----------------------------------------------------------------------------


def messages_url(base_url: str) -> str:
    """The address of the Messages API under ``base_url``, which may end in ``/v1`` or not."""
    base = base_url.rstrip("/").removesuffix("/messages").removesuffix("/v1")
    return f"{base}/v1/messages"


class AnthropicProvider(HttpProvider):
    """The Messages API of Anthropic or of a server that speaks it."""

    decoder_type = MessagesDecoder

    def url(self) -> str:
        """The address that requests are posted to."""
        return messages_url(self.config.base_url)

    def headers(self, body: Mapping[str, Any]) -> dict[str, str]:
        """Version and key; the beta mark where a thinking budget is used."""
        headers = {"anthropic-version": API_VERSION, **auth_headers(self.config, "x-api-key")}
        if body.get("thinking", {}).get("type") == "enabled":
            headers["anthropic-beta"] = INTERLEAVED_BETA
        return headers

    def encode(self, request: ModelRequest) -> Json:
        """The body of the request."""
        return encode(request)


PROVIDER = AnthropicProvider
