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

from agentcli.domain.errors import AgentError, NoStructuredOutput
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
    GatesConflicted,
    ModelFellBack,
    Outcome,
    OutputCapRaised,
    RetryWait,
    StepStart,
    SubAgentEvent,
    TerminalEvent,
    TextChunk,
    ThinkingChunk,
    ToolFinished,
    ToolRefused,
    TurnSummary,
    WrappingUp,
)
from agentcli.domain.messages import AssistantMessage, UserMessage
from agentcli.headless.partial_messages import PartialMessages
from agentcli.headless.stream_objects import (
    assistant_message,
    denial,
    dumps,
    new_uuid,
    tool_result,
    usage_object,
    user_blocks,
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
        self._partial = PartialMessages(self._stream_event) if include_partial else None
        self._session_id = ""
        self._is_compacting = False
        self._ended = False
        self.ends_with_result = False
        self.denials: list[dict[str, Any]] = []

    def init(self, info: InitInfo) -> None:
        """The first line."""
        self._session_id = info.session_id
        if self._partial is not None:
            self._partial.model = info.model
        self._system(
            "init",
            cwd=info.cwd,
            tools=list(info.tools),
            mcp_servers=[],
            model=info.model,
            permissionMode=info.permission_mode,
            agentcli_version=info.version,
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
            case ToolRefused():
                self.denials.append(denial(event))
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
            self._write(dumps(result) + "\n")
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
            self._write(dumps(value) + "\n")
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
            case GatesConflicted():
                gates = {"winner": event.winner, "gates": list(event.gates)}
                self._system("gates_conflicted", **gates, allowed_tools=list(event.allowed))
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
            self._write(dumps(value) + "\n")
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
        case Failed() if isinstance(end.error, NoStructuredOutput):
            return _LIMITS["schema"]
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


def _error_fields(error: AgentError) -> dict[str, str]:
    return {"error": str(getattr(error, "kind", "other")), "message": error.message}


def _error_text(end: TerminalEvent | None) -> str:
    return str(end.error) if isinstance(end, Failed) else ""
