"""What a session says while it works (``AgentEvent``) and what it can be told (``Op``).

Law: the first event of a turn is ``TurnStart``, the last is exactly one terminal event
(``Done``, ``Cancelled`` or ``Failed``). An event that announces something stored is emitted
after the commit: what the screen calls finished is on disk.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agentcli.domain.errors import AgentError
from agentcli.domain.messages import AssistantMessage, ToolCall, ToolResult, Usage, UserMessage
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.domain.background import BackgroundTask


class Outcome(StrEnum):
    """How a turn ended (LOOP-2). ``DONE`` and ``WRAPPED_UP`` are complete.

    ``MAX_TOKENS``: the answer was cut at the model's output limit (LOOP-13).
    """

    DONE = "done"
    WRAPPED_UP = "wrapped_up"
    MAX_STEPS = "max_steps"
    MAX_TOKENS = "max_tokens"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    ERROR = "error"


@frozen
class TurnStart:
    """A turn begins; the user's message is about to be recorded."""

    type: ClassVar[Literal["turn_start"]] = "turn_start"
    turn: int


@frozen
class PromptRecorded:
    """The user's message is durable."""

    type: ClassVar[Literal["prompt_recorded"]] = "prompt_recorded"
    message: UserMessage
    seq: int


@frozen
class StepStart:
    """A model request is about to be sent. Steps count from 1 in each turn."""

    type: ClassVar[Literal["step_start"]] = "step_start"
    step: int


@frozen
class ProviderRequestPrepared:
    """A request is about to be sent: what it is made of, in counts and characters (CTRL-9).

    ``prefix_hash`` is of the part that a cache can hold for the whole session, system prompt and
    tools: it changes when that part does. ``attempt`` counts the requests of the step.
    """

    type: ClassVar[Literal["provider_request_prepared"]] = "provider_request_prepared"
    step: int
    attempt: int
    model: str
    messages: int
    tools: int
    system_characters: int
    tools_characters: int
    messages_characters: int
    prefix_hash: str
    max_output_tokens: int | None = None


@frozen
class TextChunk:
    """More of the answer's text."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str


@frozen
class ThinkingChunk:
    """More of the model's reasoning."""

    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"
    text: str


@frozen
class CallForming:
    """The model has begun to write a tool call; nothing runs yet.

    ``id`` is the provider's, maybe empty; the recorded call may get another one.
    """

    type: ClassVar[Literal["call_forming"]] = "call_forming"
    name: str
    id: str = ""


@frozen
class RetryWait:
    """A request failed in a way that may pass; the next attempt comes after ``delay_s`` seconds."""

    type: ClassVar[Literal["retry_wait"]] = "retry_wait"
    error: AgentError
    attempt: int
    max_attempts: int
    delay_s: float


@frozen
class OutputCapRaised:
    """A reply was cut at the output limit; the step is asked again with a higher one (STR-7)."""

    type: ClassVar[Literal["output_cap_raised"]] = "output_cap_raised"
    old_tokens: int
    new_tokens: int


@frozen
class ModelFellBack:
    """A model stayed out of reach; another one (both ``provider/model``) answers from now on."""

    type: ClassVar[Literal["model_fell_back"]] = "model_fell_back"
    old: str
    new: str
    error: AgentError


class CompactionTrigger(StrEnum):
    """Why a compaction runs (CMP-4)."""

    WINDOW = "window"
    OVERFLOW = "overflow"
    MANUAL = "manual"


@frozen
class CompactionStarted:
    """The history is about to be summarised; nothing has changed yet."""

    type: ClassVar[Literal["compaction_started"]] = "compaction_started"
    trigger: CompactionTrigger


@frozen
class Compacted:
    """The summary is durable and what it folds is hidden (CMP-2, CMP-3). Tokens are estimates.

    ``usage`` is what the summary itself cost; ``kept`` and ``folded`` tell the user in a line
    each what stays verbatim and what went into the summary.
    """

    type: ClassVar[Literal["compacted"]] = "compacted"
    trigger: CompactionTrigger
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    kept: str
    folded: str
    usage: Usage = field(default_factory=Usage)


@frozen
class GateList:
    """What one gate lets through in a step. ``set_aside``: a required gate has outranked it."""

    gate: str
    priority: int
    required: bool
    allowed: tuple[str, ...]
    set_aside: bool = False


@frozen
class ToolGateApplied:
    """Gates narrow the coming step to the tools ``allowed``; ``lists`` has each gate's (CTRL-4)."""

    type: ClassVar[Literal["tool_gate_applied"]] = "tool_gate_applied"
    step: int
    lists: tuple[GateList, ...]
    allowed: tuple[str, ...]


@frozen
class ToolGateConflictResolved:
    """Gates excluded each other: in this step the list of ``winner`` holds (CTRL-4)."""

    type: ClassVar[Literal["tool_gate_conflict_resolved"]] = "tool_gate_conflict_resolved"
    step: int
    winner: str
    lists: tuple[GateList, ...]
    allowed: tuple[str, ...]


@frozen
class ContextTransformed:
    """A transform has changed the copy of the history for a request (CTRL-8)."""

    type: ClassVar[Literal["context_transformed"]] = "context_transformed"
    name: str
    messages_before: int
    messages_after: int
    characters_before: int
    characters_after: int


@frozen
class WrappingUp:
    """A limit is near: the model is told to finish (CTRL-7)."""

    type: ClassVar[Literal["wrapping_up"]] = "wrapping_up"
    reason: str


@frozen
class QueueChanged:
    """Text was queued, delivered, edited or dropped; ``waiting`` is what is left (UI-3)."""

    type: ClassVar[Literal["queue_changed"]] = "queue_changed"
    waiting: int


