"""A login to a server by OAuth 2.1: who grants it, as whom we ask, the browser, the tokens (MCP-5).

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization. Laws: a token is asked
for, and sent to, the one resource that the server is (RFC 8707, RFC 9728); nothing is sent in the
clear but to this machine; an answer counts only with our state and from the issuer that was asked
(RFC 9207); what was registered with one issuer is shown to no other; the only socket is the
loopback one, while the user logs in (SEC-12). All functions but ``log_in`` block.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from agentcli.domain.cancel import in_own_thread
from agentcli.domain.clean import read_json
from agentcli.domain.errors import AgentError, ProviderError
from agentcli.domain.extensions.mcp import McpError
from agentcli.domain.values import frozen
from agentcli.wire.address import is_private_url
from agentcli.wire.http import Endpoint, Refusal, fetch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentcli.mcp.servers import McpServer, OAuthClient

REQUEST_S = 10.0
LOGIN_S = 300.0
CALLBACK_PATH = "/callback"
_CLIENT_NAME = "agentcli"
_MAX_REQUEST_BYTES = 16 * 1024
_CONNECTION_S = 10.0
_MOST_SAID = 200
_MOST_LASTS_S = 1e9
_METHODS = ("none", "client_secret_basic", "client_secret_post")
_PARAMETER = re.compile(r'(?<![A-Za-z_-])([A-Za-z_-]++)\s*+=\s*(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]+))')
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>agentcli</title>"
    "<body style='font-family:sans-serif;margin:4em'><p>{}</p></body>"
)
Browse = Callable[[str], Awaitable[str]]
"""Shows the user an address; may return the one that the browser ended on, or an empty text."""


@frozen
class Challenge:
    """What a refusal says of the login that is wanted (``WWW-Authenticate``, RFC 9728, 5.1)."""

    metadata_url: str = ""
    scope: str = ""
    error: str = ""


@frozen
class AuthorizationServer:
    """Who grants tokens. ``is_promised``: its answers name it (RFC 9207)."""

    issuer: str
    authorize_url: str
    token_url: str
    register_url: str = ""
    is_promised: bool = False
    scopes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    takes_documents: bool = False


@frozen
class Grantor:
    """Where a server's tokens come from, and for which resource, with which scopes."""

    resource: str
    scopes: tuple[str, ...]
    by: AuthorizationServer


@frozen
class ClientIdentity:
    """Who we are to an issuer, and how we show it at the token's address."""

    issuer: str
    client_id: str
    secret: str = field(default="", repr=False)
    method: str = "none"
    redirect_uri: str = ""


@frozen
class Login:
    """What is kept of a login. ``expires_at`` is Unix time; 0: the server has not said.

    ``wanted`` are scopes that the server has asked for since.
    """

    resource: str
    token_url: str
    client: ClientIdentity
    access_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_at: float = 0.0
    scopes: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


def challenge_in(header: str) -> Challenge:
    """What a ``WWW-Authenticate`` header says; unknown parts are ignored."""
    found = re.search(r"(?i)\bbearer\b", header[:_MAX_REQUEST_BYTES])
    if found is None:
        return Challenge()
    said: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(header[found.end() : _MAX_REQUEST_BYTES]):
        said.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    return Challenge(
        said.get("resource_metadata", ""), said.get("scope", ""), said.get("error", "")
    )


# --- who grants ---------------------------------------------------------------------------------


def discover(server: McpServer, challenge: Challenge) -> Grantor:
    """Who grants tokens for ``server``. Raises ``McpError``."""
    origin = _origin(server.url)
    document = _resource_metadata(server, challenge)
    if document is None:  # servers of 2025-03-26 are their own grantors
        resource, issuer = server.url.partition("?")[0], origin
        scopes: tuple[str, ...] = ()
    else:
        resource = _text(document, "resource") or server.url.partition("?")[0]
        if not _covers(resource, server.url):
            raise _refused(server, f"says that it is {resource[:_MOST_SAID]!r}")
        scopes = _texts(document, "scopes_supported")
        issuer = next(iter(_texts(document, "authorization_servers")), origin)
    _check(server, issuer, "names a grantor")
    found = _server_metadata(server, issuer, is_strict=document is not None)
    if found is None:
        if document is not None:
            raise _refused(server, f"names {issuer[:_MOST_SAID]}, which does not say how to log in")
        found = AuthorizationServer(
            issuer, f"{origin}/authorize", f"{origin}/token", f"{origin}/register"
        )
    return Grantor(resource, scopes, found)


