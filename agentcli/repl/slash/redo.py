"""``/redo``: bring back what ``/undo`` or ``/rewind`` took back (TT-2)."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.repl.slash.rewind import refusals_shown, summary_of


async def _run(chat: Chat, arguments: str) -> None:
    if arguments.strip():
        raise UsageError("/redo takes no arguments", "use /redo alone")
    with refusals_shown(chat):
        done = await chat.session.redo()
        if done is None:
            raise UsageError(
                "there is nothing to bring back", "a rewind can be taken back until you go on"
            )
        chat.show([f"Brought back: {summary_of(done, chat.user.cwd)}."])


COMMAND = SlashCommand("redo", "bring back what was taken back", _run)
