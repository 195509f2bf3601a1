"""What the HTTP providers share: one request, bytes to events, the same way for every protocol.

Law: events decoded before a failure are always handed out before the failure is raised, so that
what was shown is known (STR-4). A provider adds ``encode`` and a ``StreamDecoder``, both pure.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sized
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from agentcli import __version__
from agentcli.domain.cancel import CancelToken
from agentcli.domain.clean import FEW_VALUES_CHARS, as_object, clean_text, read_json
from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.messages import Usage
from agentcli.domain.ports import ModelRequest, ProviderConfig
from agentcli.domain.stream import (
    StreamEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from agentcli.providers._errors import (
    auth_headers,
    check_key,
    endpoint_of,
    event_error,
    refusals_in_words,
    with_own_headers,
)
from agentcli.wire.http import (
    MAX_REPLY_DOCUMENT_BYTES,
    Endpoint,
    HttpClient,
    host_of,
    read_authorities,
)
from agentcli.wire.sse import SseDecoder, SseEvent

if TYPE_CHECKING:
    from agentcli.providers.text_calls.reading import TextReplies

# How long the end of a finished reply is awaited so that its connection can be used again.
DRAIN_S = 0.25
MAX_REST_BYTES = 1024 * 1024

_JSON_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_decode = json.JSONDecoder().raw_decode
_MAX_TOKENS = 10**12
# Of one reply (SEC-13): calls, blocks or items among which a piece looks for its own, and what is
# kept aside or read again. Replies have dozens of the first and say their text four times.
MAX_PARTS = 500
MAX_AGAIN_CHARS = 64_000_000
log = logging.getLogger(__name__)

_Joinable = type[TextDelta] | type[ThinkingDelta] | type[ToolCallDelta]


def with_own_fields(body: dict[str, Any], request: ModelRequest) -> dict[str, Any]:
    """``body`` with the temperature and the fields that the program has asked for (CTRL-9)."""
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return {**body, **request.fields}


class EventBuffer:
    """Collects events; neighbouring deltas of one block become one event.

    A character that a gateway has cut into its two surrogates is whole again.
    """

    __slots__ = ("_events", "_index", "_kind", "_parts")

    def __init__(self) -> None:
        self._events: list[StreamEvent] = []
        self._kind: _Joinable = TextDelta
        self._index = 0
        self._parts: list[str] = []

    def delta(self, kind: _Joinable, index: int, text: str) -> None:
        """Add a piece of text, thinking or arguments. Empty pieces vanish."""
        if not text:
            return
        if kind is not self._kind or index != self._index:
            self._flush()
            self._kind = kind
            self._index = index
        self._parts.append(text)

    def add(self, event: StreamEvent) -> None:
        """Add any other event."""
        self._flush()
        self._events.append(event)

    def take(self) -> list[StreamEvent]:
        """All events so far; the buffer is empty afterwards, but for half a character."""
        self._flush(may_wait=True)
        events, self._events = self._events, []
        return events

    def _flush(self, *, may_wait: bool = False) -> None:
        if self._parts:
            text = self._parts[0] if len(self._parts) == 1 else "".join(self._parts)
            if len(self._parts) > 1 and not text.isascii():
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            self._parts = []
            if may_wait and "\ud800" <= text[-1] <= "\udbff":
                self._parts, text = [text[-1]], text[:-1]
            if text:
                self._events.append(self._kind(self._index, text))


class StreamDecoder:
    """Bytes of an SSE reply to ``StreamEvent``; subclasses say what one JSON object means.

    ``failure`` is set when the reply proved to be an error; nothing is decoded after it.
    ``ended`` is true once ``StreamEnd`` was produced; ``complete`` once nothing that matters can
    come any more, though something may: what has arrived is read, then ``close`` ends the reply.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.failure: ProviderError | None = None
        self.ended = False
        self.complete = False
        self.out = EventBuffer()
        self.event_chars = 0
        self._sse = SseDecoder(MAX_REPLY_DOCUMENT_BYTES, tell_damage=True)
        self._again = 0

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """The events that are complete with ``chunk``. Never raises; see ``failure``."""
        if self.failure is None:
            with self._faults():
                for event in self._sse.feed(chunk):
                    self._event(event)
                    if self.ended or self.failure is not None:
                        break
        return self.out.take()

    def close(self) -> list[StreamEvent]:
        """What remains at the end of the bytes. No ``StreamEnd`` comes of a cut reply."""
        if self.failure is None and not self.ended:
            with self._faults():
                last = self._sse.close()
                if last is not None and (last.data.endswith("}") or last.data == "[DONE]"):
                    self._event(last, last=True)
                if self.failure is None and not self.ended:
                    self.finish()
        return self.out.take()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """What is wrong with a reply is its ``failure``, a value of an impossible type too."""
        try:
            yield
        except ProviderError as error:
            self.failure = self._named(error)
        except (LookupError, TypeError, ValueError, RecursionError):
            log.warning("a reply of %s has no meaning", self.endpoint.label, exc_info=True)
            self._garbled("a value that has no meaning there")

    def end(self, event: StreamEnd) -> None:
        """Emit ``StreamEnd``; whatever follows is ignored."""
        self.out.add(event)
        self.ended = True

    def bound(self, parts: Sized = (), again: int = 0) -> None:
        """Raises ``ProviderError`` for too many parts, or too much kept aside or read again."""
        self._again += again
        if len(parts) > MAX_PARTS or self._again > MAX_AGAIN_CHARS:
            advice = "the reply was given up; try again or use another model"
            what = "sent a reply of too many parts, or one that repeats itself without end"
            raise ProviderError(what, advice, kind=ErrorKind.OTHER)

    def handle(self, value: Mapping[str, Any]) -> None:
        """Take one JSON object of the reply."""
        raise NotImplementedError

    def finish(self) -> None:
        """The bytes have ended without a terminal event."""

    def done_marker(self) -> None:
        """``[DONE]`` was received."""

    def mixed_up(self, what: str) -> None:
        """The reply cannot be put together (STR-12): an error that may pass, nothing is glued."""
        self.failure = self._named(
            ProviderError(
                f"sent a reply that cannot be put together ({what})",
                "try again; a gateway in between may have mixed up two replies",
                kind=ErrorKind.SERVER,
            )
        )

    def _garbled(self, what: str) -> None:
        self.failure = self._named(
            ProviderError(
                f"sent a garbled reply ({what})",
                "try again; a proxy in between may have damaged it",
                kind=ErrorKind.SERVER,
            )
        )

    def _event(self, event: SseEvent, *, last: bool = False) -> None:
        data = event.data
        self.event_chars = len(data)
        if self.ended or self.failure is not None:
            return
        try:
            value = _json_of(data)
        except (ValueError, RecursionError):
            if data.strip() == "[DONE]":
                self.done_marker()
            elif data.strip() and not last:
                self._garbled("an event that is not JSON")
            elif not event.event:
                self._garbled("an event that is none")
            return
        if not isinstance(value, dict):
            return
        if event.event == "error" and "error" not in value:
            value = {"type": "error", "error": value}
        if value.get("error") or value.get("object") == "error":
            self.failure = event_error(self.endpoint, value)
        else:
            self.handle(value)

    def _named(self, error: ProviderError) -> ProviderError:
        return ProviderError(
            f"{self.endpoint.label}: {error.message}",
            error.advice,
            kind=error.kind,
            provider=self.endpoint.provider,
            host=self.endpoint.host,
        )


