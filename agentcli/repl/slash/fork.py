"""``/fork``: go on in a copy of this session; the original stays as it is (TT-3)."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line


async def _run(chat: Chat, arguments: str) -> None:
    session = chat.session
    if not session.turns:
        raise UsageError("there is nothing to copy yet", "say something first, or use /new")
    original, title = session.id, session.title
    copy = await chat.sessions.fork(original)
    await chat.switch_to(copy)
    await chat.session.rename(arguments or f"{title or 'untitled'} (copy)")
    name = clean_line(chat.session.title)
    chat.show([f"This is the copy: {name}", f"Back to the original: /resume {original}"])


COMMAND = SlashCommand("fork", "go on in a copy of this session", _run, "[NAME]")
