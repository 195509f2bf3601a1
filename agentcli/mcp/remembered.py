"""What servers have said the last time, kept between sessions (MCP-4).

Law: what was kept is only ever the beginning of a prompt and of a connection: a server that is up
says itself what it has. What cannot be read is nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from agentcli.domain.clean import digest
from agentcli.domain.mcp import ServerPrompt, ServerTool
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.mcp.servers import McpServer

MAX_CHARS = 2_000_000
_FORMAT = 2
_DESCRIPTION = 200
log = logging.getLogger(__name__)


@frozen
class KnownServer:
    """What is known of a server: the version spoken with it, and what it has."""

    protocol: str = ""
    version: str = ""
    instructions: str = ""
    tools: tuple[ServerTool, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()


@frozen
class Remembered:
    """Texts by key, in a place of ours."""

    load: Callable[[str], str | None] = lambda _: None
    save: Callable[[str, str], None] = lambda *_: None

    def recall(self, server: McpServer) -> KnownServer:
        """What was kept of ``server`` as it is configured now."""
        text = self.load(_key(server))
        if text is None:
            return KnownServer()
        try:
            kept = json.loads(text)
            tools = [ServerTool(**row) for row in kept["tools"]]
            prompts = [ServerPrompt(**row) for row in kept["prompts"]]
            return KnownServer(
                str(kept["protocol"]),
                str(kept["version"]),
                str(kept["instructions"]),
                tuple(tool for tool in tools if server.offers(tool.name)),
                tuple(prompts),
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            log.warning("what is remembered of the MCP server %s is damaged", server.name)
            return KnownServer()

    def keep(self, server: McpServer, known: KnownServer) -> None:
        """Keep it, with the schemas of tools that are to be in the prompt. Blocks."""
        kept = {
            "protocol": known.protocol,
            "version": known.version,
            "instructions": known.instructions,
            "tools": _rows(known.tools, whole=server.pinned),
            "prompts": [_row(prompt) for prompt in known.prompts],
        }
        text = json.dumps(kept, ensure_ascii=False)
        if len(text) <= MAX_CHARS and text != self.load(_key(server)):
            self.save(_key(server), text)


def _rows(tools: Sequence[ServerTool], *, whole: bool) -> list[dict[str, Any]]:
    rows = [_row(tool) for tool in tools]
    for row in () if whole else rows:
        row["parameters"] = {"type": "object"}
        row["description"] = row["description"][:_DESCRIPTION]
    return rows


def _row(known: ServerTool | ServerPrompt) -> dict[str, Any]:
    return {each.name: getattr(known, each.name) for each in fields(known)}


def _key(server: McpServer) -> str:
    return digest(f"{server.name}\0{server.mark}\0{server.pinned}\0{_FORMAT}")
