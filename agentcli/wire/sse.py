"""Server-sent events: bytes in, whole events out, whatever the chunks (STR-8).

The rules are those of the WHATWG HTML standard, "Server-sent events", sections 9.2.5 and
9.2.6. Law: the events depend on the bytes only, never on how they were cut into chunks; the
cost is linear in the bytes; memory is bounded by ``max_event_bytes``.
"""

from __future__ import annotations

from typing import NamedTuple

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.patterns import LazyPattern

MAX_EVENT_BYTES = 16 * 1024 * 1024
# What one more line of an event costs in memory beside its text.
_LINE_COST = 8
# No server has longer names or ids; what is longer is no name that is known, and no id.
_NAME_BYTES = 8 * 1024
_BOM = b"\xef\xbb\xbf"
_LF = 10
_KNOWN_FIELD = LazyPattern(rb"(?:\xef\xbb\xbf)?(?:data|event|id|retry)(?::|\Z)")


class SseEvent(NamedTuple):
    """One dispatched event. ``id`` and ``retry_ms`` are those given in the event's own block."""

    event: str
    data: str
    id: str | None = None
    retry_ms: int | None = None


class LineSplitter:
    """Cuts a byte stream at LF, CR and CRLF, and drops a leading byte-order mark."""

    __slots__ = ("_at_start", "_skip_lf", "_tail")

    def __init__(self) -> None:
        self._tail = bytearray()
        self._skip_lf = False
        self._at_start = True

    @property
    def pending_bytes(self) -> int:
        """Size of the line that has not ended yet."""
        return len(self._tail)

    def drop_pending_unless(self, wanted: LazyPattern[bytes]) -> None:
        """Turn the unfinished line into an empty comment if it does not begin like ``wanted``."""
        if not wanted.match(self._tail):
            self._tail = bytearray(b":")
            self._at_start = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in ``chunk``, without their ends."""
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[0] == _LF:
                chunk = chunk[1:]
        has_cr = b"\r" in chunk
        if not has_cr and b"\n" not in chunk:
            self._tail += chunk
            return []
        if has_cr:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        if self._tail:
            self._tail += lines[0]
            lines[0] = bytes(self._tail)
            self._tail = bytearray()
        if last := lines.pop():
            self._tail += last
        if self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        return lines

    def close(self) -> list[bytes]:
        """The unfinished last line, if there is one."""
        rest = bytes(self._tail)
        self._tail = bytearray()
        if self._at_start:
            rest = rest.removeprefix(_BOM)
        return [rest] if rest else []


def _name_in(value: bytes) -> str:
    return value[:_NAME_BYTES].decode("utf-8", "replace")


class SseDecoder:
    """Incremental decoder. ``retry_ms`` and ``last_event_id`` are the latest values seen.

    A block of nothing but lines of no known field is ignored, as the standard has it. Nothing
    writes that, so an event was damaged there: with ``tell_damage`` it is an event without a name.

    An event larger than ``max_event_bytes`` raises ``ProviderError`` after the events before it
    have been returned.
    """

    __slots__ = (
        "_data",
        "_event",
        "_id",
        "_lines",
        "_max",
        "_odd",
        "_retry",
        "_size",
        "_tell_damage",
        "_too_large",
        "last_event_id",
        "retry_ms",
    )

    def __init__(
        self, max_event_bytes: int = MAX_EVENT_BYTES, *, tell_damage: bool = False
    ) -> None:
        self._tell_damage = tell_damage
        self._odd = False
        self._lines = LineSplitter()
        self._max = max_event_bytes
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self._id: str | None = None
        self._retry: int | None = None
        self._too_large = False
        self.retry_ms: int | None = None
        self.last_event_id = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """All events that are complete with ``chunk``. Raises ``ProviderError`` on a giant."""
        if self._too_large:
            raise self._giant()
        events: list[SseEvent] = []
        for line in self._lines.feed(chunk):
            if line.startswith(b"data: "):
                self._data.append(line[6:])
                self._size += len(line) - 6 + _LINE_COST
            elif line.startswith(b"event: "):
                self._event = _name_in(line[7:])
            elif line:
                self._field(line)
            elif self._dispatchable():
                events.append(self._take())
            if self._size > self._max:
                self._too_large = True
                break
        if self._size + self._lines.pending_bytes > self._max:
            self._lines.drop_pending_unless(_KNOWN_FIELD)
            self._too_large = self._size + self._lines.pending_bytes > self._max
        if self._too_large and not events:
            raise self._giant()
        return events

    def close(self) -> SseEvent | None:
        """The event that the stream's end left unfinished, or ``None``.

        The standard throws it away; a caller may use it when its data proves to be whole, since
        some servers leave out the last blank line.
        """
        for line in self._lines.close():
            self._field(line)
        return self._take() if self._dispatchable() else None

    def _giant(self) -> ProviderError:
        megabytes = self._max // (1024 * 1024)
        return ProviderError(
            f"the server sent one event of more than {megabytes} MB",
            "the reply was given up; try again or use another model",
            kind=ErrorKind.OTHER,
        )

    def _dispatchable(self) -> bool:
        if self._data:
            return True
        damaged = self._odd and self._tell_damage
        self._odd = False
        self._event = ""
        self._id = None
        self._retry = None
        return damaged

    def _take(self) -> SseEvent:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        name = (self._event or "message") if self._data else ""
        event = SseEvent(name, data.decode("utf-8", "replace"), self._id, self._retry)
        self._data = []
        self._size = 0
        self._odd = False
        self._event = ""
        self._id = None
        self._retry = None
        return event

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + _LINE_COST
        elif name == b"event":
            self._event = _name_in(value)
        elif name == b"id":
            if b"\0" not in value and len(value) <= _NAME_BYTES:
                self._id = self.last_event_id = value.decode("utf-8", "replace")
        elif name == b"retry":
            if value.isdigit() and len(value) <= len("9999999999"):
                self._retry = self.retry_ms = int(value)
        elif name:  # no comment
            self._odd = True