def _resource_metadata(server: McpServer, challenge: Challenge) -> Mapping[str, Any] | None:
    origin, path = _origin(server.url), urlsplit(server.url).path.rstrip("/")
    base = f"{origin}/.well-known/oauth-protected-resource"
    for url in dict.fromkeys((challenge.metadata_url, f"{base}{path}", base)):
        if url:
            _check(server, url, "names metadata")
            if (document := _document(server, url)) is not None:
                return document
    return None


def _server_metadata(
    server: McpServer, issuer: str, *, is_strict: bool
) -> AuthorizationServer | None:
    """What the issuer says of itself (RFC 8414, OpenID Connect Discovery)."""
    origin, path = _origin(issuer), urlsplit(issuer).path.rstrip("/")
    well_known = f"{origin}/.well-known"
    for url in dict.fromkeys(
        (
            f"{well_known}/oauth-authorization-server{path}",
            f"{well_known}/openid-configuration{path}",
            f"{origin}{path}/.well-known/openid-configuration",
        )
    ):
        document = _document(server, url)
        if document is None:
            continue
        said = _text(document, "issuer")
        if is_strict and said.rstrip("/") != issuer.rstrip("/"):
            raise _refused(
                server, f"names {issuer[:_MOST_SAID]}, which says it is {said[:_MOST_SAID]!r}"
            )
        methods = _texts(document, "code_challenge_methods_supported")
        if methods and "S256" not in methods:
            raise _refused(server, "has a login without S256, which is not safe")
        ends = {key: _text(document, key) for key in _ENDPOINTS}
        for key, end in ends.items():
            if end or key != "registration_endpoint":
                _check(server, end, f"has a {key}")
        return AuthorizationServer(
            said or issuer,
            ends["authorization_endpoint"],
            ends["token_endpoint"],
            ends["registration_endpoint"],
            is_promised=document.get("authorization_response_iss_parameter_supported") is True,
            scopes=_texts(document, "scopes_supported"),
            methods=_texts(document, "token_endpoint_auth_methods_supported"),
            takes_documents=document.get("client_id_metadata_document_supported") is True,
        )
    return None


_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "registration_endpoint")


def scopes_for(
    grantor: Grantor, challenge: Challenge, client: OAuthClient, before: Login | None
) -> tuple[str, ...]:
    """What to ask for: what the user wants, else what the refusal names, else what there is.

    What was granted before, or is wanted since, stays in; ``offline_access`` where it is known.
    """
    chosen = client.scopes or tuple(challenge.scope.split()) or grantor.scopes
    earlier = (*before.scopes, *before.wanted) if before else ()
    more = ("offline_access",) if "offline_access" in grantor.by.scopes else ()
    return tuple(dict.fromkeys((*earlier, *chosen, *more)))


# --- as whom we ask -----------------------------------------------------------------------------


def identify(
    server: McpServer,
    by: AuthorizationServer,
    redirect_uri: str,
    secret: str,
    before: ClientIdentity | None,
) -> ClientIdentity:
    """Who we are to the issuer: as configured, by a document, as before, or registered now.

    Raises ``McpError``.
    """
    own = server.oauth
    if own.client_id:
        method = _method_of(by, secret)
        return ClientIdentity(by.issuer, own.client_id, secret, method, redirect_uri)
    if by.takes_documents and own.metadata_url:
        return ClientIdentity(by.issuer, own.metadata_url, "", "none", redirect_uri)
    if before and (before.issuer, before.redirect_uri) == (by.issuer, redirect_uri):
        return before
    if not by.register_url:
        raise McpError(
            f"{by.issuer[:_MOST_SAID]} registers no programs by itself",
            f"register one there and set oauth.clientId of {server.name}"
            " (agent mcp add --client-id ID)",
        )
    return _registered(server, by, redirect_uri)


def _registered(server: McpServer, by: AuthorizationServer, redirect_uri: str) -> ClientIdentity:
    """A new client (RFC 7591)."""
    wanted = next((each for each in _METHODS if each in by.methods), "none")
    request = {
        "client_name": _CLIENT_NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
        "application_type": "native",
    }
    answer = _asked(server, by.register_url, request, what="the registration")
    client_id, secret = _text(answer, "client_id"), _text(answer, "client_secret")
    if not client_id:
        raise McpError(f"the registration at {_host(by.register_url)} gave no client_id", _AGAIN)
    given = _text(answer, "token_endpoint_auth_method")
    method = given if given in _METHODS else _method_of(by, secret)
    return ClientIdentity(by.issuer, client_id, secret, method, redirect_uri)


