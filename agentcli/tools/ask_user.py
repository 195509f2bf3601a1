"""``ask_user``: a question to the user, answered while the turn waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from agentcli.domain.cancel import unless_cancelled
from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool, one_line

if TYPE_CHECKING:
    from agentcli.domain.tools import Asker

MAX_OPTIONS = 20


class AskArguments(Arguments):
    """Arguments of ``ask_user``."""

    question: str = Field(min_length=1, max_length=4_000)
    options: list[str] = Field(
        default_factory=list, max_length=MAX_OPTIONS, description="Answers to choose from"
    )


@frozen
class AskContext(ToolContext):
    """The user, who can be asked."""

    ask: Asker


class AskTool(BaseTool[AskArguments]):
    """Asks, and waits as long as it takes."""

    name = "ask_user"
    display_name = "Ask"
    description = (
        "Ask the user a question and wait for the answer. Only for what you can neither find out "
        "nor decide yourself."
    )
    params = AskArguments
    asks = Asks.NOTHING
    context = AskContext
    group = "ask"
    timeout_s = None

    def summary(self, args: AskArguments) -> str:
        """The question."""
        return f"Ask: {one_line(args.question, 150)}"

    async def run(self, args: AskArguments, ctx: AskContext) -> ToolOutput:
        """The answer."""
        answer = await unless_cancelled(ctx.ask.ask(args.question, args.options), ctx.cancel)
        if answer is None:
            return ToolOutput.cancelled("The question was not answered.")
        if not answer.strip():
            return ToolOutput.text("(the user gave an empty answer)", summary="no answer")
        return ToolOutput.text(answer, summary=one_line(answer, 80))


TOOL = AskTool()