@frozen
class BackgroundChanged:
    """Background runs have begun or ended; ``active`` are those that go on (BG-5).

    ``ended`` is the one that has just ended, durable and, if it signals, waiting in the queue.
    ``asks`` has just asked the user something, ``told`` has a message for the session in the queue,
    since its ``wake`` is "message" (BG-9). Comes at any time, also between turns.
    """

    type: ClassVar[Literal["background_changed"]] = "background_changed"
    active: int
    ended: BackgroundTask | None = None
    asks: BackgroundTask | None = None
    told: BackgroundTask | None = None


@frozen
class AssistantRecorded:
    """The assistant's message is durable; its calls, if any, are about to be dispatched."""

    type: ClassVar[Literal["assistant_recorded"]] = "assistant_recorded"
    message: AssistantMessage
    seq: int


@frozen
class ToolAnnounced:
    """A call will be dispatched. ``summary`` reads like "Read src/app.py:1-80"."""

    type: ClassVar[Literal["tool_announced"]] = "tool_announced"
    call: ToolCall
    summary: str


@frozen
class ApprovalWaiting:
    """A call waits for the user."""

    type: ClassVar[Literal["approval_waiting"]] = "approval_waiting"
    call: ToolCall
    summary: str
    reason: str


@frozen
class ToolRefused:
    """A call was refused by policy or by the user; ``unattended`` when nobody could be asked."""

    type: ClassVar[Literal["tool_refused"]] = "tool_refused"
    call: ToolCall
    reason: str
    unattended: bool


@frozen
class ToolStarted:
    """The call's intent to run is durable and it is running."""

    type: ClassVar[Literal["tool_started"]] = "tool_started"
    call: ToolCall
    summary: str


@frozen
class ToolProgress:
    """Live output of a running call."""

    type: ClassVar[Literal["tool_progress"]] = "tool_progress"
    call_id: str
    text: str


@frozen
class ToolFinished:
    """The call's result is durable. ``summary`` tells the outcome in a line.

    ``display`` is for the user only, for example a unified diff; it is never sent to the model.
    """

    type: ClassVar[Literal["tool_finished"]] = "tool_finished"
    call: ToolCall
    result: ToolResult
    summary: str
    duration_s: float
    display: str = ""


@frozen
class SubAgentEvent:
    """Something became durable in the session of a sub-agent that works for the call ``call_id``.

    For those who tell of it apart: the turn's own messages and results are other events.
    """

    type: ClassVar[Literal["sub_agent_event"]] = "sub_agent_event"
    call_id: str
    event: AssistantRecorded | ToolFinished


@frozen
class Notice:
    """One line for the user: a warning or a piece of news. Nothing was stopped by it."""

    type: ClassVar[Literal["notice"]] = "notice"
    text: str
    is_warning: bool = True


@frozen
class TurnSummary:
    """What a turn amounted to; part of every terminal event.

    ``limit`` is ``steps`` or ``budget`` when the outcome is ``MAX_STEPS``. ``text`` of a turn that
    was ``TIMED_OUT`` is what there was of the answer. ``cost_usd``
    is ``None`` where a price or a count is unknown. ``compaction`` is the part of ``usage`` that
    was spent on summaries (LOOP-6). ``structured`` is the result in the shape that was asked for,
    any JSON value; ``text`` is then the same as JSON text (CTRL-5). ``stop_reason`` is why the
    model ended its last reply, ``truncated`` what of the user's input was not sent, in lines.
    """

    outcome: Outcome
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    duration_s: float = 0.0
    api_duration_s: float = 0.0
    text: str = ""
    cost_usd: float | None = None
    limit: str = ""
    compaction: Usage = field(default_factory=Usage)
    structured: Any = None
    stop_reason: str = ""
    truncated: tuple[str, ...] = ()


@frozen
class Done:
    """The turn is complete, or stopped at a limit (see ``summary.outcome``)."""

    type: ClassVar[Literal["done"]] = "done"
    summary: TurnSummary


@frozen
class Cancelled:
    """The turn was cancelled; the history is balanced and stored."""

    type: ClassVar[Literal["cancelled"]] = "cancelled"
    summary: TurnSummary
    reason: str


@frozen
class Failed:
    """The turn ended with an error; the history is balanced.

    ``unsaved`` is what could be written nowhere and would be lost if it were not shown (FAIL-1).
    """

    type: ClassVar[Literal["error"]] = "error"
    summary: TurnSummary
    error: AgentError
    unsaved: str = ""


TerminalEvent = Done | Cancelled | Failed

AgentEvent = (
    TurnStart
    | PromptRecorded
    | StepStart
    | ProviderRequestPrepared
    | TextChunk
    | ThinkingChunk
    | CallForming
    | RetryWait
    | OutputCapRaised
    | ModelFellBack
    | CompactionStarted
    | Compacted
    | ToolGateApplied
    | ToolGateConflictResolved
    | ContextTransformed
    | WrappingUp
    | QueueChanged
    | BackgroundChanged
    | AssistantRecorded
    | ToolAnnounced
    | ApprovalWaiting
    | ToolRefused
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | SubAgentEvent
    | Notice
    | Done
    | Cancelled
    | Failed
)


@frozen
class Prompt:
    """Run a turn with this message."""

    message: UserMessage


@frozen
class Continue:
    """Run a turn without new input (REC-5)."""


@frozen
class Interrupt:
    """Cancel the running turn; ``force`` skips the grace period (CAN-13)."""

    reason: str = "user"
    force: bool = False


Op = Prompt | Continue | Interrupt
