"""``kv_list``: what the model has kept in this session."""

from __future__ import annotations

from agentcli.domain.tools import Effect, ToolContext, ToolHints, ToolOutput
from agentcli.tools._base import Arguments, BaseTool
from agentcli.tools._memory import read_memory
from agentcli.tools.files.paths import one_line

_SHOWN_CHARS = 80


class ListArguments(Arguments):
    """Arguments of ``kv_list``: none."""


class ListTool(BaseTool[ListArguments]):
    """Lists the keys."""

    name = "kv_list"
    display_name = "Notes"
    description = "List the keys of kv_set."
    params = ListArguments
    effect = Effect.READ
    group = "memory"
    hints = ToolHints(idempotent=True)

    def summary(self, args: ListArguments) -> str:
        """What it is."""
        del args
        return "Notes"

    async def run(self, args: ListArguments, ctx: ToolContext) -> ToolOutput:
        """A line for each key."""
        del args
        memory = await read_memory(ctx.state)
        lines = [
            f"{one_line(key)}: {one_line(text, _SHOWN_CHARS)} ({len(text)} characters)"
            for key, text in memory.items()
        ]
        summary = "1 key" if len(lines) == 1 else f"{len(lines)} keys"
        return ToolOutput.text("\n".join(lines) or "Nothing is kept.", summary=summary)


TOOL = ListTool()