def _method_of(by: AuthorizationServer, secret: str) -> str:
    if not secret:
        return "none"
    known = [each for each in _METHODS[1:] if each in by.methods]
    return known[0] if known else _METHODS[1]


# --- tokens -------------------------------------------------------------------------------------


class GrantRefused(McpError):
    """The grantor has refused, in a way that trying again does not change; ``code`` is its word."""

    def __init__(self, host: str, code: str, said: str) -> None:
        what = f"{host} refused the login: {code}" + (f" ({said})" if said else "")
        super().__init__(what, _AGAIN)
        self.code = code


def refreshed(server: McpServer, login: Login) -> Login:
    """The login with new tokens. Raises ``GrantRefused``, or ``McpError`` for what may pass."""
    form = {"grant_type": "refresh_token", "refresh_token": login.refresh_token}
    return _granted(server, login, form)


def by_client_credentials(
    server: McpServer, grantor: Grantor, secret: str, scopes: tuple[str, ...]
) -> Login:
    """A login of the program itself, without a user. Raises ``McpError``."""
    method = _method_of(grantor.by, secret)
    client = ClientIdentity(grantor.by.issuer, server.oauth.client_id, secret, method)
    login = Login(grantor.resource, grantor.by.token_url, client, scopes=scopes)
    form = {"grant_type": "client_credentials"}
    return _granted(server, login, form | ({"scope": " ".join(scopes)} if scopes else {}))


def _granted(server: McpServer, login: Login, form: Mapping[str, str]) -> Login:
    client = login.client
    headers = {"accept": "application/json"}
    sent = {**form, "resource": login.resource}
    if client.method == "client_secret_basic":
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        sent["client_id"] = client.client_id
        if client.method == "client_secret_post":
            sent["client_secret"] = client.secret
    hidden = tuple(filter(None, (client.secret, login.refresh_token, form.get("code", ""))))
    answer = _asked(server, login.token_url, sent, headers=headers, hidden=hidden, what="the token")
    token, kind = _text(answer, "access_token"), _text(answer, "token_type")
    is_usable = token.isascii() and token.isprintable() and " " not in token
    if not token or not is_usable or kind.lower() not in {"bearer", ""}:
        raise McpError(f"{_host(login.token_url)} gave no token that can be used", _AGAIN)
    lasts = answer.get("expires_in")
    lasts = float(lasts) if isinstance(lasts, str) and lasts.isdecimal() else lasts
    lasts = lasts if isinstance(lasts, int | float) and not isinstance(lasts, bool) else 0.0
    lasts = min(max(lasts, 0.0), _MOST_LASTS_S)  # of any size, and NaN
    scope = _text(answer, "scope")[:_MAX_REQUEST_BYTES]
    return replace(
        login,
        access_token=token,
        refresh_token=_text(answer, "refresh_token") or login.refresh_token,
        expires_at=time.time() + lasts if lasts > 0 else 0.0,
        scopes=tuple(dict.fromkeys((*login.scopes, *scope.split()))),
        wanted=(),
    )


# --- the browser --------------------------------------------------------------------------------


async def log_in(
    server: McpServer, challenge: Challenge, browse: Browse, before: Login | None, secret: str = ""
) -> Login:
    """A login by the user. Raises ``McpError``."""
    grantor = await in_own_thread(partial(discover, server, challenge))
    by = grantor.by
    scopes = scopes_for(grantor, challenge, server.oauth, before)
    kept = before.client if before and before.client.redirect_uri else None
    async with _callback(server.oauth.callback_port, kept) as callback:
        client = await in_own_thread(
            partial(identify, server, by, callback.redirect_uri, secret, kept)
        )
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": callback.redirect_uri,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": grantor.resource,
        }
        if scopes:
            query["scope"] = " ".join(scopes)
        if "offline_access" in scopes:
            query["prompt"] = "consent"  # OpenID Connect Core, 11
        sign = "&" if urlsplit(by.authorize_url).query else "?"
        callback.expect(state)
        answer = await _answer(callback, browse, f"{by.authorize_url}{sign}{urlencode(query)}")
    code = _code_in(answer, by)
    login = Login(grantor.resource, by.token_url, client, scopes=scopes)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": client.redirect_uri or callback.redirect_uri,
        "code_verifier": verifier,
    }
    return await in_own_thread(partial(_granted, server, login, form))


def _query_of(address: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(urlsplit(address.strip()).query))
    except ValueError:
        return {}


