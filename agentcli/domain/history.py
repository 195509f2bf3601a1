"""The law about calls and results, in one place (HIS-1).

1. Every tool call of an assistant message is answered by exactly one result with the same
   id, before any other message.
2. No result without its call; call ids are unique in the whole history.

``History`` keeps the law on every append and every fold; ``repair_results`` restores it, the
same way after a cancel and after a crash. What one provider accepts of a balanced history is in
``prepare``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from agentcli.domain.errors import CannotContinue, HistoryViolation
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
)
from agentcli.domain.ports import RunStatus, ToolRun
from agentcli.domain.values import frozen

CANCELLED_TEXT = "Cancelled by user"
CRASHED_TEXT = "Tool execution was interrupted by a crash. Please retry."
HAD_PRINTED = " It had printed:\n"  # before the output of a call that was stopped


class History:
    """Messages, append-only but for ``fold``; ``HistoryViolation`` for what breaks the law.

    ``used_ids`` are call ids of messages that were folded earlier: no new call may have them.
    ``unlike_before`` says that what was reported of messages up to that index (their tokens)
    was reported of another history: one that was not folded yet. ``folds`` counts the folds.
    """

    __slots__ = ("_call_ids", "_messages", "_pending", "folds", "unlike_before")

    def __init__(
        self,
        messages: Iterable[Message] = (),
        *,
        used_ids: Iterable[str] = (),
        unlike_before: int = 0,
    ) -> None:
        self._messages: list[Message] = []
        self._pending: dict[str, ToolCall] = {}
        self._call_ids: set[str] = set()
        self.unlike_before = unlike_before
        self.folds = 0
        for message in messages:
            self.append(message)
        self._call_ids.update(used_ids)

    def append(self, message: Message) -> None:
        """Add a message that the law allows next."""
        if isinstance(message, ToolResult):
            if message.call_id not in self._pending:
                raise HistoryViolation(f"result for a call that is not pending: {message.call_id}")
            del self._pending[message.call_id]
        else:
            if self._pending:
                raise HistoryViolation(f"calls without a result: {', '.join(self._pending)}")
            calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
            new: dict[str, ToolCall] = {}
            for call in calls:
                if not call.id or call.id in self._call_ids or call.id in new:
                    raise HistoryViolation(f"call id empty or used before: {call.id!r}")
                new[call.id] = call
            self._call_ids.update(new)
            self._pending = new
        self._messages.append(message)

    def fold(self, summary: Message, folded: Collection[int]) -> None:
        """Put ``summary`` in the place of the messages at the indices ``folded`` (CMP-3).

        It comes first of all that is left. Raises ``HistoryViolation``, and changes nothing, when
        a call would lose its result or a result its call.
        """
        if self._pending:
            raise HistoryViolation(f"calls without a result: {', '.join(self._pending)}")
        away = frozenset(folded)
        left = [message for at, message in enumerate(self._messages) if at not in away]
        if History(left).pending:
            raise HistoryViolation("a fold that parts a call from its result")
        self._messages = [summary, *left]
        self.unlike_before = len(self._messages)
        self.folds += 1

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
        """Every call id ever used in this history, those of folded messages included."""
        return frozenset(self._call_ids)

    def require_continuable(self) -> None:
        """Raise ``CannotContinue`` unless a request can be made without new input (REC-5)."""
        if not self._messages:
            raise CannotContinue("the session is empty", "send a message first")
        if isinstance(self._messages[-1], AssistantMessage):
            raise CannotContinue(
                "the last message is the assistant's", "send a new message instead"
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
        text += f"{HAD_PRINTED}{detail.output}"
    return text
