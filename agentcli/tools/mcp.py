"""The way to tools that the prompt does not hold: look for one, call it (MCP-4, TOOL-14).

Laws: both tools are the same in every session that has them, so that the cached prefix never
changes because a server came or went; a call through ``mcp_call`` is judged, asked about and run as
the tool that it names. Our own seldom used tools are found and called in the same way.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic import Field

from agentcli.domain.extensions.mcp import ServerStatus
from agentcli.domain.tools import (
    PREFIX,
    Asks,
    StandIn,
    ToolBox,
    ToolContext,
    ToolDefinition,
    ToolHints,
    ToolOutput,
)
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool, bounded, one_line

if TYPE_CHECKING:
    from agentcli.domain.tools import McpServers

OURS = "agentcli"
"""What stands for a server where the tool is one of our own."""
MAX_FOUND = 10
_WAIT_S = 10.0
_WORD = re.compile(r"[^\W_]+")
_SELECT = "select:"


class CallArguments(Arguments):
    """See the tool's description."""

    server: str = Field(min_length=1, max_length=200)
    tool: str = Field(min_length=1, max_length=200)
    arguments: dict[str, Any] = Field(default={})


class SearchArguments(Arguments):
    """See the tool's description."""

    query: str = Field(min_length=1, max_length=1_000, description="Words, or a tool's name")


@frozen
class McpSearchContext(ToolContext):
    """What is searched."""

    servers: McpServers | None
    toolbox: ToolBox


class McpCallTool(BaseTool[CallArguments]):
    """Stands for the tool that it names."""

    name = "mcp_call"
    display_name = "MCP"
    description = "Call a tool of an MCP server. tool_search tells what arguments it takes."
    params = CallArguments
    asks = Asks.ANYTHING
    group = "mcp"
    hints = ToolHints(destructive=True, open_world=True)

    def stands_for(self, args: CallArguments) -> StandIn:
        """The tool of the server; ``OURS`` is no server, a whole name needs none."""
        is_whole = args.tool.startswith(PREFIX) or args.server == OURS
        name = args.tool if is_whole else f"{PREFIX}{args.server}__{args.tool}"
        return StandIn(name, args.arguments, field="arguments", is_direct=True)

    def summary(self, args: CallArguments) -> str:
        """Server and tool."""
        return f"{one_line(args.server, 60)}: {one_line(args.tool, 60)}"

    async def run(self, args: CallArguments, ctx: ToolContext) -> ToolOutput:
        """Never reached by a call: what it stands for runs in its place."""
        del ctx
        return ToolOutput.error(f"{args.tool} cannot be run in this way.")


class ToolSearchTool(BaseTool[SearchArguments]):
    """Finds tools by words."""

    name = "tool_search"
    display_name = "Find tools"
    description = "Find tools of MCP servers: what they do and what arguments they take."
    params = SearchArguments
    asks = Asks.NOTHING
    group = "mcp"
    context = McpSearchContext
    hints = ToolHints(idempotent=True)
    timeout_s = None
    concurrent = True

    def summary(self, args: SearchArguments) -> str:
        """What is looked for."""
        return f"Find tools: {one_line(args.query, 80)}"

    async def run(self, args: SearchArguments, ctx: McpSearchContext) -> ToolOutput:
        """The best matches with their schemas, and what is wrong with servers."""
        problems, found = [], [(OURS, each.name, each) for each in ctx.toolbox.deferred]
        if ctx.servers is not None:
            problems = list(await ctx.servers.tools(ctx.cancel, ctx.progress, _WAIT_S))
            for facts in ctx.servers.facts():
                if facts.status is not ServerStatus.READY:
                    continue
                for tool in facts.tools:
                    served = ctx.toolbox.get(tool.full_name)
                    if served is not None:
                        found.append((tool.server, tool.name, served.definition))
        ranked = _ranked(args.query, found)
        lines = [_shown(*each) for each in ranked[:MAX_FOUND]]
        if len(ranked) > MAX_FOUND:
            names = ", ".join(f"{server}/{name}" for server, name, _ in ranked[MAX_FOUND:60])
            lines.append(f"Also: {names}")
        if not ranked:
            lines.append(f"No tool matches {one_line(args.query, 80)!r}.")
        lines += [f"({problem})" for problem in problems]
        text, raw = bounded("\n\n".join(lines), ctx.call_id)
        count = min(len(ranked), MAX_FOUND)
        return ToolOutput.text(text, raw=raw, summary=f"{count} tool{'' if count == 1 else 's'}")


def _shown(server: str, name: str, definition: ToolDefinition) -> str:
    schema = json.dumps(definition.parameters, ensure_ascii=False, separators=(",", ":"))
    how = f'mcp_call with server "{server}", tool "{name}"'
    return f"{server}/{name}: {definition.description}\nCall: {how}, arguments: {schema}"


def _ranked(
    query: str, found: list[tuple[str, str, ToolDefinition]]
) -> list[tuple[str, str, ToolDefinition]]:
    """Those that match, the best first; equal ones stay in order."""
    wanted = query.strip().casefold()
    if wanted.startswith(_SELECT):  # as Claude Code's models ask for tools that they know
        names = {name.strip() for name in wanted.removeprefix(_SELECT).split(",")}
        return [each for each in found if {each[1].casefold(), each[2].name.casefold()} & names]
    words = set(_WORD.findall(wanted))

    def score(each: tuple[str, str, ToolDefinition]) -> int:
        server, name, definition = each
        known = f"{server} {name}".casefold()
        if wanted in {name.casefold(), definition.name.casefold(), known, known.replace(" ", "/")}:
            return 1_000
        text = definition.description.casefold()
        in_name = sum(word in known for word in words)
        return 3 * in_name + sum(word in text for word in words)

    scored = [(score(each), each) for each in found]
    return [each for points, each in sorted(scored, key=lambda pair: -pair[0]) if points]


TOOLS = (ToolSearchTool(), McpCallTool())
