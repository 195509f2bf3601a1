"""``task_output``: what a background run has printed, page by page (BG-4)."""

from __future__ import annotations

from pydantic import Field

from agentcli.domain.background import BackgroundRefused, TaskOutput
from agentcli.domain.tools import Effect, ToolContext, ToolOutput
from agentcli.tools._background_rows import status_of_task
from agentcli.tools._base import Arguments, BaseTool
from agentcli.tools._terminal_text import plain_text
from agentcli.tools.files.paths import one_line

PAGE_CHARS = 20_000
MAX_PAGE_CHARS = 28_000
MAX_WAIT_S = 600.0


class OutputArguments(Arguments):
    """Arguments of ``task_output``."""

    run_id: str = Field(min_length=1, description="bg_…")
    offset: int = Field(default=0, description="Negative counts from the end")
    limit: int = Field(default=PAGE_CHARS, ge=1, le=MAX_PAGE_CHARS, description="Characters")
    wait_s: float = Field(default=0, ge=0, le=MAX_WAIT_S, description="Seconds to wait for more")


class OutputTool(BaseTool[OutputArguments]):
    """Waits where it is told to, and no longer than the turn."""

    name = "task_output"
    display_name = "Background output"
    description = "Read the log of a background run, a page at a time."
    params = OutputArguments
    effect = Effect.READ
    group = "background"
    timeout_s = None

    def summary(self, args: OutputArguments) -> str:
        """Which run."""
        wait = f", waiting up to {args.wait_s:g} s" if args.wait_s else ""
        return f"Output of {one_line(args.run_id, 64)}{wait}"

    async def run(self, args: OutputArguments, ctx: ToolContext) -> ToolOutput:
        """A page, with how the run stands."""
        if ctx.background is None:
            return ToolOutput.error("There are no background runs here.")
        offset = args.offset
        try:
            if offset < 0:
                size = (await ctx.background.output(args.run_id, 0, 1, 0, ctx.cancel)).size
                offset = max(0, size + offset)
            page = await ctx.background.output(
                args.run_id, offset, args.limit, args.wait_s, ctx.cancel
            )
        except BackgroundRefused as error:
            return ToolOutput.error(str(error))
        if ctx.cancel.cancelled:
            return ToolOutput.cancelled(page.text)
        head = _head(page)
        text = plain_text(page.text.encode("utf-8", "replace"))
        return ToolOutput.text(f"{head}\n{text}" if text else head, summary=head.strip("[]"))


def _head(page: TaskOutput) -> str:
    end = page.offset + len(page.text)
    where = f"characters {page.offset}-{end} of {page.size}"
    if page.next_offset is None:
        more = "that is all"
    elif page.next_offset < page.size:
        more = f"more from offset {page.next_offset}"
    else:
        more = f"nothing more yet, go on from offset {page.next_offset}"
    if not page.text:
        where = "no output" if not page.size else f"nothing from {page.offset} of {page.size}"
    return f"[{status_of_task(page.task)}; {where}; {more}]"


TOOL = OutputTool()
