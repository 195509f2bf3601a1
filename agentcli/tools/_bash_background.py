"""What a command in the background does otherwise: its output goes to a log, as it comes (BG-4).

Law: a flood costs no memory: what the log does not take any more is not even decoded.
"""

from __future__ import annotations

import codecs
from collections.abc import Awaitable, Callable

from agentcli.domain.background import BackgroundSink
from agentcli.tools._capture import Capture

OnStart = Callable[[int], Awaitable[None]]
# of the output that is told with the end; all of it is in the log
_HEAD_BYTES, _TAIL_BYTES = 2_000, 8_000


class LoggedOutput:
    """Passes output on to ``sink``; in the place of ``LiveOutput``."""

    def __init__(self, sink: BackgroundSink) -> None:
        self._sink = sink
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_wanted = True

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        if self._is_wanted:
            self._is_wanted = self._sink.output(self._decoder.decode(data))

    def close(self) -> None:
        """There is no more."""
        if self._is_wanted and (rest := self._decoder.decode(b"", final=True)):
            self._sink.output(rest)


def ends_of_output() -> Capture:
    """Keeps what is told with the end."""
    return Capture(_HEAD_BYTES, _TAIL_BYTES)


def telling(sink: BackgroundSink, on_start: OnStart | None) -> OnStart:
    """``on_start`` that tells the run of its process, too (BG-7)."""

    async def tell(pid: int) -> None:
        sink.process(pid)
        if on_start is not None:
            await on_start(pid)

    return tell
