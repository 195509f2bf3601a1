"""The one place through which the chat writes to the terminal.

Law: what was printed is never redrawn. Streamed text is gathered and shown at most
``FLUSHES_PER_S`` times a second; when nothing is waiting there is no timer. A terminal that went
away is no error: the text is dropped.

This one only ever appends, which any terminal and any reader of its output understands;
``live_screen`` also keeps a few rows at the end that it may redraw.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO

from agentcli.ui.terminal_writer import TerminalWriter
from agentcli.ui.text_stream import TextStream
from agentcli.ui.theme import Theme

FLUSHES_PER_S = 30


class Size(NamedTuple):
    """Of a terminal, in characters; each at least 1."""

    columns: int
    lines: int


def size_of(stream: TextIO | TerminalWriter) -> Size:
    """The size of the terminal that ``stream`` writes to; 80 x 24 when it does not say."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns = lines = 0
    return Size(columns or 80, lines or 24)


class Screen:
    """Writes to ``stream``. Belongs to one event loop; without a running loop it never waits."""

    def __init__(
        self,
        stream: TextIO | TerminalWriter,
        theme: Theme,
        size: Callable[[], Size] | None = None,
    ) -> None:
        self.theme = theme
        self.is_gone = False  # the terminal went away
        self._stream = stream
        self._size = size or (lambda: size_of(stream))
        self._pending: list[str] = []
        self._timer: asyncio.Handle | None = None
        self._last_flush = 0.0
        self._text: TextStream | None = None
        self._asides: list[Sequence[str]] = []
        self._at_line_start = True
        self._gap = True  # the last thing printed was an empty line, or nothing was

    @property
    def size(self) -> Size:
        """The terminal's size now."""
        return self._size()

    @property
    def columns(self) -> int:
        """The terminal's width now."""
        return max(1, self._size().columns)

    # --- streamed text ---------------------------------------------------------------------

    def feed_text(self, text: str) -> None:
        """More of the model's answer."""
        self._feed(text, thinking=False)

    def feed_thinking(self, text: str) -> None:
        """More of the model's reasoning, shown dimmed."""
        self._feed(text, thinking=True)

    def _feed(self, text: str, *, thinking: bool) -> None:
        if self._text is None or self._text.thinking is not thinking:
            self.end_text()
            self._text = TextStream(self.theme, lambda: self.columns, thinking=thinking)
        self._pending.append(text)
        self.request()

    def request(self) -> None:
        """Show soon what is waiting: at once, or when the time for it has come."""
        if self._timer is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._flush()
            return
        due = self._last_flush + 1 / FLUSHES_PER_S
        if loop.time() >= due:
            self._flush_now()
        else:
            self._timer = loop.call_at(due, self._flush_now)

    def _flush_now(self) -> None:
        self._timer = None
        self._flush()
        self._last_flush = asyncio.get_running_loop().time()

    def _flush(self) -> None:
        """Show what is waiting."""
        self._take_pending()

    def _take_pending(self) -> None:
        if self._text is None or not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        self._show(self._text.feed(text))

    def end_text(self) -> None:
        """The answer so far is complete, or was cut: show all of it and end its line."""
        if self._text is None:
            return
        self._cancel_timer()
        self._take_pending()
        self._show(self._text.finish())
        self._text = None
        if not self._at_line_start:
            self._print("\n")
        self._show_asides()

    finish = end_text

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _show(self, text: str) -> None:
        """Print streamed text, after an empty line that sets it off from what was before."""
        if not text:
            return
        if self._text is not None and not self._text.begun:
            text = text.lstrip("\n")
            if not text:
                return
            self._text.begun = True
            head = self._text.head
            text = f"{'' if self._gap else chr(10)}{head}{text}"
        self._print(text)
        if self._at_line_start:
            self._show_asides()

    # --- blocks ----------------------------------------------------------------------------

    def print_block(self, lines: Sequence[str], *, gap: bool = True) -> None:
        """Print whole lines (painted, sanitized), after an empty line when ``gap``."""
        self.end_text()
        if not lines:
            return
        lead = "\n" if gap and not self._gap else ""
        self._print(lead + "\n".join(lines) + "\n")

    def print_aside(self, lines: Sequence[str]) -> None:
        """Print a block that is no part of the answer: between two lines while one comes."""
        self._asides.append(lines)
        if self._text is None or self._at_line_start:
            self._show_asides()

    def _show_asides(self) -> None:
        asides, self._asides = self._asides, []
        for lines in asides:
            if lines:
                self._print(("" if self._gap else "\n") + "\n".join(lines) + "\n\n")

    def gap(self) -> None:
        """An empty line, unless there is one."""
        self.end_text()
        if not self._gap:
            self._print("\n")

    def cursor_was_moved(self) -> None:
        """Something else (the prompt) wrote; the cursor stands at the start of a line."""
        self._at_line_start = True
        self._gap = False

    # --- writing ---------------------------------------------------------------------------

    def _print(self, text: str) -> None:
        if not text:
            return
        self._note(text)
        self._write(text)

    def _note(self, text: str) -> None:
        """Remember how what was printed ends."""
        self._gap = text.endswith("\n\n") or (text == "\n" and self._at_line_start)
        self._at_line_start = text.endswith("\n")

    def send(self, sequence: str) -> None:
        """Write a control sequence of our own that moves nothing: a title, a bell."""
        if self.theme.live:
            self._write(sequence)

    def _write(self, text: str) -> None:
        if self.is_gone or not text:
            return
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError:
            self.is_gone = True
