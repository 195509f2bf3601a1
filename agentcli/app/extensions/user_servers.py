"""What the user does about MCP servers from within a chat: switch, log in, log out (MCP-1, MCP-5).

Law: what is switched here takes effect when the session is opened again, since the prompt that
names the servers does not change within one (MCP-4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.extensions.logins import ServerLogins, open_browser
from agentcli.app.extensions.servers import root_of, switch
from agentcli.domain.cancel import CancelToken, unless_cancelled
from agentcli.domain.errors import UsageError

if TYPE_CHECKING:
    from agentcli.config.settings import Settings
    from agentcli.mcp.servers import McpServer


class UserServers:
    """The servers of a session, by name, as the user may change them."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        settings: Settings,
        cwd: Path,
        watch: Callable[[Iterable[str]], None],
    ) -> None:
        self.by_name: Mapping[str, McpServer] = {each.name: each for each in servers}
        self._settings = settings
        self._root = root_of(cwd)
        self._logins = ServerLogins(settings.paths, settings.env, watch)

    def named(self, name: str) -> McpServer:
        """The server ``name``. Raises ``UsageError``."""
        if name not in self.by_name:
            there = ", ".join(self.by_name) or "none; agent mcp add --help says how to add one"
            raise UsageError(f"there is no MCP server {name!r}", f"there are: {there}")
        return self.by_name[name]

    async def switch(self, name: str, *, on: bool) -> None:
        """Switch it for this project, from the next opening of the session on."""
        await asyncio.to_thread(switch, self._settings.paths, self._root, name, on=on)

    async def log_in(
        self, name: str, show: Callable[[str], None], cancel: CancelToken
    ) -> str | None:
        """Log in, in the browser; what came of it, ``None`` when it was cancelled.

        ``show`` gets the address. Raises ``AgentError``.
        """

        async def browse(url: str) -> str:
            is_shown = await asyncio.to_thread(open_browser, url, self._settings.env, self._root)
            show(f"{'Go on in the browser' if is_shown else 'Open in a browser'}: {url}")
            return ""

        return await unless_cancelled(self._logins.log_in(self.named(name), browse), cancel)

    async def log_out(self, name: str) -> bool:
        """Forget the login; false when there was none."""
        return await asyncio.to_thread(self._logins.log_out, self.named(name))
