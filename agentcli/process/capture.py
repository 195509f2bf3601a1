"""The output of a command while it comes: bounded memory, and a live view that is not a flood.

Law: however much a command prints, ``Capture`` holds at most ``HEAD_BYTES + TAIL_BYTES`` of it
and counts the rest; ``LiveOutput`` reports at most every ``INTERVAL_S``, and then the newest.
"""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import Callable

HEAD_BYTES = 3 * 1024 * 1024
TAIL_BYTES = 1024 * 1024
INTERVAL_S = 0.05
LIVE_BYTES = 8 * 1024


class Capture:
    """The beginning and the end of what was fed."""

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.size_bytes = 0
        self._head = bytearray()
        self._head_bytes = head_bytes
        self._tail: deque[bytes] = deque()
        self._tail_bytes = tail_bytes
        self._in_tail = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self.size_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._in_tail += len(data)
        while self._in_tail - len(self._tail[0]) >= self._tail_bytes:
            self._in_tail -= len(self._tail.popleft())

    def data(self) -> bytes:
        """All of it, or its two ends with a line between them that says what is missing."""
        tail = b"".join(self._tail)[-self._tail_bytes :]
        missing = self.size_bytes - len(self._head) - len(tail)
        if not missing:
            return bytes(self._head) + tail
        return b"%s\n[... %d bytes of output were not kept ...]\n%s" % (self._head, missing, tail)


class LiveOutput:
    """Passes output on as text, joined and rate-limited; ``close`` passes on the rest."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._waiting = bytearray()
        self._skipped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._waiting += data[-LIVE_BYTES:]
        excess = len(self._waiting) - LIVE_BYTES
        self._skipped += max(0, len(data) - LIVE_BYTES)
        if excess > 0:
            del self._waiting[:excess]
            self._skipped += excess
        if self._timer is None:
            loop = asyncio.get_running_loop()
            delay = max(0.0, self._last + INTERVAL_S - loop.time())
            self._timer = loop.call_later(delay, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._last = asyncio.get_running_loop().time()
        if self._skipped:
            self._decoder.reset()
            self._report(f"\n[... {self._skipped} bytes ...]\n")
            self._skipped = 0
        text = self._decoder.decode(bytes(self._waiting))
        self._waiting.clear()
        if text:
            self._report(text)

    def close(self) -> None:
        """Report what is waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._flush()
