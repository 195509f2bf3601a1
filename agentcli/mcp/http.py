"""A server behind HTTP: each message is a POST, answers are JSON or a stream of events (MCP-1).

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports and, for servers of 2024,
https://modelcontextprotocol.io/specification/2024-11-05/basic/transports (``SseChannel``). Laws:
requests go to the configured origin and no other, redirects included; every request gets an answer,
one of ours where the server has none; what is read ahead is bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urljoin, urlsplit

from agentcli.domain.cancel import uninterruptible
from agentcli.domain.errors import AgentError
from agentcli.domain.extensions.mcp import LoginRequired, McpError
from agentcli.mcp.protocol import LEGACY, MODERN, plain, request_headers
from agentcli.rpc.messages import (
    MalformedMessage,
    OverlongLine,
    TooMuch,
    beginning_of,
    decode,
    encode,
)
from agentcli.wire.http import Endpoint, HttpClient, OpenAnswer
from agentcli.wire.sse import SseDecoder, SseEvent

if TYPE_CHECKING:
    from agentcli.mcp.protocol import Agreement, HeaderRules
    from agentcli.mcp.servers import McpServer
    from agentcli.mcp.stdio import ServerChannel

MAX_RESUMES = 5
DEFAULT_RETRY_S = 1.0
MIN_RETRY_S, MAX_RETRY_S = 0.1, 30.0
NOTICE_S = 30.0
DELETE_S = 2.0
AHEAD_MESSAGES = 64
LARGE_BYTES = 256 * 1024
MAX_TELLING = 16
# after so many events others have a turn: a small packed piece holds very many (SEC-13)
EVENTS_TOGETHER = 64
# codes of our own in answers that stand in for the server's; the data says what is wrong
TRANSPORT_FAILED = -32099
_REDIRECTS = frozenset({307, 308})
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _NO_METHOD = 401, 403, 404, 405
_ACCEPT = "application/json, text/event-stream"
log = logging.getLogger(__name__)
_SCOPE = re.compile(r"insufficient_scope", re.IGNORECASE)


class Authorizer(Protocol):
    """What makes requests to one server authorised (MCP-5)."""

    async def headers(self) -> Mapping[str, str]:
        """What every request carries, configured headers included. Raises ``McpError``."""

    async def refused(self, status: int, challenge: str) -> bool:
        """Whether another try is worth it after a 401 or 403 with this ``WWW-Authenticate``.

        Raises ``LoginRequired``.
        """


class PlainHeaders:
    """The configured headers and nothing else."""

    def __init__(self, server: McpServer) -> None:
        self._server = server

    async def headers(self) -> Mapping[str, str]:
        """Those of the settings."""
        return dict(self._server.headers)

    async def refused(self, status: int, challenge: str) -> bool:
        """Nothing else can be tried."""
        del challenge
        raise LoginRequired(self._server.name, f"it answered {status}")


class SessionLost(McpError):
    """The server does not know its session any more; nothing of the request was done."""


@asynccontextmanager
async def http_channel(server: McpServer, authorizer: Authorizer) -> AsyncIterator[ServerChannel]:
    """The server by streamable HTTP."""
    client = HttpClient()
    channel = _Http(server, authorizer, client)
    try:
        yield channel
    finally:
        await uninterruptible(channel.close())
        await client.aclose()


@asynccontextmanager
async def sse_channel(server: McpServer, authorizer: Authorizer) -> AsyncIterator[ServerChannel]:
    """The server by the transport of 2024. Raises ``McpError`` when it does not speak that."""
    client = HttpClient()
    channel = _Sse(server, authorizer, client)
    try:
        await channel.open()
        yield channel
    finally:
        await uninterruptible(channel.close())
        await client.aclose()


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


class _Remote:
    """What both transports share: one client, one queue of what has come."""

    def __init__(self, server: McpServer, authorizer: Authorizer, client: HttpClient) -> None:
        self._server = server
        self._authorizer = authorizer
        self._client = client
        self._url = server.url
        self._came: asyncio.Queue[bytes | OverlongLine | None] = asyncio.Queue(AHEAD_MESSAGES)
        self._running: set[asyncio.Task[None]] = set()
        self._why = ""
        self._events_read = 0
        self.said = ""

    async def lines(self) -> AsyncIterator[bytes | OverlongLine]:
        """See ``ServerChannel``."""
        while (line := await self._came.get()) is not None:
            yield line
            self._came.task_done()

    async def ended(self) -> str:
        """See ``ServerChannel``."""
        return self._why or "the connection was closed"

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._start(self._came.put(None))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a request to %s failed", self._server.name, exc_info=error)
            self._end("it failed inside agentcli (see the log)")

    async def _stop_all(self) -> None:
        for task in tuple(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(tuple(self._running))

    def _endpoint(self, url: str) -> Endpoint:
        return Endpoint(f"the MCP server {self._server.name}", url, secrets=self._server.secrets)

    @asynccontextmanager
    async def _asked(
        self, method: str, headers: Mapping[str, str], body: bytes | None, url: str = ""
    ) -> AsyncIterator[OpenAnswer]:
        """The answer to a request, after a redirect within the origin and a new authorisation."""
        redirected = authorised = False
        while True:
            own = {
                name.lower(): value for name, value in (await self._authorizer.headers()).items()
            }
            endpoint = self._endpoint(url or self._url)
            sent = {**own, **headers}
            async with self._client.exchange(method, endpoint, sent, body) as answer:
                target = answer.headers.get("location", "")
                if answer.status in _REDIRECTS and target and not redirected:
                    target = urljoin(endpoint.url, target)
                    if _origin(target) != _origin(endpoint.url):
                        raise McpError(
                            f"{endpoint.provider} redirects to another address",
                            f"if that is right, set its url to {plain(target, 300)}",
                        )
                    redirected, url = True, target
                    if not self._url or endpoint.url == self._url:
                        self._url = target
                    continue
                challenge = answer.headers.get("www-authenticate", "")
                refused = answer.status == _UNAUTHORIZED or (
                    answer.status == _FORBIDDEN and bool(_SCOPE.search(challenge))
                )
                if refused and not authorised:
                    authorised = True
                    if await self._authorizer.refused(answer.status, challenge):
                        continue
                if refused:
                    raise LoginRequired(self._server.name, f"it answered {answer.status}")
                yield answer
                return

    async def _took_all(self, events: list[SseEvent], number: Any = None) -> bool:
        """Whether one of the events answers ``number``; those before it are taken, too.

        Each is given up as it is taken: with its copies a large one is many times its size.
        """
        events.reverse()
        while events:
            self._events_read += 1
            if not self._events_read % EVENTS_TOGETHER:
                await asyncio.sleep(0)
            event = events.pop()
            data = event.data.encode() if event.event == "message" else b""
            del event
            if data and await self._took(data, number):
                return True
        return False

    async def _took(self, data: bytes, number: Any) -> bool:
        """Take the messages in ``data``; whether they answer ``number``."""
        try:
            lines, answers = _lines(data, number)
        except McpError as error:  # a lost answer is an error of it
            lost, asks = beginning_of(data)
            if asks or lost is None:
                return False
            lines, answers = [encode(self._failed(lost, error))], lost == number
        for line in lines:
            await self._put(line)
        return answers

    async def _take(self, message: dict[str, Any]) -> None:
        await self._put(encode(message))

    async def _put(self, line: bytes) -> None:
        """Let it be served; nothing more is read before a large one has been (SEC-13)."""
        await self._came.put(line)
        if len(line) > LARGE_BYTES:
            await self._came.join()

    async def _fail(self, number: Any, error: Exception) -> None:
        await self._take(self._failed(number, error))

    def _failed(self, number: Any, error: Exception) -> dict[str, Any]:
        """An answer of ours, where the server has none."""
        kind = type(error).__name__
        text = str(error) or kind
        data = {"transport": kind, "server": self._server.name}
        if isinstance(error, McpError):
            text, data = error.message, {**data, "advice": error.advice}
        elif isinstance(error, AgentError):
            text, data = error.message, {**data, "advice": error.advice, "transport": "McpError"}
        told = {"code": TRANSPORT_FAILED, "message": text, "data": data}
        return {"id": number, "error": told}


class _Http(_Remote):
    """Streamable HTTP, of both eras."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._session = ""
        self._version = ""
        self._rules: Mapping[str, HeaderRules] = {}
        self._posts: dict[Any, asyncio.Task[None]] = {}
        self._telling = asyncio.Semaphore(MAX_TELLING)
        self._listening = False

    def agreed(self, agreement: Agreement, rules: Mapping[str, HeaderRules]) -> None:
        """See ``ServerChannel``."""
        self._version = agreement.version
        self._rules = rules

    @property
    def _is_modern(self) -> bool:
        return self._version == MODERN

    async def send(self, line: bytes) -> None:
        """See ``ServerChannel``: requests run together, of all else a few."""
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method is not None and number is not None:
            task = self._start(self._post(message, line))
            self._posts[number] = task
            task.add_done_callback(lambda _: self._posts.pop(number, None))
        elif method == "notifications/cancelled" and self._is_modern:
            given_up = self._posts.get(message["params"].get("requestId"))
            if given_up is not None:  # to end the request's stream is to cancel it
                given_up.cancel()
        elif not self._is_modern:
            await self._telling.acquire()
            told = self._start(self._tell(line))
            told.add_done_callback(lambda _: self._telling.release())
            if method == "notifications/initialized":  # what comes after it counts on it
                await asyncio.wait({told})
                if not self._listening:
                    self._listening = True
                    self._start(self._listen())

    def _headers(self, message: Mapping[str, Any] | None = None) -> dict[str, str]:
        headers = {"accept": _ACCEPT, "content-type": "application/json"}
        if self._session:
            headers["mcp-session-id"] = self._session
        method = message.get("method") if message else None
        if method == "initialize":
            return headers
        if message and (self._is_modern or method == "server/discover"):
            return {**headers, **request_headers(message, MODERN, self._rules)}
        if self._version:
            headers["mcp-protocol-version"] = self._version
        return headers

    async def _post(self, message: dict[str, Any], line: bytes) -> None:
        """Send a request; its answer, or ours, comes."""
        number = message["id"]
        try:
            resume: _Resume | None = None
            async with self._asked("POST", self._headers(message), line) as answer:
                self._session = answer.headers.get("mcp-session-id", "") or self._session
                resume = await self._taken(answer, message)
            if resume is not None:
                await self._resume(resume, number)
        except (AgentError, OSError) as error:
            await self._fail(number, error)
            if isinstance(error, SessionLost):
                self._end(error.message)

    async def _taken(self, answer: OpenAnswer, message: dict[str, Any]) -> _Resume | None:
        """Take an answer; what is returned says how its rest can be had."""
        number = message["id"]
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_success = 200 <= answer.status < 300  # noqa: PLR2004 - what HTTP calls success
        if is_success and kind == "text/event-stream":
            return await self._events(answer, number)
        body = await answer.whole()
        found = None if is_success else _json(body)
        if isinstance(found, dict) and isinstance(found.get("error"), dict):
            await self._take({"id": number, "error": found["error"]})
        elif is_success and (taken := _lines(body, number)) != ([], False):
            for line in taken[0]:
                await self._put(line)
            if not taken[1]:
                raise McpError("the server's answer is to another request")
        elif answer.status == _NOT_FOUND and self._session and message["method"] != "initialize":
            raise SessionLost("the server has forgotten its session")
        else:
            said = plain(body.decode("utf-8", "replace"), 300).strip()
            what = f": {said}" if said and not said.startswith("<") else ""
            raise McpError(f"the server answered with HTTP status {answer.status}{what}")
        return None

    async def _events(self, answer: OpenAnswer, number: Any) -> _Resume | None:
        """Take the events of a stream until it has the answer to ``number``."""
        decoder = SseDecoder()
        async with aclosing(answer.pieces()) as pieces:
            try:
                async for piece in pieces:
                    if await self._took_all(decoder.feed(piece), number):
                        return None
            except AgentError:
                if not decoder.last_event_id:
                    raise
        if not decoder.last_event_id or self._is_modern:
            raise McpError("the server ended the answer before it was whole")
        return _Resume(decoder.last_event_id, _retry_s(decoder))

    async def _resume(self, resume: _Resume, number: Any) -> None:
        """Get the rest of a stream that was cut."""
        for _ in range(MAX_RESUMES):
            await asyncio.sleep(resume.retry_s)
            headers = {
                **self._headers(),
                "accept": "text/event-stream",
                "last-event-id": resume.event_id,
            }
            async with self._asked("GET", headers, None) as answer:
                kind = answer.headers.get("content-type", "").lower()
                if answer.status != 200 or not kind.startswith("text/event-stream"):  # noqa: PLR2004 - OK
                    break
                rest = await self._events(answer, number)
            if rest is None:
                return
            resume = rest
        raise McpError("the server ended the answer before it was whole")

    async def _tell(self, line: bytes) -> None:
        """Send a notification or an answer; nothing waits for it."""
        with suppress(AgentError, OSError, TimeoutError):
            async with (
                asyncio.timeout(NOTICE_S),
                self._asked("POST", self._headers(), line) as answer,
            ):
                await answer.whole()

    async def _listen(self) -> None:
        """What the server says unasked, where it offers that (servers of 2025)."""
        event_id, failures = "", 0
        while failures < MAX_RESUMES:
            headers = {**self._headers(), "accept": "text/event-stream"}
            if event_id:
                headers["last-event-id"] = event_id
            retry_s = DEFAULT_RETRY_S
            decoder = SseDecoder()
            try:
                async with self._asked("GET", headers, None) as answer:
                    kind = answer.headers.get("content-type", "").lower()
                    if answer.status != 200 or not kind.startswith("text/event-stream"):  # noqa: PLR2004 - OK
                        return
                    async with aclosing(answer.pieces()) as pieces:
                        async for piece in pieces:
                            failures = 0
                            await self._took_all(decoder.feed(piece))
            except LoginRequired:
                return
            except (AgentError, OSError):
                pass
            failures += 1
            event_id, retry_s = decoder.last_event_id or event_id, _retry_s(decoder)
            await asyncio.sleep(retry_s)

    async def close(self) -> None:
        """End what is under way, and the server's session."""
        await self._stop_all()
        if self._session and not self._is_modern:
            with suppress(AgentError, OSError, TimeoutError):
                async with asyncio.timeout(DELETE_S):
                    async with self._asked("DELETE", self._headers(), None):
                        pass


