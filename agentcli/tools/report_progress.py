"""``report_progress``: a word to the user in the middle of long work."""

from __future__ import annotations

from pydantic import Field

from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.tools.common.base import Arguments, BaseTool, one_line

MAX_MESSAGE_CHARS = 2_000


class ProgressArguments(Arguments):
    """Arguments of ``report_progress``."""

    message: str = Field(min_length=1, max_length=MAX_MESSAGE_CHARS)
    current: float | None = Field(default=None, ge=0, description="Done so far")
    total: float | None = Field(default=None, gt=0)
    unit: str | None = Field(default=None, max_length=40)


class ProgressTool(BaseTool[ProgressArguments]):
    """Shows a message and, where counted, how far the work is."""

    name = "report_progress"
    display_name = "Progress"
    description = "Tell the user how far long work has come, without ending the turn."
    params = ProgressArguments
    asks = Asks.NOTHING
    concurrent = True
    group = "progress"

    def summary(self, args: ProgressArguments) -> str:
        """The message."""
        return one_line(_line(args))

    async def run(self, args: ProgressArguments, ctx: ToolContext) -> ToolOutput:
        """Show it."""
        ctx.progress(f"{_line(args)}\n")
        return ToolOutput.text("Shown to the user.", summary="shown")


def _line(args: ProgressArguments) -> str:
    if args.current is None:
        return args.message
    of = f"/{args.total:g}" if args.total is not None else ""
    unit = f" {args.unit}" if args.unit else ""
    share = f", {min(1.0, args.current / args.total):.0%}" if args.total is not None else ""
    return f"{args.message} ({args.current:g}{of}{unit}{share})"


TOOL = ProgressTool()
