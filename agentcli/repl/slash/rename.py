"""``/rename``: name the session."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line


async def _run(chat: Chat, arguments: str) -> None:
    if not arguments:
        raise UsageError("a session needs a name", "write it after /rename")
    await chat.session.rename(arguments)
    chat.show([f"This session is now called {clean_line(chat.session.title)}"])


COMMAND = SlashCommand("rename", "name this session", _run, "NAME")
