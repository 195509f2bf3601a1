"""Search without ripgrep: the process that ``_search`` starts where there is none.

It runs ``python -I -S`` on this file's ``main`` with a JSON request as its argument, so that a
pattern that takes for ever can be killed; it prints what ripgrep would. Only the standard library.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from agentcli.tools.search.ignore import walk

BINARY_PROBE_BYTES = 65_536
_PIECE_CHARS = 4 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_ERRORS = {"utf-8": "surrogateescape"}


def main() -> None:
    """Answer the request in the first argument on standard output."""
    request = json.loads(sys.argv[1])
    out = sys.stdout.buffer
    one_file = request["file"]
    files = [one_file] if one_file else walk(request["root"], hidden=request["hidden"])
    if request["pattern"] is None:
        for path in files:
            out.write(b"./" + os.fsencode(path) + b"\0")
    else:
        flags = re.IGNORECASE if request["ignore_case"] else 0
        regex = re.compile(request["pattern"], flags)
        for path in files:
            full = os.path.join(request["root"], path)  # noqa: PTH118 - pathlib is slow to load
            _search_file(regex, full, b"./" + os.fsencode(path), request["context"], out)
    out.flush()


def _search_file(
    regex: re.Pattern[str], full: str, shown: bytes, context: int, out: BinaryIO
) -> None:
    before: deque[tuple[int, int, str]] = deque(maxlen=context)
    after = offset = 0
    for number, (line, size) in enumerate(_lines(full), start=1):
        if regex.search(line):
            out.writelines(_record(shown, b"-", *earlier) for earlier in before)
            before.clear()
            out.write(_record(shown, b":", number, offset, line))
            after = context
        elif after:
            out.write(_record(shown, b"-", number, offset, line))
            after -= 1
        elif context:
            before.append((number, offset, line))
        offset += size


def _record(path: bytes, mark: bytes, number: int, offset: int, line: str) -> bytes:
    text = line.encode("utf-8", "surrogateescape")
    return b"%s\0%d%s%d%s%s\n" % (path, number, mark, offset, mark, text)


def _lines(path: str) -> Iterator[tuple[str, int]]:
    """The lines of a text file without their ends, and their bytes in UTF-8 with them.

    None of what is binary or no plain file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError:
        return
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return
        try:
            head = file.read(BINARY_PROBE_BYTES)
            bom, codec = next((each for each in _BOMS if head.startswith(each[0])), (b"", "utf-8"))
            if codec != "utf-8" or b"\0" not in head:
                yield from _split(_whole_lines(_decoded(head.removeprefix(bom), codec, file)))
        except OSError:
            return


def _decoded(head: bytes, codec: str, file: BinaryIO) -> Iterator[str]:
    """The text until its end, or until it turns out to be none."""
    decoder = codecs.getincrementaldecoder(codec)(_ERRORS.get(codec, "replace"))
    yield decoder.decode(head)
    while (more := file.read(_READ_BYTES)) and (codec != "utf-8" or b"\0" not in more):
        yield decoder.decode(more)
    yield decoder.decode(b"", final=True)


def _whole_lines(pieces: Iterable[str]) -> Iterator[str]:
    """Pieces of text that end with a line, or are very long."""
    rest = ""
    for piece in pieces:
        end = piece.rfind("\n") + 1
        if not end and len(rest) + len(piece) <= _PIECE_CHARS:
            rest += piece
            continue
        yield rest + piece[: end or None]
        rest = piece[end:] if end else ""
    yield rest


def _split(pieces: Iterable[str]) -> Iterator[tuple[str, int]]:
    for piece in pieces:
        is_ascii = piece.isascii()
        lines = piece.split("\n")
        last = lines.pop()
        for line in lines:
            size = len(line) if is_ascii else len(line.encode("utf-8", "surrogateescape"))
            yield line.removesuffix("\r"), size + 1
        if last:
            yield last.removesuffix("\r"), len(last.encode("utf-8", "surrogateescape"))
