"""The reply side of Chat Completions: chunks to events, tolerant of what servers really send.

Law: only choice 0 counts; a call starts once its name is known; arguments are passed on as they
come; a reply is over at ``[DONE]``, or at the end of the bytes when a finish reason was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentcli.domain.messages import StopReason, Usage
from agentcli.domain.stream import (
    StreamEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)
from agentcli.providers._base import StreamDecoder, received_json, token_count

_STOP_REASONS = {
    "stop": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
    "eos": StopReason.END_TURN,
    "eos_token": StopReason.END_TURN,
    "stop_sequence": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
}

Json = dict[str, Any]


class _Call:
    """A call that is being received. ``block`` is ``None`` until its name is known."""

    __slots__ = ("arguments", "block", "id", "name")

    def __init__(self) -> None:
        self.block: int | None = None
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class Decoder(StreamDecoder):
    """The events of one Chat Completions stream."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._blocks = 0
        self._open: tuple[type[TextDelta | ThinkingDelta], int] | None = None
        self._calls: dict[object, _Call] = {}
        self._latest: _Call | None = None
        self._ids: set[str] = set()
        self._stop: StopReason | None = None
        self._refused = False
        self._usage: Usage | None = None

    def handle(self, value: Mapping[str, Any]) -> None:
        """Take one chunk, or the one document of a server that does not stream."""
        usage = value.get("usage")
        if usage is None and isinstance(groq := value.get("x_groq"), dict):
            usage = groq.get("usage")
        if isinstance(usage, dict):
            self._usage = _usage(usage)
        choices = value.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices:
            if isinstance(choice, dict) and not choice.get("index"):
                self._choice(choice)

    def done_marker(self) -> None:
        """The server says that this was all; a reply of nothing at all stays unfinished."""
        if self._stop is not None or self._blocks:
            self._end()

    def finish(self) -> None:
        """Some servers leave ``[DONE]`` out; a finish reason is enough."""
        if self._stop is not None:
            self._end()
        elif self._usage is not None:
            self.out.add(UsageReport(self._usage))

    def _end(self) -> None:
        if self._usage is not None:
            self.out.add(UsageReport(self._usage))
        stop = self._stop or StopReason.END_TURN
        if stop is StopReason.END_TURN:
            if self._calls:
                stop = StopReason.TOOL_USE
            elif self._refused:
                stop = StopReason.REFUSAL
        self.end(StreamEnd(stop))

    def _choice(self, choice: Json) -> None:
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            for kind, text in _pieces(delta):
                self._text(kind, text)
            refusal = delta.get("refusal")
            if isinstance(refusal, str) and refusal:
                self._refused = True
                self._text(TextDelta, refusal)
            calls = delta.get("tool_calls")
            if isinstance(calls, list):
                for call in calls:
                    if isinstance(call, dict):
                        self._call(call)
            elif isinstance(function := delta.get("function_call"), dict):
                self._call({"index": 0, "function": function})
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._stop = _STOP_REASONS.get(reason, StopReason.OTHER)

    def _text(self, kind: type[TextDelta | ThinkingDelta], text: str) -> None:
        if self._open is None or self._open[0] is not kind:
            self._open = (kind, self._new_block())
        self.out.delta(kind, self._open[1], text)

    def _new_block(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    # --- calls: matching a piece to its call -------------------------------------------------

    def _call(self, piece: Json) -> None:
        function = piece.get("function")
        if not isinstance(function, dict):
            function = {}
        call_id = piece.get("id")
        call_id = call_id if isinstance(call_id, str) else ""
        name = function.get("name")
        name = name if isinstance(name, str) else ""
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = received_json(arguments)
        elif not isinstance(arguments, str):
            arguments = ""
        call = self._match(piece.get("index"), call_id, name, arguments)
        if call is None:
            return
        self._latest = call
        call.id = call.id or call_id
        call.name = call.name or name
        call.arguments.append(arguments)
        if call.block is not None:
            self.out.delta(ToolCallDelta, call.block, arguments)
        elif call.name:
            self._start(call)

    def _start(self, call: _Call) -> None:
        self._open = None
        call.block = self._new_block()
        call_id = "" if call.id in self._ids else call.id
        self._ids.add(call.id)
        self.out.add(ToolCallStart(call.block, call_id, call.name))
        self.out.delta(ToolCallDelta, call.block, "".join(call.arguments))

    def _match(self, index: object, call_id: str, name: str, arguments: str) -> _Call | None:
        """The call that a piece belongs to; a new one where the piece begins one.

        Servers may leave out the index, the id or both, give every call index 0, or repeat id
        and name in every piece.
        """
        has_index = isinstance(index, int)
        current = self._calls.get(index) if has_index else self._latest
        if not has_index and call_id:
            known = (call for call in self._calls.values() if call.id == call_id)
            nameless = current if current is not None and not (name or current.id) else None
            current = next(known, nameless)
        if current is None:
            if not (name or call_id or has_index):
                return None
        elif not _begins_another(current, call_id, name, arguments):
            return current
        elif has_index:
            # The index is not to be trusted: move the finished call out of its way.
            self._calls[("done", len(self._calls))] = current
        call = _Call()
        self._calls[index if has_index else ("free", len(self._calls))] = call
        return call


def _begins_another(current: _Call, call_id: str, name: str, arguments: str) -> bool:
    if not name:
        return False
    if call_id and current.id and call_id != current.id:
        return True
    if current.name and name != current.name:
        return True
    starts_anew = arguments.lstrip().startswith("{")
    return starts_anew and call_id in {"", current.id} and _is_object("".join(current.arguments))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _pieces(delta: Json) -> Iterator[tuple[type[TextDelta | ThinkingDelta], str]]:
    """Text and reasoning of a delta, in the spellings of the servers."""
    for key in ("reasoning_content", "reasoning", "thinking"):
        reasoning = delta.get(key)
        if isinstance(reasoning, str) and reasoning:
            yield ThinkingDelta, reasoning
            break
    content = delta.get("content")
    if isinstance(content, str):
        if content:
            yield TextDelta, content
    elif isinstance(content, list):
        for part in content:
            if not isinstance(part, dict):
                continue
            if isinstance(thinking := part.get("thinking"), list):
                texts = (item.get("text") for item in thinking if isinstance(item, dict))
                yield ThinkingDelta, "".join(text for text in texts if isinstance(text, str))
            elif isinstance(text := part.get("text"), str) and text:
                yield TextDelta, text


def _usage(usage: Json) -> Usage:
    prompt = token_count(usage.get("prompt_tokens"))
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached = token_count(details.get("cached_tokens"))
    if cached is None:
        cached = token_count(usage.get("prompt_cache_hit_tokens"))
    written = token_count(details.get("cache_write_tokens"))
    if prompt is not None:
        prompt = max(0, prompt - (cached or 0) - (written or 0))
    out_details = usage.get("completion_tokens_details")
    reasoning = out_details.get("reasoning_tokens") if isinstance(out_details, dict) else None
    return Usage(
        input_tokens=prompt,
        output_tokens=token_count(usage.get("completion_tokens")),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=token_count(reasoning),
    )
