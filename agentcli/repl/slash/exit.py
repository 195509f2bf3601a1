"""``/exit``: leave."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand


async def _run(chat: Chat, _arguments: str) -> None:
    chat.leave()


COMMAND = SlashCommand("exit", "leave; the session stays resumable", _run, aliases=("quit",))
