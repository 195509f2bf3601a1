"""What ends a run from outside where no event loop can hear of it (CLI-5, CLI-6, OPS-1, CLI-12).

Before the loop runs: signals and ``--timeout``. While it runs: a write to a pipe that nobody reads
blocks the whole loop. Laws: a signal is never lost; once one has come, a write that takes longer
than ``PATIENCE_S`` is given up, as if the reader had left; nothing heavy is imported here.
"""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, ParamSpec

P = ParamSpec("P")
PATIENCE_S = 1.0
_LONGEST_ALARM_S = 1e6
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_OF_SIGNAL = 128
# Python drops what is raised in a finalizer or in the callback of an import lock
_caught: list[int] = []


class StoppedEarly(BaseException):
    """A signal came before the run could take it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.code = _OF_SIGNAL + number
        self.name = signal.Signals(number).name


class Late(BaseException):
    """``--timeout`` passed before the event loop was there to say so."""


def raise_on_signals() -> Callable[[], None]:
    """Raise ``StoppedEarly`` for the signals that end a run, until they are taken or given back."""
    before: dict[int, Any] = {}

    def stop(number: int, _frame: FrameType | None) -> None:
        _caught.append(number)
        raise StoppedEarly(number)

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        if not isinstance(lost.exc_value, StoppedEarly):
            sys.__unraisablehook__(lost)

    sys.unraisablehook = unraisable
    for number in _SIGNALS:
        # what was ignored from the start (nohup, a background job) stays ignored; and only the
        # main thread may set a handler
        with suppress(ValueError):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop)

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return give_back


def dropped_signal() -> signal.Signals | None:
    """A signal that has come and whose ``StoppedEarly`` reached nobody: who goes on has to stop."""
    return signal.Signals(_caught[0]) if _caught else None


@contextmanager
def alarm(timeout_s: float | None) -> Iterator[None]:
    """Raise ``Late`` in the block after ``timeout_s``: it may wait for a pipe."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise Late

    if not timeout_s:
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, min(timeout_s, _LONGEST_ALARM_S))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class StalledWrites:
    """Runs writes; once a signal has come it gives up the one that takes too long."""

    def __init__(self) -> None:
        self._is_writing = False
        self._is_stopping = False

    def run(self, write: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call ``write`` with the rest; raises ``BrokenPipeError`` when it is given up."""
        self._is_writing = True
        if self._is_stopping:
            self._wait_no_longer()
        try:
            write(*args, **kwargs)
        finally:
            self._is_writing = False

    def watch(self, number: int) -> None:
        """Wait no longer than ``PATIENCE_S`` for a write once signal ``number`` has come.

        Call it after ``loop.add_signal_handler``, whose handler the loop still gets to run: the
        one set here is called also while a system call blocks.
        """
        signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._wait_no_longer()

    def _wait_no_longer(self) -> None:
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_writing:
            raise BrokenPipeError(errno.EPIPE, "the reader of the output does not read")
