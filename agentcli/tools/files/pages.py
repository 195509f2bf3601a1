"""Pages of numbered lines out of a text of any size, without holding the whole (TOOL-7).

Law: a page ends at ``limit`` lines or ``MAX_CHARS`` characters, whichever comes first, and always
between two lines; memory is bounded by the page and one chunk, whatever the file.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from agentcli.tools._output import MAX_CHARS
from agentcli.tools.files.text import Encoding, readable

MAX_LINE_CHARS = 2_000
_FOOTER_ROOM = 500
MAX_SCANNED_CHARS = 64 * 1024 * 1024  # of one line; what comes after it is not looked at


@dataclass(frozen=True, slots=True)
class Page:
    """Lines ``first`` to ``last``; ``total`` is known when the end of the text was reached."""

    rows: tuple[str, ...]
    first: int
    last: int
    total: int | None
    crlf: bool
    clipped: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing is before or after the page."""
        return self.first <= 1 and self.total is not None and self.last >= self.total


def read_page(pieces: Iterable[str], offset: int, limit: int) -> Page:
    """At most ``limit`` lines, from line ``offset`` (from 1), of the text that comes in pieces."""
    rows: list[str] = []
    used, clipped, crlf = 0, 0, False
    lines = _Lines(pieces, offset)
    for text, length in lines:
        number = lines.count
        shown = text.removesuffix("\r")
        crlf = crlf or len(shown) < len(text)
        row = f"{number:>6}\t{readable(shown)}"
        if length > MAX_LINE_CHARS:
            row += f"… [{length - MAX_LINE_CHARS:,} more characters in this line]"
        if len(rows) == limit or used + len(row) + 1 > MAX_CHARS - _FOOTER_ROOM:
            return Page(tuple(rows), offset, number - 1, None, crlf, clipped)
        clipped += length > MAX_LINE_CHARS
        used += len(row) + 1
        rows.append(row)
    total = lines.count if lines.at_end else None
    return Page(tuple(rows), offset, lines.count, total, crlf, clipped)


class _Lines:
    """The lines from ``offset`` on, each cut to ``MAX_LINE_CHARS``, with its true length."""

    def __init__(self, pieces: Iterable[str], offset: int) -> None:
        self._pieces = pieces
        self._offset = offset
        self.count = 0  # lines met so far, the one just given included
        self.at_end = False

    def __iter__(self) -> Iterator[tuple[str, int]]:
        kept, length = "", 0
        for piece in self._pieces:
            start = 0
            skipped = piece.count("\n") if self.count + 1 < self._offset else 0
            if skipped and self.count + skipped < self._offset:
                self.count += skipped
                start, kept, length = piece.rfind("\n") + 1, "", 0
            while (end := piece.find("\n", start)) != -1:
                self.count += 1
                if self.count >= self._offset:
                    yield _more(kept, piece, start, end), length + end - start
                kept, length, start = "", 0, end + 1
            kept = _more(kept, piece, start, len(piece))
            length += len(piece) - start
            if length > MAX_SCANNED_CHARS:
                self.count += 1
                if self.count >= self._offset:
                    yield kept, length
                return
        if length:
            self.count += 1
            if self.count >= self._offset:
                yield kept, length
        self.at_end = True


def _more(kept: str, piece: str, start: int, end: int) -> str:
    room = MAX_LINE_CHARS - len(kept)
    return kept + piece[start : min(end, start + room)] if room > 0 else kept


def decoded(
    chunks: Iterable[bytes], encoding: Encoding, stopped: Callable[[], bool]
) -> Iterator[str]:
    """The text of ``chunks`` piece by piece; ends early once ``stopped``."""
    decoder = codecs.getincrementaldecoder(encoding.codec)("replace")
    skip = len(encoding.bom)
    for chunk in chunks:
        if stopped():
            return
        yield decoder.decode(chunk[skip:])
        skip = 0
    yield decoder.decode(b"", final=True)


def folded(text: str) -> str:
    """``text`` with over-long lines broken, so that every character of it can be paged to."""
    out: list[str] = []
    for line in text.split("\n"):
        out += [line[at : at + MAX_LINE_CHARS] for at in range(0, len(line), MAX_LINE_CHARS)] or [
            ""
        ]
    return "\n".join(out)
