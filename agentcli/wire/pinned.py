"""One request of ``web_fetch``: the connection, the head and the body (TOOL-12, SEC-11, SEC-13).

Law: a connection goes to the very address that was checked, while TLS knows the server by its
name; a proxy that the environment sets is asked for that address, never for a name that it would
resolve again. Nothing of ours goes along: no cookies, no authorisation. Of the body at most
``MAX_BODY_BYTES`` are kept, counted after unpacking; all that was opened is closed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import httpcore

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import causes_of
from agentcli.wire.address import (
    Judge,
    Resolver,
    Target,
    checked_addresses,
    resolve,
    why_not_public,
)
from agentcli.wire.http import proxy_for
from agentcli.wire.unpack import ACCEPTED, BadCoding, Unpacker, unpacker_for

MAX_BODY_BYTES = 5 * 1024 * 1024
CONNECT_S = 10.0
_NEXT_ADDRESS_S = 3.0
_MAX_PROXY_HEAD = 16 * 1024
_HEADERS = (
    ("User-Agent", "agentcli web_fetch"),
    ("Accept", "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5"),
    ("Accept-Encoding", ACCEPTED),
    ("Connection", "close"),
)
_WITHOUT_BODY = range(300, 400)
_NETWORK = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError)
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (ssl.SSLError, "does not speak TLS properly"),
    (ConnectionRefusedError, "refused the connection"),
    (httpcore.ConnectTimeout, f"did not answer within {CONNECT_S:.0f} s"),
    (httpcore.ConnectError, "cannot be reached"),
    (httpcore.ProtocolError, "sent an answer that is not HTTP, has too long a head or broke off"),
    (Exception, "broke off the connection"),
)


class FetchFailed(Exception):
    """There is no answer to show; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Who resolves names and judges addresses."""

    resolve: Resolver = resolve
    judge: Judge = why_not_public


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a server said. Header names are lower case; ``is_cut``: there was more of the body."""

    target: Target
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


async def get(target: Target, law: AddressRules) -> HttpAnswer:
    """GET ``target``, following nothing; raises ``FetchFailed`` and ``BadAddress``."""
    addresses = await checked_addresses(target, law.resolve, law.judge)
    network = _Network(target, addresses, proxy_for(f"{target.scheme}://{target.authority}"))
    context = await asyncio.to_thread(_tls_context) if target.scheme == "https" else None
    url = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
    connection = httpcore.AsyncHTTPConnection(
        url.origin, ssl_context=context, network_backend=network
    )
    headers = [("Host", target.authority), *_HEADERS]
    timeouts = {"timeout": {"connect": CONNECT_S}}
    try:
        response = await connection.handle_async_request(
            httpcore.Request("GET", url, headers=headers, extensions=timeouts)
        )
        return await _read(target, response)
    except _NETWORK as error:
        raise FetchFailed(_why(target, error)) from error
    finally:
        await uninterruptible(_closed(connection, network))


async def _closed(connection: httpcore.AsyncHTTPConnection, network: _Network) -> None:
    with contextlib.suppress(Exception):
        await connection.aclose()
    await network.aclose()


def _tls_context() -> ssl.SSLContext:
    return httpcore.default_ssl_context()


# --- the connection ------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def connected(
    target: Target, law: AddressRules
) -> AsyncIterator[httpcore.AsyncNetworkStream]:
    """A bare connection to ``target``; raises as ``get`` does, and what ``httpcore`` raises.

    This machine's own addresses are no proxy's.
    """
    addresses = await checked_addresses(target, law.resolve, law.judge)
    is_here = all(ipaddress.ip_address(each).is_loopback for each in addresses)
    proxy = "" if is_here else proxy_for(f"{target.scheme}://{target.authority}")
    network = _Network(target, addresses, proxy)
    try:
        yield await network.connect_tcp(target.host, target.port, CONNECT_S)
    finally:
        await uninterruptible(network.aclose())


