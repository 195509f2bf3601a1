"""What a command in the background does otherwise: its output goes to a log, as it comes (BG-4).

Law: a flood costs no memory: what the log does not take any more is not even decoded.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable

from agentcli.domain.background import BackgroundSink
from agentcli.domain.tools import BackgroundSwitch
from agentcli.process.capture import Capture, LiveOutput

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


class CallOutput:
    """The output of a command: shown as it comes, and after a move (UI-3) logged by a run.

    ``run`` is the run that it belongs to, from the beginning or by now; ``moved`` is done once it
    was moved.
    """

    def __init__(self, progress: Callable[[str], None], run: BackgroundSink | None) -> None:
        self.run = run
        self.moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.capture = Capture() if run is None else ends_of_output()
        self._live = LiveOutput(progress) if run is None else LoggedOutput(run)
        self._pid = 0
        self._take_back: Callable[[], None] = lambda: None

    def feed(self, data: bytes) -> bool:
        """Take the next piece; all of it is wanted."""
        self.capture.feed(data)
        self._live.feed(data)
        return True

    def started(self, pid: int, switch: BackgroundSwitch | None) -> None:
        """It runs as ``pid`` and can be moved from now on."""
        self._pid = pid
        if self.run is not None:
            self.run.process(pid)
        elif switch is not None:
            self._take_back = switch.offer(self._move)

    def close(self) -> None:
        """There is no more."""
        self._take_back()
        self._live.close()

    def _move(self, run: BackgroundSink) -> None:
        self.run = run
        run.process(self._pid)
        self._live.close()
        self._live = LoggedOutput(run)
        before, self.capture = self.capture.data(), ends_of_output()
        self.feed(before)
        self.moved.set_result(None)


def ends_of_output() -> Capture:
    """Keeps what is told with the end."""
    return Capture(_HEAD_BYTES, _TAIL_BYTES)


def telling(
    output: CallOutput, switch: BackgroundSwitch | None, on_start: OnStart | None
) -> OnStart:
    """``on_start`` that tells of the process, too (BG-7), and that it can be moved."""

    async def tell(pid: int) -> None:
        output.started(pid, switch)
        if on_start is not None:
            await on_start(pid)

    return tell
