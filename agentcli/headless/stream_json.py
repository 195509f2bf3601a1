"""stream-json: a run as JSON objects, one a line, in the shape of the Messages API (CLI-5).

It is the shape that Claude Code's ``--output-format stream-json`` made common
(https://code.claude.com/docs/en/headless); ``stream_json.schema.json`` beside this file states it,
and every line that the tests see is held to it. Partial messages are the events of the Messages
API's own stream (https://platform.claude.com/docs/en/build-with-claude/streaming).

Laws: each object is one line of valid UTF-8 whatever the text in it (line separators, C1 controls
and lone surrogates never appear raw); nothing but the standard library and ``domain`` is imported;
``result`` is written once and nothing after it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentcli.domain.errors import AgentError
from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    CallForming,
    Cancelled,
    Compacted,
    CompactionStarted,
    CompactionTrigger,
    Done,
    Failed,
    ModelFellBack,
    OutputCapRaised,
    RetryWait,
    StepStart,
    SubAgentEvent,
    TextChunk,
    ThinkingChunk,
    ToolFinished,
    ToolGateApplied,
    ToolGateConflictResolved,
    ToolRefused,
    WrappingUp,
)
from agentcli.domain.messages import (
    AssistantMessage,
    DocumentPart,
    ImagePart,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.secrecy import WholeWords

# what ends a line for some readers, and what a terminal would obey or reorder (SEC-10)
_UNSAFE = re.compile(
    "[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


def dumps(value: Any) -> str:
    """``value`` as one line of JSON that every reader takes for one line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return _UNSAFE.sub(_escaped, text) if _UNSAFE.search(text) else text