@dataclass(slots=True)
class _Network(httpcore.AsyncNetworkBackend):
    """Connects to the checked addresses, whatever name it is given."""

    target: Target
    addresses: list[str]
    proxy: str
    opened: list[httpcore.AsyncNetworkStream] = field(default_factory=list)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's interface
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """The first of the addresses that answers."""
        del host, local_address, socket_options
        last = self.addresses[-1]
        for address in self.addresses:
            limit_s = timeout if address == last else _NEXT_ADDRESS_S
            try:
                return await self._connect(address, port, limit_s)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if address == last:
                    raise
        raise httpcore.ConnectError("no address")

    async def _connect(
        self, address: str, port: int, limit_s: float | None
    ) -> httpcore.AsyncNetworkStream:
        if self.proxy:
            return await self._through_proxy(address, port, limit_s)
        return await self._open(address, port, limit_s)

    async def _open(
        self, host: str, port: int, limit_s: float | None
    ) -> httpcore.AsyncNetworkStream:
        stream = await httpcore.AnyIOBackend().connect_tcp(host, port, limit_s)
        self.opened.append(stream)
        return stream

    async def _through_proxy(
        self, address: str, port: int, limit_s: float | None
    ) -> httpcore.AsyncNetworkStream:
        host, proxy_port, authorization = _proxy_parts(self.proxy)
        try:
            stream = await self._open(host, proxy_port, limit_s)
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise FetchFailed("the proxy of the environment cannot be reached") from error
        there = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        head = f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{authorization}\r\n"
        await stream.write(head.encode("ascii"), CONNECT_S)
        said = b""
        while b"\r\n\r\n" not in said and len(said) < _MAX_PROXY_HEAD:
            more = await stream.read(4096, CONNECT_S)
            if not more:
                break
            said += more
        words = said.split(b"\r\n", 1)[0].split(None, 2)
        if len(words) < 2 or not words[1].startswith(b"2"):  # noqa: PLR2004 - version and status
            status = words[1].decode("ascii", "replace") if len(words) > 1 else "no answer"
            raise FetchFailed(
                f"the proxy of the environment refused to connect to {there} ({status}): "
                f"{self.target.host} is reached by its checked address only"
            )
        return stream

    async def aclose(self) -> None:
        for stream in self.opened:
            with contextlib.suppress(Exception):
                await stream.aclose()


def _proxy_parts(proxy: str) -> tuple[str, int, str]:
    """Host, port and the line of the header that authorises us to the proxy, and to it alone."""
    try:
        parts = urlsplit(proxy)
        port = parts.port or 80
    except ValueError:
        raise FetchFailed("the proxy variable cannot be understood") from None
    if parts.scheme != "http" or not parts.hostname:
        raise FetchFailed("web_fetch can use http:// proxies only; check HTTPS_PROXY and NO_PROXY")
    if parts.username is None:
        return parts.hostname, port, ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return (
        parts.hostname,
        port,
        f"Proxy-Authorization: Basic {base64.b64encode(pair).decode('ascii')}\r\n",
    )


def _why(target: Target, error: Exception) -> str:
    """What went wrong, from the error and what it came from."""
    for cause in causes_of(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message
            return f"the certificate of {target.authority} cannot be verified: {reason}"
    kinds = (*causes_of(error), error)
    what = next(words for kind, words in _WORDS if any(isinstance(it, kind) for it in kinds))
    return f"{target.authority} {what}"


# --- the answer ----------------------------------------------------------------------------


async def _read(target: Target, response: httpcore.Response) -> HttpAnswer:
    headers: dict[str, str] = {}
    for name, value in response.headers:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("utf-8", "replace"))
    reason = response.extensions.get("reason_phrase", b"").decode("latin-1")
    if response.status in _WITHOUT_BODY:
        return HttpAnswer(target, response.status, reason, headers, b"")
    codings = [value for name, value in response.headers if name.lower() == b"content-encoding"]
    try:
        unpacker = unpacker_for(value.decode("latin-1") for value in codings)
        body, is_cut = await _body(response, unpacker)
    except BadCoding as problem:
        raise FetchFailed(f"{target.authority} {problem}") from problem
    if unpacker and not is_cut and not unpacker.is_whole:
        raise FetchFailed(f"{target.authority} sent a packed answer that breaks off")
    return HttpAnswer(target, response.status, reason, headers, body, is_cut)


async def _body(response: httpcore.Response, unpacker: Unpacker | None) -> tuple[bytes, bool]:
    body = bytearray()
    came = 0
    chunks: AsyncIterator[bytes] = aiter(response.aiter_stream())
    async for chunk in chunks:
        came += len(chunk)
        for piece in unpacker.feed(chunk) if unpacker else (chunk,):
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return bytes(body[:MAX_BODY_BYTES]), True
        if came > MAX_BODY_BYTES:
            return bytes(body), True
    return bytes(body), False