async def _answer(callback: _Callback, browse: Browse, url: str) -> Mapping[str, str]:
    """What the browser brought back, to us or by the user's hand."""

    async def by_hand() -> None:
        ended_on = await browse(url)
        if ended_on and not callback.take(_query_of(ended_on)):
            raise McpError("that is not the address that this login ends on", _AGAIN)

    try:
        async with asyncio.timeout(LOGIN_S):
            task = asyncio.create_task(by_hand())
            try:
                either: set[asyncio.Future[Any]] = {task, callback.came}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if task.done() and not callback.came.done():
                    task.result()
                return await callback.came
            finally:
                task.cancel()
                await asyncio.wait({task})
    except TimeoutError:
        minutes = f"{LOGIN_S / 60:.0f} minutes"
        raise McpError(f"nobody came back from the browser within {minutes}", _AGAIN) from None


def _code_in(answer: Mapping[str, str], by: AuthorizationServer) -> str:
    """The code that the issuer gave; raises ``McpError`` for an answer of anybody else."""
    issuer = answer.get("iss")
    if issuer is None and by.is_promised:
        raise McpError("the login's answer does not say whose it is", _MIXED)
    if issuer is not None and issuer != by.issuer:
        raise McpError(f"the login was answered by {issuer[:_MOST_SAID]!r}", _MIXED)
    if "error" in answer:
        said = answer.get("error_description", "")[:_MOST_SAID]
        raise GrantRefused(_host(by.authorize_url), answer["error"][:_MOST_SAID], said)
    code = answer.get("code", "")
    if not code:
        raise McpError("the browser brought no code back", _AGAIN)
    return code


_AGAIN = "try again, or ask who runs the server"
_MIXED = "nothing was sent to it; ask who runs the server"


class _Callback:
    """The loopback address that the browser comes back to (RFC 8252, 7.3)."""

    def __init__(self, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        self.came: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self._state = ""

    def expect(self, state: str) -> None:
        """Only an answer with this ``state`` counts."""
        self._state = state

    def take(self, answer: Mapping[str, str]) -> bool:
        """Whether ``answer`` is the one that is waited for."""
        given = answer.get("state", "")
        if not self._state or not hmac.compare_digest(given.encode(), self._state.encode()):
            return False
        if not self.came.done():
            self.came.set_result(answer)
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of the browser, which also opens connections that it never uses."""
        try:
            await self._answer(reader, writer)
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, text = "404 Not Found", "There is nothing here."
        try:
            async with asyncio.timeout(_CONNECTION_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, *_ = head.split(b"\r\n")[0].decode("latin-1").split(" ")
                parts = urlsplit(target)
                if method == "GET" and parts.path == CALLBACK_PATH:
                    if self.take(dict(parse_qsl(parts.query))):
                        status, text = "200 OK", "You can close this page and go back to agentcli."
                    else:
                        status, text = "400 Bad Request", "This is not the login that was begun."
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
            status, text = "400 Bad Request", "This is no request."
        body = _PAGE.format(text).encode()
        head_lines = (
            f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\ncache-control: no-store\r\n"
            "referrer-policy: no-referrer\r\n\r\n"
        )
        async with asyncio.timeout(_CONNECTION_S):
            writer.write(head_lines.encode() + body)
            await writer.drain()


@asynccontextmanager
async def _callback(port: int, kept: ClientIdentity | None) -> AsyncIterator[_Callback]:
    """Listen on loopback, where we did before if that is free."""
    before = urlsplit(kept.redirect_uri).port or 0 if kept else 0
    holder: list[_Callback] = []
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[asyncio.create_task(holder[0].serve(reader, writer))] = writer

    listening = None
    for number in dict.fromkeys((port,) if port else (before, 0)):
        try:
            listening = await asyncio.start_server(
                serve, "127.0.0.1", number, limit=_MAX_REQUEST_BYTES
            )
            break
        except OSError as error:
            if number:
                why = error.strerror or str(error)
    if listening is None:
        raise McpError(f"port {port} cannot be listened on: {why}", "free it, or choose another")
    number = listening.sockets[0].getsockname()[1]
    # a port that was registered by hand is registered under this name
    host = "localhost" if port else "127.0.0.1"
    holder.append(_Callback(f"http://{host}:{number}{CALLBACK_PATH}"))
    try:
        yield holder[0]
    finally:
        listening.close()
        for connection in connections:  # who brought the answer has the page by now
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():  # what had not begun closed nothing
            writer.close()
        await listening.wait_closed()


# --- asking -------------------------------------------------------------------------------------


def probe(server: McpServer) -> Challenge | None:
    """What the server says to a stranger; ``None``: it lets them in. Raises ``McpError``."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": _CLIENT_NAME, "version": "1"},
        },
    }
    headers = {"accept": "application/json, text/event-stream", **dict(server.headers)}
    try:
        fetch(_endpoint(server, server.url), headers, hello, timeout_s=REQUEST_S)
    except Refusal as refusal:
        return challenge_in(refusal.headers.get("www-authenticate", ""))
    except AgentError as error:
        raise McpError(error.message, error.advice) from None
    return None


