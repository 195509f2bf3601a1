"""The MCP servers of a session: what they run in, what is kept of them (MCP-2, MCP-4).

Law: imported only where servers are configured.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.config.paths import Paths, write
from agentcli.domain.errors import ConfigError
from agentcli.mcp.client import ClientSetup
from agentcli.mcp.hub import Remembered, ServerHub
from agentcli.mcp.stdio import StdioPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentcli.domain.sandbox import Sandbox
    from agentcli.domain.tools import Asker, Workspace
    from agentcli.mcp.servers import McpServer

_MAX_KEPT_BYTES = 4_000_000


def server_hub(
    servers: Sequence[McpServer],
    paths: Paths,
    workspace: Workspace,
    owner: str,
    user: tuple[Asker | None, Sandbox | None] = (None, None),
) -> ServerHub:
    """The servers for one session (or command), whose processes belong to ``owner``.

    ``user`` is who answers their questions, and the sandbox for those that are to run in it.
    """
    ask, sandbox = user
    place = StdioPlace(workspace.cwd, owner, sandbox)
    setup = ClientSetup(place, (workspace.root, *workspace.extra), ask)
    return ServerHub(servers, setup, remembered(paths))


def remembered(paths: Paths) -> Remembered:
    """What servers have said, in files of ours; it can all be thrown away."""
    directory: Path = paths.state_dir / "mcp"

    def load(key: str) -> str | None:
        try:
            with (directory / f"{key}.json").open(encoding="utf-8") as file:
                return file.read(_MAX_KEPT_BYTES)
        except (OSError, UnicodeDecodeError):
            return None

    def save(key: str, text: str) -> None:
        with suppress(ConfigError, UnicodeEncodeError):
            write(directory / f"{key}.json", text)

    return Remembered(load, save)