class _Resume:
    """Where the rest of a stream begins, and how long to wait before asking for it."""

    def __init__(self, event_id: str, retry_s: float) -> None:
        self.event_id = event_id
        self.retry_s = retry_s


def _retry_s(decoder: SseDecoder) -> float:
    given = DEFAULT_RETRY_S if decoder.retry_ms is None else decoder.retry_ms / 1000
    return max(MIN_RETRY_S, min(given, MAX_RETRY_S))


def _json(body: bytes) -> Any:
    """The messages; ``None`` if there are none. Raises ``McpError`` for too many or too large."""
    try:
        return decode(body)
    except TooMuch as error:
        raise McpError(f"the server's answer was lost: {error}") from None
    except MalformedMessage:
        return None


def _lines(data: bytes, number: Any) -> tuple[list[bytes], bool]:
    """The messages in ``data``, one each, and whether they answer ``number``.

    One alone is ``data`` itself. Raises ``McpError`` as ``_json`` does.
    """
    found = _json(data)
    if isinstance(found, dict):
        return [data], _answers(found, number)
    several = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    own = ({k: v for k, v in each.items() if k != "jsonrpc"} for each in several)
    return [encode(each) for each in own], _answers(several, number)


def _answers(found: Any, number: Any) -> bool:
    several = found if isinstance(found, list) else [found]
    return any(
        isinstance(each, dict) and "method" not in each and each.get("id") == number
        for each in several
    )


