"""What the rest of the house sees of MCP servers (MCP-2, MCP-4); the port is in ``tools``.

Law: every text in these values was cleaned and cut where it came in: it holds no control
characters and has a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from agentcli.domain.errors import AgentError
from agentcli.domain.values import frozen


class McpError(AgentError):
    """A server cannot be used, or has not done what it was asked."""


class LoginRequired(McpError):
    """The server wants a login first (MCP-5); ``server`` is its name."""

    def __init__(self, server: str, why: str = "") -> None:
        said = f" ({why})" if why else ""
        super().__init__(
            f"the MCP server {server} needs a login{said}", f"run: agent mcp login {server}"
        )
        self.server = server


class ServerStatus(StrEnum):
    """How a server stands."""

    IDLE = "not started"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    LOGIN = "needs a login"
    OFF = "switched off"


@frozen
class ServerTool:
    """A tool as its server tells of it; ``full_name`` is what it is called here.

    ``reads`` and ``destroys`` are the server's own word, and no more than that.
    """

    server: str
    name: str
    full_name: str
    description: str
    parameters: Mapping[str, Any]
    title: str = ""
    reads: bool = False
    destroys: bool = False
    idempotent: bool = False
    open_world: bool = True


@frozen
class ServerResource:
    """Something that can be read, by its URI; a ``template`` has ``{variables}`` in it."""

    server: str
    uri: str
    name: str
    description: str = ""
    media_type: str = ""
    is_template: bool = False


@frozen
class ServerPrompt:
    """A prompt that a server has ready. ``arguments``: name, description, whether it must be."""

    server: str
    name: str
    full_name: str
    description: str = ""
    arguments: tuple[tuple[str, str, bool], ...] = ()


@frozen
class ServerFacts:
    """A server and what is known of it by now. ``problem`` is why it cannot be used.

    ``said`` are the last lines that it wrote to its standard error. Before it is ready the rest is
    what it was the last time.
    """

    name: str
    status: ServerStatus
    where: str = ""
    problem: str = ""
    said: str = ""
    version: str = ""
    protocol: str = ""
    instructions: str = ""
    tools: tuple[ServerTool, ...] = ()
    resources: tuple[ServerResource, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()
