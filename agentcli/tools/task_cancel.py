"""``task_cancel``: end a background run or a schedule (BG-6)."""

from __future__ import annotations

from pydantic import Field

from agentcli.domain.background import BackgroundRefused, Schedule
from agentcli.domain.tools import Effect, ToolContext, ToolHints, ToolOutput
from agentcli.tools._background_rows import (
    schedule_row,
    status_of_task,
    task_line,
    task_row,
)
from agentcli.tools._base import Arguments, BaseTool
from agentcli.tools.files.paths import one_line


class CancelArguments(Arguments):
    """Arguments of ``task_cancel``."""

    run_id: str = Field(min_length=1, description="bg_…, or the id of a schedule")


class CancelTool(BaseTool[CancelArguments]):
    """Ends only what this session has started, so it needs no approval: its effect is READ."""

    name = "task_cancel"
    display_name = "Cancel"
    description = "End a background run, or a schedule."
    params = CancelArguments
    effect = Effect.READ
    group = "background"
    hints = ToolHints(idempotent=True)

    def summary(self, args: CancelArguments) -> str:
        """Which run."""
        return f"Cancel {one_line(args.run_id, 64)}"

    async def run(self, args: CancelArguments, ctx: ToolContext) -> ToolOutput:
        """How it stands now."""
        if ctx.background is None:
            return ToolOutput.error("There are no background runs here.")
        try:
            ended = await ctx.background.cancel(args.run_id)
        except BackgroundRefused as error:
            return ToolOutput.error(str(error))
        if isinstance(ended, Schedule):
            row = schedule_row(ended) | {"status": "canceled"}
            return ToolOutput.json(row, display=f"schedule: {ended.title}", summary="ended")
        if ended.is_active:
            return ToolOutput.error(f"{ended.run_id} was asked to end and has not ended yet.")
        shown = task_line(ended)
        return ToolOutput.json(task_row(ended), display=shown, summary=status_of_task(ended))


TOOL = CancelTool()
