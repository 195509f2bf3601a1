"""What servers have said the last time, kept between sessions (MCP-4).

Law: what was kept is only ever the beginning of a prompt and of a connection: a server that is up
says itself what it has. What cannot be read is nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from agentcli.domain.clean import digest
from agentcli.domain.extensions.mcp import ServerPrompt, ServerTool
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.mcp.servers import McpServer

MAX_CHARS = 2_000_000
_FORMAT = 3
_DESCRIPTION = 200
_SHORT = "-short"
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
class KnownBriefly:
    """What a prompt says of a server: ``tools`` are names."""

    protocol: str = ""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()


T = TypeVar("T")


@frozen
class Remembered:
    """Texts by key, in a place of ours: of each server all that it has, and a short one.

    ``redact`` takes out what no file may hold (SEC-9): some servers tell the key they were sent.
    """

    load: Callable[[str], str | None] = lambda _: None
    save: Callable[[str, str], None] = lambda *_: None
    redact: Callable[[str], str] = str

    def recall(self, server: McpServer) -> KnownServer:
        """What was kept of ``server`` as it is configured now."""
        return self._read(server, "", _whole) or KnownServer()

    def briefly(self, server: McpServer) -> KnownBriefly:
        """The same in short, without reading the schemas and descriptions of its tools."""
        return self._read(server, _SHORT, _brief) or KnownBriefly()

    def _read(self, server: McpServer, part: str, made: Callable[[McpServer, Any], T]) -> T | None:
        text = self.load(_key(server) + part)
        if text is None:
            return None
        try:
            return made(server, json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError):
            log.warning("what is remembered of the MCP server %s is damaged", server.name)
            return None

    def keep(self, server: McpServer, known: KnownServer) -> None:
        """Keep it, with the schemas of tools that are to be in the prompt. Blocks."""
        said = {"protocol": known.protocol, "instructions": known.instructions}
        prompts = [_row(prompt) for prompt in known.prompts]
        tools = _rows(known.tools, whole=server.pinned)
        names = [tool.name for tool in known.tools]
        whole = {**said, "version": known.version, "tools": tools, "prompts": prompts}
        for part, kept in ("", whole), (_SHORT, {**said, "tools": names, "prompts": prompts}):
            text, key = self.redact(json.dumps(kept, ensure_ascii=False)), _key(server) + part
            if len(text) <= MAX_CHARS and text != self.load(key):
                self.save(key, text)


def _whole(server: McpServer, kept: Any) -> KnownServer:
    tools = [ServerTool(**row) for row in kept["tools"]]
    return KnownServer(
        str(kept["protocol"]),
        str(kept["version"]),
        str(kept["instructions"]),
        tuple(tool for tool in tools if server.offers(tool.name)),
        tuple(ServerPrompt(**row) for row in kept["prompts"]),
    )


def _brief(server: McpServer, kept: Any) -> KnownBriefly:
    return KnownBriefly(
        str(kept["protocol"]),
        str(kept["instructions"]),
        tuple(name for name in map(str, kept["tools"]) if server.offers(name)),
        tuple(ServerPrompt(**row) for row in kept["prompts"]),
    )


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
