"""``/effort``: how much the model is asked to reason."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import Effort
from agentcli.repl.commands import Chat, SlashCommand

AUTO = "auto"


async def _run(chat: Chat, arguments: str) -> None:
    names = (AUTO, *(effort.value for effort in Effort))
    wanted = arguments.strip().lower()
    if wanted and wanted not in names:
        raise UsageError(f"there is no effort {arguments!r}", f"use one of: {', '.join(names)}")
    if wanted:
        chat.session.set_effort(None if wanted == AUTO else Effort(wanted))
    now = chat.session.effort or f"{AUTO} (as the model does by itself)"
    lines = [f"Reasoning effort: {now}"]
    if not wanted:
        lines.append(f"Change it with /effort {'|'.join(names)}")
    chat.show(lines)


COMMAND = SlashCommand("effort", "how much the model reasons", _run, "[LEVEL]", while_working=True)
