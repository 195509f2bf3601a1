"""``/context``: where the tokens of the next request go (CMP-5)."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand


async def _run(chat: Chat, _arguments: str) -> None:
    from agentcli.ui.context_lines import context_lines

    chat.show(context_lines(chat.session.context_report(), chat.theme))


COMMAND = SlashCommand("context", "where the tokens go", _run, while_working=True)
