"""The write-ahead log that a killed process leaves: whether all that was committed in it is there.

SQLite takes the first frame whose checksum is wrong for the end of the log, and says nothing of the
commits after it. So before a log is taken up it is proved here. Law: what a kill, a power cut or a
full disk can leave is no fault: a frame at the end that was not written whole; and, behind the last
commit, frames of a transaction that was given up, of which none is a commit. The format:
https://sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentcli.store.disk import fault_beside

HEADER_SIZE, FRAME_HEADER_SIZE = 32, 24
_SALTS = slice(8, 16)
_BIG_ENDIAN, _FORMAT = 0x377F0683, 3_007_000
_WORD_ORDER = {0x377F0682: "<", 0x377F0683: ">"}
_PAGE_SIZES = frozenset(1 << bits for bits in range(9, 17))


class LogFrame(NamedTuple):
    """A frame: the number of its page, the pages of the file if it is a commit, and the page."""

    page: int
    committed: int
    salts: bytes
    data: memoryview


def frames(log: bytes, page_size: int) -> Iterator[LogFrame]:
    """The frames of a log that are there whole, also those of an earlier one."""
    step = FRAME_HEADER_SIZE + page_size
    for start in range(HEADER_SIZE, len(log) - step + 1, step):
        page, committed = struct.unpack_from(">II", log, start)
        body = memoryview(log)[start : start + step]
        yield LogFrame(page, committed, bytes(body[_SALTS]), body[FRAME_HEADER_SIZE:])


def fault_of_log(path: Path) -> str:
    """What is wrong with the write-ahead log of the session file ``path``; empty if nothing is.

    Nobody may be writing to it. Raises ``OSError``.
    """
    if problem := fault_beside(path):
        return problem
    log_path = path.with_name(path.name + "-wal")
    log = log_path.read_bytes() if log_path.exists() else b""
    if len(log) <= HEADER_SIZE + FRAME_HEADER_SIZE:
        return ""
    page_size, whole = count_whole(log)
    if not page_size:
        return "its write-ahead log begins wrong" if any(log[:HEADER_SIZE]) else ""
    return _fault_at(log, whole, FRAME_HEADER_SIZE + page_size)


def count_whole(log: bytes) -> tuple[int, int]:
    """The size of a page, 0 if the log has no sound header, and how many frames are sound."""
    if len(log) < HEADER_SIZE:
        return 0, 0
    magic, _, size, _ = struct.unpack_from(">4I", log)
    order = _WORD_ORDER.get(magic, "")
    state = _sum(order, log[:24], (0, 0)) if order else (0, 0)
    if state != struct.unpack_from(">2I", log, 24) or size not in _PAGE_SIZES:
        return 0, 0
    salts, step = log[16:24], FRAME_HEADER_SIZE + size
    starts = range(HEADER_SIZE, len(log) - step + 1, step)
    for number, start in enumerate(starts):
        head = log[start : start + FRAME_HEADER_SIZE]
        expected = _sum(order, head[:8], state)
        expected = _sum(order, log[start + FRAME_HEADER_SIZE : start + step], expected)
        state = struct.unpack_from(">2I", head, 16)
        if head[_SALTS] != salts or state != expected:
            return size, number
    return size, len(starts)


def made_log(data: bytes, page_size: int) -> bytes:
    """A log by which any file reads as the database ``data``, in one commit."""
    head = struct.pack(">4I", _BIG_ENDIAN, _FORMAT, page_size, 0) + os.urandom(8)
    state = _sum(">", head, (0, 0))
    parts = [head, struct.pack(">2I", *state)]
    count = len(data) // page_size
    for number in range(1, count + 1):
        page = data[(number - 1) * page_size : number * page_size]
        about = struct.pack(">2I", number, count if number == count else 0)
        state = _sum(">", page, _sum(">", about, state))
        parts += [about, head[16:24], struct.pack(">2I", *state), page]
    return b"".join(parts)


def _fault_at(log: bytes, whole: int, step: int) -> str:
    """What it means that of the log no more than ``whole`` frames are."""
    start, salts = HEADER_SIZE + whole * step, log[16:24]
    what = f"frame {whole + 1} of its write-ahead log has changed"
    later = range(start + step, len(log) - step + 1, step)
    if any(log[at + 8 : at + 16] == salts and any(log[at + 4 : at + 8]) for at in later):
        return what  # commits that were made are not seen
    mark = log[start + 8 : start + 16]
    if mark != salts and mark[:4] != salts[:4] and mark[4:] != salts[4:]:
        return ""  # of an earlier log
    page = log[start + FRAME_HEADER_SIZE : start + step]
    # which of the two are commits; where there is no frame before, nothing is open either
    before, commit = (any(log[at + 4 : at + 8]) for at in (max(start - step, 0), start))
    if later:
        return what if commit and mark == salts else ""
    is_whole = start + step <= len(log)
    return what if is_whole and any(page) and (commit or not before) else ""


def _sum(order: str, data: bytes, state: tuple[int, int]) -> tuple[int, int]:
    one, two = state
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = one + first + two & 0xFFFFFFFF
        two = two + second + one & 0xFFFFFFFF
    return one, two
