"""What authorises requests to MCP servers, and the logins of the user's (MCP-5).

Law: a token is kept for the address of its server, whatever the server is called, and leaves only
for that address; the user is asked in a terminal or a browser of theirs, never by the model.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.config.credentials import CommandKey, Credentials
from agentcli.config.logins import LoginVault
from agentcli.config.redaction import Redactor
from agentcli.domain.cancel import in_own_thread
from agentcli.domain.extensions.mcp import McpError
from agentcli.mcp.oauth import Browse, log_in, probe
from agentcli.mcp.tokens import OAuthHeaders, read_login, write_login
from agentcli.process.environment import without_provider_keys

if TYPE_CHECKING:
    from agentcli.config.paths import Paths
    from agentcli.domain.tools import Asker
    from agentcli.mcp.oauth import Login
    from agentcli.mcp.servers import McpServer


LOG_IN, NOT_NOW, STOP = "Log in", "Not now", "Stop"
_BROWSERS = ("xdg-open", "open", "wslview")


def open_browser(url: str, env: Mapping[str, str], outside: Path) -> bool:
    """Whether a browser of the user's was told to show ``url``; never one from ``outside``.

    None is where nobody would see it: over SSH, or without a display.
    """
    import subprocess

    from agentcli.process.environment import find_program

    has_screen = sys.platform == "darwin" or env.get("DISPLAY") or env.get("WAYLAND_DISPLAY")
    if env.get("SSH_CONNECTION") or not (has_screen or env.get("WSL_DISTRO_NAME")):
        return False
    program = next(filter(None, (find_program(each, (outside,)) for each in _BROWSERS)), None)
    if program is None:
        return False
    try:
        process = subprocess.Popen(  # noqa: S603 - an address that was checked
            [program, url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=without_provider_keys(os.environ),
            start_new_session=True,
        )
    except OSError:
        return False
    # it may last as long as the browser: nobody waits for that but this thread
    threading.Thread(target=process.wait, daemon=True).start()
    return True


class ServerLogins:
    """The logins of one home. ``watch`` is told each secret that becomes known (SEC-9).

    ``check`` raises ``McpError`` for a server whose command for headers may not run any more.
    """

    def __init__(
        self,
        paths: Paths,
        env: Mapping[str, str],
        watch: Callable[[Iterable[str]], None] = lambda _: None,
        check: Callable[[McpServer], None] = lambda _: None,
    ) -> None:
        self._paths = paths
        self._check = check
        self._env = env
        self._watch = watch
        self._redactor = Redactor()
        self._vault = LoginVault(paths, self.know)

    def know(self, secrets: Iterable[str]) -> None:
        """Know more of what nobody may see."""
        known = tuple(secrets)
        self._redactor.add(known)
        self._watch(known)

    def redact(self, text: str) -> str:
        """``text`` without what is known."""
        return self._redactor.redact_known(text)

    def authorizer(self, server: McpServer) -> OAuthHeaders:
        """What authorises the requests to ``server``; it asks nobody."""
        self.know(server.secrets)
        secret, printed = self._secret(server), None
        if server.headers_command:
            printed = self._printing(server)
        return OAuthHeaders(server, self._vault, printed=printed, secret=secret)

    async def log_in(self, server: McpServer, browse: Browse) -> str:
        """Log in; a line that says where it is kept. Raises ``McpError``, ``ConfigError``."""
        if not server.is_remote:
            what = f"the MCP server {server.name} is a program of this machine"
            raise McpError(what, "what it needs to know goes into its env")
        challenge = await in_own_thread(partial(probe, server))
        if challenge is None:
            return f"the MCP server {server.name} needs no login"
        before = await asyncio.to_thread(read_login, self._vault, server.url)
        login = await log_in(server, challenge, browse, before, self._secret(server))
        why = await asyncio.to_thread(self._keep, server, login)
        where = f"in a private file (keyring: {why})" if why else "in the keyring"
        return f"logged in to {server.name}; the login is kept {where}"

    async def offer(self, server: McpServer, ask: Asker, outside: Path) -> bool:
        """Offer the login to the user who waits for a call: whether they have logged in (MCP-5).

        ``outside`` is where no browser is taken from. Raises ``McpError``, ``ConfigError``.
        """
        name = server.name
        question = f"The MCP server {name} needs a login ({server.shown or server.url})."
        if await ask.ask(question, (LOG_IN, NOT_NOW)) != LOG_IN:
            return False

        async def browse(url: str) -> str:
            is_shown = await asyncio.to_thread(open_browser, url, self._env, outside)
            where = "Go on in the browser" if is_shown else "Open this address in a browser"
            question = (
                f"{where} to log in to {name}; if its last page does not load, paste the"
                f" address of that page here.\n{url}"
            )
            said = await ask.ask(question, (STOP,))
            if said in {"", STOP}:
                raise McpError(f"the login to {name} was stopped", f"run: agent mcp login {name}")
            return said

        await self.log_in(server, browse)
        return True

    def _keep(self, server: McpServer, login: Login) -> str:
        with self._vault.locked(server.url):
            return write_login(self._vault, server.url, login)

    def log_out(self, server: McpServer) -> bool:
        """Forget the login; false when there was none. Blocks; raises ``ConfigError``."""
        with self._vault.locked(server.url):
            return self._vault.remove(server.url)

    def _secret(self, server: McpServer) -> str:
        name = server.oauth.secret_variable
        return self._env.get(name, "").strip() if name else ""

    def _printing(self, server: McpServer) -> Callable[[bool], str]:
        credentials = Credentials(self._paths, watchers=[self.know])
        key = CommandKey(
            credentials,
            server.name,
            server.headers_command,
            label=f"the headersHelper of the MCP server {server.name}",
            variables={
                "CLAUDE_CODE_MCP_SERVER_NAME": server.name,
                "CLAUDE_CODE_MCP_SERVER_URL": server.url,
            },
            withheld=server.withheld,
        )

        def printed(again: bool) -> str:  # noqa: FBT001 - a callback of one fact
            self._check(server)
            if again and key.at_hand:
                key.renew(key.get())
            return key.get()

        return printed
