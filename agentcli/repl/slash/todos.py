"""``/todos``: the agent's list of things to do."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui import wording


async def _run(chat: Chat, _arguments: str) -> None:
    chat.show(wording.todo_lines(await chat.session.todos()))


COMMAND = SlashCommand("todos", "what the agent has on its list", _run, while_working=True)
