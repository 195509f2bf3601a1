"""A tool of an MCP server as one of ours: judged, asked about and bounded like any other (MCP-4).

Laws: what a server says of its own tool frees nothing: that it only reads makes one yes hold for
the session, no more. Its schema guides the model; the server has the last word on arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentcli.domain.clean import one_line
from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.extensions.mcp import LoginRequired, McpError, ServerTool
from agentcli.domain.messages import ImagePart, TextPart
from agentcli.domain.tools import (
    PREFIX,
    Asks,
    Tool,
    ToolContext,
    ToolDefinition,
    ToolHints,
    ToolOutput,
)
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.domain.tools import McpServers

_MAX_SUMMARY = 80
_SAYS = "The server says that it destroys or overwrites things."


@frozen
class ServerContext(ToolContext):
    """The servers of the session."""

    servers: McpServers


class ServedTool(Tool):
    """``tool`` of an MCP server."""

    context = ServerContext

    def __init__(self, tool: ServerTool) -> None:
        self._tool = tool
        self._definition = ToolDefinition(
            name=tool.full_name,
            display_name=f"{tool.server}: {tool.title or tool.name}",
            description=tool.description or f"{tool.name} of the MCP server {tool.server}",
            parameters=tool.parameters,
            asks=Asks.HOST if tool.reads else Asks.ANYTHING,
            group="mcp",
            hints=ToolHints(tool.idempotent, tool.destroys, tool.open_world, background=True),
            timeout_s=None,
            concurrent=tool.reads,
            whole_name=f"{PREFIX}{tool.server}__{tool.name}",
        )

    @property
    def definition(self) -> ToolDefinition:
        """See ``Tool``."""
        return self._definition

    def parse(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments as they are; raises ``InvalidArguments`` for those that are missing."""
        given = self._tool.parameters.get("required")
        required = given if isinstance(given, list) else ()
        names = [name for name in required if isinstance(name, str)]
        missing = [ArgumentProblem(name, "is required") for name in names if name not in arguments]
        if missing:
            raise InvalidArguments(tuple(missing))
        return arguments

    def summary(self, args: Mapping[str, Any]) -> str:
        """Server, tool and how the arguments begin."""
        shown = one_line(json.dumps(args, ensure_ascii=False), _MAX_SUMMARY) if args else ""
        return f"{self._tool.server}: {self._tool.name} {shown}".rstrip()

    async def preview(self, args: Mapping[str, Any], ctx: ServerContext) -> str:
        """All arguments, and what the server says of the tool."""
        del ctx
        tool = self._tool
        lines = [json.dumps(args, ensure_ascii=False, indent=2)]
        said = one_line(tool.description, 500)
        lines += [f"The server says of it: {said}"] if said else []
        return "\n".join([*lines, *([_SAYS] if tool.destroys else [])])

    async def run(self, args: Mapping[str, Any], ctx: ServerContext) -> ToolOutput:
        """What the server returns, bounded."""
        from agentcli.tools.common.base import bounded

        try:
            output = await ctx.servers.call(self._tool, args, ctx.cancel, ctx.progress)
        except LoginRequired as error:
            name = f"the MCP server {error.server} ({error.advice})"
            return ToolOutput.connection_required(name)
        except McpError as error:
            return ToolOutput.error(str(error))
        text = "\n".join(part.text for part in output.parts if isinstance(part, TextPart))
        images = tuple(part for part in output.parts if isinstance(part, ImagePart))
        short, raw = bounded(text, ctx.call_id)
        return ToolOutput(output.kind, (TextPart(short), *images), raw)
