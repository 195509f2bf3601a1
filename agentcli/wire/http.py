"""The one HTTP client: nothing else imports httpx (FAIL-6).

Law: one client per owner, created at the first request; TLS is always verified; redirects are
never followed, so a key never reaches another origin; every failure is a ``ProviderError`` or a
``ConfigError`` that names the host and holds no key, except that an answer that is no success is
a ``Refusal``, which its caller puts into words; every body is read up to a bound.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.clean import read_json
from agentcli.domain.errors import ConfigError, ErrorKind, ProviderError, causes_of
from agentcli.domain.values import frozen
from agentcli.wire.unpack import ACCEPTED, SLICE_BYTES, BadCoding, join_chunks, unpacker_for

if TYPE_CHECKING:
    import httpx

    from agentcli.wire.unpack import Unpacker

CONNECT_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 60.0
POOL_TIMEOUT_S = 10.0
# A step's tools may take a while; the connection is kept for the next step.
KEEP_ALIVE_S = 60.0
# How long an error body may take to arrive, and how much of it is read.
ERROR_BODY_TIMEOUT_S = 10.0
MAX_ERROR_BODY_BYTES = 64 * 1024
MAX_JSON_BODY_BYTES = 16 * 1024 * 1024
MAX_REPLY_DOCUMENT_BYTES = 8 * 1024 * 1024  # and of an event: wide texts take four times that
MAX_ANSWER_BYTES = 8 * 1024 * 1024
# How much of a reply is read ahead of what is consumed.
MAX_AHEAD_BYTES = 1024 * 1024
MAX_PIECE_BYTES = SLICE_BYTES
_SUCCESS = range(200, 300)
_IN_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


@frozen
class Endpoint:
    """Where a request goes and how to speak of it. ``secrets`` never show up in a text."""

    provider: str
    url: str
    key_env: str = ""
    base_env: str = ""
    model: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def host(self) -> str:
        """Host and, where it is not the scheme's own, port."""
        return host_of(self.url)

    @property
    def label(self) -> str:
        """``anthropic at api.anthropic.com``."""
        return f"{self.provider} at {self.host}"

    @property
    def is_secure(self) -> bool:
        """Whether it is reached through TLS."""
        return self.url[:6].lower() == "https:"

    @property
    def address_advice(self) -> str:
        """How to change the address."""
        if self.base_env:
            return f"check the network and the base URL ({self.base_env})"
        return "check the network and base_url in the configuration"

    @property
    def key_name(self) -> str:
        """What the key is called where the user set it."""
        return self.key_env or f"the api_key of provider {self.provider}"


class Refusal(Exception):
    """An answer that is no success: its status, headers and the beginning of its body."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


def host_of(url: str) -> str:
    """The host and port of ``url``, without user name or password."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "(no host)"
    except ValueError:
        return "(no host)"


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


_trusted: dict[tuple[str, str], Future[ssl.SSLContext]] = {}


def read_authorities() -> Future[ssl.SSLContext]:
    """What TLS connections trust, read once in a thread: that takes 16 to 50 ms.

    A provider begins it when it is made, so that it happens beside the imports: while OpenSSL
    reads, other threads run. ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` replace the authorities that
    come with the program (https://www.python-httpx.org/environment_variables). The result may be
    an ``OSError``; then the next call reads again.
    """
    places = os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")
    found = _trusted.get(places)
    if found is None or (found.done() and found.exception() is not None):
        found = _trusted[places] = Future()
        arguments = (*places, found)
        threading.Thread(target=_read, args=arguments, name="authorities", daemon=True).start()
    return found


def _read(file: str, directory: str, found: Future[ssl.SSLContext]) -> None:
    try:
        if directory and not file:
            context = ssl.create_default_context(capath=directory)
        else:
            import certifi

            context = ssl.create_default_context(cafile=file or certifi.where())
    except Exception as error:  # noqa: BLE001 - it is raised where the result is needed
        found.set_exception(error)
    else:
        found.set_result(context)


