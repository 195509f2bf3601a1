"""``/todos``: the agent's list of things to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentcli.repl.commands import Chat, SlashCommand
from agentcli.ui.sanitize import clean_line

_MARKS = {"completed": "[x]", "in_progress": "[>]"}


def todo_lines(todos: Sequence[Mapping[str, str]]) -> list[str]:
    """A line for each thing to do."""
    if not todos:
        return ["The agent has no list of things to do."]
    return [
        f"{_MARKS.get(todo.get('status', ''), '[ ]')} {clean_line(todo.get('content', ''))}"
        for todo in todos
    ]


async def _run(chat: Chat, _arguments: str) -> None:
    chat.show(todo_lines(await chat.session.todos()))


COMMAND = SlashCommand("todos", "what the agent has on its list", _run, while_working=True)
