"""Whether what a search reported is what the searched directory holds (SEC-5).

A search engine opens files by their names: a directory that becomes a link while it works leads
it elsewhere. Law: nothing is told that cannot be read again, at its place in the file, through an
open directory and without following a link.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from agentcli.domain.no_follow import below, lstat_at, open_at

LINE_BYTES = 2_000
_CHUNK_BYTES = 1024 * 1024
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, or (``number`` 0) a file. ``cut_bytes`` are missing at its end.

    ``raw`` is the line in UTF-8, as far as it was, ``offset`` where it begins in the file without
    its byte-order mark and in UTF-8.
    """

    path: str
    number: int = 0
    raw: bytes = b""
    matches: bool = True
    cut_bytes: int = 0
    offset: int = 0

    @property
    def text(self) -> str:
        """The line for a person or a model."""
        return self.raw.decode("utf-8", "ignore" if self.cut_bytes else "replace")


def changed_note(count: int, noun: str) -> str:
    """What is told of results that did not stand the check."""
    if not count:
        return ""
    nouns = noun if count == 1 else f"{noun}s"
    return f"\n[{count:,} {nouns} left out: changed during the search]"


def files_there(lines: Iterable[Line], root: int) -> Iterator[Line]:
    """Those of the files found that stand below the open directory ``root``."""
    for parents, group in groupby(lines, key=lambda line: line.path.split("/")[:-1]):
        try:
            with below(root, parents) as directory:
                for line in group:
                    if _is_file(line.path.rpartition("/")[2], directory):
                        yield line
        except OSError:
            continue


def lines_there(lines: Iterable[Line], root: int) -> Iterator[Line]:
    """Those of the lines found that stand where they are said to."""
    for path, group in groupby(lines, key=lambda line: line.path):
        *parents, name = path.split("/")
        try:
            with below(root, parents) as directory:
                if not _is_file(name, directory):
                    continue
                descriptor = open_at(name, directory)
            try:
                yield from _standing(list(group), descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            continue


def _is_file(name: str, directory: int) -> bool:
    try:
        return stat.S_ISREG(lstat_at(name, directory).st_mode)
    except OSError:
        return False


def _standing(lines: list[Line], descriptor: int) -> list[Line]:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return []
    bom, codec = _encoding(os.pread(descriptor, 3, 0))
    there = [line for line in lines if _stands(line, descriptor, len(bom))]
    if there or not bom:
        return there
    return list(_standing_in_text(lines, _recoded(descriptor, codec, len(bom))))


def _encoding(head: bytes) -> tuple[bytes, str]:
    return next(((bom, codec) for bom, codec in _BOMS if head.startswith(bom)), (b"", "utf-8"))


def _stands(line: Line, descriptor: int, skipped: int) -> bool:
    return os.pread(descriptor, len(line.raw), skipped + line.offset) == line.raw


def _recoded(descriptor: int, codec: str, skipped: int) -> Iterator[bytes]:
    """The text of the file in UTF-8, piece by piece."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    position, data = skipped, b"-"
    while data:
        data = os.pread(descriptor, _CHUNK_BYTES, position)
        position += len(data)
        yield decoder.decode(data, final=not data).encode("utf-8", "replace")


def _standing_in_text(lines: list[Line], pieces: Iterator[bytes]) -> Iterator[Line]:
    held, start = b"", 0
    for line in sorted(lines, key=lambda line: line.offset):
        end = line.offset + len(line.raw)
        while start + len(held) < end and (piece := next(pieces, None)) is not None:
            keep = max(0, len(held) - max(0, line.offset - start))
            start, held = start + len(held) - keep, held[len(held) - keep :] + piece
        if held[line.offset - start : end - start] == line.raw:
            yield line
