"""The screen of a chat whose input is always there: the scrollback and, below it, a region.

Law: what is finished goes to the scrollback once and is never drawn again. The region holds the
unfinished end of the streamed text (at most ``MAX_TAIL`` rows, complete lines among them wait
there for company) and below it what ``Below`` gives: running calls, the input, a status line.
Text that is printed costs its own bytes and little more. Frames that events ask for come at most
30 times a second, a frame that a key asks for at once. Without a region the text is printed as it
comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TextIO

from agentcli.ui.frame import Frame, Place, last_character
from agentcli.ui.rows import Row, Rows, plain, text_of
from agentcli.ui.screen import FLUSHES_PER_S, Screen, Size
from agentcli.ui.terminal_writer import TerminalWriter
from agentcli.ui.theme import Theme

MAX_TAIL = 6
SETTLE_S = 0.3
ANSWER_S = 0.25
ASK_CURSOR = "\x1b[6n"
HOME = "\x1b[H"


class Below(NamedTuple):
    """The rows below the streamed text, and the cursor's place among them."""

    rows: list[Row]
    cursor: Place


Compose = Callable[[Size, bool], Below]


class LiveScreen(Screen):
    """``compose`` is given by ``show``: it gets the room and whether it needs a blank row first."""

    def __init__(
        self,
        stream: TextIO | TerminalWriter,
        theme: Theme,
        size: Callable[[], Size] | None = None,
        *,
        reflows: bool = False,
    ) -> None:
        super().__init__(stream, theme, size)
        self._writer = stream if isinstance(stream, TerminalWriter) else None
        self._frame = Frame(reflows=reflows)
        self._compose: Compose | None = None
        self._tail = Rows(self.columns)
        self._settled = False  # all that is complete in the tail is finished
        self._painting = False
        self._settling: asyncio.TimerHandle | None = None
        self._is_asking = False  # the terminal was asked where the cursor is
        self._settled_size = Size(0, 0)
        self._begun: list[str] = []  # what is finished of the line that the tail goes on with
        self._anchor = ""  # its last character, where that stands at the end of a row

    @property
    def is_shown(self) -> bool:
        """Whether there is a region."""
        return self._compose is not None

    def show(self, compose: Compose) -> None:
        """Draw the region from now on."""
        if not self._at_line_start:
            self._print("\n")
        self._compose = compose
        self._tail = Rows(self.columns)
        self._begin_line()
        self.paint()

    def hide(self) -> None:
        """Take the region away; what it held of the text is printed."""
        if self._compose is None:
            return
        self._take_pending()
        if self.columns != self._tail.columns:
            self._relayout(self.columns)
        self._compose = None
        self._cancel_timer()
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        rest = self._tail.rows
        out = self._frame.erase(self.columns) + (text_of(rest) + "\n" if rest else "")
        if rest and not self._tail.at_line_start:
            self._at_line_start = True
        self._tail = Rows(self.columns)
        self._write(out)

    def resized(self) -> None:
        """The terminal's size changes: nothing is drawn until it has kept one for a moment.

        While a window is dragged the sizes that are told lag behind those that are (tmux tells
        one every 250 ms): what is drawn meanwhile would stand in the wrong place.
        """
        if self._compose is None:
            return
        self._cancel_timer()
        if self._settling is not None:
            self._settling.cancel()
        self._is_asking = False
        self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._settle_size)

    def _settle_size(self) -> None:
        """Where lines are broken anew, ask where that has put the cursor."""
        self._settled_size = self.size
        if self._frame.reflows:
            self._is_asking = True
            loop = asyncio.get_running_loop()
            self._settling = loop.call_later(ANSWER_S, self._place, None)
            self._write(ASK_CURSOR)
        else:
            self._place(None)

    def cursor_is_at(self, row: int) -> None:
        """The terminal tells the cursor's row, from 0."""
        if self._is_asking and self._settling is not None:
            self._settling.cancel()
            self._place(row)

    def _place(self, row: int | None) -> None:
        """Draw the region where it has come to stand; what was scrolled away of it stays there."""
        self._settling, self._is_asking = None, False
        size = self.size
        if size != self._settled_size:
            self.resized()
            return
        if self._compose is None:
            return
        self._relayout(size.columns)
        above = self._frame.rows_above_cursor - (size.lines - 1 if row is None else row)
        if above > 0:
            self._frame.release(above)
            rows = self._tail.rows
            self._tail.drop(min(above, len(rows)))
            self._finish_rows(rows, min(above, len(rows)))
            self._anchor = ""
        self.paint()

    def clear(self) -> None:
        """Scroll the screen away, into the scrollback, and draw the region anew at its top."""
        if self._compose is None:
            return
        self._write(self._frame.erase(self.columns) + "\n" * self.size.lines + HOME)
        self._begin_line()
        self._lay_out(self.columns)
        self.paint()

    def drain(self, patience_s: float) -> None:
        """Wait until all is written; ``patience_s`` for a terminal that takes nothing."""
        if self._writer is not None:
            self._writer.drain(patience_s)

    # --- frames ----------------------------------------------------------------------------

    def request(self) -> None:
        """Draw a frame soon."""
        if self._compose is None:
            super().request()
            return
        if self._timer is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.paint()
            return
        due = self._last_flush + 1 / FLUSHES_PER_S
        if loop.time() >= due:
            self._timer = loop.call_soon(self._flush_now)
        else:
            self._timer = loop.call_at(due, self._flush_now)

    def _flush(self) -> None:
        if self._compose is None:
            super()._flush()
        else:
            self.paint()

    def paint(self) -> None:
        """Draw a frame now, or when a terminal that is behind has caught up."""
        if self._compose is None or self._settling is not None:
            return
        if self._writer is not None and self._writer.is_behind:
            self._cancel_timer()
            return
        self._painting = True
        self._take_pending()
        self._painting = False
        self._cancel_timer()
        size = self.size
        if size.columns != self._tail.columns:
            self._relayout(size.columns)
        rows = self._tail.rows
        kept = min(len(rows), MAX_TAIL, max(1, size.lines // 3))
        below = self._compose(Size(size.columns, max(1, size.lines - kept)), not self._gap)
        self._write(self._frame_of(rows, below, size))

    def _frame_of(self, rows: list[Row], below: Below, size: Size) -> str:
        room = size.lines - len(below.rows)
        finished = self._finished(rows, room)
        drawn = rows[finished:] if len(rows) - finished <= room else []
        together = [*rows, *below.rows]
        goes_on = bool(rows) and rows[0].soft and not rows[0].start
        if len(rows) <= room and all(row.certain for row in rows[:finished]):
            cursor = _lower(below.cursor, len(rows))
            anchor = self._anchor if goes_on else ""
            out = self._frame.update(together, cursor, size.columns, anchor)
            if finished:
                self._frame.release(finished)
        else:
            text = text_of(rows[:finished])
            if finished == len(rows) or not rows[finished].soft:
                text += "\n" if finished else ""
            goes_on = goes_on and bool(text) and self._frame.height < size.lines
            anchor = self._anchor if goes_on else ""
            cursor = _lower(below.cursor, len(drawn))
            out = self._frame.print_above(text, [*drawn, *below.rows], cursor, size.columns, anchor)
        self._tail.drop(finished)
        self._finish_rows(rows, finished)
        self._settled = False
        return out

    def _finished(self, rows: list[Row], room: int) -> int:
        """How many of ``rows`` go to the scrollback with this frame."""
        complete = len(rows) - (not self._tail.at_line_start)
        if self._settled or len(rows) > min(MAX_TAIL, room):
            return max(0, complete)
        return 0

    def _finish_rows(self, rows: list[Row], finished: int) -> None:
        """The first ``finished`` rows are: remember the line that the next one goes on with."""
        for at, row in enumerate(rows[:finished]):
            if at and not row.soft:
                self._begun.clear()
            self._begun.append(row.text)
        if finished == len(rows) or not rows[finished].soft:
            self._begin_line()
        elif finished:
            self._anchor = _anchor(rows[finished - 1], self._tail.columns)

    def _begin_line(self) -> None:
        self._begun.clear()
        self._anchor = ""

    def _relayout(self, columns: int) -> None:
        """The window has another size: the tail goes on where its line ends now."""
        start, self._anchor = 0, ""
        rows = self._tail.rows
        if self._begun and rows and self._frame.reflows:
            above = Rows(columns)
            above.feed("".join(self._begun))
            ended = above.rows
            above.feed(plain(rows[0].text)[:1])
            start = ended[-1].width if len(above.rows) == len(ended) else 0
            self._anchor = "" if start else _anchor(ended[-1], columns)
        self._frame.reflow(columns, start)
        self._lay_out(columns, start)

    def _lay_out(self, columns: int, start: int = 0) -> None:
        tail, rows = self._tail, self._tail.rows
        self._tail = Rows(columns, start, soft=bool(self._begun))
        self._tail.feed(text_of(rows) + ("\n" if rows and tail.at_line_start else ""))

    # --- printing --------------------------------------------------------------------------

    def _print(self, text: str) -> None:
        if self._compose is None:
            super()._print(text)
            return
        if not text:
            return
        self._note(text)
        self._tail.feed(text)
        if self._text is None:
            self._settled = True
        if not self._painting:
            self.request()

    def end_text(self) -> None:
        """The answer so far is complete: all of it is finished."""
        shown = self._text is not None
        super().end_text()
        if shown and self._compose is not None:
            self._settled = True
            self.request()

    def cursor_was_moved(self) -> None:
        """Something else wrote while there was no region."""
        if self._compose is None:
            super().cursor_was_moved()


def _lower(cursor: Place, rows: int) -> Place:
    return Place(cursor.row + rows, cursor.column)


def _anchor(row: Row, columns: int) -> str:
    """The last character of a row that it fills for certain."""
    return last_character(row)[0] if row.certain and row.width == columns else ""
