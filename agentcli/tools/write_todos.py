"""``write_todos``: the model's plan, kept with the session and shown to the user."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field

from agentcli.domain.clean import todo_line
from agentcli.domain.tools import Asks, ToolContext, ToolHints, ToolOutput
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import SessionState

STATE_KEY = "todos"
MAX_TODOS = 100
MAX_CONTENT_CHARS = 1_000


class TodoStatus(StrEnum):
    """How far an item is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class Todo(Arguments):
    """One item of the list."""

    content: str = Field(min_length=1, max_length=MAX_CONTENT_CHARS)
    status: TodoStatus = Field(strict=False)


class TodosArguments(Arguments):
    """Arguments of ``write_todos``."""

    todos: list[Todo] = Field(max_length=MAX_TODOS, description="The whole list, in order")


@frozen
class TodosContext(ToolContext):
    """The session's own state."""

    state: SessionState


class TodosTool(BaseTool[TodosArguments]):
    """Replaces the session's list of things to do."""

    name = "write_todos"
    display_name = "Plan"
    description = (
        "Replace the list of things to do, which the user sees. Use it for work of several steps; "
        "update it as you go, with one item in progress at a time."
    )
    params = TodosArguments
    asks = Asks.NOTHING  # it changes the session alone
    context = TodosContext
    group = "todos"
    hints = ToolHints(idempotent=True)

    def summary(self, args: TodosArguments) -> str:
        """How much of the list is done."""
        return f"Plan {_counts(args.todos)[TodoStatus.COMPLETED]}/{len(args.todos)} done"

    async def run(self, args: TodosArguments, ctx: TodosContext) -> ToolOutput:
        """Store the list; the result counts its items."""
        await ctx.state.set(STATE_KEY, [item.model_dump(mode="json") for item in args.todos])
        counts = _counts(args.todos)
        text = (
            f"{len(args.todos)} todos: {counts[TodoStatus.COMPLETED]} completed, "
            f"{counts[TodoStatus.IN_PROGRESS]} in progress, {counts[TodoStatus.PENDING]} pending."
        )
        if counts[TodoStatus.IN_PROGRESS] > 1:
            text += " More than one is in progress; one at a time is easier to follow."
        shown = "\n".join(todo_line(item.status, item.content) for item in args.todos)
        return ToolOutput.text(text, display=shown, summary=self.summary(args))


def _counts(todos: list[Todo]) -> dict[TodoStatus, int]:
    return {status: sum(item.status is status for item in todos) for status in TodoStatus}


TOOL = TodosTool()
