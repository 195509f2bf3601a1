"""AgentEvents as stream-json: one JSON object per line (CLI-5).

The shape is the one that Claude Code's ``--output-format stream-json`` made common
(https://code.claude.com/docs/en/headless); ``stream_json.schema.json`` beside this file holds it.

Law: each object is one line of valid UTF-8 whatever the text in it (line separators, C1 controls
and lone surrogates never appear raw); nothing but the standard library and ``domain`` is
imported; ``result`` is written once and nothing after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    CallForming,
    Cancelled,
    Compacted,
    CompactionTrigger,
    Done,
    Failed,
    Outcome,
    OutputCapRaised,
    RetryWait,
    StepStart,
    TerminalEvent,
    TextChunk,
    ThinkingChunk,
    ToolFinished,
    ToolRefused,
    TurnSummary,
)
from agentcli.domain.messages import AssistantMessage, Usage
from agentcli.ui.stream_objects import (
    assistant_message,
    denial,
    dumps,
    message_object,
    new_uuid,
    stop_reason,
    tool_result,
    usage_object,
)

__all__ = ["InitInfo", "JsonlWriter", "RunFacts", "build_result", "denial", "dumps"]

_LIMITS = {
    "steps": "error_max_turns",
    "budget": "error_max_budget_usd",
    "time": "error_timeout",
    "schema": "error_max_structured_output_retries",
}


@dataclass(frozen=True, slots=True)
class InitInfo:
    """What ``system/init`` tells of a session."""

    session_id: str
    cwd: str
    model: str
    permission_mode: str
    tools: Sequence[str] = ()
    version: str = ""


class JsonlWriter:
    """Writes the lines of one run. ``write`` gets a line with its line feed and flushes it."""

    def __init__(self, write: Callable[[str], None], include_partial: bool = False) -> None:  # noqa: FBT001, FBT002 - a setting
        self._write = write
        self._partial = include_partial
        self._session_id = ""
        self._model = ""
        self._block = ""
        self._index = -1
        self._message_open = False
        self._ended = False
        self.denials: list[dict[str, Any]] = []

    def init(self, info: InitInfo) -> None:
        """The first line."""
        self._session_id = info.session_id
        self._model = info.model
        self._emit(
            {
                "type": "system",
                "subtype": "init",
                "cwd": info.cwd,
                "session_id": info.session_id,
                "tools": list(info.tools),
                "mcp_servers": [],
                "model": info.model,
                "permissionMode": info.permission_mode,
                "agentcli_version": info.version,
            }
        )

    def on_event(self, event: AgentEvent) -> None:  # noqa: C901 - one arm per event
        """Write what ``event`` amounts to; most events amount to nothing."""
        match event:
            case TextChunk():
                self._delta("text", "text_delta", "text", event.text)
            case ThinkingChunk():
                self._delta("thinking", "thinking_delta", "thinking", event.text)
            case CallForming():
                self._call_forming(event)
            case StepStart() | Done() | Cancelled() | Failed():
                self._close_message(None)
            case AssistantRecorded():
                self._close_message(event.message)
                self._emit(
                    {
                        "type": "assistant",
                        "message": assistant_message(event.message, f"msg_{event.seq}"),
                        "parent_tool_use_id": None,
                        "session_id": self._session_id,
                    }
                )
            case ToolFinished():
                self._emit(
                    {
                        "type": "user",
                        "message": {"role": "user", "content": [tool_result(event.result)]},
                        "parent_tool_use_id": None,
                        "session_id": self._session_id,
                    }
                )
            case ToolRefused():
                self.denials.append(denial(event))
            case RetryWait():
                self._retry(event)
            case OutputCapRaised():
                self._cap_raised(event)
            case Compacted():
                self._compacted(event)
            case _:
                pass

    def result(self, result: Mapping[str, Any]) -> None:
        """The last line; a second one is not written."""
        if not self._ended:
            self._close_message(None)
            self._write(dumps(result) + "\n")
            self._ended = True

    def _retry(self, event: RetryWait) -> None:
        error = event.error
        self._emit(
            {
                "type": "system",
                "subtype": "api_retry",
                "attempt": event.attempt,
                "max_retries": event.max_attempts,
                "retry_delay_ms": round(event.delay_s * 1000),
                "error_status": getattr(error, "status", None),
                "error": str(getattr(error, "kind", "other")),
                "message": error.message,
                "session_id": self._session_id,
            }
        )

    def _cap_raised(self, event: OutputCapRaised) -> None:
        """The message stays open: what follows goes on where the cut reply ended (STR-7)."""
        self._emit(
            {
                "type": "system",
                "subtype": "output_cap_raised",
                "old_tokens": event.old_tokens,
                "new_tokens": event.new_tokens,
                "session_id": self._session_id,
            }
        )

    def _compacted(self, event: Compacted) -> None:
        """In the shape of Claude Code, with what it does not tell beside it (CMP-2)."""
        is_manual = event.trigger is CompactionTrigger.MANUAL
        self._emit(
            {
                "type": "system",
                "subtype": "compact_boundary",
                "compact_metadata": {
                    "trigger": "manual" if is_manual else "auto",
                    "pre_tokens": event.tokens_before,
                    "post_tokens": event.tokens_after,
                    "pre_messages": event.messages_before,
                    "post_messages": event.messages_after,
                    "usage": usage_object(event.usage),
                },
                "session_id": self._session_id,
            }
        )

    def _emit(self, value: dict[str, Any]) -> None:
        if not self._ended:
            value["uuid"] = new_uuid()
            self._write(dumps(value) + "\n")

    # --- partial messages ------------------------------------------------------------------

    def _delta(self, block: str, delta: str, key: str, text: str) -> None:
        if not self._partial or not text:
            return
        if self._block != block:
            self._open_block(block, {"type": block, key: ""})
        self._event(
            {
                "type": "content_block_delta",
                "index": self._index,
                "delta": {"type": delta, key: text},
            }
        )

    def _call_forming(self, event: CallForming) -> None:
        if self._partial:
            start = {"type": "tool_use", "id": "", "name": event.name, "input": {}}
            self._open_block("tool_use", start)

    def _open_block(self, block: str, start: dict[str, Any]) -> None:
        if not self._message_open:
            self._message_open = True
            message = message_object(f"msg_{new_uuid()}", self._model, [], None, Usage())
            self._event({"type": "message_start", "message": message})
        self._close_block()
        self._block = block
        self._index += 1
        self._event({"type": "content_block_start", "index": self._index, "content_block": start})

    def _close_block(self) -> None:
        if self._block:
            self._event({"type": "content_block_stop", "index": self._index})
            self._block = ""

    def _close_message(self, message: AssistantMessage | None) -> None:
        """End the partial message; without ``message`` it was cut off."""
        if self._message_open:
            self._close_block()
            if message is not None:
                reason = stop_reason(message)
                self._event(
                    {
                        "type": "message_delta",
                        "delta": {"stop_reason": reason, "stop_sequence": None},
                        "usage": usage_object(message.usage),
                    }
                )
            self._event({"type": "message_stop"})
        self._message_open = False
        self._index = -1

    def _event(self, event: dict[str, Any]) -> None:
        self._emit(
            {
                "type": "stream_event",
                "event": event,
                "parent_tool_use_id": None,
                "session_id": self._session_id,
            }
        )


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run's result needs beside its terminal event.

    ``subtype`` and ``terminal_reason`` override what the event says, where the caller knows
    better (a time-out reaches the session as a cancel). ``error`` is for a run that never got a
    terminal event. ``duration_ms`` is the whole run's; without it the turn's. ``retry_after_s``
    is when a provider that failed wants to be asked again.
    """

    session_id: str = ""
    denials: Sequence[Mapping[str, Any]] = ()
    structured_output: Any = None
    subtype: str = ""
    terminal_reason: str = ""
    error: str = ""
    duration_ms: int | None = None
    summary: TurnSummary | None = field(default=None)
    retry_after_s: float | None = None


