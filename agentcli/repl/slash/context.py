"""``/context``: where the tokens of the next request go (CMP-5)."""

from __future__ import annotations

import sys

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.screen import size_of


async def _run(chat: Chat, _arguments: str) -> None:
    from agentcli.ui.session_lines import context_lines

    columns = size_of(sys.stdout).columns
    chat.show(context_lines(chat.session.context_report(), chat.theme, columns))


COMMAND = SlashCommand("context", "where the tokens go", _run, while_working=True)
