"""A turn in one process with everything countable: a store that keeps bytes apart from memory,
a provider that plays replies, tools that misbehave. Scheduling here is deterministic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from agentcli.domain.cancel import CancelReason, CancelToken
from agentcli.domain.errors import PersistenceError
from agentcli.domain.events import AgentEvent, Outcome, TurnSummary
from agentcli.domain.history import History
from agentcli.domain.messages import (
    AssistantMessage,
    Message,
    StopReason,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    user_text,
)
from agentcli.domain.ports import (
    ApprovalAnswer,
    ApprovalRequest,
    ModelInfo,
    ModelRequest,
    PermissionMode,
    RecordedResult,
    RunStatus,
    ToolRun,
    Verdict,
)
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from agentcli.domain.tools import (
    Asks,
    Tool,
    ToolContext,
    ToolDefinition,
    ToolOutput,
    Workspace,
)
from agentcli.engine.context.outgoing import check_request
from agentcli.engine.conversation import Conversation
from agentcli.engine.parts import SessionParts
from agentcli.engine.turn import Turn
from agentcli.policy.decision import Policy
from tests.support.tool_context import EveryPort

STATE = {each.name for each in fields(Conversation)}
MODEL = ModelInfo("test", "model", input_price=1.0, output_price=2.0)


class MemoryStore:
    """A store whose "disk" is a list; each commit takes scheduler ticks before and after."""

    def __init__(self) -> None:
        self.disk: list[Message] = []
        self.runs: dict[str, ToolRun] = {}
        self.status: Outcome | str = "new"
        self.partials: list[str] = []
        self.partial_usages: list[tuple[str, Usage]] = []
        self.commits: list[str] = []
        self.state: dict[str, Any] = {}
        self.fail_on: dict[str, Exception] = {}
        self.rescued: list[str] = []
        self.rescue_works = True
        self.delivered: list[int] = []
        self.folded: list[list[Message]] = []
        self.other_usages: list[tuple[str, Usage]] = []
        self.begun = 0

    async def _commit(self, name: str, change: Callable[[], None]) -> None:
        await asyncio.sleep(0)
        if error := self.fail_on.get(name):
            raise error
        change()
        self.commits.append(name)
        await asyncio.sleep(0)

    async def record_prompt(
        self,
        message: UserMessage | None,
        *,
        queued: Sequence[int] = (),
        begins_turn: bool = True,
    ) -> int:
        def change() -> None:
            self.status = "running"
            self.delivered += queued
            self.begun += begins_turn and message is not None
            if message is not None:
                self.disk.append(message)

        await self._commit("prompt", change)
        return len(self.disk)

    async def record_assistant(
        self,
        message: AssistantMessage,
        calls: Sequence[ToolCall],
        *,
        final: Outcome | None,
        wasted: Usage | None = None,
    ) -> int:
        def change() -> None:
            self.disk.append(message)
            if wasted is not None:
                self.partial_usages.append((f"{message.provider}/{message.model}", wasted))
            for call in calls:
                self.runs[call.id] = ToolRun(call.id, call.name, RunStatus.PENDING)
            if final is not None:
                self.status = final

        await self._commit("assistant", change)
        return len(self.disk)

    async def record_running(self, call: ToolCall) -> None:
        def change() -> None:
            self.runs[call.id] = ToolRun(call.id, call.name, RunStatus.RUNNING)

        await self._commit("running", change)

    async def record_result(self, done: RecordedResult, in_order: Sequence[ToolResult]) -> None:
        def change() -> None:
            result = done.result
            parked = None if result in in_order else result
            self.runs[result.call_id] = ToolRun(
                result.call_id, result.name, RunStatus.FINISHED, result=parked
            )
            for item in in_order:
                self.disk.append(item)
                self.runs[item.call_id] = ToolRun(item.call_id, item.name, RunStatus.FINISHED)

        await self._commit("result", change)

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
        def change() -> None:
            self.disk.extend(results)
            self.status = outcome
            if usage is not None:
                self.partial_usages.append((model, usage))
            if partial:
                self.partials.append(partial)

        await self._commit("end", change)

    async def record_compaction(
        self,
        summary: UserMessage,
        folded: Sequence[int],
        total: int,
        *,
        usage: Usage,
        model: str,
    ) -> int:
        assert total == len(self.disk)

        def change() -> None:
            left = [m for at, m in enumerate(self.disk) if at not in set(folded)]
            self.folded.append([self.disk[at] for at in folded])
            self.disk[:] = [summary, *left]
            self.other_usages.append((model, usage))

        await self._commit("compaction", change)
        return len(self.disk)

    async def add_usage(
        self, model: str, usage: Usage, cost_usd: float | None, *, kind: str
    ) -> None:
        await self._commit("usage", lambda: self.other_usages.append((model, usage)))

    async def tool_runs(self) -> Mapping[str, ToolRun]:
        answered = {m.call_id for m in self.disk if isinstance(m, ToolResult)}
        return {key: run for key, run in self.runs.items() if key not in answered}

    async def rescue(self, text: str) -> str | None:
        if not self.rescue_works:
            return None
        self.rescued.append(text)
        return "/recovery"

    async def get(self, key: str) -> Any:
        return self.state.get(key)

    async def set(self, key: str, value: Any) -> None:
        self.state[key] = value

    async def read(self, call_id: str) -> bytes | None:
        return None


Reply = Sequence[StreamEvent | Exception] | Callable[[ModelRequest], Sequence[StreamEvent]]


class PlayedProvider:
    """Plays one reply for each request and checks each request as a strict service would."""

    name = "test"
    host = ""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.requests: list[ModelRequest] = []

    async def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncIterator[StreamEvent]:
        check_request(request.messages)
        self.requests.append(request)
        reply = self._replies[len(self.requests) - 1]
        await asyncio.sleep(0)
        for event in reply(request) if callable(reply) else reply:
            if isinstance(event, Exception):
                raise event
            yield event
            await asyncio.sleep(0)

    def encode(self, request: ModelRequest) -> None:
        return None

    async def aclose(self) -> None:
        return None


def says(
    text: str, *, pieces: int = 2, stop: StopReason = StopReason.END_TURN
) -> list[StreamEvent]:
    size = max(1, len(text) // pieces)
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    return [*(TextDelta(0, chunk) for chunk in chunks), StreamEnd(stop)]


def calls(*wanted: tuple[str, str, str], text: str = "") -> list[StreamEvent]:
    """Calls as (id, tool name, arguments' JSON text)."""
    events: list[StreamEvent] = [TextDelta(0, text)] if text else []
    for index, (call_id, name, arguments) in enumerate(wanted, start=1):
        events += [ToolCallStart(index, call_id, name), ToolCallDelta(index, arguments)]
    return [*events, StreamEnd(StopReason.TOOL_USE)]


Run = Callable[[Any, ToolContext], Awaitable[ToolOutput]]


@dataclass
class FakeTool(Tool):
    """A tool of one function; ``effects`` counts what has truly happened, by call id."""

    name: str
    work: Run
    asks: Asks = Asks.NOTHING
    timeout_s: float | None = 60.0
    asked: list[str] = field(default_factory=list)
    context = EveryPort

    @property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(
            self.name,
            self.name.title(),
            "for tests",
            {"type": "object", "properties": {}},
            self.asks,
            "test",
            timeout_s=self.timeout_s,
            concurrent=self.asks is Asks.NOTHING,
        )

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        return dict(arguments)

    def summary(self, args: Any) -> str:
        return f"{self.name} {args}"

    def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
        return ()

    async def preview(self, args: Any, ctx: ToolContext) -> str:
        return "preview"

    async def run(self, args: Any, ctx: ToolContext) -> ToolOutput:
        return await self.work(args, ctx)


class Box:
    """A tool box of given tools."""

    def __init__(self, *tools: FakeTool) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        return tuple(tool.definition for tool in self._tools.values())

    def get(self, name: str) -> FakeTool | None:
        return self._tools.get(name)

    def near(self, name: str) -> tuple[str, ...]:
        return tuple(key for key in self._tools if key[0] == name[0])


class Answers:
    """An approver that gives prepared answers, or waits for ever when it has none."""

    def __init__(self, *verdicts: Verdict) -> None:
        self._verdicts = list(verdicts)
        self.requests: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.requests.append(request)
        await asyncio.sleep(0)
        if not self._verdicts:
            await asyncio.Event().wait()
        return ApprovalAnswer(self._verdicts.pop(0))


@dataclass
class World:
    """One conversation with all its parts in reach."""

    provider: PlayedProvider
    tools: Sequence[FakeTool] = ()
    approver: Answers = field(default_factory=Answers)
    mode: PermissionMode = PermissionMode.YOLO
    store: Any = field(default_factory=MemoryStore)
    events: list[AgentEvent] = field(default_factory=list)
    token: CancelToken = field(default_factory=CancelToken)
    on_event: Callable[[AgentEvent], None] = lambda event: None

    def __post_init__(self) -> None:
        parts = SessionParts(
            store=self.store,
            system="system",
            toolbox=Box(*self.tools),
            policy=Policy(self.mode),
            approver=self.approver,
            workspace=Workspace(Path("/w"), Path("/w")),
            state=self.store,
            outputs=self.store,
        )
        self.conversation = Conversation(parts, History(), self.provider, MODEL)

    def set(self, **changes: Any) -> None:
        """Give the conversation other parts, or another state."""
        state = {name: changes.pop(name) for name in set(changes) & STATE}
        for name, value in state.items():
            setattr(self.conversation, name, value)
        self.conversation.parts = replace(self.conversation.parts, **changes)

    def emit(self, event: AgentEvent) -> None:
        self.events.append(event)
        self.on_event(event)

    async def run(self, text: str | None = "go", **settings: Any) -> TurnSummary:
        self.set(**settings)
        turn = Turn(self.conversation, self.token, self.emit)
        return await turn.run(None if text is None else user_text(text))

    async def next_turn(self, text: str | None = "next") -> TurnSummary:
        self.token = CancelToken()
        self.events.clear()
        return await self.run(text)

    def cancel(self, reason: CancelReason = CancelReason.USER) -> None:
        self.token.cancel(reason)

    @property
    def history(self) -> History:
        return self.conversation.history

    @property
    def results(self) -> list[ToolResult]:
        return [m for m in self.history.messages if isinstance(m, ToolResult)]

    def types(self) -> list[str]:
        return [event.type for event in self.events]


def disk_full() -> PersistenceError:
    return PersistenceError("cannot write /s.db: disk is full", "free some space")
