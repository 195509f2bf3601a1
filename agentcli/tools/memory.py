"""``memory``: what later sessions of the project are told (MEM-1, MEM-2).

Law: the port decides what the user has said and what waits for a yes; the tool only asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from agentcli.domain.errors import AgentError
from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool, one_line

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import ProjectMemory


class MemoryArguments(Arguments):
    """See the tool's description."""

    action: Literal["remember", "correct", "forget"]
    text: str
    topic: str | None = None


@frozen
class ProjectMemoryContext(ToolContext):
    """The memory of the session's project."""

    memory: ProjectMemory


class MemoryTool(BaseTool[MemoryArguments]):
    """Changes one fact."""

    name = "memory"
    display_name = "Memory"
    description = (
        "What later sessions of this project know. In the user's own words; else it waits for "
        "their yes."
    )
    params = MemoryArguments
    asks = Asks.NOTHING  # what it writes is the user's own words, or out of sight until confirmed
    context = ProjectMemoryContext
    group = "project_memory"

    def summary(self, args: MemoryArguments) -> str:
        """What is done with which fact."""
        return f"{args.action.capitalize()}: {one_line(args.text, 80)}"

    async def run(self, args: MemoryArguments, ctx: ProjectMemoryContext) -> ToolOutput:
        """One fact more, another or none, as a diff; what cannot be is an error."""
        try:
            done = await ctx.memory.change(ctx.call_id, args.action, args.text, args.topic or "")
        except (AgentError, ValueError) as error:
            return ToolOutput.error(f"Nothing was changed: {error}")
        return ToolOutput.text(done.told, display=done.diff, summary=done.summary)


TOOL = MemoryTool()
