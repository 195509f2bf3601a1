"""Files of unknown origin, read within bounds: what they hold as JSON, and values of JSON as ours.

Law: no line, file, depth, number or name in a file can cost more than the bounds here; a value of
an unexpected type counts as missing. What is left out is counted by kind (``LeftOut``).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from agentcli.domain.clean import as_object, count_values, is_deep, read_json
from agentcli.domain.errors import UsageError
from agentcli.domain.files import open_named
from agentcli.domain.messages import DocumentPart, ImagePart, TextPart

MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
MAX_WIDTH_BYTES = 64 * 1024 * 1024
MAX_FILE_BYTES = 1024 * 1024 * 1024
MAX_RECORDS = 500_000
MAX_HELD_VALUES = 5_000_000
MAX_HELD_BYTES = 128 * 1024 * 1024
MAX_DEPTH = 200
MAX_BLOB_BYTES = 24 * 1024 * 1024
_CHUNK = 1 << 20
_ASTRAL = re.compile(rb"[\xf0-\xff]|\\u[dD][89abAB]")  # in UTF-8, and as JSON escapes it
_LAST_MOMENT = 253_370_764_800.0  # the year 9999
_MOST_MONEY = 1e9
_MILLISECONDS_FROM = 1e11  # a number of seconds this large is one of milliseconds

Record = dict[str, Any]


class LeftOut(Counter[str]):
    """What could not be taken, in words for one of it, and how often; and how much was taken.

    A session and its sub-agents have one, so that the bounds hold for all of their files.
    """

    held_values = 0
    held_bytes = 0


class Source:
    """A file that is read once, from its beginning; ``digest`` covers what was read of it."""

    def __init__(self, stream: BinaryIO, name: str, left_out: LeftOut) -> None:
        self.name = name
        self.left_out = left_out
        self._stream = stream
        self._hash = sha256()
        self._size = 0
        self._first: list[bytes] = []

    @property
    def digest(self) -> str:
        """Stands for the content."""
        return self._hash.hexdigest()

    def document(self) -> bytes:
        """All of it; raises ``UsageError`` where that is too large for one JSON document."""
        parts = [*self._first]
        self._first = []
        while data := self._read(_CHUNK):
            parts.append(data)
            if self._size > MAX_DOCUMENT_BYTES:
                limit = MAX_DOCUMENT_BYTES >> 20
                raise UsageError(f"{self.name} is larger than {limit} MB", "split the export")
        data = b"".join(parts)
        if width_of(data) > MAX_WIDTH_BYTES:
            raise UsageError(f"{self.name} is too large as text", "split the export")
        return data

    def peek(self, most: int) -> Iterator[Any]:
        """The first lines as JSON values, ``None`` where one is none; they will be read again.

        At most ``most`` lines, and fewer of very long ones.
        """
        for _ in range(most):
            if sum(map(len, self._first)) > MAX_LINE_BYTES or not (line := self._line()):
                return
            self._first.append(line)
            yield parsed(line)

    def records(self) -> Iterator[Record]:
        """The lines that are JSON objects, in order."""
        taken = self.left_out
        for count in range(MAX_RECORDS):
            line = self._first.pop(0) if self._first else self._line()
            if not line:
                return
            taken.held_values += count_values(line)
            if taken.held_values > MAX_HELD_VALUES:
                taken[f"rest of the file, beyond {MAX_HELD_VALUES:,} values"] += 1
                return
            value = parsed(line)
            taken.held_bytes += _size_of(value)
            if taken.held_bytes > MAX_HELD_BYTES:
                taken[f"rest of the file, beyond {MAX_HELD_BYTES >> 20} MB of text"] += 1
                return
            if isinstance(value, dict):
                yield value
            elif line.strip():
                self.left_out["unreadable line"] += 1
            if count == MAX_RECORDS - 1:
                self.left_out[f"rest of the file, beyond {MAX_RECORDS:,} lines"] += 1

    def _line(self) -> bytes:
        """A line with its end; one that is too long is passed over as blank."""
        if self._size > MAX_FILE_BYTES:
            self.left_out[f"rest of the file, beyond {MAX_FILE_BYTES >> 20:,} MB"] += 1
            return b""
        line = self._stream.readline(MAX_LINE_BYTES)
        self._count(line)
        if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
            if width_of(line) <= MAX_WIDTH_BYTES:
                return line
            self.left_out["line that is too large with the characters it has"] += 1
            return b"\n"
        self.left_out[f"line longer than {MAX_LINE_BYTES >> 20} MB"] += 1
        while (rest := self._stream.readline(_CHUNK)) and self._size <= MAX_FILE_BYTES:
            self._count(rest)
            if rest.endswith(b"\n"):
                break
        return b"\n"

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._count(data)
        return data

    def _count(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)


def opened(path: Path) -> BinaryIO:
    """The file or pipe at ``path``; raises ``UsageError``."""
    try:
        return open_named(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot read {path}: {reason}", "name a session's file") from error


def width_of(data: bytes) -> int:
    """The bytes that ``data`` may take as a text: one emoji makes four of each character."""
    if len(data) <= MAX_WIDTH_BYTES // 4:
        return len(data)
    return len(data) * (4 if _ASTRAL.search(data) else 1 if data.isascii() else 2)


def parsed(data: bytes | str) -> Any:
    """``data`` as a JSON value; ``None`` where it is none, too deep, or of too many values."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace").lstrip("\ufeff")
    try:
        value = read_json(text, parse_constant=str, parse_float=_finite)
    except ValueError:
        return None
    return None if is_deep(value, MAX_DEPTH) else value