def _escaped(found: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= found[0] <= "\udfff" else json.dumps(found[0])[1:-1]


def new_uuid() -> str:
    """A random UUID (RFC 9562, version 4)."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def assistant_message(message: AssistantMessage, message_id: str) -> dict[str, Any]:
    """An assistant message in the shape of the Messages API."""
    content: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case TextPart():
                content.append({"type": "text", "text": part.text})
            case ThinkingPart() if part.redacted is not None:
                content.append({"type": "redacted_thinking", "data": part.redacted})
            case ThinkingPart():
                signature = part.signature or ""
                block = {"type": "thinking", "thinking": part.text, "signature": signature}
                content.append(block)
            case ToolCall():
                block = {"type": "tool_use", "id": part.id, "name": part.name}
                content.append({**block, "input": part.arguments})
    model = f"{message.provider}/{message.model}" if message.provider else message.model
    reason = stop_reason(message)
    return message_object(message_id, model, content, reason, message.usage)


def stop_reason(message: AssistantMessage) -> str:
    """Why the model stopped, in the Messages API's words."""
    reason = message.stop_reason
    return "end_turn" if reason is StopReason.OTHER else str(reason)


def message_object(
    message_id: str, model: str, content: list[dict[str, Any]], reason: str | None, usage: Usage
) -> dict[str, Any]:
    """The envelope of an assistant message."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage_object(usage),
    }


def tool_result(result: ToolResult) -> dict[str, Any]:
    """A tool's result as a content block; ``content`` is always a list of blocks."""
    return {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": [_block(part) for part in result.parts],
        "is_error": result.is_error,
    }


def user_blocks(message: UserMessage) -> list[dict[str, Any]]:
    """The parts of a user message as content blocks."""
    return [_block(part) for part in message.parts]


def _block(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    import base64

    data = base64.b64encode(part.data).decode("ascii")
    source = {"type": "base64", "media_type": part.media_type, "data": data}
    return {"type": "document" if isinstance(part, DocumentPart) else "image", "source": source}


def usage_object(usage: Usage) -> dict[str, int | None]:
    """Token counts by the Messages API's names; ``None`` where the provider did not say."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def denial(event: ToolRefused) -> dict[str, Any]:
    """One entry of ``permission_denials``."""
    return {
        "tool_name": event.call.name,
        "tool_use_id": event.call.id,
        "tool_input": event.call.arguments,
        "reason": event.reason,
    }


_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class PartialMessages:
    """An answer as it forms: events of one message after another; ``emit`` gets each of them.

    Law: who folds the events of a message that was not cut gets its text, its thinking and its
    calls. A call's block opens as soon as its id is known; its arguments come in one piece when
    the message is complete, as they were repaired (LOOP-10). A message that was cut ends without
    ``message_delta``. A word waits until it is whole: no key is known by a piece of it (SEC-9).
    """

    def __init__(
        self, emit: Callable[[dict[str, Any]], None], redact: Callable[[str], str] = str
    ) -> None:
        self._emit = emit
        self._words = WholeWords(redact)
        self._block = ""
        self._index = -1
        self._calls: dict[str, int] = {}
        self.model = ""
        self.message_id = ""

    def piece(self, kind: str, text: str) -> None:
        """More ``text`` or ``thinking``."""
        if not text:
            return
        if self._block != kind:
            self._end_block()
            self._start(_EMPTY[kind])
            self._block = kind
        self._say(self._words.add(text))

    def _say(self, text: str) -> None:
        if text:
            kind = self._block
            self._delta(self._index, {"type": f"{kind}_delta", kind: text})

    def call(self, call_id: str, name: str) -> None:
        """The model has begun a call; without an id it is sent when the message is complete."""
        self._end_block()
        if call_id and call_id not in self._calls:
            self._calls[call_id] = self._start_call(call_id, name)

    def end(self, message: AssistantMessage | None) -> str:
        """The message is complete, or was cut; its id, empty when none was begun."""
        calls = message.tool_calls if message is not None else ()
        if not self.message_id and not calls:
            return ""
        self._end_block()
        for call in calls:
            self._end_call(call)
        for index in self._calls.values():  # the answer was asked for again, and it changed
            self._stop(index)
        if message is not None:
            delta = {"stop_reason": stop_reason(message), "stop_sequence": None}
            usage = usage_object(message.usage)
            self._emit({"type": "message_delta", "delta": delta, "usage": usage})
        self._emit({"type": "message_stop"})
        message_id, self.message_id = self.message_id, ""
        self._calls.clear()
        self._index = -1
        return message_id

    def _start_call(self, call_id: str, name: str) -> int:
        return self._start({"type": "tool_use", "id": call_id, "name": name, "input": {}})

    def _end_call(self, call: ToolCall) -> None:
        index = self._calls.pop(call.id, None)
        if index is None:
            index = self._start_call(call.id, call.name)
        text = call.malformed
        if text is None:
            text = json.dumps(call.arguments, ensure_ascii=False)
        self._delta(index, {"type": "input_json_delta", "partial_json": text})
        self._stop(index)

    def _start(self, block: dict[str, Any]) -> int:
        if not self.message_id:
            self.message_id = f"msg_{new_uuid()}"
            message = message_object(self.message_id, self.model, [], None, Usage())
            self._emit({"type": "message_start", "message": message})
        self._index += 1
        event = {"type": "content_block_start", "index": self._index, "content_block": dict(block)}
        self._emit(event)
        return self._index

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        self._emit({"type": "content_block_delta", "index": index, "delta": delta})

    def _end_block(self) -> None:
        if self._block:
            self._say(self._words.rest())
            self._stop(self._index)
            self._block = ""

    def _stop(self, index: int) -> None:
        self._emit({"type": "content_block_stop", "index": index})


_NOTHING: Mapping[str, Sequence[str]] = {}


class StreamWriter:
    """Writes the lines of one run. ``write`` gets a line with its line feed and flushes it.

    ``redact`` takes keys out of a line.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        include_partial: bool = False,  # noqa: FBT001, FBT002 - a setting
        redact: Callable[[str], str] = str,
    ) -> None:
        self._write = write
        self._redact = redact
        self._partial = PartialMessages(self._stream_event, redact) if include_partial else None
        self._session_id = ""
        self._is_compacting = False
        self._ended = False
        self.ends_with_result = False

    def init(
        self,
        session_id: str,
        model: str,
        cwd: str,
        tools: Sequence[str],
        permission_mode: str,
        extensions: Mapping[str, Sequence[str]] = _NOTHING,
    ) -> None:
        """The first line; ``extensions``: names of commands, agents, skills, servers by kind."""
        from agentcli import __version__

        self._session_id = session_id
        if self._partial is not None:
            self._partial.model = model
        self._system(
            "init",
            cwd=cwd,
            tools=list(tools),
            mcp_servers=[
                {"name": name, "status": "pending"} for name in extensions.get("mcp_servers", ())
            ],
            model=model,
            permissionMode=permission_mode,
            **{
                kind: list(extensions.get(kind, ()))
                for kind in ("slash_commands", "agents", "skills")
            },
            agentcli_version=__version__,
        )

    def on_event(self, event: AgentEvent) -> None:
        """Write what ``event`` amounts to; most events amount to nothing."""
        match event:
            case TextChunk() | ThinkingChunk() | CallForming():
                self._piece(event)
            case StepStart() | Done() | Cancelled() | Failed():
                self._set_compacting(to=False)
                self._end_partial(None)
            case AssistantRecorded():
                message_id = self._end_partial(event.message) or f"msg_{event.seq}"
                self._message("assistant", assistant_message(event.message, message_id))
            case ToolFinished():
                self._message("user", {"role": "user", "content": [tool_result(event.result)]})
            case SubAgentEvent(call_id=call_id, event=AssistantRecorded() as inner):
                message_id = f"msg_{call_id}_{inner.seq}"
                self._message("assistant", assistant_message(inner.message, message_id), call_id)
            case SubAgentEvent(call_id=call_id, event=ToolFinished() as inner):
                content = [tool_result(inner.result)]
                self._message("user", {"role": "user", "content": content}, call_id)
            case _:
                self._news(event)

    def _message(self, kind: str, message: Mapping[str, Any], parent: str | None = None) -> None:
        """A message; ``parent`` is the call that the sub-agent works for whose message it is."""
        self._emit(
            {
                "type": kind,
                "message": message,
                "parent_tool_use_id": parent,
                "session_id": self._session_id,
            }
        )

    def result(self, result: Mapping[str, Any], *, more: bool = False) -> None:
        """The last line of the run, or of a turn when there may be ``more``; nothing follows."""
        if not self._ended:
            self._end_partial(None)
            shape = result.get("structured_output")
            rest = {name: value for name, value in result.items() if name != "structured_output"}
            # what was asked for in a shape of its own is never changed (SEC-9)
            line = self._redact(dumps(rest))[:-1]
            self._write(f'{line},"structured_output":{dumps(shape)}}}\n')
            self._ended = not more
            self.ends_with_result = True

    def replay(self, message: UserMessage, uuid: str) -> None:
        """What was said on stdin, now that it is recorded; ``uuid`` as its sender named it."""
        value = {
            "type": "user",
            "message": {"role": "user", "content": user_blocks(message)},
            "parent_tool_use_id": None,
            "session_id": self._session_id,
            "isReplay": True,
        }
        self._emit(value | {"uuid": uuid} if uuid else value)

    def input_error(self, line: int, reason: str) -> None:
        """A line of stdin was skipped."""
        self._system("input_error", line=line, error=reason)

    def control(self, value: Mapping[str, Any]) -> None:
        """A message of the control channel, as it is."""
        if not self._ended:
            self._write(self._redact(dumps(value)) + "\n")
            self.ends_with_result = False

    def _set_compacting(self, *, to: bool) -> None:
        if to == self._is_compacting:
            return
        self._is_compacting = to
        self._system("status", status="compacting" if to else None)

    def _news(self, event: AgentEvent) -> None:
        """What the engine did by itself: a line of its own for each."""
        match event:
            case RetryWait():
                self._retry(event)
            case OutputCapRaised():
                # the message stays open: what follows goes on where the cut reply ended (STR-7)
                tokens = {"old_tokens": event.old_tokens, "new_tokens": event.new_tokens}
                self._system("output_cap_raised", **tokens)
            case ModelFellBack():
                models = {"old_model": event.old, "new_model": event.new}
                self._system("model_fallback", **models, **_error_fields(event.error))
            case WrappingUp():
                self._system("wrapping_up", reason=event.reason)
            case ToolGateApplied():
                self._system(event.type, winner="", **_gate_fields(event))
            case ToolGateConflictResolved():
                self._system(event.type, winner=event.winner, **_gate_fields(event))
            case CompactionStarted():
                self._set_compacting(to=True)
            case Compacted():
                self._set_compacting(to=False)
                self._compacted(event)
            case _:
                pass

    def _retry(self, event: RetryWait) -> None:
        self._system(
            "api_retry",
            attempt=event.attempt,
            max_retries=event.max_attempts,
            retry_delay_ms=round(event.delay_s * 1000),
            error_status=getattr(event.error, "status", None),
            **_error_fields(event.error),
        )

    def _compacted(self, event: Compacted) -> None:
        """In the shape of Claude Code, with what it does not tell beside it (CMP-2)."""
        is_manual = event.trigger is CompactionTrigger.MANUAL
        metadata = {
            "trigger": "manual" if is_manual else "auto",
            "pre_tokens": event.tokens_before,
            "post_tokens": event.tokens_after,
            "pre_messages": event.messages_before,
            "post_messages": event.messages_after,
            "kept": event.kept,
            "folded": event.folded,
            "usage": usage_object(event.usage),
        }
        self._system("compact_boundary", compact_metadata=metadata)

    def _system(self, subtype: str, **fields: Any) -> None:
        named = {"type": "system", "subtype": subtype, **fields}
        self._emit({**named, "session_id": self._session_id})

    def _emit(self, value: dict[str, Any]) -> None:
        if not self._ended:
            value.setdefault("uuid", new_uuid())
            self._write(self._redact(dumps(value)) + "\n")
            self.ends_with_result = False

    # --- partial messages ------------------------------------------------------------------

    def _piece(self, event: TextChunk | ThinkingChunk | CallForming) -> None:
        if self._partial is None:
            return
        match event:
            case TextChunk(text=text):
                self._partial.piece("text", text)
            case ThinkingChunk(text=text):
                self._partial.piece("thinking", text)
            case CallForming():
                self._partial.call(event.id, event.name)

    def _end_partial(self, message: AssistantMessage | None) -> str:
        return self._partial.end(message) if self._partial is not None else ""

    def _stream_event(self, event: dict[str, Any]) -> None:
        self._emit(
            {
                "type": "stream_event",
                "event": event,
                "parent_tool_use_id": None,
                "session_id": self._session_id,
            }
        )


def _gate_fields(event: ToolGateApplied | ToolGateConflictResolved) -> dict[str, Any]:
    lists = [
        {
            "gate": each.gate,
            "priority": each.priority,
            "required": each.required,
            "set_aside": each.set_aside,
            "allowed_tools": list(each.allowed),
        }
        for each in event.lists
    ]
    return {"step": event.step, "gates": lists, "allowed_tools": list(event.allowed)}


def _error_fields(error: AgentError) -> dict[str, str]:
    return {"error": str(getattr(error, "kind", "other")), "message": error.message}
