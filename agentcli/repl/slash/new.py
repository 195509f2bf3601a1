"""``/new``: a new session; the one before stays resumable."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand


async def _run(chat: Chat, _arguments: str) -> None:
    await chat.switch_to(None)


COMMAND = SlashCommand("new", "a new session; this one stays resumable", _run, aliases=("clear",))
