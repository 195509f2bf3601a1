"""What speaks to the MCP servers of a session or a command: what they run in (MCP-2, MCP-3).

Law: imported only when servers are about to be started.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.app.extensions.logins import ServerLogins
from agentcli.app.extensions.servers import kept_by
from agentcli.domain.clean import cut_text, one_line
from agentcli.domain.extensions.mcp import McpError
from agentcli.domain.messages import TextPart
from agentcli.mcp.client import ClientSetup
from agentcli.mcp.hub import ServerHub
from agentcli.mcp.stdio import StdioPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agentcli.config.paths import Paths
    from agentcli.config.settings import Settings
    from agentcli.domain.cancel import CancelToken
    from agentcli.domain.extensions.mcp import ServerFacts
    from agentcli.domain.messages import UserPart
    from agentcli.domain.sandbox import Sandbox
    from agentcli.domain.tools import Asker, McpServers, Workspace
    from agentcli.mcp.servers import McpServer

MAX_RESOURCES = 20
MAX_ABOUT = 60
MAX_RESOURCE_BYTES = 100_000
_RESOURCE = re.compile(r"(?<!\S)@([\w.-]+):([^\s\"]*[^\s\".,;!?)\]}>'])")


def server_hub(
    servers: Sequence[McpServer],
    paths: Paths,
    workspace: Workspace,
    owner: str,
    user: tuple[Asker | None, Sandbox | None] = (None, None),
    told: tuple[Callable[[Iterable[str]], None], Callable[[McpServer], None]] | None = None,
) -> ServerHub:
    """The servers for one session (or command), whose processes belong to ``owner``.

    ``user`` is who answers their questions, and the sandbox for those that are to run in it;
    ``told`` are called with each secret that becomes known, and with each server before anything
    of it runs: the latter raises ``McpError`` where it may not.
    """
    ask, sandbox = user
    watch, check = told or (_unheard, _unheard)
    place = StdioPlace(workspace.cwd, owner, sandbox, check)
    logins = ServerLogins(paths, os.environ, watch, check)
    logins.know(secret for server in servers for secret in server.secrets)
    setup = ClientSetup(place, (workspace.root, *workspace.extra), ask, logins.authorizer)

    async def log_in(server: McpServer) -> bool:
        return ask is not None and await logins.offer(server, ask, workspace.root)

    return ServerHub(servers, setup, kept_by(paths, logins.redact), log_in)


def _unheard(_: object) -> None:
    """Where nobody has to be told."""


async def try_servers(
    settings: Settings, servers: Sequence[McpServer], watch: Callable[[Iterable[str]], None]
) -> list[dict[str, Any]]:
    """Start or call each; what they said, as rows. Ends all of them. Raises ``ConfigError``."""
    from agentcli.app.boundary import make_sandbox
    from agentcli.domain.cancel import CancelToken
    from agentcli.domain.tools import Workspace

    if not servers:
        return []
    cwd = Path.cwd()
    workspace = Workspace(cwd, cwd, (), settings.paths.journals_dir)
    sandbox = await make_sandbox(settings, workspace)
    hub = server_hub(
        servers,
        settings.paths,
        workspace,
        f"mcp-{os.getpid()}",
        (None, sandbox),
        (watch, _unheard),
    )
    try:
        await hub.tools(CancelToken(), lambda _: None)
        return [_tried_row(each) for each in hub.facts()]
    finally:
        await hub.aclose()
        await sandbox.aclose()


def _tried_row(facts: ServerFacts) -> dict[str, Any]:
    from agentcli.domain.extensions.mcp import ServerStatus

    return {
        "name": facts.name,
        "state": str(facts.status),
        "is_ok": facts.status is ServerStatus.READY,
        "problem": facts.problem
        + (f"; run: agent mcp login {facts.name}" if facts.status is ServerStatus.LOGIN else ""),
        "version": facts.version,
        "protocol": facts.protocol,
        "tools": [each.name for each in facts.tools],
        "resources": len(facts.resources),
        "prompts": [each.name for each in facts.prompts],
        "stderr": facts.said.splitlines(),
    }


def resource_names(servers: McpServers) -> dict[str, str]:
    """What can be named as ``@SERVER:URI``, and what it is said to be."""
    found = {}
    for each in (each for facts in servers.facts() for each in facts.resources):
        name = f"{each.server}:{each.uri}"
        if not each.is_template and name.isprintable() and _RESOURCE.fullmatch(f"@{name}"):
            found[name] = one_line(each.description or each.name, MAX_ABOUT)
    return found


async def resources_named(
    typed: str, servers: McpServers, cancel: CancelToken, notify: Callable[[str], None]
) -> list[UserPart]:
    """What the user names as ``@SERVER:URI``, each once; what cannot be read is told to them."""
    parts: list[UserPart] = []
    found = dict.fromkeys(_RESOURCE.findall(typed))
    for server, uri in [each for each in found if each[0] in servers.names][:MAX_RESOURCES]:
        try:
            read = await servers.read(server, uri, cancel)
        except McpError as error:
            notify(str(error))
            continue
        parts.append(TextPart(f"[Resource {uri} of the MCP server {server}]"))
        parts += [
            TextPart(cut_text(part.text, MAX_RESOURCE_BYTES))
            if isinstance(part, TextPart)
            else part
            for part in read
        ]
    return parts
