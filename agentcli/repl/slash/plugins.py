"""``/plugins``: the plugins that take effect, and what they bring (EXT-5)."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line


async def _run(chat: Chat, _arguments: str) -> None:
    lines = await chat.user.plugins()
    chat.show([clean_line(line) for line in lines])


COMMAND = SlashCommand("plugins", "the plugins that take effect", _run, while_working=True)
