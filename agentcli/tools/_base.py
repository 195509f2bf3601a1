"""What every tool shares: a pydantic model for its arguments, its schema, its one-line summary."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.tools import (
    Effect,
    ToolContext,
    ToolDefinition,
    ToolHints,
    ToolOutput,
    Workspace,
)


class Arguments(BaseModel):
    """Base of a tool's arguments: unknown fields are an error, values are frozen.

    Nothing is converted here but ``30.0`` to the integer it is: what was meant has been found
    out before the call was recorded, and what runs is what the history says (LOOP-10).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value


A = TypeVar("A", bound=Arguments)


class BaseTool(Generic[A]):
    """Subclass, set the class attributes, write ``run``; see ``domain.tools.Tool`` for the port."""

    name: str
    display_name: str
    description: str
    params: type[A]
    effect: Effect
    group: str
    hints: ToolHints = ToolHints()
    timeout_s: float | None = 60.0
    always_ask: bool = False

    @cached_property
    def definition(self) -> ToolDefinition:
        """The tool as the model, the policy and the screen know it."""
        return ToolDefinition(
            name=self.name,
            display_name=self.display_name,
            description=self.description,
            parameters=compact_schema(self.params),
            effect=self.effect,
            group=self.group,
            hints=self.hints,
            timeout_s=self.timeout_s,
            always_ask=self.always_ask,
        )

    def parse(self, arguments: Mapping[str, Any]) -> A:
        """Validated arguments; raises ``InvalidArguments`` naming each wrong field."""
        try:
            return self.params.model_validate(dict(arguments))
        except ValidationError as error:
            problems = tuple(
                ArgumentProblem(".".join(str(part) for part in item["loc"]) or "(all)", item["msg"])
                for item in error.errors(include_url=False, include_input=False)
            )
            raise InvalidArguments(problems) from None

    def summary(self, args: A) -> str:
        """How the call reads in one line."""
        del args
        return self.display_name

    def paths(self, args: A, workspace: Workspace) -> tuple[Path, ...]:
        """The files and directories that the call names; none by default."""
        del args, workspace
        return ()

    async def preview(self, args: A, ctx: ToolContext) -> str:
        """What a person should see before saying yes; empty by default."""
        del args, ctx
        return ""

    async def run(self, args: A, ctx: ToolContext) -> ToolOutput:
        """Do it."""
        raise NotImplementedError


def compact_schema(params: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of ``params`` without titles and with references inlined (CTX-2)."""
    schema = params.model_json_schema()
    definitions = schema.pop("$defs", {})

    def clean(node: Any) -> Any:
        if isinstance(node, list):
            return [clean(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return clean(definitions[node["$ref"].rpartition("/")[2]])
        options = node.get("anyOf")
        if isinstance(options, list) and {"type": "null"} in options:
            rest = [option for option in options if option != {"type": "null"}]
            if len(rest) == 1:
                merged = {key: value for key, value in node.items() if key != "anyOf"}
                return clean({**rest[0], **merged})
        return {
            key: {name: clean(value) for name, value in child.items()}
            if key == "properties"
            else clean(child)
            for key, child in node.items()
            if key != "title" and not (key == "default" and child is None)
        }

    cleaned: dict[str, Any] = clean(schema)
    cleaned.pop("description", None)
    return cleaned
