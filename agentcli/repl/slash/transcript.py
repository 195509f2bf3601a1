"""``/transcript``: the whole session in a pager (UI-12), where there is no key for it as well."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand


async def _run(chat: Chat, _arguments: str) -> None:
    chat.open_transcript()


COMMAND = SlashCommand("transcript", "the whole session, every output, in a pager", _run)
