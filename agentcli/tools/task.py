"""``task``: hand a piece of work to a fresh agent and get its answer.

The call itself changes nothing: what its agent does is judged, asked about and recorded call by
call, under the policy of the session that called it. So it asks nothing itself, several calls of
one batch run together (LOOP-4), and it may be called in plan mode, where its agent, too, can only
read.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from agentcli.domain.background import BackgroundSink
from agentcli.domain.messages import ResultPart, TextPart
from agentcli.domain.tool_ports import SubAgents, SubTask, SubTaskReport
from agentcli.domain.tools import Asks, OutputKind, ToolContext, ToolHints, ToolOutput
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool, bounded, one_line

MAX_PROMPT_CHARS = 100_000
_Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class TaskArguments(Arguments):
    """Arguments of ``task``."""

    description: _Words = Field(max_length=200, description="The task in 3 to 5 words")
    prompt: _Words = Field(
        max_length=MAX_PROMPT_CHARS, description="All it needs to know: it sees nothing else"
    )
    agent: str | None = Field(
        default=None, max_length=64, description="One of those below, if any are listed"
    )
    model: str | None = Field(default=None, max_length=200, description="provider/model")


@frozen
class TaskContext(ToolContext):
    """Who runs sub-agents."""

    agents: SubAgents


class TaskTool(BaseTool[TaskArguments]):
    """Waits for the sub-agent's end, however long that takes: it has limits of its own."""

    name = "task"
    display_name = "Task"
    description = (
        "Let a fresh agent do a piece of work and get its final answer. It has your tools and "
        "none of this conversation. For searches and work whose details you need not keep; "
        "several calls in one message run at once."
    )
    params = TaskArguments
    asks = Asks.NOTHING
    concurrent = True
    context = TaskContext
    group = "agents"
    # what its agent has done cannot be told from outside: after a crash it is not done again
    hints = ToolHints(destructive=True, background=True)
    timeout_s = None

    def summary(self, args: TaskArguments) -> str:
        """The task in a few words."""
        who = f" ({one_line(args.agent, 64)})" if args.agent else ""
        return f"Task{who}: {one_line(args.description, 120)}"

    async def run(self, args: TaskArguments, ctx: TaskContext) -> ToolOutput:
        """The sub-agent's answer, and where its transcript is."""
        task = SubTask(args.description, args.prompt, args.agent or "", args.model or "")
        report = await ctx.agents.run(task, ctx.call_id, ctx.cancel, ctx.progress)
        return _output(report, ctx.call_id)

    async def run_background(
        self, args: TaskArguments, ctx: TaskContext, sink: BackgroundSink
    ) -> ToolOutput:
        """The same, its steps in the log; what needs an approval is refused meanwhile."""

        def progress(text: str) -> None:
            sink.output(text)
            sink.detail(text)

        task = SubTask(args.description, args.prompt, args.agent or "", args.model or "")
        report = await ctx.agents.run(task, ctx.call_id, ctx.cancel, progress)
        sink.output(f"\n{report.text}\n" if report.text.strip() else "")
        return _output(report, ctx.call_id)


def _output(report: SubTaskReport, call_id: str) -> ToolOutput:
    if report.is_cancelled:
        return ToolOutput.cancelled(_place(report))
    return _failed(report) if report.problem else _answered(report, call_id)


def _answered(report: SubTaskReport, call_id: str) -> ToolOutput:
    text, raw = bounded(report.text, call_id)
    parts: tuple[ResultPart, ...] = (TextPart(text), TextPart(_place(report)))
    steps = f"{report.steps} step{'' if report.steps == 1 else 's'}"
    return ToolOutput(OutputKind.SUCCESS, parts, raw=raw, summary=f"done in {steps}")


def _failed(report: SubTaskReport) -> ToolOutput:
    said = f"\nIts last words were: {report.text[-2_000:]}" if report.text.strip() else ""
    place = f"\n{_place(report)}" if report.session_id else ""
    return ToolOutput.error(f"{report.problem}{said}{place}", summary=one_line(report.problem, 120))


def _place(report: SubTaskReport) -> str:
    return f"[transcript: agent sessions show {report.session_id}]" if report.session_id else ""


TOOL = TaskTool()
