"""``kv_get``: a text that the model has kept in this session."""

from __future__ import annotations

from agentcli.domain.tools import Effect, ToolContext, ToolHints, ToolOutput
from agentcli.tools._base import Arguments, BaseTool
from agentcli.tools._memory import Key, read_memory, unknown_key
from agentcli.tools.files.paths import one_line


class GetArguments(Arguments):
    """Arguments of ``kv_get``."""

    key: Key


class GetTool(BaseTool[GetArguments]):
    """Reads a key."""

    name = "kv_get"
    display_name = "Remember"
    description = "Read what kv_set has kept."
    params = GetArguments
    effect = Effect.READ
    group = "memory"
    hints = ToolHints(idempotent=True)

    def summary(self, args: GetArguments) -> str:
        """Which key."""
        return f"Remember {one_line(args.key, 60)}"

    async def run(self, args: GetArguments, ctx: ToolContext) -> ToolOutput:
        """The text; an unknown key is an error with near keys."""
        memory = await read_memory(ctx.state)
        if args.key not in memory:
            return ToolOutput.error(unknown_key(args.key, memory))
        return ToolOutput.text(memory[args.key])


TOOL = GetTool()
