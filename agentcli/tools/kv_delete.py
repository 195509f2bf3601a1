"""``kv_delete``: let go of a text that ``kv_set`` has kept."""

from __future__ import annotations

from agentcli.domain.tools import Effect, ToolContext, ToolHints, ToolOutput
from agentcli.tools._base import Arguments, BaseTool
from agentcli.tools._memory import Key, change_memory, read_memory, unknown_key
from agentcli.tools.files.paths import one_line


class DeleteArguments(Arguments):
    """Arguments of ``kv_delete``."""

    key: Key


class DeleteTool(BaseTool[DeleteArguments]):
    """Removes a key."""

    name = "kv_delete"
    display_name = "Forget"
    description = "Delete what kv_set has kept."
    params = DeleteArguments
    effect = Effect.READ
    group = "memory"
    hints = ToolHints(idempotent=True)

    def summary(self, args: DeleteArguments) -> str:
        """Which key."""
        return f"Forget {one_line(args.key, 60)}"

    async def run(self, args: DeleteArguments, ctx: ToolContext) -> ToolOutput:
        """Remove it; an unknown key is an error with near keys."""
        old = await change_memory(ctx.state, lambda memory: memory.pop(args.key, None))
        if old is None:
            return ToolOutput.error(unknown_key(args.key, await read_memory(ctx.state)))
        return ToolOutput.text(f"{one_line(args.key, 60)} deleted.")


TOOL = DeleteTool()
