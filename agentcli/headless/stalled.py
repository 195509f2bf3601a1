"""A reader of our output that is there but does not read: a signal must still end the program.

A write to a full pipe blocks the whole event loop, which then cannot hear of the signal. Law:
only a write that was under way when a signal came, and still is ``PATIENCE_S`` later, is given
up; to whoever writes it looks as if the reader had left (CLI-12, OPS-1).
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Callable
from types import FrameType

PATIENCE_S = 1.0


class StalledWrites:
    """Runs writes, and knows which of them a signal has to wait for."""

    def __init__(self) -> None:
        self._number = 0
        self._is_writing = False
        self._suspect = 0

    def run(self, write: Callable[[], object]) -> None:
        """Call ``write``; raises ``BrokenPipeError`` for one that is given up."""
        self._number += 1
        self._is_writing = True
        try:
            write()
        finally:
            self._is_writing = False

    def watch(self, number: int) -> None:
        """Look at the write under way when signal ``number`` comes.

        Call it after ``loop.add_signal_handler``, whose handler the loop still gets to run: the
        one set here is called also while a system call blocks.
        """
        signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._is_writing and self._suspect != self._number:
            self._suspect = self._number
            signal.signal(signal.SIGALRM, self._on_alarm)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._is_writing and self._suspect == self._number:
            raise BrokenPipeError(errno.EPIPE, "the reader of the output does not read")
