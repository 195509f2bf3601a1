"""``list_tasks``: the background runs and schedules of this session."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from agentcli.domain.tools import Effect, ToolContext, ToolOutput
from agentcli.tools._background_rows import schedule_line, schedule_row, task_line, task_row
from agentcli.tools._base import Arguments, BaseTool

MAX_ENDED = 50


class ListArguments(Arguments):
    """Arguments of ``list_tasks``."""

    ended: int = Field(default=10, ge=0, le=MAX_ENDED, description="How many ended ones")


class ListTool(BaseTool[ListArguments]):
    """What is active, and the newest of what has ended."""

    name = "list_tasks"
    display_name = "Background runs"
    description = "List background runs and schedules."
    params = ListArguments
    effect = Effect.READ
    group = "background"

    async def run(self, args: ListArguments, ctx: ToolContext) -> ToolOutput:
        """One row each."""
        tasks = () if ctx.background is None else ctx.background.tasks()
        schedules = () if ctx.background is None else ctx.background.schedules()
        active = [task for task in tasks if task.is_active]
        ended = [task for task in tasks if not task.is_active]
        shown = ended[-args.ended :] if args.ended else []
        rows: dict[str, Any] = {
            "active": [task_row(task) for task in active],
            "ended": [task_row(task) for task in shown],
            "schedules": [schedule_row(schedule) for schedule in schedules],
        }
        if len(ended) > len(shown):
            rows["ended_not_shown"] = len(ended) - len(shown)
        lines = [task_line(task) for task in (*active, *shown)]
        lines += [schedule_line(schedule) for schedule in schedules]
        summary = f"{len(active)} active, {len(ended)} ended"
        return ToolOutput.json(rows, display="\n".join(lines) or "none", summary=summary)


TOOL = ListTool()
