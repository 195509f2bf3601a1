"""``/exit``: leave."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand


async def _run(chat: Chat, arguments: str) -> None:
    del arguments
    chat.leave()


COMMAND = SlashCommand("exit", "leave; the session stays resumable", _run, aliases=("quit",))