def build_result(end: TerminalEvent | None, facts: RunFacts) -> dict[str, Any]:
    """The ``result`` object: the last line of stream-json and all of ``--output-format json``.

    ``end`` is the run's terminal event, ``None`` when it never came to a turn.
    """
    summary = facts.summary or (end.summary if end else TurnSummary(Outcome.ERROR))
    subtype = facts.subtype or _subtype(end)
    is_error = subtype != "success"
    errors = [text for text in (facts.error, _error_text(end)) if text]
    if is_error and not errors:
        errors = [f"{facts.terminal_reason or _terminal_reason(end, subtype)}"]
    duration_ms = facts.duration_ms
    result = {
        "type": "result",
        "subtype": subtype,
        "is_error": is_error,
        "result": summary.text or (errors[0] if errors else ""),
        "session_id": facts.session_id,
        "num_turns": summary.steps,
        "duration_ms": round(summary.duration_s * 1000) if duration_ms is None else duration_ms,
        "duration_api_ms": round(summary.api_duration_s * 1000),
        "total_cost_usd": summary.cost_usd,
        "usage": usage_object(summary.usage),
        "permission_denials": [dict(item) for item in facts.denials],
        "structured_output": facts.structured_output,
        "terminal_reason": facts.terminal_reason or _terminal_reason(end, subtype),
        "errors": errors if is_error else [],
        "uuid": new_uuid(),
    }
    if summary.compaction.is_known:
        result["compaction_usage"] = usage_object(summary.compaction)
    if facts.retry_after_s is not None:
        result["retry_after_s"] = round(facts.retry_after_s, 3)
    return result


def _subtype(end: TerminalEvent | None) -> str:
    match end:
        case Done() if end.summary.outcome is Outcome.MAX_STEPS:
            return _LIMITS.get(end.summary.limit, "error_max_turns")
        case Done():
            return "success"
        case Cancelled():
            return _LIMITS.get(end.summary.limit, "cancelled")
        case _:
            return "error_during_execution"


def _terminal_reason(end: TerminalEvent | None, subtype: str) -> str:
    """Why the run ended, in a word or two."""
    match end:
        case Done() if subtype == "success":
            return "wrapped_up" if end.summary.outcome is Outcome.WRAPPED_UP else "completed"
        case Cancelled() if subtype == "cancelled":
            return f"cancelled_{end.reason}"
        case Failed() if subtype == "error_during_execution":
            return str(getattr(end.error, "kind", type(end.error).__name__))
        case _:
            return subtype.removeprefix("error_")


def _error_text(end: TerminalEvent | None) -> str:
    return str(end.error) if isinstance(end, Failed) else ""
