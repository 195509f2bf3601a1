"""The one place through which the chat writes to the terminal.

Law: what was printed is never redrawn. Streamed text is gathered and shown at most
``FLUSHES_PER_S`` times a second; when nothing is waiting there is no timer. A terminal that went
away is no error: the text is dropped.

This one only ever appends, which any terminal and any reader of its output understands;
``live_screen`` also keeps a few rows at the end that it may redraw.
"""

from __future__ import annotations

import asyncio
import copy
import io
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TextIO

from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.rows import Wrap, wrap_line
from agentcli.ui.sanitize import Sanitizer
from agentcli.ui.theme import DIM, SPOKEN, Theme

# --- a writer in a thread: a terminal that takes nothing holds up nothing ---------------------

# Law: what is written comes out whole and in order; ``write`` never blocks, so keys and signals
# are heard whatever the terminal does (CAN-13, OPS-1); with nothing to write nothing wakes.


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


# --- a stretch of text: the answer as Markdown, or thinking as dimmed text --------------------

# Law: what comes out is painted, sanitized across chunks (SEC-10) and never taken back; a fault
# in the rendering costs the rendering and not the answer. At a live terminal it comes in rows,
# set off by a gutter that says who speaks.


log = logging.getLogger(__name__)

GUTTER = 2
_NARROW = 24


class _Dimmed:
    """Text as it is, in dimmed rows; empty lines at its end are left out."""

    def __init__(self, theme: Theme, columns: Callable[[], int]) -> None:
        self._start = theme.start(DIM)
        self._columns = columns
        self._wrap = Wrap(columns())
        self._blanks = 0
        self._is_empty = True  # the line under way

    def feed(self, text: str) -> list[str]:
        """The rows that are certain now."""
        self._wrap.columns = self._columns()
        for at, piece in enumerate(text.split("\n")):
            if at:
                self._end_line()
            if piece:
                for _ in range(self._blanks):
                    self._wrap.end_line()
                self._wrap.feed(piece.expandtabs(4), self._start)
                self._blanks, self._is_empty = 0, False
        return self._taken()

    def tail(self) -> list[str]:
        """The rows that would follow if the text ended here."""
        wrap = self._wrap.copy()
        wrap.columns = self._columns()
        if not self._is_empty:
            wrap.end_line()
        return wrap.rows

    def settle(self, number: int) -> list[str]:
        """The first ``number`` rows of ``tail``, as far as they hold whole words."""
        self._wrap.columns = self._columns()
        rows = self._taken()
        if len(rows) < number:
            self._wrap.break_row()
            rows += self._taken()
        return rows

    def finish(self) -> list[str]:
        """The rest."""
        if not self._is_empty:
            self._end_line()
        return self._taken()

    def _end_line(self) -> None:
        if self._is_empty:
            self._blanks += 1
        else:
            self._wrap.end_line()
            self._is_empty = True

    def _taken(self) -> list[str]:
        rows, self._wrap.rows = self._wrap.rows, []
        return rows


class TextStream:
    """Text in, painted rows out; what is not live gets words in place of signs (UI-10)."""

    def __init__(self, theme: Theme, columns: Callable[[], int], *, thinking: bool) -> None:
        if not theme.live:
            theme = copy.copy(theme)
            theme.symbols = SPOKEN
        self.thinking = thinking
        self.begun = False
        self._theme = theme
        self._columns = columns
        self._sanitizer = Sanitizer()
        self._source: list[str] = []  # what was fed, for a fault
        self._is_first = True  # no row was handed out
        self._tail: tuple[int, list[str]] | None = None
        self.head = ""
        self._rows: MarkdownStream | _Dimmed | None = None
        self._rows = (_Dimmed if thinking else MarkdownStream)(theme, self._room)
        if thinking:
            sign = f"{theme.symbols.thinking} " if self._gutter else ""
            self.head = theme.paint(f"{sign}Thinking", DIM) + "\n"
            self._is_first = False

    @property
    def _gutter(self) -> int:
        return GUTTER if self._theme.live and self._columns() >= _NARROW else 0

    def _room(self) -> int:
        return self._columns() - self._gutter

    def feed(self, text: str) -> str:
        """What is certain of the text so far and was not shown before."""
        clean = self._sanitizer.feed(text)
        return self._in_rows(clean) if clean else ""

    def finish(self) -> str:
        """The rest."""
        rest = self._sanitizer.finish()
        return (self._in_rows(rest) if rest else "") + self._in_rows(None)

    def tail(self) -> list[str]:
        """Painted rows of what is not certain yet."""
        if self._rows is None:
            return []
        columns = self._columns()
        if self._tail is None or self._tail[0] != columns:
            try:
                self._tail = (columns, self._set_off(self._rows.tail()))
            except Exception:
                log.exception("the end of the answer could not be rendered")
                self._tail = (columns, [])
        return self._tail[1]

    def settle(self, number: int) -> str:
        """The first ``number`` rows of ``tail``, and what is as certain as they are."""
        self._tail = None
        try:
            rows = self._rows.settle(number) if self._rows is not None else []
        except Exception:
            log.exception("the end of the answer could not be rendered")
            return ""
        shown = self._set_off(rows)
        self._is_first = self._is_first and not rows
        return "".join(f"{row}\n" for row in shown)

    def _in_rows(self, text: str | None) -> str:
        """More text, ``None`` for its end; after a fault of ours all of it is shown plain."""
        if self._rows is None:
            return text or ""
        self._tail = None
        try:
            rows = self._rows.finish() if text is None else self._rows.feed(text)
        except Exception:
            log.exception("the answer could not be rendered")
            self._rows = None
            return "".join([*self._source, text or ""])
        if text is not None:
            self._source.append(text)
        shown = self._set_off(rows)
        self._is_first = self._is_first and not rows
        return "".join(f"{row}\n" for row in shown)

    def _set_off(self, rows: list[str]) -> list[str]:
        if not rows or not self._gutter:
            return rows
        sign = self._theme.paint(f"{self._theme.symbols.answer} ", DIM)
        first = sign if self._is_first else "  "
        return [f"{first}{rows[0]}", *(f"  {row}" if row else "" for row in rows[1:])]


