"""HTTP for every provider: the only file that knows httpx (FAIL-6).

Law: one client per provider, created at the first request; TLS is always verified; redirects are
never followed, so a key never reaches another origin; every failure is a ``ProviderError`` that
names the host and holds no key; error bodies are read up to a bound.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError, causes_of
from agentcli.providers._errors import Endpoint, host_of, status_error

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 60.0
POOL_TIMEOUT_S = 10.0
# A step's tools may take a while; the connection is kept for the next step.
KEEP_ALIVE_S = 60.0
# How long an error body may take to arrive, and how much of it is read.
ERROR_BODY_TIMEOUT_S = 10.0
MAX_ERROR_BODY_BYTES = 64 * 1024
# A server that does not stream sends its whole reply as one JSON document.
MAX_JSON_BODY_BYTES = 16 * 1024 * 1024
# How much of a reply is read ahead of whoever consumes it.
MAX_AHEAD_BYTES = 1024 * 1024
# A compressed read may unpack to a thousand times its size.
MAX_PIECE_BYTES = 256 * 1024
_SUCCESS = range(200, 300)


def load_httpx() -> None:
    """Import httpx without its command line, which would import click, rich and pygments.

    httpx treats that part as optional: it is marked absent during the import only.
    """
    if "httpx" in sys.modules:
        return
    hidden = "httpx._main" not in sys.modules
    if hidden:
        sys.modules["httpx._main"] = None  # type: ignore[assignment]  # how import marks "absent"
    try:
        import httpx  # noqa: F401 - imported for its effect on sys.modules
    finally:
        if hidden:
            sys.modules.pop("httpx._main", None)


class HttpClient:
    """The connections of one provider. Belongs to one event loop."""

    def __init__(self) -> None:
        self._clients: dict[bool, httpx.AsyncClient] = {}
        self._requests = 0

    async def post_stream(
        self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[bytes, None]:
        """POST ``body`` and yield the reply's bytes as they come.

        Raises ``ProviderError`` for every failure, before or in the middle of the reply, and
        ``ConfigError`` for an address, certificate file or proxy that cannot be used. A JSON
        reply of a server that does not stream is yielded as one event.
        """
        load_httpx()
        import httpx

        client = self._open(endpoint)
        try:
            request = client.build_request("POST", endpoint.url, headers=headers, content=body)
        except (httpx.InvalidURL, ValueError):
            raise _bad_address(endpoint) from None
        response: httpx.Response | None = None
        self._requests += 1
        try:
            response = await self._send(client, request)
            if response.status_code not in _SUCCESS:
                error_body = await _read_error_body(response)
                raise status_error(endpoint, response.status_code, response.headers, error_body)
            packed = "content-encoding" in response.headers
            chunks = response.aiter_bytes() if packed else response.aiter_raw()
            if "event-stream" not in response.headers.get("content-type", ""):
                chunks = _checked(chunks, endpoint)
            async with aclosing(_batched(chunks)) as batches:
                async for batch in batches:
                    yield batch[:MAX_PIECE_BYTES]
                    for start in range(MAX_PIECE_BYTES, len(batch), MAX_PIECE_BYTES):
                        await asyncio.sleep(0)  # a cancel must not wait for all of it
                        yield batch[start : start + MAX_PIECE_BYTES]
        except httpx.UnsupportedProtocol:
            raise _bad_address(endpoint) from None
        except httpx.TransportError as error:
            raise transport_error(endpoint, error, streaming=response is not None) from error
        except (httpx.DecodingError, httpx.StreamError) as error:
            damaged = _network_error(endpoint, "sent a reply that cannot be decoded", "try again")
            damaged.streaming = response is not None
            raise damaged from error
        finally:
            self._requests -= 1
            if response is not None:
                await uninterruptible(response.aclose())

    async def _send(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        """The head of the answer. A cancel leaves no connection open.

        httpcore forgets one whose request is cancelled just when it is connected (1.0.9,
        ``http11.py``: ``_state_lock``, outside of its ``try``): only its pool can close it.
        """
        try:
            return await client.send(request, stream=True)
        except asyncio.CancelledError:
            if self._requests == 1:  # else the pool serves others
                await uninterruptible(self.aclose())
            raise

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        while self._clients:
            await self._clients.popitem()[1].aclose()

    def _open(self, endpoint: Endpoint) -> httpx.AsyncClient:
        secure = endpoint.url[:6].lower() == "https:"
        client = self._clients.get(secure)
        if client is None:
            client = self._clients[secure] = _new_client(endpoint, secure=secure)
        return client


def _new_client(endpoint: Endpoint, *, secure: bool) -> httpx.AsyncClient:
    import httpx

    # Loading the certificate authorities takes 16 ms. A plain-http address never needs them: an
    # empty context trusts nobody, so that a mistake here fails instead of weakening anything.
    verify = True if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    timeout = httpx.Timeout(
        connect=CONNECT_TIMEOUT_S, read=None, write=WRITE_TIMEOUT_S, pool=POOL_TIMEOUT_S
    )
    try:
        return httpx.AsyncClient(
            verify=verify,
            timeout=timeout,
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S),
            follow_redirects=False,
        )
    except OSError:
        raise ConfigError(
            "the certificates named by SSL_CERT_FILE or SSL_CERT_DIR cannot be read",
            f"{endpoint.label} needs them; correct or unset the variable",
        ) from None
    except ImportError:
        raise ConfigError(
            "a SOCKS proxy is set, but the package socksio is not installed",
            "run `pip install socksio`, or unset ALL_PROXY",
        ) from None
    except (ValueError, httpx.InvalidURL):
        raise ConfigError(
            "a proxy variable cannot be understood",
            "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY",
        ) from None


async def _batched(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """``chunks``, those that have arrived together joined into one.

    One read of the socket often holds dozens of HTTP chunks; a task of its own takes them all
    before this generator runs again, so that everything behind it works once per read. The task
    is stopped and joined when the generator ends, however it ends.
    """
    ready: list[bytes] = []
    arrived, taken = asyncio.Event(), asyncio.Event()

    async def pump() -> None:
        size = 0
        try:
            async for chunk in chunks:
                size = size + len(chunk) if ready else len(chunk)
                ready.append(chunk)
                arrived.set()
                if size > MAX_AHEAD_BYTES:
                    taken.clear()
                    await taken.wait()
        finally:
            arrived.set()

    task = asyncio.create_task(pump())
    try:
        while ready or not task.done():
            await arrived.wait()
            arrived.clear()
            if ready:
                batch = ready[0] if len(ready) == 1 else b"".join(ready)
                ready.clear()
                taken.set()
                yield batch
        task.result()
    finally:
        task.cancel()
        await uninterruptible(_settled(task))


async def _settled(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


async def _read_error_body(response: httpx.Response) -> bytes:
    import httpx

    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) >= MAX_ERROR_BODY_BYTES:
                    break
    except (TimeoutError, httpx.HTTPError):
        pass  # the status alone says enough
    return bytes(body[:MAX_ERROR_BODY_BYTES])


async def _checked(chunks: AsyncIterator[bytes], endpoint: Endpoint) -> AsyncGenerator[bytes, None]:
    """``chunks`` unless they turn out to be a web page or a JSON document (not a stream)."""
    document = bytearray()
    is_json = False
    async for chunk in chunks:
        if not is_json:
            start = (bytes(document) + chunk).lstrip(b"\xef\xbb\xbf \t\r\n")
            if start.startswith(b"<"):
                raise ProviderError(
                    f"{endpoint.label} answered with a web page instead of a reply",
                    f"{endpoint.address_advice}; a login page of the network may be in between",
                    kind=ErrorKind.OTHER,
                    provider=endpoint.provider,
                    host=endpoint.host,
                )
            is_json = start.startswith(b"{")
            if start and not is_json:
                yield bytes(document) + chunk
                break
        document += chunk
        if len(document) > MAX_JSON_BODY_BYTES:
            what = "sent a reply of more than 16 MB"
            raise _network_error(endpoint, what, "use another model", retryable=False)
    else:
        if document:
            joined = b" ".join(bytes(document).splitlines())
            yield b"data: " + joined.lstrip(b"\xef\xbb\xbf") + b"\n\n"
        return
    async for chunk in chunks:
        yield chunk


def _bad_address(endpoint: Endpoint) -> ConfigError:
    where = endpoint.base_env or f"base_url of provider {endpoint.provider}"
    return ConfigError(
        f"the address of {endpoint.provider} is not a usable http or https URL", f"check {where}"
    )


def _network_error(
    endpoint: Endpoint, what: str, advice: str, *, retryable: bool | None = None
) -> ProviderError:
    return ProviderError(
        f"{endpoint.label} {what}",
        advice,
        kind=ErrorKind.NETWORK,
        provider=endpoint.provider,
        host=endpoint.host,
        retryable=retryable,
    )


def transport_error(
    endpoint: Endpoint, error: httpx.TransportError, *, streaming: bool
) -> ProviderError:
    """What a failed transport is to the user (FAIL-6); ``streaming``: the reply had begun."""
    import httpx

    proxy = _proxy_for(endpoint.url)
    if isinstance(error, httpx.ProxyError):
        return _network_error(
            endpoint,
            f"cannot be reached: the proxy {proxy or ''} refused the connection",
            "check HTTPS_PROXY, HTTP_PROXY and NO_PROXY",
        )
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return _connect_error(endpoint, error, proxy)
    if isinstance(error, httpx.PoolTimeout):
        return _network_error(endpoint, "has no free connection", "wait for other requests")
    if streaming:
        broke = _network_error(endpoint, "broke off in the middle of the reply", "try again")
        broke.streaming = True
        return broke
    if isinstance(error, httpx.TimeoutException):
        return _network_error(endpoint, "stopped taking the request", "try again")
    return _network_error(
        endpoint, "closed the connection without an answer", endpoint.address_advice
    )


def _connect_error(
    endpoint: Endpoint, error: httpx.TransportError, proxy: str | None
) -> ProviderError:
    import httpx

    through = f" through the proxy {proxy}" if proxy else ""
    advice = "check HTTPS_PROXY, HTTP_PROXY and NO_PROXY" if proxy else endpoint.address_advice
    if isinstance(error, httpx.ConnectTimeout):
        if endpoint.url[:6].lower() == "https:" and not through:
            advice += ", or use http:// if it is a plain server"
        what = f"did not answer within {CONNECT_TIMEOUT_S:.0f} s{through}"
        return _network_error(endpoint, what, advice)
    causes = causes_of(error)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return _network_error(
            endpoint,
            "showed a certificate that cannot be verified",
            "check the system clock and any proxy; SSL_CERT_FILE can name your own authorities",
            retryable=False,
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return _network_error(
            endpoint,
            "does not speak TLS properly",
            f"use http:// if it is a plain server; {endpoint.address_advice}",
            retryable=False,
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        name = f"the proxy {proxy}" if proxy else f"the host {endpoint.host}"
        return ProviderError(
            f"{name} of {endpoint.provider} cannot be found (DNS)",
            advice,
            kind=ErrorKind.NETWORK,
            provider=endpoint.provider,
            host=endpoint.host,
        )
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        start = "" if proxy else "is the server running? "
        return _network_error(endpoint, f"refused the connection{through}", start + advice)
    return _network_error(endpoint, f"cannot be reached{through}", advice)


def _proxy_for(url: str) -> str | None:
    """Scheme, host and port of the proxy that the environment sets for ``url``, for texts."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    return host_of(proxy if "://" in proxy else f"http://{proxy}")
