"""The one place through which the chat writes to the terminal.

Law: what was printed is never redrawn. Only the status region (a few short lines below the last
line feed, each narrower than the screen) is, and it is gone before anything else is printed.
Streamed text is gathered and shown at most ``FLUSHES_PER_S`` times a second; when nothing is
waiting there is no timer. A terminal that went away is no error: the text is dropped.

In a later issue this stands above a live input; its interface stays.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from typing import TextIO

from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.sanitize import Sanitizer
from agentcli.ui.theme import DIM, Theme
from agentcli.ui.width import fit

FLUSHES_PER_S = 30
MAX_STATUS_LINES = 4
MAX_STATUS_COLUMNS = 100


class Screen:
    """Writes to ``stream``. Belongs to one event loop; without a running loop it never waits."""

    def __init__(
        self, stream: TextIO, theme: Theme, columns: Callable[[], int] | None = None
    ) -> None:
        self.theme = theme
        self._stream = stream
        self._columns = columns or (lambda: shutil.get_terminal_size().columns)
        self.is_gone = False  # the terminal went away
        self._pending: list[str] = []
        self._flush: asyncio.TimerHandle | None = None
        self._last_flush = 0.0
        self._text: _TextStream | None = None
        self._status: list[str] = []
        self._status_shown = 0
        self._at_line_start = True
        self._gap = True  # the last thing printed was an empty line, or nothing was

    @property
    def columns(self) -> int:
        """The terminal's width now."""
        return max(1, self._columns())

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
            self._text = _TextStream(self, thinking=thinking)
        self._pending.append(text)
        if self._flush is None:
            self._schedule()

    def _schedule(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._show_pending()
            return
        due = self._last_flush + 1 / FLUSHES_PER_S
        now = loop.time()
        if now >= due:
            self._show_pending()
            self._last_flush = loop.time()
        else:
            self._flush = loop.call_at(due, self._timed_flush)

    def _timed_flush(self) -> None:
        self._flush = None
        self._show_pending()
        self._last_flush = asyncio.get_running_loop().time()

    def _show_pending(self) -> None:
        if self._text is None or not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        self._show(self._text.feed(text))

    def end_text(self) -> None:
        """The answer so far is complete, or was cut: show all of it and end its line."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self._text is None:
            return
        self._show_pending()
        self._show(self._text.finish())
        self._text = None
        if not self._at_line_start:
            self._print("\n")

    finish = end_text

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

    # --- blocks ----------------------------------------------------------------------------

    def print_block(self, lines: Sequence[str], *, gap: bool = True) -> None:
        """Print whole lines (painted, sanitized), after an empty line when ``gap``."""
        self.end_text()
        if not lines:
            return
        lead = "\n" if gap and not self._gap else ""
        self._print(lead + "\n".join(lines) + "\n")

    def gap(self) -> None:
        """An empty line, unless there is one."""
        self.end_text()
        if not self._gap:
            self._print("\n")

    def cursor_was_moved(self) -> None:
        """Something else (the prompt) wrote; the cursor stands at the start of a line."""
        self._at_line_start = True
        self._gap = False
        self._status_shown = 0

    # --- the status region -----------------------------------------------------------------

    def set_status(self, lines: Sequence[str]) -> None:
        """Show short lines below everything else until ``clear_status``; ignored when plain."""
        self._status = list(lines[:MAX_STATUS_LINES])
        if self.theme.live and self._at_line_start and not self._pending:
            self._write(self._erase_status() + self._draw_status())

    def clear_status(self) -> None:
        """Take the status region away."""
        self._status = []
        erase = self._erase_status()
        if erase:
            self._write(erase)

    def _erase_status(self) -> str:
        if not self._status_shown:
            return ""
        up = f"\x1b[{self._status_shown - 1}A" if self._status_shown > 1 else ""
        self._status_shown = 0
        return f"\r{up}\x1b[J"

    def _draw_status(self) -> str:
        if not self._status:
            return ""
        room = min(self.columns - 1, MAX_STATUS_COLUMNS)
        self._status_shown = len(self._status)
        return "\n".join(
            self.theme.paint(fit(line, room, self.theme.symbols.more), DIM) for line in self._status
        )

    # --- writing ---------------------------------------------------------------------------

    def _print(self, text: str) -> None:
        if not text:
            return
        erase = self._erase_status()
        self._gap = text.endswith("\n\n") or (text == "\n" and self._at_line_start)
        self._at_line_start = text.endswith("\n")
        status = self._draw_status() if self._at_line_start and self.theme.live else ""
        self._write(erase + text + status)

    def _write(self, text: str) -> None:
        if self.is_gone:
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


class _TextStream:
    """One stretch of streamed text: the answer as Markdown, or thinking as dimmed text."""

    def __init__(self, screen: Screen, *, thinking: bool) -> None:
        self.thinking = thinking
        self.begun = False
        self.head = ""
        self._theme = screen.theme
        self._sanitizer = Sanitizer()
        self._markdown: MarkdownStream | None = None
        self._blanks = ""
        if thinking:
            self.head = self._theme.paint("Thinking", DIM) + "\n"
        elif self._theme.live:
            self._markdown = MarkdownStream(self._theme, lambda: screen.columns)

    def feed(self, text: str) -> str:
        return self._shown(self._sanitizer.feed(text))

    def finish(self) -> str:
        rest = self._shown(self._sanitizer.finish())
        return rest + self._markdown.finish() if self._markdown else rest

    def _shown(self, text: str) -> str:
        if self._markdown:
            return self._markdown.feed(text)
        text = self._blanks + text
        kept = text.rstrip("\n")
        self._blanks = text[len(kept) :]
        if not self.thinking:
            return kept
        return "\n".join(self._theme.paint(line, DIM) for line in kept.split("\n")) if kept else ""
