"""``kv_set``: keep a text for later in this session, past compaction and restart."""

from __future__ import annotations

from agentcli.domain.tools import Effect, ToolContext, ToolHints, ToolOutput
from agentcli.tools._base import Arguments, BaseTool
from agentcli.tools._memory import MAX_KEYS, MAX_TOTAL_CHARS, MAX_VALUE_CHARS, Key, change_memory
from agentcli.tools.files.paths import one_line


class SetArguments(Arguments):
    """Arguments of ``kv_set``."""

    key: Key
    value: str


class SetTool(BaseTool[SetArguments]):
    """Writes a key."""

    name = "kv_set"
    display_name = "Note"
    description = "Keep a text for this session, past compaction and restarts."
    params = SetArguments
    effect = Effect.READ
    group = "memory"
    hints = ToolHints(idempotent=True)

    def summary(self, args: SetArguments) -> str:
        """Which key."""
        return f"Note {one_line(args.key, 60)}"

    async def run(self, args: SetArguments, ctx: ToolContext) -> ToolOutput:
        """Store it; too many keys or too much text is an error and changes nothing."""

        def put(memory: dict[str, str]) -> bool:
            replaced = args.key in memory
            memory[args.key] = args.value
            if len(args.value) > MAX_VALUE_CHARS:
                raise ValueError(f"a text has {MAX_VALUE_CHARS} characters at most")
            if len(memory) > MAX_KEYS:
                raise ValueError(f"{MAX_KEYS} keys are kept already")
            if sum(len(key) + len(text) for key, text in memory.items()) > MAX_TOTAL_CHARS:
                raise ValueError(f"{MAX_TOTAL_CHARS} characters are kept at most")
            return replaced

        try:
            replaced = await change_memory(ctx.state, put)
        except ValueError as error:
            return ToolOutput.error(f"Not kept: {error}. Use kv_delete for what is not needed.")
        what = "replaced" if replaced else "kept"
        return ToolOutput.text(f"{one_line(args.key, 60)} {what}.", display=args.value)


TOOL = SetTool()
