"""The headers of a server behind a login: tokens that are kept, renewed once, and never shown.

Laws (MCP-5): a token is renewed by one process at a time, under the vault's lock, and who
waited for the lock takes what was written meanwhile; what a grantor has given is written before it
is used; the user is never asked here: ``LoginRequired`` says what to run.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from agentcli.domain.errors import AgentError
from agentcli.domain.extensions.mcp import LoginRequired, McpError

if TYPE_CHECKING:
    from agentcli.mcp.oauth import Challenge, Login
    from agentcli.mcp.servers import McpServer

P = ParamSpec("P")
R = TypeVar("R")
EARLY_S = 30.0
_FORBIDDEN = 403
_DEAD = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
_used: ContextVar[str] = ContextVar("used", default="")
LogIn = Callable[["Challenge"], Awaitable["Login"]]


class Vault(Protocol):
    """Where logins are kept, by the address of the server. Everything blocks."""

    def read(self, key: str) -> Mapping[str, Any] | None:
        """What was kept. Raises ``AgentError``."""

    def write(self, key: str, record: Mapping[str, Any], secrets: Iterable[str]) -> str:
        """Keep ``record``; returns why it is not in the keyring, or an empty text."""

    def remove(self, key: str) -> bool:
        """Forget it; false when there was nothing."""

    def locked(self, key: str) -> AbstractContextManager[None]:
        """Nobody else changes it meanwhile, in no process."""


def read_login(vault: Vault, url: str) -> Login | None:
    """The login that is kept for ``url``; ``None`` for none. Raises ``AgentError``."""
    record = vault.read(url)
    return None if record is None else _login_in(record)


def write_login(vault: Vault, url: str, login: Login) -> str:
    """Keep ``login``; why it is not in the keyring, or an empty text. Raises ``AgentError``."""
    hidden = (login.access_token, login.refresh_token, login.client.secret)
    return vault.write(url, asdict(login), tuple(filter(None, hidden)))


def _login_in(record: Mapping[str, Any]) -> Login | None:
    from agentcli.mcp.oauth import ClientIdentity, Login

    try:
        known: dict[str, Any] = {
            each.name: record[each.name] for each in fields(Login) if each.name in record
        }
        known["client"] = ClientIdentity(**known["client"])
        known |= {name: tuple(known.get(name, ())) for name in ("scopes", "wanted")}
        return Login(**known)
    except (KeyError, TypeError):
        return None


class OAuthHeaders:
    """What authorises the requests to one server (``http.Authorizer``).

    ``printed`` runs the command that prints more headers; true: it is run again. ``log_in`` asks
    the user; without it nobody is asked. ``secret`` is that of a client registered by hand.
    """

    def __init__(
        self,
        server: McpServer,
        vault: Vault,
        *,
        printed: Callable[[bool], str] | None = None,
        log_in: LogIn | None = None,
        secret: str = "",
    ) -> None:
        self._server = server
        self._vault = vault
        self._printed = printed
        self._log_in = log_in
        self._secret = secret
        self._login: Login | None = None
        self._is_read = False
        self._one_at_a_time = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        """Configured and printed headers, and the token. Raises ``McpError``."""
        headers = dict(self._server.headers)
        if self._printed is not None:
            headers |= await asyncio.to_thread(self._more, again=False)
        if _authorises(headers):
            return headers
        login = await self._current()
        _used.set(login.access_token if login else "")
        if login is not None and login.access_token:
            headers["Authorization"] = f"Bearer {login.access_token}"
        return headers

    async def refused(self, status: int, challenge: str) -> bool:
        """Whether another try is worth it. Raises ``LoginRequired`` or ``McpError``."""
        from agentcli.mcp.oauth import challenge_in

        if self._printed is not None:
            before = await asyncio.to_thread(self._more, again=False)
            if before != await asyncio.to_thread(self._more, again=True):
                return True
        if self._printed is not None or _authorises(dict(self._server.headers)):
            what = f"the MCP server {self._server.name} refused its Authorization header ({status})"
            raise McpError(what, "correct it: agent mcp get shows where it is set")
        said = challenge_in(challenge)
        used = _used.get()
        if status != _FORBIDDEN:
            await self._renew_here(used)
            if self._login is not None and self._login.access_token not in {"", used}:
                return True
        if self._server.oauth.is_program:
            self._login = await asyncio.to_thread(self._granted, said, used)
            return self._login.access_token != used
        if self._log_in is not None:
            async with self._one_at_a_time:  # several requests may have been refused together
                if self._login is None or self._login.access_token in {"", used}:
                    self._login = await self._log_in(said)
            return True
        if said.scope and used:
            await asyncio.to_thread(self._note_wanted, said.scope)
        raise LoginRequired(self._server.name, _why(status, said, used))

    async def _renew_here(self, used: str) -> None:
        renewed = await asyncio.to_thread(self._renewed, used)
        if renewed or self._login is None or self._login.access_token in {"", used}:
            self._login = renewed  # else another request has logged in meanwhile

    async def _current(self) -> Login | None:
        if not self._is_read:
            self._login = await asyncio.to_thread(_told(read_login), self._vault, self._server.url)
            self._is_read = True
        login = self._login
        is_old = login is not None and 0 < login.expires_at < time.time() + EARLY_S
        if login is not None and is_old and login.refresh_token:
            self._login = await asyncio.to_thread(self._renewed, login.access_token)
        return self._login

    # in threads: what is under way there ends by itself, whatever is cancelled meanwhile

    def _renewed(self, used: str) -> Login | None:
        """The login with another token than ``used``, where there is one to be had."""
        return _told(self._renew)(used)

    def _renew(self, used: str) -> Login | None:
        from agentcli.mcp.oauth import GrantRefused, refreshed

        url = self._server.url
        with self._vault.locked(url):
            login = read_login(self._vault, url)
            if login is None or login.access_token not in {"", used} or not login.refresh_token:
                return login
            try:
                login = refreshed(self._server, login)
            except GrantRefused as refusal:
                if refusal.code not in _DEAD:
                    raise
                login = replace(login, access_token="", refresh_token="")
            write_login(self._vault, url, login)
            return login

    def _granted(self, said: Challenge, used: str) -> Login:
        return _told(self._grant)(said, used)

    def _grant(self, said: Challenge, used: str) -> Login:
        from agentcli.mcp.oauth import by_client_credentials, discover, scopes_for

        url = self._server.url
        with self._vault.locked(url):
            login = read_login(self._vault, url)
            if login is not None and login.access_token not in {"", used}:
                return login
            grantor = discover(self._server, said)
            scopes = scopes_for(grantor, said, self._server.oauth, login)
            login = by_client_credentials(self._server, grantor, self._secret, scopes)
            write_login(self._vault, url, login)
            return login

    def _note_wanted(self, scope: str) -> None:
        """Remember what the server wants beyond what was granted, for the next login."""
        url = self._server.url
        try:
            with self._vault.locked(url):
                login = read_login(self._vault, url)
                if login is not None and set(scope.split()) - set(login.wanted):
                    wanted = tuple(dict.fromkeys((*login.wanted, *scope.split())))
                    write_login(self._vault, url, replace(login, wanted=wanted))
        except AgentError:
            return  # the refusal says it, too

    def _more(self, *, again: bool) -> dict[str, str]:
        """The headers that the command prints: a JSON object, or a line for each."""
        if self._printed is None:
            return {}
        text = _told(self._printed)(again)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            lines = (line.partition(":") for line in text.splitlines() if line.strip())
            found = {name.strip(): value.strip() for name, sign, value in lines if sign}
        is_usable = isinstance(found, dict) and all(
            isinstance(value, str) and value.isascii() and f"{name}{value}".isprintable()
            for name, value in found.items()
        )
        if not is_usable or not found:
            raise McpError(
                f"the headersHelper of the MCP server {self._server.name} printed no headers",
                'it should print a JSON object, such as {"Authorization": "Bearer …"}',
            )
        return dict(found)


def _why(status: int, said: Challenge, used: str) -> str:
    if status == _FORBIDDEN:
        return f"it wants more rights: {said.scope[:200]}" if said.scope else "it wants more rights"
    return "the last one has ended" if used else ""


def _authorises(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)


def _told(work: Callable[P, R]) -> Callable[P, R]:
    """``work`` whose errors are those of a server."""

    def told(*values: P.args, **named: P.kwargs) -> R:
        try:
            return work(*values, **named)
        except McpError:
            raise
        except AgentError as error:
            raise McpError(error.message, error.advice) from error

    return told
