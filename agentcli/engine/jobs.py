"""Calls on their way, and the place where their results become durable (W3).

Law: results are committed as they come and become messages in the model's order; memory
follows disk; an event that announces a result comes after its commit (CAN-8, LOOP-4).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.events import AgentEvent, ToolFinished
from agentcli.domain.history import History
from agentcli.domain.messages import ResultStatus, TextPart, ToolCall, ToolResult
from agentcli.domain.ports import RecordedResult, SessionStore
from agentcli.domain.tools import Effect, Tool, ToolContext, ToolOutput, status_of
from agentcli.domain.values import mutable
from agentcli.policy.decision import CallFacts

if TYPE_CHECKING:
    from agentcli.domain.hooks import HookVerdict
    from agentcli.engine.background.launch import Launch

log = logging.getLogger(__name__)


@mutable
class Job:
    """One call on its way. ``output`` is set when there is an answer to record.

    ``hook`` is what the person's hooks have said of it; ``None`` before they were asked.
    ``launch`` is what the call has run in its place: it is judged as that.
    """

    call: ToolCall
    tool: Tool | None = None
    args: Any = None
    summary: str = ""
    effect: Effect = Effect.READ
    facts: CallFacts | None = None
    output: ToolOutput | None = None
    status: ResultStatus | None = None
    started_at: float | None = None
    tail: str = ""
    is_heard: bool = True
    hook: HookVerdict | None = None
    launch: Launch | None = None

    def acting(self, tool: Tool) -> tuple[Tool, Any, Mapping[str, Any], str]:
        """What the call is judged as: tool, arguments (both ways), the tool that it came by."""
        if self.launch is None:
            return tool, self.args, self.call.arguments, ""
        return self.launch.tool, self.launch.args, self.launch.arguments, self.call.name

    @property
    def elapsed_s(self) -> float:
        """Seconds since it started to run; 0 when it has not."""
        return 0.0 if self.started_at is None else time.monotonic() - self.started_at


class Recorder:
    """Commits results as they come and makes them messages in the model's order (W3)."""

    def __init__(
        self,
        store: SessionStore,
        history: History,
        emit: Callable[[AgentEvent], None],
        jobs: Sequence[Job],
    ) -> None:
        self._store = store
        self._history = history
        self._emit = emit
        self._jobs = jobs
        self._ready: dict[int, tuple[ToolResult, float]] = {}
        self._next = 0
        self._lock = asyncio.Lock()

    async def finish(self, index: int, duration_s: float) -> None:
        """Record the output of job ``index``."""
        job = self._jobs[index]
        output = job.output
        if output is None:
            raise ValueError("there is nothing to record")
        result = ToolResult(
            job.call.id, job.call.name, output.parts, job.status or status_of(output)
        )
        recorded = RecordedResult(result, output.raw, output.display)
        async with self._lock:
            await uninterruptible(self._commit(index, recorded, duration_s))

    async def _commit(self, index: int, recorded: RecordedResult, duration_s: float) -> None:
        ready = {**self._ready, index: (recorded.result, duration_s)}
        after = self._next
        while after in ready:
            after += 1
        in_order = [ready[i][0] for i in range(self._next, after)]
        await self._store.record_result(recorded, in_order)
        self._ready = ready
        first, self._next = self._next, after
        for result in in_order:
            self._history.append(result)
        for i in range(first, after):
            self._announce(i, *ready[i])

    def _announce(self, index: int, result: ToolResult, duration_s: float) -> None:
        job = self._jobs[index]
        summary = display = ""
        if job.output is not None:
            summary, display = job.output.summary, job.output.display
        self._emit(ToolFinished(job.call, result, summary, duration_s, display))


async def guarded(tool: Tool, args: Any, ctx: ToolContext) -> ToolOutput:
    """Run the tool; anything it raises, or returns that is no output, is a fault of ours."""
    try:
        output: object = await tool.run(args, ctx)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the tools' border: not even an exit passes
        return ToolOutput.internal_error(error)
    if isinstance(output, ToolOutput) and output.parts:
        return output
    return ToolOutput.internal_error(TypeError(f"not a tool's output: {type(output).__name__}"))


async def preview_of(tool: Tool, args: Any, ctx: ToolContext) -> str:
    """What a person sees before saying yes; without it the question is asked all the same."""
    try:
        return await tool.preview(args, ctx)
    except Exception as error:
        log.warning("no preview of %s", tool.definition.name, exc_info=error)
        return f"(no preview: {error})"


def text_of(output: ToolOutput) -> str:
    """The first text of an output."""
    with contextlib.suppress(StopIteration):
        return next(part.text for part in output.parts if isinstance(part, TextPart))
    return ""