class OpenAnswer:
    """An answer of which the head has come."""

    def __init__(self, endpoint: Endpoint, response: httpx.Response) -> None:
        self._endpoint = endpoint
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes, unpacked, in pieces of a bound. Raises ``ProviderError``."""
        with _told_as_ours(self._endpoint, streaming=True):
            unpacker = unpacker_for(self._response.headers.get_list("content-encoding"))
            async with (
                aclosing(_batched(self._response.aiter_raw())) as batches,
                aclosing(_sliced(batches, unpacker)) as slices,
            ):
                async for piece in slices:
                    yield piece

    async def whole(self, most_bytes: int = MAX_JSON_BODY_BYTES) -> bytes:
        """The body; raises ``ProviderError``, also when it is larger than that."""
        body = bytearray()
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > most_bytes:
                    what = f"sent an answer of more than {most_bytes:,} bytes"
                    raise network_error(self._endpoint, what, "it was given up", retryable=False)
        return bytes(body)


class HttpClient:
    """The connections of one owner. Belongs to one event loop."""

    def __init__(self) -> None:
        self._clients: dict[bool, httpx.AsyncClient] = {}
        self._requests = 0

    async def post_stream(
        self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[bytes, None]:
        """POST ``body`` and yield the reply's bytes as they come.

        Raises ``Refusal``, or ``ProviderError`` for every other failure, before or in the middle
        of the reply, and ``ConfigError`` for an address, certificate file or proxy that cannot be
        used. A JSON reply of a server that does not stream is yielded as one event.
        """
        client = await self._client(endpoint)
        response: httpx.Response | None = None
        self._requests += 1
        try:
            with _told_as_ours(endpoint):
                response = await self._send(client, endpoint, headers, body)
            if response.status_code not in _SUCCESS:
                said = await _read_error_body(response)
                raise Refusal(response.status_code, response.headers, said)
            with _told_as_ours(endpoint, streaming=True):
                async with aclosing(_pieces(response, endpoint)) as pieces:
                    async for piece in pieces:
                        yield piece
        finally:
            self._requests -= 1
            if response is not None:
                await uninterruptible(response.aclose())

    @asynccontextmanager
    async def exchange(
        self, method: str, endpoint: Endpoint, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[OpenAnswer]:
        """One request and its answer, whatever its status, for as long as the block runs.

        Raises ``ProviderError`` and ``ConfigError``, also while the answer is read.
        """
        client = await self._client(endpoint)
        response: httpx.Response | None = None
        self._requests += 1
        try:
            with _told_as_ours(endpoint):
                response = await self._send(client, endpoint, headers, body, method)
            yield OpenAnswer(endpoint, response)
        finally:
            self._requests -= 1
            if response is not None:
                await uninterruptible(response.aclose())

    async def _client(self, endpoint: Endpoint) -> httpx.AsyncClient:
        is_secure = endpoint.is_secure
        if is_secure and is_secure not in self._clients:
            reading = read_authorities()
            load_httpx()
            if not reading.done():
                await asyncio.to_thread(reading.exception)
        if is_secure not in self._clients:
            self._clients[is_secure] = _new_client(endpoint)
        return self._clients[is_secure]

    async def _send(
        self,
        client: httpx.AsyncClient,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        body: bytes | None,
        method: str = "POST",
    ) -> httpx.Response:
        """The head of the answer. A cancel leaves no connection open.

        httpcore forgets one whose request is cancelled just when it is connected (1.0.9,
        ``http11.py``: ``_state_lock``, outside of its ``try``): only its pool can close it.
        """
        try:
            request = client.build_request(method, endpoint.url, headers=headers, content=body)
        except ValueError:
            raise _bad_address(endpoint) from None
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


def fetch(
    endpoint: Endpoint,
    headers: Mapping[str, str],
    body: Any = None,
    *,
    timeout_s: float,
    is_direct: bool = False,
    answered: dict[str, str] | None = None,
) -> bytes:
    """The body of one answer, whole; with ``body`` of a POST: bytes, or sent as JSON. Blocks.

    ``answered`` gets the headers of the answer. Once connected, all of it takes at most
    ``timeout_s``.

    ``is_direct`` goes through no proxy, as is right for a server of this machine. Raises
    ``Refusal``, ``ProviderError`` or ``ConfigError``.
    """
    load_httpx()
    import httpx

    with _told_as_ours(endpoint):
        try:
            with (
                _Deadline(timeout_s) as deadline,
                httpx.Client(
                    verify=_verify(endpoint),
                    timeout=timeout_s,
                    trust_env=not is_direct,
                    follow_redirects=False,
                ) as client,
                client.stream(
                    "GET" if body is None else "POST",
                    endpoint.url,
                    headers={"accept-encoding": ACCEPTED, **headers},
                    extensions={"trace": deadline.watch},
                    **{"content" if isinstance(body, bytes) else "json": body},
                ) as response,
            ):
                content = _whole(response, endpoint)
        except httpx.TransportError as error:
            if not deadline.has_passed and not isinstance(error, httpx.TimeoutException):
                raise
            raise network_error(
                endpoint, "did not answer in time", endpoint.address_advice
            ) from None
        except (OSError, ImportError, ValueError) as error:  # certificates, SOCKS, a bad proxy
            raise ConfigError(
                f"{endpoint.label} cannot be asked: {type(error).__name__}",
                "check SSL_CERT_FILE and the proxy variables",
            ) from error
    if response.status_code not in _SUCCESS:
        raise Refusal(response.status_code, response.headers, content)
    if answered is not None:
        answered.update(response.headers)
    return content


def _whole(response: httpx.Response, endpoint: Endpoint) -> bytes:
    content = bytearray()
    unpacker = unpacker_for(response.headers.get_list("content-encoding"))
    for chunk in response.iter_raw():
        for piece in unpacker.feed(chunk) if unpacker else (chunk,):
            content += piece
            if len(content) > MAX_ANSWER_BYTES:
                raise network_error(endpoint, "sent more than 8 MB", endpoint.address_advice)
    return bytes(content)


class _Deadline:
    """Ends the connections of a blocking exchange after ``within_s`` seconds (SEC-13).

    The time-outs of a socket begin again with every byte, and a head may come byte by byte.
    """

    def __init__(self, within_s: float) -> None:
        self._opened: list[socket.socket] = []
        self._timer = threading.Timer(within_s, self._end)
        self._timer.daemon = True
        self.has_passed = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for one in self._opened:
            one.close()

    def watch(self, name: str, facts: Mapping[str, Any]) -> None:
        """See https://www.encode.io/httpcore/extensions/#trace."""
        if name == "connection.connect_tcp.complete":
            self._opened.append(facts["return_value"].get_extra_info("socket").dup())
            if self.has_passed:
                self._end()

    def _end(self) -> None:
        self.has_passed = True
        for one in tuple(self._opened):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _verify(endpoint: Endpoint) -> ssl.SSLContext:
    """What the client trusts; waits for the authorities, which a plain-http address never needs.

    An empty context trusts nobody, so that a mistake here fails instead of weakening anything.
    """
    if endpoint.is_secure:
        return read_authorities().result()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _new_client(endpoint: Endpoint) -> httpx.AsyncClient:
    load_httpx()
    import httpx

    join_chunks()
    timeout = httpx.Timeout(
        connect=CONNECT_TIMEOUT_S, read=None, write=WRITE_TIMEOUT_S, pool=POOL_TIMEOUT_S
    )
    try:
        return httpx.AsyncClient(
            verify=_verify(endpoint),
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


# --- the bytes of an answer ----------------------------------------------------------------


async def _pieces(response: httpx.Response, endpoint: Endpoint) -> AsyncGenerator[bytes, None]:
    """The bytes of a successful answer: read ahead, unpacked, checked, in pieces of a bound."""
    unpacker = unpacker_for(response.headers.get_list("content-encoding"))
    async with (
        aclosing(_batched(response.aiter_raw())) as batches,
        aclosing(_sliced(batches, unpacker)) as slices,
        aclosing(_checked(slices, endpoint)) as documents,
    ):
        async for piece in documents:
            yield piece


async def _sliced(
    batches: AsyncIterator[bytes], unpacker: Unpacker | None
) -> AsyncGenerator[bytes, None]:
    async for batch in batches:
        is_first = True
        for piece in unpacker.feed(batch) if unpacker else _cut(batch):
            if not is_first:
                await asyncio.sleep(0)  # a cancel must not wait for all of it
            is_first = False
            yield piece


def _events_of(document: bytes) -> list[bytes]:
    """The events that a JSON document stands for: itself, or what the array holds."""
    whole = document.translate(_IN_ONE_LINE).lstrip(b"\xef\xbb\xbf \t")
    if whole.startswith(b"["):
        with suppress(ValueError):
            return [json.dumps(each).encode() for each in read_json(whole)] or [b"{}"]
    return [whole]


def _cut(data: bytes) -> Iterator[bytes]:
    yield data[:MAX_PIECE_BYTES]
    for start in range(MAX_PIECE_BYTES, len(data), MAX_PIECE_BYTES):
        yield data[start : start + MAX_PIECE_BYTES]


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
        await uninterruptible(asyncio.wait({task}))
        if not task.cancelled():
            task.exception()


async def _read_error_body(response: httpx.Response) -> bytes:
    import httpx

    body = bytearray()
    try:
        unpacker = unpacker_for(response.headers.get_list("content-encoding"))
        async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
            async for chunk in response.aiter_raw():
                for piece in unpacker.feed(chunk) if unpacker else (chunk,):
                    body += piece
                    if len(body) >= MAX_ERROR_BODY_BYTES:
                        return bytes(body[:MAX_ERROR_BODY_BYTES])
    except BadCoding as problem:
        return bytes(body) or f"(the server {problem})".encode()
    except (TimeoutError, httpx.HTTPError):
        pass  # the status alone says enough
    return bytes(body)


async def _checked(chunks: AsyncIterator[bytes], endpoint: Endpoint) -> AsyncGenerator[bytes, None]:
    """``chunks`` unless they turn out to be a web page or a JSON document (not a stream).

    A document is one event; an array of them, as Gemini's without ``alt=sse``, is one for each.
    """
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
            is_json = start.startswith((b"{", b"["))
            if start and not is_json:
                yield bytes(document) + chunk
                break
        document += chunk
        if len(document) > MAX_REPLY_DOCUMENT_BYTES:
            what = "sent a reply of more than 8 MB"
            raise network_error(endpoint, what, "use another model", retryable=False)
    else:
        if document:
            events = _events_of(bytes(document))[::-1]
            document.clear()  # each copy is as large as all of it
            while events:
                for piece in _cut(b"data: " + events.pop() + b"\n\n"):
                    await asyncio.sleep(0)
                    yield piece
        return
    async for chunk in chunks:
        yield chunk


# --- failures ------------------------------------------------------------------------------


@contextmanager
def _told_as_ours(endpoint: Endpoint, *, streaming: bool = False) -> Iterator[None]:
    """Failures of httpx become errors of ours; ``streaming``: the reply had begun."""
    import httpx

    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL):
        raise _bad_address(endpoint) from None
    except httpx.TransportError as error:
        raise _transport_error(endpoint, error, streaming=streaming) from error
    except BadCoding as problem:
        advice = f"{endpoint.address_advice}; a proxy in between may have packed it"
        may_pass = None if problem.is_damage else False
        refused = network_error(endpoint, str(problem), advice, retryable=may_pass)
        refused.streaming = streaming
        raise refused from problem
    except httpx.StreamError as error:
        damaged = network_error(endpoint, "sent a reply that cannot be decoded", "try again")
        damaged.streaming = streaming
        raise damaged from error


