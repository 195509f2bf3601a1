"""The body of an answer: its chunks, and what they unpack to within bounds (SEC-13).

Law: a body has one content coding at most, of those that ``ACCEPTED`` asks for (RFC 9110, 8.4); it
is unpacked slice by slice, so that nothing holds more than a slice of what the bytes would unpack
to; beyond ``FREE_BYTES`` it may not unpack to more than ``MAX_RATIO`` times its size. Chunks that
have come at once are one; what comes out is what h11 makes of them, byte for byte.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from h11 import Data, EndOfMessage
    from h11._receivebuffer import ReceiveBuffer

ACCEPTED = "gzip, deflate"
SLICE_BYTES = 64 * 1024
FREE_BYTES = 32 * 1024 * 1024
MAX_RATIO = 100
_WBITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_RAW_DEFLATE = -15
_SHOWN_CHARS = 40


class BadCoding(Exception):
    """The body is not unpacked; the text says what the server did: ``sent its answer ...``.

    ``is_damage``: it may have been damaged on its way, so that asking again makes sense.
    """

    def __init__(self, text: str, *, is_damage: bool = False) -> None:
        super().__init__(text)
        self.is_damage = is_damage


def unpacker_for(headers: Iterable[str]) -> Unpacker | None:
    """What unpacks a body; ``None`` where it is not packed. Raises ``BadCoding``.

    ``headers`` are the values of all ``Content-Encoding`` lines.
    """
    words = [word.strip().lower() for line in headers for word in line.split(",")]
    codings = [word for word in words if word not in {"", "identity"}]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in _WBITS:
        shown = ascii(", ".join(codings))[1:-1][:_SHOWN_CHARS]
        raise BadCoding(f"sent its answer packed in a way that is not accepted ({shown})")
    return Unpacker(codings[0])


class Unpacker:
    """Unpacks one body."""

    def __init__(self, coding: str) -> None:
        # some servers send deflate without the two bytes before it that the standard wants
        self._before: bytes | None = b"" if coding == "deflate" else None
        self._zlib = zlib.decompressobj(_WBITS[coding])
        self._came = 0
        self._given = 0

    @property
    def is_whole(self) -> bool:
        """Whether the end of what was packed has come, or nothing at all."""
        return self._zlib.eof or not self._came

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` unpacks to, in slices of a bound. Raises ``BadCoding``."""
        self._came += len(data)
        while data and not self._zlib.eof:
            piece, data = self._step(data)
            self._given += len(piece)
            if self._given > max(FREE_BYTES, self._came * MAX_RATIO):
                raise BadCoding(f"sent an answer that unpacks to over {MAX_RATIO} times its size")
            if piece:
                yield piece

    def _step(self, data: bytes) -> tuple[bytes, bytes]:
        before, self._before = self._before, None
        try:
            piece = self._zlib.decompress(data, SLICE_BYTES)
        except zlib.error as error:
            if before is None:
                text = "sent an answer that cannot be unpacked"
                raise BadCoding(text, is_damage=True) from error
            self._zlib = zlib.decompressobj(_RAW_DEFLATE)
            return self._step(before + data)
        if before is not None and len(before + data) < len(b"\x78\x9c"):
            self._before = before + data
        return piece, self._zlib.unconsumed_tail


# --- chunks -----------------------------------------------------------------------------------

# A model's reply has a chunk for every few letters, and h11, httpcore and httpx do some twenty
# calls for each: half of what reading a long reply costs.

_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,20})[ \t]*\r\n")


class JoiningReader:
    """Reads a body of chunks as h11's own reader does, whole ones that have come at once as one.

    What is no plain and complete chunk (https://www.rfc-editor.org/rfc/rfc9112#section-7.1) is read
    by that one, also what is wrong.
    """

    def __init__(self) -> None:
        from h11._readers import ChunkedReader

        self._reader = ChunkedReader()

    def __call__(self, buf: ReceiveBuffer) -> Data | EndOfMessage | None:
        """An event, or ``None`` when more has to come first."""
        from h11 import Data

        state = vars(self._reader)  # h11 has no hook for this
        came, footer, parts = bytes(buf), state["_bytes_to_discard"], []
        is_between = not (state["_bytes_in_chunk"] or state["_reading_trailer"])
        at = len(footer) if is_between and came.startswith(footer) else len(came)
        while (head := _CHUNK.match(came, at)) is not None:
            end = head.end() + int(head[1], 16)
            if end == head.end() or came[end : end + 2] != b"\r\n":
                break
            parts.append(came[head.end() : end])
            at = end + 2
        if not parts:
            return self._reader(buf)
        buf.maybe_extract_at_most(at)
        state["_bytes_to_discard"] = b""
        return Data(data=b"".join(parts), chunk_start=True, chunk_end=True)

    def read_eof(self) -> NoReturn:
        """The connection has ended too early."""
        self._reader.read_eof()


_AS_IN_0_16 = {"_bytes_in_chunk": 0, "_bytes_to_discard": b"", "_reading_trailer": False}


def join_chunks() -> bool:
    """Have every connection read its chunks so; false where h11 is made in another way."""
    try:
        from h11 import SEND_BODY
        from h11._readers import READERS, ChunkedReader

        readers, state = READERS.get(SEND_BODY), vars(ChunkedReader())
    except (ImportError, TypeError):
        return False
    if not isinstance(readers, dict) or state != _AS_IN_0_16:
        return False
    readers["chunked"] = JoiningReader
    return True
