"""The law about calls and results, in one place (HIS-1).

1. Every tool call of an assistant message is answered by exactly one result with the same
   id, before any other message.
2. No result without its call; call ids are unique in the whole history.

``History`` keeps the law on every append; ``repair_results`` restores it, the same way after
a cancel and after a crash; ``prepare`` shapes a balanced history for one provider and
``check_request`` proves it before it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from agentcli.domain.errors import CannotContinue, HistoryViolation
from agentcli.domain.messages import (
    AssistantMessage,
    AssistantPart,
    ImagePart,
    Message,
    ResultStatus,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.values import frozen

CANCELLED_TEXT = "Cancelled by user"
CRASHED_TEXT = "Tool execution was interrupted by a crash. Please retry."
_BAD_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH = 64


class History:
    """Messages, append-only. Raises ``HistoryViolation`` on an append that breaks the law."""

    __slots__ = ("_call_ids", "_messages", "_pending")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._pending: dict[str, ToolCall] = {}
        self._call_ids: set[str] = set()
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> None:
        """Add a message that the law allows next."""
        if isinstance(message, ToolResult):
            if message.call_id not in self._pending:
                raise HistoryViolation(f"result for a call that is not pending: {message.call_id}")
            del self._pending[message.call_id]
        else:
            if self._pending:
                raise HistoryViolation(f"calls without a result: {', '.join(self._pending)}")
            if isinstance(message, AssistantMessage):
                self._add_calls(message.tool_calls)
        self._messages.append(message)

    def _add_calls(self, calls: Sequence[ToolCall]) -> None:
        new: dict[str, ToolCall] = {}
        for call in calls:
            if not call.id or call.id in self._call_ids or call.id in new:
                raise HistoryViolation(f"call id empty or used before: {call.id!r}")
            new[call.id] = call
        self._call_ids.update(new)
        self._pending = new

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, oldest first."""
        return tuple(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def last(self) -> Message | None:
        """The newest message."""
        return self._messages[-1] if self._messages else None

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """Calls that have no result yet, in the model's order."""
        return tuple(self._pending.values())

    @property
    def call_ids(self) -> frozenset[str]:
        """Every call id ever used in this history."""
        return frozenset(self._call_ids)

    def require_continuable(self) -> None:
        """Raise ``CannotContinue`` unless a request can be made without new input (REC-5)."""
        if not self._messages:
            raise CannotContinue("the session is empty", "say what you want first")
        if isinstance(self._messages[-1], AssistantMessage):
            raise CannotContinue(
                "the last message is the assistant's", "there is nothing to continue; say more"
            )


class RepairReason(StrEnum):
    """Why calls are without results."""

    CANCELLED = "cancelled"
    CRASHED = "crashed"


@frozen
class RunDetail:
    """What is known of a call that was stopped: seconds it ran and its last output.

    ``started`` is false when the cancel came between the intent to run and the run.
    """

    elapsed_s: float
    output: str = ""
    started: bool = True


def repair_results(
    pending: Sequence[ToolCall],
    runs: Mapping[str, ToolRun],
    reason: RepairReason,
    details: Mapping[str, RunDetail] | None = None,
) -> tuple[ToolResult, ...]:
    """One result for each pending call, in order: the one rule for cancel and crash.

    A call that has finished gets its true result back; one that never started and one whose
    outcome is unknown are told apart in the second block (CAN-1, REC-1). A call without a row
    may have run.
    """
    known = details or {}
    return tuple(
        _repair_one(call, runs.get(call.id), reason, known.get(call.id)) for call in pending
    )


def _repair_one(
    call: ToolCall, run: ToolRun | None, reason: RepairReason, detail: RunDetail | None
) -> ToolResult:
    if run is not None and run.result is not None:
        return run.result
    first = CANCELLED_TEXT if reason is RepairReason.CANCELLED else CRASHED_TEXT
    status = (
        ResultStatus.CANCELLED if reason is RepairReason.CANCELLED else ResultStatus.INTERRUPTED
    )
    started = run is None or run.status is not RunStatus.PENDING
    if detail is not None:
        started = detail.started
    second = _what_happened(reason, detail) if started else "It had not started: nothing was done."
    return ToolResult(call.id, call.name, (TextPart(first), TextPart(second)), status)


def _what_happened(reason: RepairReason, detail: RunDetail | None) -> str:
    if detail is None:
        ending = "stopped" if reason is RepairReason.CANCELLED else "still running at the crash"
        return f"It was {ending}; its outcome is unknown and side effects are possible."
    text = f"It was stopped after {detail.elapsed_s:.1f} s; side effects are possible."
    if detail.output.strip():
        text += f" It had printed:\n{detail.output}"
    return text


# --- what a provider accepts ---------------------------------------------------------------


def prepare(messages: Sequence[Message], provider: str, model: str) -> tuple[Message, ...]:
    """``messages`` as they may be sent to ``provider`` and ``model``; pure.

    Drops empty text and messages left empty (HIS-2), all thinking made elsewhere (HIS-4), and
    trailing white space of a final assistant text (HIS-6). Calls keep their results: dropping
    thinking never drops a call. Lone surrogates and NUL are replaced, also in arguments, and so
    is what no tool name may hold: a model can call a tool by any name it makes up (HIS-8).
    """
    prepared: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            foreign = (message.provider, message.model) != (provider, model)
            parts = tuple(_kept_parts(message.parts, foreign=foreign))
            if any(not isinstance(part, ThinkingPart) for part in parts):
                prepared.append(replace(message, parts=parts))
        elif isinstance(message, UserMessage):
            user_parts = tuple(_clean_parts(message.parts))
            if user_parts:
                prepared.append(UserMessage(user_parts))
        else:
            parts_or_stub = tuple(_clean_parts(message.parts)) or (TextPart("(no output)"),)
            name = clean_name(message.name)
            prepared.append(ToolResult(message.call_id, name, parts_or_stub, message.status))
    return tuple(_without_trailing_space(prepared))


def _kept_parts(parts: Sequence[AssistantPart], *, foreign: bool) -> Iterable[AssistantPart]:
    for part in parts:
        if isinstance(part, ThinkingPart):
            provable = part.signature is not None or part.redacted is not None
            if not foreign and (provable or part.text.strip()):
                yield part
        elif isinstance(part, TextPart):
            if part.text.strip():
                yield TextPart(clean_text(part.text))
        else:
            yield _clean_call(part)


def _clean_call(call: ToolCall) -> ToolCall:
    name, arguments = clean_name(call.name), clean_value(call.arguments)
    if name == call.name and arguments is call.arguments:
        return call
    return replace(call, name=name, arguments=arguments)


def _clean_parts(parts: Sequence[TextPart | ImagePart]) -> Iterable[TextPart | ImagePart]:
    for part in parts:
        if isinstance(part, ImagePart):
            yield part
        elif part.text.strip():
            yield TextPart(clean_text(part.text))


def clean_text(text: str) -> str:
    """``text`` without what no provider takes: lone surrogates and NUL become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_name(name: str) -> str:
    """``name`` as every provider takes the name of a tool: ``^[a-zA-Z0-9_-]{1,64}$``."""
    return _BAD_IN_NAME.sub("_", name)[:_NAME_LENGTH] or "unknown"


def clean_value(value: Any) -> Any:
    """A JSON value with ``clean_text`` done to every string in it; itself when all were clean."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        pairs = {clean_text(key): clean_value(item) for key, item in value.items()}
        same = all(key in pairs and pairs[key] is item for key, item in value.items())
        return value if same else pairs
    if isinstance(value, list):
        items = [clean_value(item) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    return value


def _without_trailing_space(messages: list[Message]) -> list[Message]:
    if messages and isinstance(last := messages[-1], AssistantMessage):
        parts = list(last.parts)
        if parts and isinstance(final := parts[-1], TextPart):
            parts[-1] = TextPart(final.text.rstrip())
            messages[-1] = replace(last, parts=tuple(parts))
    return messages


def check_request(messages: Sequence[Message]) -> None:
    """Raise ``HistoryViolation`` unless ``messages`` is what every provider accepts (HIS-1, 2)."""
    history = History(messages)
    if history.pending:
        ids = ", ".join(call.id for call in history.pending)
        raise HistoryViolation(f"calls without a result: {ids}")
    if not messages:
        raise HistoryViolation("a request needs at least one message")
    for message in messages:
        if not message.parts:
            raise HistoryViolation("empty message")
        for part in message.parts:
            if isinstance(part, TextPart) and not part.text.strip():
                raise HistoryViolation("empty text block")