def _json_of(data: str) -> Any:
    """``json.loads``, in half its time where the value begins at once and ends the text."""
    if len(data) <= FEW_VALUES_CHARS and data.startswith("{"):
        value, end = _decode(data)
        if end == len(data):
            return value
    return read_json(data)


class HttpProvider:
    """A provider that answers one POST with server-sent events. Subclasses fill in the rest."""

    decoder_type: type[StreamDecoder]

    def __init__(self, config: ProviderConfig) -> None:
        self.config = config
        self._http = HttpClient()
        if config.tape is not None:
            from agentcli.wire.tape import TapedClient

            self._http = TapedClient((config.kind, config.base_url), config.tape)
        elif config.base_url[:6].lower() == "https:":
            read_authorities()  # beside what else happens before the first request
        self._text_replies: TextReplies | None = None

    @property
    def name(self) -> str:
        """The part before the slash in ``provider/model``."""
        return self.config.name

    @property
    def host(self) -> str:
        """Where it is, for texts (STR-9)."""
        return host_of(self.url())

    def url(self) -> str:
        """The address that requests are posted to."""
        raise NotImplementedError

    def headers(self, body: Mapping[str, Any]) -> dict[str, str]:
        """The protocol's own headers, key included where there is one."""
        del body
        return auth_headers(self.config)

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        """The body of the request; pure."""
        raise NotImplementedError

    def endpoint(self, model: str) -> Endpoint:
        """Where requests go, for texts."""
        return endpoint_of(self.config, self.url(), model)

    def _asked_for(self, request: ModelRequest) -> dict[str, Any]:
        """The body as it is sent: where replies shall not be streamed it says so."""
        body = self.encode(request)
        if self.config.stream or "stream" not in body:
            return body
        return {key: body[key] for key in body if key != "stream_options"} | {"stream": False}

    def stream(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The reply, one attempt. Ends early when ``cancel`` is set."""
        if request.model.tool_protocol is None:
            return self.reply(request, cancel)
        if self._text_replies is None:
            from agentcli.providers.text_calls.reading import TextReplies

            self._text_replies = TextReplies()
        return self._text_replies.read(self.reply, request, cancel)

    async def reply(
        self, request: ModelRequest, cancel: CancelToken
    ) -> AsyncGenerator[StreamEvent, None]:
        """The reply as it comes from the server."""
        endpoint = self.endpoint(request.model.name)
        check_key(self.config, endpoint)
        body = self._asked_for(request)
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if self.config.stream else "application/json",
            "accept-encoding": "identity",
            "user-agent": f"agentcli/{__version__}",
            **with_own_headers(self.headers(body), self.config),
        }
        decoder = self.decoder_type(endpoint)
        broken: ProviderError | None = None
        try:
            with refusals_in_words(endpoint):
                posted = self._http.post_stream(endpoint, headers, to_json(body))
                async with aclosing(posted) as chunks:
                    async for chunk in chunks:
                        for event in decoder.feed(chunk):
                            yield event
                        if decoder.ended or decoder.complete or decoder.failure or cancel.cancelled:
                            break
                    if (decoder.ended or decoder.complete) and not cancel.cancelled:
                        for event in decoder.feed(await _rest(chunks)):
                            yield event
        except ProviderError as error:
            broken = error  # what has said its end before is whole all the same
        if not cancel.cancelled:
            for event in decoder.close():
                yield event
        failure = decoder.failure if broken is None or decoder.ended else broken
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Release connections."""
        await self._http.aclose()


async def _rest(chunks: AsyncGenerator[bytes, None]) -> bytes:
    """The rest of a finished reply, read briefly: its connection then serves the next request."""
    rest = bytearray()
    try:
        async with asyncio.timeout(DRAIN_S):
            async for chunk in chunks:
                rest += chunk
                if len(rest) > MAX_REST_BYTES:
                    break
    except (TimeoutError, ProviderError):
        pass  # the reply was complete; only the connection is lost
    return bytes(rest)


def to_json(body: Mapping[str, Any]) -> bytes:
    """``body`` as compact UTF-8 JSON; lone surrogates and NUL become U+FFFD (HIS-8)."""
    text = _JSON_ENCODER.encode(body)
    if "\\u0000" in text:
        text = _JSON_ENCODER.encode(_without_nul(body))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean_text(text).encode()


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return [_without_nul(item) for item in value] if isinstance(value, list | tuple) else value


def received_json(arguments: Mapping[str, Any]) -> str:
    """Arguments that came as an object, as the text that they would have come as, unrepaired."""
    return _JSON_ENCODER.encode(arguments)


def arguments_json(arguments: Mapping[str, Any]) -> str:
    """Tool arguments as the JSON text of an object, fit to be sent (HIS-5, HIS-8)."""
    text = _JSON_ENCODER.encode(dict(arguments))
    return _JSON_ENCODER.encode(_without_nul(arguments)) if "\\u0000" in text else text


def token_count(value: object) -> int | None:
    """``value`` when it can be a number of tokens: no session may be unreadable by its sums."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_TOKENS:
        return None
    return value


def openai_usage(usage: Mapping[str, Any], given: str, made: str) -> Usage:
    """What OpenAI's APIs report: "prompt" and "completion" tokens, or "input" and "output" ones.

    Cached input is part of the input on the wire, not in ours. ``prompt_cache_hit_tokens`` is
    DeepSeek's (https://api-docs.deepseek.com/guides/kv_cache).
    """
    details = usage.get(f"{given}_tokens_details")
    details = as_object(details)
    cached = token_count(details.get("cached_tokens"))
    if cached is None:
        cached = token_count(usage.get("prompt_cache_hit_tokens"))
    written = token_count(details.get("cache_write_tokens"))
    total = token_count(usage.get(f"{given}_tokens"))
    made_of = usage.get(f"{made}_tokens_details")
    reasoning = made_of.get("reasoning_tokens") if isinstance(made_of, dict) else None
    return Usage(
        input_tokens=None if total is None else max(0, total - (cached or 0) - (written or 0)),
        output_tokens=token_count(usage.get(f"{made}_tokens")),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=token_count(reasoning),
    )


def base64_text(data: bytes) -> str:
    """``data`` in base64."""
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode("ascii")
