"""What the loopback model server is told to answer: one ``Reply`` for one request.

A reply says what the model says (text, thinking, calls) and what goes wrong on the way.
Faults have a *place* which means the same on every wire protocol:

``connect``   the request has been read, no response line sent
``headers``   status and headers are out, no body
``start``     the first event is out (message_start, the role chunk)
``thinking``, ``text``, ``call``   the first piece of that kind is out; ``text:3`` the third
``end``       everything is out but the events that end the reply
``last``      every event is out; the HTTP body is not ended

An integer counts bytes of the body instead, whatever they belong to.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Place = str | int


@dataclass(frozen=True)
class Text:
    """Visible text."""

    text: str


@dataclass(frozen=True)
class Thinking:
    """Reasoning. The server signs it unless ``signature`` is given; ``redacted`` hides it."""

    text: str = ""
    signature: str | None = None
    redacted: str | None = None


@dataclass(frozen=True)
class Call:
    """A tool call. ``raw`` sends this text as arguments, whatever it is."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    raw: str | None = None

    @property
    def json_text(self) -> str:
        """The arguments as they go over the wire; no arguments are no text, as in real life."""
        if self.raw is not None:
            return self.raw
        return json.dumps(dict(self.arguments), ensure_ascii=False) if self.arguments else ""


Block = Text | Thinking | Call


@dataclass(frozen=True)
class Tokens:
    """Usage that the server reports."""

    input: int = 100
    output: int = 20
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


@dataclass
class Reply:
    """One answer. Build it with ``say``, ``call`` and the functions below, or directly."""

    blocks: tuple[Block, ...] = ()
    stop: str | None = None
    """end_turn, tool_use, max_tokens or refusal; by default what the blocks imply."""
    tokens: Tokens | None = field(default_factory=Tokens)
    piece: int = 12
    """Characters per delta, for text, thinking and arguments alike."""
    interleave: bool = False
    """Pieces of parallel calls alternate (Chat Completions only)."""
    pings: int = 1
    """Keep-alive events after the first event."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Sent as it is instead of a stream."""
    error: str | None = None
    """Kind of the service's own error body for ``status``: see ``wire_*.error_body``."""

    hold: threading.Event | None = None
    hold_at: Place = "connect"
    stall_at: Place | None = None
    drop_at: Place | None = None
    """Reset the connection."""
    close_at: Place | None = None
    """End the HTTP body in good order, without the rest of the events."""
    error_at: Place | None = None
    error_kind: str = "overloaded"
    garbage_at: Place | None = None
    garbage: bytes = b"data: {\xff\xfe not json\n\n"
    ping_only: bool = False
    """Keep-alives for ever and nothing else."""
    delay_s: float = 0.0
    """Wait between events."""
    write_bytes: int | None = None
    """Size of the HTTP chunks; by default one per event."""
    transform: Callable[[bytes], bytes] | None = None
    """Applied to each event: other line ends, padding, comments."""
    preamble: bytes = b""
    gzip: bool = False

    @property
    def stop_reason(self) -> str:
        """The neutral name of the stop reason."""
        if self.stop is not None:
            return self.stop
        return "tool_use" if any(isinstance(b, Call) for b in self.blocks) else "end_turn"


def say(text: str, *, thinking: str | None = None, **options: Any) -> Reply:
    """A reply of text, after thinking if given."""
    before: tuple[Block, ...] = (Thinking(thinking),) if thinking is not None else ()
    return Reply((*before, *((Text(text),) if text else ())), **options)


def call(name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Reply:
    """A reply of one tool call; ``id``, ``raw``, ``text`` and ``thinking`` as for ``calls``."""
    one = Call(name, arguments or {}, options.pop("id", None), options.pop("raw", None))
    return calls(one, **options)


def calls(
    *several: Call, text: str | None = None, thinking: str | None = None, **options: Any
) -> Reply:
    """A reply of parallel tool calls, after text and thinking if given."""
    before: list[Block] = []
    if thinking is not None:
        before.append(Thinking(thinking))
    if text is not None:
        before.append(Text(text))
    return Reply((*before, *several), **options)


def fails(status: int, kind: str = "", **headers: str) -> Reply:
    """The service's own error body; header names are given with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(
        status=status, error=kind or _KIND_OF_STATUS.get(status, "api_error"), headers=named
    )


def rate_limited(retry_after: str | None = None) -> Reply:
    """429, with ``Retry-After`` in seconds or as a date."""
    return fails(429) if retry_after is None else fails(429, retry_after=retry_after)


def bad_gateway() -> Reply:
    """502 with a page of HTML, as proxies answer."""
    page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>\r\n"
    return Reply(status=502, body=page, headers={"content-type": "text/html"})


_KIND_OF_STATUS = {
    400: "bad_request",
    401: "auth",
    403: "permission",
    404: "not_found",
    413: "too_large",
    429: "rate_limit",
    529: "overloaded",
}
