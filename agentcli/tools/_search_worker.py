"""Search without ripgrep: the process that ``_search`` starts where there is none.

It runs ``python -I -S`` on this file's ``main`` with a JSON request as its argument, so that a
pattern that takes for ever can be killed; it prints what ripgrep would. Only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from agentcli.tools._ignore import walk

BINARY_PROBE_BYTES = 65_536
_PIECE_CHARS = 4 * 1024 * 1024
_MAX_UTF16_BYTES = 64 * 1024 * 1024
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


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
    before: deque[tuple[int, str]] = deque(maxlen=context)
    after = 0
    for number, line in enumerate(_lines(full), start=1):
        if regex.search(line):
            out.writelines(_record(shown, earlier, b"-", text) for earlier, text in before)
            before.clear()
            out.write(_record(shown, number, b":", line))
            after = context
        elif after:
            out.write(_record(shown, number, b"-", line))
            after -= 1
        elif context:
            before.append((number, line))


def _record(path: bytes, number: int, mark: bytes, line: str) -> bytes:
    return b"%s\0%d%s%s\n" % (path, number, mark, line.encode("utf-8", "surrogateescape"))


def _lines(path: str) -> Iterator[str]:
    """The lines of a text file without their ends; none of what is binary or no plain file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError:
        return
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return
        try:
            head = file.read(BINARY_PROBE_BYTES)
            encoding = _UTF16_BOMS.get(head[:2])
            if encoding is not None:
                data = head + file.read(_MAX_UTF16_BYTES)
                yield from _split([data[2:].decode(encoding, "replace")])
            elif b"\0" not in head:
                yield from _split(_decoded(head.removeprefix(_UTF8_BOM), file))
        except OSError:
            return


def _decoded(head: bytes, file: BinaryIO) -> Iterator[str]:
    """Pieces of text that end with a line, or are very long."""
    rest = head
    while True:
        more = file.read(BINARY_PROBE_BYTES * 16)
        if b"\0" in more:
            more = b""
        rest += more
        end = rest.rfind(b"\n") + 1
        if not more or (not end and len(rest) > _PIECE_CHARS):
            end = len(rest)
        yield rest[:end].decode("utf-8", "surrogateescape")
        rest = rest[end:]
        if not more:
            return


def _split(pieces: Iterable[str]) -> Iterator[str]:
    for piece in pieces:
        lines = piece.split("\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            yield line.removesuffix("\r")
