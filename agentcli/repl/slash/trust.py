"""``/trust``: whether the files that the directory brings take effect (SEC-1)."""

from __future__ import annotations

from agentcli.domain.errors import UsageError
from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import reveal

_ANSWERS = {"yes": True, "y": True, "no": False, "n": False}


async def _run(chat: Chat, arguments: str) -> None:
    word = arguments.strip().lower()
    if not word:
        chat.show([reveal(line) for line in await chat.user.trust()])
        return
    if word not in _ANSWERS:
        raise UsageError(f"cannot do /trust {word}", "use /trust yes or /trust no")
    lines = await chat.user.set_trust(trusted=_ANSWERS[word])
    chat.show([reveal(line) for line in lines])


COMMAND = SlashCommand("trust", "whether the directory's own files take effect", _run, "[yes|no]")
