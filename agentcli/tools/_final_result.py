"""``final_result``: the model delivers the result of the run, which ends the turn (CTRL-5)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentcli.domain.errors import InvalidArguments
from agentcli.domain.tools import Effect, ToolContext, ToolDefinition, ToolOutput, Workspace
from agentcli.tools._result_schema import ResultSchema

NAME = "final_result"
DESCRIPTION = (
    "Deliver the result of the task, in this shape. Call it once, when everything is done: it "
    "ends the task. An answer in words does not count."
)


class FinalResult:
    """The tool for one schema; see ``domain.tools.Tool``."""

    def __init__(self, schema: ResultSchema) -> None:
        self._schema = schema
        self.definition = ToolDefinition(
            name=NAME,
            display_name="Result",
            description=DESCRIPTION,
            parameters=schema.parameters,
            effect=Effect.READ,
            group="result",
        )

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        """The arguments as they are; raises ``InvalidArguments`` naming each wrong field."""
        if problems := self._schema.argument_problems(arguments):
            raise InvalidArguments(problems)
        return arguments

    def summary(self, args: Any) -> str:
        """How the call reads in one line."""
        del args
        return "Result"

    def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
        """None."""
        del args, workspace
        return ()

    async def preview(self, args: Any, ctx: ToolContext) -> str:
        """Nothing to see."""
        del args, ctx
        return ""

    async def run(self, args: Any, ctx: ToolContext) -> ToolOutput:
        """The result has been taken."""
        del args, ctx
        return ToolOutput.text("The result was taken.", summary="taken")