def _bad_address(endpoint: Endpoint) -> ConfigError:
    where = endpoint.base_env or f"base_url of provider {endpoint.provider}"
    return ConfigError(
        f"the address of {endpoint.provider} is not a usable http or https URL", f"check {where}"
    )


def network_error(
    endpoint: Endpoint, what: str, advice: str, *, retryable: bool | None = None
) -> ProviderError:
    """The server did ``what``."""
    return ProviderError(
        f"{endpoint.label} {what}",
        advice,
        kind=ErrorKind.NETWORK,
        provider=endpoint.provider,
        host=endpoint.host,
        retryable=retryable,
    )


def _transport_error(
    endpoint: Endpoint, error: httpx.TransportError, *, streaming: bool
) -> ProviderError:
    """What a failed transport is to the user (FAIL-6)."""
    import httpx

    url = proxy_for(endpoint.url)
    proxy = host_of(url) if url else ""
    if isinstance(error, httpx.ProxyError):
        return network_error(
            endpoint,
            f"cannot be reached: the proxy {proxy} refused the connection",
            "check HTTPS_PROXY, HTTP_PROXY and NO_PROXY",
        )
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return _connect_error(endpoint, error, proxy)
    if isinstance(error, httpx.PoolTimeout):
        return network_error(endpoint, "has no free connection", "wait for other requests")
    if streaming:
        broke = network_error(endpoint, "broke off in the middle of the reply", "try again")
        broke.streaming = True
        return broke
    if isinstance(error, httpx.TimeoutException):
        return network_error(endpoint, "stopped taking the request", "try again")
    return network_error(
        endpoint, "closed the connection without an answer", endpoint.address_advice
    )


def _connect_error(endpoint: Endpoint, error: httpx.TransportError, proxy: str) -> ProviderError:
    import httpx

    through = f" through the proxy {proxy}" if proxy else ""
    advice = "check HTTPS_PROXY, HTTP_PROXY and NO_PROXY" if proxy else endpoint.address_advice
    if isinstance(error, httpx.ConnectTimeout):
        if endpoint.is_secure and not through:
            advice += ", or use http:// if it is a plain server"
        what = f"did not answer within {CONNECT_TIMEOUT_S:.0f} s{through}"
        return network_error(endpoint, what, advice)
    causes = causes_of(error)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return network_error(
            endpoint,
            "showed a certificate that cannot be verified",
            "check the system clock and any proxy; SSL_CERT_FILE can name your own authorities",
            retryable=False,
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return network_error(
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
        return network_error(endpoint, f"refused the connection{through}", start + advice)
    return network_error(endpoint, f"cannot be reached{through}", advice)


def proxy_for(url: str) -> str:
    """The proxy that the environment sets for ``url``; empty where there is none."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not proxy or proxy_bypass(parts.hostname or ""):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"