def _size_of(value: Any) -> int:
    """The bytes of memory that a value of JSON takes, no deeper than ``MAX_DEPTH``."""
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = chain(value, value.values())
    elif isinstance(value, list):
        inner = value
    return sys.getsizeof(value) + sum(map(_size_of, inner))


def _finite(text: str) -> float | str:
    """A number; what is too large for one stays a text: no provider takes ``Infinity`` (HIS-8)."""
    number = float(text)
    return number if math.isfinite(number) else text


# --- values of JSON ------------------------------------------------------------------------


def text_in(record: Mapping[str, Any], *keys: str) -> str:
    """The first of ``keys`` that holds a text; else empty."""
    return next((value for key in keys if isinstance(value := record.get(key), str)), "")


def dict_in(record: Mapping[str, Any], key: str) -> Record:
    """The object at ``key``; else an empty one."""
    value = record.get(key)
    return as_object(value)


def list_in(record: Mapping[str, Any], key: str) -> list[Any]:
    """The list at ``key``; else an empty one."""
    value = record.get(key)
    return value if isinstance(value, list) else []


def records_in(record: Mapping[str, Any], key: str) -> Sequence[Record]:
    """The objects in the list at ``key``."""
    return [each for each in list_in(record, key) if isinstance(each, dict)]


def count_in(record: Mapping[str, Any], key: str) -> int | None:
    """A number of tokens or messages."""
    value = record.get(key)
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def amount_in(record: Mapping[str, Any], key: str) -> float | None:
    """A sum of money."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < _MOST_MONEY else None


def moment_of(value: Any) -> float:
    """A time, ISO 8601 or a number, in seconds since 1970; 0 where there is none."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value[:40])
            known = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            seconds = known.timestamp()
        except (ValueError, OverflowError):
            return 0.0
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            return 0.0
        if seconds > _MILLISECONDS_FROM:
            seconds /= 1000
    else:
        return 0.0
    return seconds if 0 <= seconds <= _LAST_MOMENT else 0.0


def media_part(data: str, media_type: str, left_out: LeftOut, name: str = "") -> Any:
    """An image or a PDF out of base64; a text that says what is missing where it is none."""
    kind = media_type[:100] or "of unknown type"
    what = "document" if kind == "application/pdf" else "image"
    if len(data) * 3 // 4 > MAX_BLOB_BYTES:
        left_out[f"{what} larger than {MAX_BLOB_BYTES >> 20} MB"] += 1
        return TextPart(f"[{what} left out: it is too large]")
    try:
        content = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        content = b""
    if not content or not (kind.startswith("image/") or what == "document"):
        left_out["attachment that could not be read"] += 1
        return TextPart(f"[attachment left out: {kind}]")
    if what == "document":
        return DocumentPart(kind, content, name[:200])
    return ImagePart(kind, content)


def part_of_url(url: str, media_type: str, left_out: LeftOut, name: str = "") -> Any:
    """The same for a ``data:`` URL; no other is followed."""
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        left_out["attachment that is only named"] += 1
        return TextPart(f"[attachment left out: {(name or url)[:200]}]")
    given = head.removeprefix("data:").removesuffix(";base64").partition(";")[0]
    return media_part(data, given or media_type, left_out, name)