def _document(server: McpServer, url: str) -> Mapping[str, Any] | None:
    """A JSON object; ``None`` where there is none. Raises ``McpError``."""
    headers = {"accept": "application/json", "mcp-protocol-version": "2025-11-25"}
    try:
        data = fetch(_endpoint(server, url), headers, timeout_s=REQUEST_S, is_direct=_is_here(url))
        found = read_json(data)
    except Refusal as refusal:
        if refusal.status >= 500:  # noqa: PLR2004 - the server's own fault
            raise McpError(f"{_host(url)} answered {refusal.status}", "try again later") from None
        return None
    except ValueError:
        return None
    except AgentError as error:
        raise McpError(error.message, error.advice) from None
    return found if isinstance(found, dict) else None


def _asked(
    server: McpServer,
    url: str,
    body: Mapping[str, Any],
    *,
    what: str,
    headers: Mapping[str, str] | None = None,
    hidden: tuple[str, ...] = (),
) -> Mapping[str, Any]:
    """The answer to a POST, a form where ``headers`` are given. Raises ``McpError``."""
    sent: Any = body
    kinds = {"accept": "application/json"}
    if headers is not None:
        sent = urlencode(body).encode()
        kinds = {**headers, "content-type": "application/x-www-form-urlencoded"}
    endpoint = _endpoint(server, url, hidden)
    try:
        data = fetch(endpoint, kinds, sent, timeout_s=REQUEST_S, is_direct=_is_here(url))
        found = read_json(data)
    except Refusal as refusal:
        raise _refusal(url, refusal, what) from None
    except ValueError:
        found = None
    except ProviderError as error:
        raise McpError(error.message, error.advice) from None
    if not isinstance(found, dict):
        raise McpError(f"{_host(url)} answered {what} with no JSON object", _AGAIN)
    return found


def _refusal(url: str, refusal: Refusal, what: str) -> McpError:
    try:
        said = read_json(refusal.body)
    except ValueError:
        said = None
    code = _text(said, "error")[:_MOST_SAID] if isinstance(said, dict) else ""
    if code and refusal.status < 500 and refusal.status != 429:  # noqa: PLR2004 - those may pass
        return GrantRefused(_host(url), code, _text(said, "error_description")[:_MOST_SAID])
    return McpError(f"{_host(url)} answered {what} with HTTP status {refusal.status}", _AGAIN)


def _endpoint(server: McpServer, url: str, hidden: tuple[str, ...] = ()) -> Endpoint:
    name = f"the login of the MCP server {server.name}"
    return Endpoint(name, url, secrets=(*server.secrets, *hidden))


def _check(server: McpServer, url: str, what: str) -> None:
    """Only TLS, or this machine where the server is on it, or the server's own origin.

    One on the internet sends nobody into a private network.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
        is_address = is_address and "@" not in parts.netloc and url.isprintable() and " " not in url
        is_safe = parts.scheme == "https" or (_is_here(url) and _is_here(server.url))
        is_safe = is_safe and (is_private_url(server.url) or not is_private_url(url))
        is_own = is_address and _origin(url) == _origin(server.url)
    except ValueError:
        is_address = is_safe = is_own = False
    if not is_address or not (is_safe or is_own):
        raise _refused(server, f"{what} that is not safe to use: {url[:_MOST_SAID]!r}")


def _refused(server: McpServer, what: str) -> McpError:
    return McpError(f"the MCP server {server.name} {what}", "no login was begun")


def _covers(resource: str, url: str) -> bool:
    """Whether ``url`` is the resource, or below it (RFC 9728, 3.3, as the SDKs take it)."""
    try:
        mine, theirs = urlsplit(url), urlsplit(resource)
        if _origin(url) != _origin(resource):
            return False
    except ValueError:
        return False
    base = theirs.path.rstrip("/")
    return mine.path.rstrip("/") == base or mine.path.startswith(f"{base}/")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in {None, {"https": 443, "http": 80}.get(parts.scheme)} else parts.port
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _text(document: Any, key: str) -> str:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def _texts(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key)
    return tuple(_each_text(value)) if isinstance(value, list) else ()


def _each_text(value: list[Any]) -> Iterator[str]:
    for each in value[:100]:
        if isinstance(each, str) and each:
            yield each
