"""``/effort``: how much the model is asked to reason."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import Effort
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.panel import PickRow

AUTO = "auto"
_NAMES = (AUTO, *(effort.value for effort in Effort))


async def _run(chat: Chat, arguments: str) -> None:
    wanted = arguments.strip().lower()
    if wanted and wanted not in _NAMES:
        raise UsageError(f"there is no effort {arguments!r}", f"use one of: {', '.join(_NAMES)}")
    if not wanted and chat.theme.live:
        notes = {AUTO: "as the model does by itself"}
        rows = [PickRow(name, notes.get(name, "")) for name in _NAMES]
        at = await chat.choose("How much should it reason?", rows, _NAMES.index(_now(chat)))
        if at is None:
            return
        wanted = _NAMES[at]
    if wanted:
        chat.session.set_effort(None if wanted == AUTO else Effort(wanted))
    lines = [f"Reasoning effort: {chat.session.effort or 'auto (as the model does by itself)'}"]
    if not wanted:
        lines.append(f"Change it with /effort {'|'.join(_NAMES)}")
    chat.show(lines)


def _now(chat: Chat) -> str:
    return str(chat.session.effort or AUTO)


COMMAND = SlashCommand(
    "effort",
    "how much the model reasons",
    _run,
    "[LEVEL]",
    while_working=True,
    completes=lambda _: _NAMES,
)
