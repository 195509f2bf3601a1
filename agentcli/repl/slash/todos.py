"""``/todos``: the agent's list of things to do."""

from __future__ import annotations

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line

_MARKS = {"completed": "[x]", "in_progress": "[>]"}


async def _run(chat: Chat, arguments: str) -> None:
    del arguments
    todos = await chat.session.todos()
    if not todos:
        chat.show(["The agent has no list of things to do."])
        return
    chat.show(
        [
            f"{_MARKS.get(todo.get('status', ''), '[ ]')} {clean_line(todo.get('content', ''))}"
            for todo in todos
        ]
    )


COMMAND = SlashCommand("todos", "what the agent has on its list", _run)