class _Sse(_Remote):
    """Two addresses: a stream of all that comes, and where to POST, which it names first."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._post_url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def agreed(self, agreement: Agreement, rules: Mapping[str, HeaderRules]) -> None:
        """Nothing depends on it here."""

    async def open(self) -> None:
        """Open the stream and wait for the address."""
        self._start(self._stream())
        await asyncio.wait({self._post_url})
        self._post_url.result()

    async def _stream(self) -> None:
        try:
            async with self._asked("GET", {"accept": "text/event-stream"}, None) as answer:
                kind = answer.headers.get("content-type", "").lower()
                if answer.status != 200 or not kind.startswith("text/event-stream"):  # noqa: PLR2004 - OK
                    raise McpError(f"the server answered with HTTP status {answer.status}")
                decoder = SseDecoder()
                async with aclosing(answer.pieces()) as pieces:
                    async for piece in pieces:
                        await self._take_events(decoder.feed(piece))
            self._end("the server ended the stream")
        except (AgentError, OSError) as error:
            self._end(str(error))
            if not self._post_url.done():
                self._post_url.set_exception(error)
        finally:
            if not self._post_url.done():
                self._post_url.set_exception(McpError("the server named no address to write to"))

    async def _take_events(self, events: list[SseEvent]) -> None:
        named = (each.data for each in events if each.event == "endpoint")
        if not self._post_url.done() and (address := next(named, None)) is not None:
            url = urljoin(self._url, address.strip())
            if _origin(url) != _origin(self._url):
                raise McpError("the server wants to be written to at another address")
            self._post_url.set_result(url)
        await self._took_all(events)

    async def send(self, line: bytes) -> None:
        """See ``ServerChannel``."""
        url = self._post_url.result()
        message = json.loads(line)
        number = message.get("id") if "method" in message else None
        headers = {"content-type": "application/json", "mcp-protocol-version": LEGACY}
        try:
            async with (
                asyncio.timeout(NOTICE_S),
                self._asked("POST", headers, line, url) as answer,
            ):
                await answer.whole()
                if answer.status >= 400:  # noqa: PLR2004 - what HTTP calls failure
                    raise McpError(f"the server answered with HTTP status {answer.status}")
        except TimeoutError:
            await self._fail(number, McpError("the server does not take what it is sent"))
        except (AgentError, OSError) as error:
            await self._fail(number, error)

    async def close(self) -> None:
        """End the stream."""
        await self._stop_all()
        if self._post_url.done() and not self._post_url.cancelled():
            self._post_url.exception()