# --- the screen -------------------------------------------------------------------------------


FLUSHES_PER_S = 30
FRAME_S = 0.02  # of each flush is for streamed text: what comes faster waits
END_S = 0.5
PIECE_CHARS = 8_192  # the worst Markdown of that size takes less than 0.1 s


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


def _has_loop() -> bool:
    with suppress(RuntimeError):
        return asyncio.get_running_loop() is not None
    return False


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
        self._behind = 0  # characters of that
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

    @property
    def _laid_out(self) -> int:
        """The width that rows are made for."""
        return self.columns

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
            self._text = TextStream(self.theme, lambda: self._laid_out, thinking=thinking)
        self._pending.append(text)
        self._behind += len(text)
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
        if self._behind and not self._is_blocked:
            self.request()

    @property
    def _is_blocked(self) -> bool:
        """Whether nothing can be shown until something else has happened, which asks for it."""
        return False

    def _flush(self) -> None:
        """Show what is waiting."""
        self._take_pending()

    def _take_pending(self, within_s: float | None = None) -> None:
        """Show the text that waits; keys are heard meanwhile, so no more than time allows."""
        if self._text is None or not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        time_left = FRAME_S if within_s is None else within_s
        until, at = time.monotonic() + (time_left if _has_loop() else math.inf), 0
        while at < len(text) and (not at or time.monotonic() < until):
            self._show(self._text.feed(text[at : at + PIECE_CHARS]))
            at += PIECE_CHARS
        self._behind = max(0, len(text) - at)
        self._pending += [text[at:]] if self._behind else []

    def cut(self) -> None:
        """The answer was broken off: what of it is far behind is not shown, and that is told."""
        left = self._drop_text() if self._behind > PIECE_CHARS else 0
        if left:
            told = f"… {left:,} more characters came in and are not shown; Ctrl-O shows them"
            self._asides.append([self.theme.paint(told, DIM)])

    def _drop_text(self) -> int:
        """Forget the text that waits; how many characters that is."""
        left, self._behind = self._behind, 0
        self._pending.clear()
        return left

    def end_text(self) -> None:
        """The answer so far is complete, or was cut: show all of it and end its line."""
        if self._text is None:
            return
        self._cancel_timer()
        self._take_pending(END_S)
        self.cut()
        self._take_pending(END_S)
        self._show(self._text.finish())
        self._text = None
        if not self._at_line_start:
            self._print("\n")
        self._show_asides()

    def finish(self) -> None:
        """The same."""
        self.end_text()

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
        self._print(lead + self.wrapped(lines) + "\n")

    def wrapped(self, lines: Sequence[str]) -> str:
        """Painted lines as rows that are broken between words."""
        sign = self.theme.symbols.wrap if self.theme.live else ""
        mark, columns = self.theme.paint(sign, DIM), self._laid_out
        return "\n".join(row for line in lines for row in wrap_line(line, columns, mark))

    def print_aside(self, lines: Sequence[str]) -> None:
        """Print a block that is no part of the answer: between two lines while one comes."""
        self._asides.append(lines)
        if self._text is None or self._at_line_start:
            self._show_asides()

    def _show_asides(self) -> None:
        asides, self._asides = self._asides, []
        for lines in asides:
            if lines:
                self._print(("" if self._gap else "\n") + self.wrapped(lines) + "\n\n")

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
