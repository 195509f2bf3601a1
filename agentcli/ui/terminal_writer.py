"""Writes to a terminal from a thread of its own: one that takes nothing holds up nothing.

Law: what is written comes out whole and in order; ``write`` never blocks, so keys and signals
are heard whatever the terminal does (CAN-13, OPS-1); with nothing to write nothing wakes.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

BEHIND_BYTES = 65_536
_PIECE_BYTES = 4_096


class TerminalWriter:
    """In place of ``stream``, as far as a ``Screen`` uses it."""

    def __init__(self, stream: TextIO) -> None:
        self.encoding = stream.encoding or "ascii"
        self.on_ready: Callable[[], None] = lambda: None
        """Called, in the writer's thread, when the terminal has caught up."""
        self._descriptor = stream.fileno()
        self._waiting = bytearray()
        self._changed = threading.Condition()
        self._taken = 0
        self._was_behind = False
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_behind(self) -> bool:
        """Whether so much waits that showing more now would only pile up."""
        with self._changed:
            self._was_behind = len(self._waiting) >= BEHIND_BYTES
            return self._was_behind

    def fileno(self) -> int:
        """The terminal's descriptor."""
        return self._descriptor

    def as_stream(self) -> TextIO:
        """The same for those who need a text stream of the standard library."""
        raw = _Bytes(self)
        return io.TextIOWrapper(raw, self.encoding, "replace", newline="", write_through=True)  # type: ignore[type-var]  # a raw stream that takes all is as good as a buffered one

    def write(self, text: str) -> None:
        """Have ``text`` written. Raises ``OSError`` once the terminal has gone away."""
        self.write_bytes(text.encode(self.encoding))

    def write_bytes(self, data: bytes) -> None:
        """The same for what is encoded."""
        with self._changed:
            if self._error is not None:
                raise self._error
            self._waiting += data
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="terminal", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """All is on its way already."""

    def drain(self, patience_s: float) -> bool:
        """Wait for all to be written, as long as something is within ``patience_s`` seconds."""
        with self._changed:
            while self._waiting and self._error is None:
                taken = self._taken
                if not self._changed.wait_for(lambda: self._taken != taken, patience_s):  # noqa: B023 - asked at once
                    return False
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                piece = bytes(self._waiting[:_PIECE_BYTES])
            try:
                taken = os.write(self._descriptor, piece)
            except OSError as error:
                with self._changed:
                    self._error = error
                    self._waiting.clear()
                    self._taken += 1
                    self._changed.notify_all()
                return
            with self._changed:
                del self._waiting[:taken]
                self._taken += taken
                caught_up = self._was_behind and not self._waiting
                self._was_behind = self._was_behind and not caught_up
                self._changed.notify_all()
            if caught_up:
                with suppress(RuntimeError):  # the loop has ended
                    self.on_ready()


class _Bytes(io.RawIOBase):
    """The writer as a byte stream; closing it closes nothing."""

    def __init__(self, writer: TerminalWriter) -> None:
        self._writer = writer

    def writable(self) -> bool:
        """It is."""
        return True

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._writer.fileno())

    def fileno(self) -> int:
        """The terminal's descriptor."""
        return self._writer.fileno()

    def write(self, data: bytes, /) -> int:  # type: ignore[override]  # gets nothing else
        """Take all of it."""
        self._writer.write_bytes(bytes(data))
        return len(data)
