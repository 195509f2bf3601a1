"""A store as three ports: messages, state and events (CTRL-9); and one in memory.

Law: what a store raises, whatever it is, is contained: it ends the turn as a failed write does,
before any further side effect (FAIL-1, FAIL-4); events are watched only, and may fail without
failing the turn (FAIL-2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from agentcli.domain.events import Outcome
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.ports import RecordedResult, RunStatus, SessionStore, ToolRun
from agentcli.domain.session import KeptEvent

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import SessionState


class EventStore(Protocol):
    """Keeps what a session has said while it worked."""

    async def append(self, events: Sequence[KeptEvent]) -> None:
        """Keep these after those that are there."""

    async def read(self) -> Sequence[KeptEvent]:
        """All of them, in the order in which they happened."""


class MessageStore(SessionStore, Protocol):
    """The history: what the engine records, and what was recorded."""

    async def history(self) -> Sequence[Message]:
        """The messages to go on with, oldest first; empty for a new session."""


class Store(Protocol):
    """Where a session is kept."""

    @property
    def messages(self) -> MessageStore:
        """The history."""

    @property
    def state(self) -> SessionState:
        """Small values by key."""

    @property
    def events(self) -> EventStore | None:
        """What has happened; ``None``: it is not kept."""


# --- in memory ------------------------------------------------------------------------------


class MemoryStore:
    """Satisfies ``Store``, and each of its ports. One session; one agent at a time."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._runs: dict[str, ToolRun] = {}
        self._state: dict[str, str] = {}
        self._events: list[KeptEvent] = []
        self.outcome: Outcome | None = None
        """How the newest turn ended; ``None`` while one runs, and before the first."""

    @property
    def messages(self) -> MemoryStore:
        """The history: ``history`` has it."""
        return self

    @property
    def state(self) -> MemoryStore:
        """Small values: ``get`` and ``set``."""
        return self

    @property
    def events(self) -> MemoryEvents:
        """What has happened."""
        return MemoryEvents(self._events)

    async def history(self) -> Sequence[Message]:
        """The messages, oldest first."""
        return tuple(self._messages)

    async def get(self, key: str) -> Any:
        """The value, or ``None``."""
        text = self._state.get(key)
        return None if text is None else json.loads(text)

    async def set(self, key: str, value: Any) -> None:
        """Keep ``value``; ``None`` removes the key."""
        if value is None:
            self._state.pop(key, None)
        else:
            self._state[key] = json.dumps(value)

    # --- what the engine records: see ``domain.ports.SessionStore`` --------------------------

    async def record_prompt(
        self,
        message: UserMessage | None,
        *,
        queued: Sequence[int] = (),
        begins_turn: bool = True,
    ) -> int:
        """W0."""
        del queued, begins_turn
        self.outcome = None
        if message is not None:
            self._messages.append(message)
        return len(self._messages)

    async def record_assistant(
        self,
        message: AssistantMessage,
        calls: Sequence[ToolCall],
        *,
        final: Outcome | None,
        wasted: Usage | None = None,
    ) -> int:
        """W1."""
        del wasted
        self._messages.append(message)
        for call in calls:
            self._runs[call.id] = ToolRun(call.id, call.name, RunStatus.PENDING)
        self.outcome = final
        return len(self._messages)

    async def record_running(self, call: ToolCall) -> None:
        """W2."""
        self._runs[call.id] = replace(self._runs[call.id], status=RunStatus.RUNNING)

    async def record_result(self, done: RecordedResult, in_order: Sequence[ToolResult]) -> None:
        """W3."""
        result = done.result
        self._runs[result.call_id] = ToolRun(
            result.call_id, result.name, RunStatus.FINISHED, result=result, display=done.display
        )
        self._add_results(in_order)

    async def record_end(
        self,
        results: Sequence[ToolResult],
        outcome: Outcome,
        detail: str,
        partial: str,
        *,
        usage: Usage | None = None,
        model: str = "",
    ) -> None:
        """Close a turn."""
        del detail, partial, usage, model
        self._add_results(results)
        self.outcome = outcome

    async def record_compaction(
        self,
        summary: UserMessage,
        folded: Sequence[int],
        total: int,
        *,
        usage: Usage,
        model: str,
    ) -> int:
        """Put ``summary`` before what is left."""
        del total, usage, model
        gone = set(folded)
        left = [message for at, message in enumerate(self._messages) if at not in gone]
        self._messages = [summary, *left]
        return 1

    async def add_usage(
        self, model: str, usage: Usage, cost_usd: float | None, *, kind: str
    ) -> None:
        """Nobody asks for it."""

    async def tool_runs(self) -> Mapping[str, ToolRun]:
        """Calls without a result message."""
        return dict(self._runs)

    async def rescue(self, text: str) -> str | None:
        """There is no place for it."""
        del text
        return None

    def _add_results(self, results: Sequence[ToolResult]) -> None:
        for result in results:
            self._messages.append(result)
            self._runs.pop(result.call_id, None)


class MemoryEvents:
    """Satisfies ``EventStore``."""

    def __init__(self, events: list[KeptEvent]) -> None:
        self._events = events

    async def append(self, events: Sequence[KeptEvent]) -> None:
        """Keep these, too."""
        self._events.extend(events)

    async def read(self) -> Sequence[KeptEvent]:
        """All of them."""
        return tuple(self._events)
