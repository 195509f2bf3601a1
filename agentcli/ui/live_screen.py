"""The screen of a chat whose input is always there: the scrollback and, below it, a region.

Law: what is finished goes to the scrollback once and is never drawn again. The region holds the
end of the streamed text (at most ``MAX_TAIL`` finished rows wait there for company, then comes what
may still change) and below it what ``Below`` gives: running calls, the input, a status line.
Text that is printed costs its own bytes and little more. Frames that events ask for come at most
30 times a second, a frame that a key asks for at once. Without a region the text is printed as it
comes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO

from agentcli.ui.rows import (
    TO_END,
    Place,
    Row,
    Rows,
    Shared,
    char_columns,
    differing,
    last_character,
    plain,
    reflowed,
    shared_start,
    text_of,
    wrap_line,
)
from agentcli.ui.screen import FLUSHES_PER_S, Screen, Size, TerminalWriter
from agentcli.ui.theme import RESET, Theme

# --- the rows that may be redrawn, as bytes for the terminal ----------------------------------

# Law: rows above the region are never touched, nothing is cleared that is not drawn again in the
# same write, and only what differs is written. Movement is relative to the cursor, which stands
# where the last frame left it: nobody has to know how high the screen is or where the region
# stands. ``release`` makes the topmost rows part of the scrollback for no byte at all.
#
# A soft row is drawn by writing on past the end of the row above, so that the terminal knows
# that they are one line: it copies and reflows them as one. After a resize (``reflow``) the region
# may begin in the middle of a row of the screen, where the finished part of such a line ends.
#
# Frames that move rows are bracketed by mode 2026 (https://gist.github.com/christianparpart/d8a62cc1ab659194337d73e399004036):
# terminals that have it show them at once, others ignore it.


SYNC_BEGIN = "\x1b[?2026h"
SYNC_END = "\x1b[?2026l"
_TO_END = "\x1b[J"
# tmux forgets that a line goes on with a row that is erased whole, and scrolls away what is
# erased from the first place of the screen on
_ALL_ROWS = "\x1b[C\x1b[J\r\x1b[X"


class Frame:
    """What is drawn. ``reflows``: whether the terminal wraps lines again when it is resized."""

    def __init__(self, *, reflows: bool = False) -> None:
        self.reflows = reflows
        self._shown: list[Row] = []
        self._cursor = Place(0, 0)
        self._at = Place(0, 0)  # where the cursor is while a frame is written
        self._columns = 0
        self._is_moved = False  # the terminal has moved what is shown: all is to be drawn again
        self._out: list[str] = []

    @property
    def height(self) -> int:
        """How many rows are drawn."""
        return len(self._shown)

    def reflow(self, columns: int, start: int = 0) -> None:
        """The terminal is ``columns`` wide now, and has wrapped what is shown again if it does so.

        ``start`` is where the first row has come to begin, when it goes on with a finished line.
        """
        if self._shown and self.reflows:
            rows = self.rows
            self._cursor = reflowed(rows, self._cursor, columns, start)
            layout = Rows(columns, start, soft=rows[0].soft)
            layout.feed(text_of(rows) + "\n")
            self._shown = layout.rows
        elif self._shown:
            self._cursor = Place(self._cursor.row, min(self._cursor.column, columns - 1))
        self._columns = columns
        self._is_moved = True

    @property
    def rows_above_cursor(self) -> int:
        """How many of the rows that are drawn are above the one with the cursor."""
        return self._cursor.row

    def update(self, rows: Sequence[Row], cursor: Place, columns: int, anchor: str = "") -> str:
        """Draw ``rows`` in place of what is shown; for ``anchor`` see ``print_above``."""
        if columns != self._columns:
            self.reflow(columns)
        if self._is_moved or not self._shown:
            return self._fresh("", rows, cursor, columns, anchor)
        old, new = self._shown, list(rows)
        start, end = differing(old, new)
        changed_old = len(old) - end - start
        changed_new = len(new) - end - start
        self._at = self._cursor
        self._make_room(start, changed_old, changed_new, keeps_end=end > 0)
        for at in range(start, start + changed_new):
            self._draw(at, new, old[at] if at < start + changed_old else None)
        if changed_new < changed_old and not end:
            self._after(len(new) - 1)
            self._out.append(_TO_END)
        if not self._out and cursor == self._cursor:
            return ""
        moves_rows = changed_new != changed_old or changed_new > 1
        self._shown = new
        return self._finish(cursor, synchronized=moves_rows)

    def print_above(
        self, text: str, rows: Sequence[Row], cursor: Place, columns: int, anchor: str = ""
    ) -> str:
        """Print ``text`` above the region, for good, and draw ``rows`` below it.

        ``text`` ends with a line feed, or the first row is a soft one that goes on with it.
        ``anchor`` is the last character of the row above, which ``text`` goes on with.
        """
        return self._fresh(text, rows, cursor, columns, anchor)

    @property
    def rows(self) -> list[Row]:
        """What is drawn; soft is what the terminal knows to be one line with the row above."""
        rows = self._shown
        below = (
            row._replace(soft=_flows(above, row, self._columns))
            for above, row in itertools.pairwise(rows)
        )
        return [*rows[:1], *below]

    def release(self, number: int) -> None:
        """The first ``number`` rows belong to the scrollback from now on."""
        del self._shown[:number]
        self._cursor = Place(self._cursor.row - number, self._cursor.column)

    def take_back(self, rows: Sequence[Row]) -> None:
        """``rows`` above the region belong to it again: they are to be drawn over."""
        self._shown[:0] = rows
        self._cursor = Place(self._cursor.row + len(rows), self._cursor.column)

    def erase(self, columns: int) -> str:
        """Take the region away; the cursor stands where it began."""
        if not self._shown:
            return ""
        if columns != self._columns:
            self.reflow(columns)
        self._to_top()
        self._out.append(self._erasing())
        return self._taken()

    def _erasing(self) -> str:
        """Erase from where the cursor is."""
        return _TO_END if self._at.column else _ALL_ROWS

    def forget(self) -> None:
        """Nothing is drawn any more: somebody else has cleared it."""
        self._shown, self._cursor, self._at = [], Place(0, 0), Place(0, 0)

    # --- drawing ---------------------------------------------------------------------------

    def _fresh(
        self, text: str, rows: Sequence[Row], cursor: Place, columns: int, anchor: str = ""
    ) -> str:
        if columns != self._columns:
            self.reflow(columns)
        self._to_top()
        if anchor:
            self._move(Place(-1, columns - char_columns(plain(anchor))))
        self._out.append((RESET if anchor else "") + self._erasing() + anchor + text)
        before: Row | None = None
        for row in rows:
            if before is not None and not _flows(before, row, columns):
                self._out.append("\n")
            self._out.append(row.text)
            before = row
        self._shown, self._columns, self._is_moved = list(rows), columns, False
        self._at = Place(max(0, len(rows) - 1), before.width if before else 0)
        return self._finish(cursor, synchronized=True)

    def _to_top(self) -> None:
        """To where the region begins."""
        up, column = self._cursor.row, self._shown[0].start if self._shown else 0
        self._out.append(f"\x1b[{up}A\r" if up else "\r")
        if column:
            self._out.append(f"\x1b[{column + 1}G")
        self.forget()
        self._at = Place(0, column)

    def _make_room(self, start: int, old: int, new: int, *, keeps_end: bool) -> None:
        """Insert or delete rows so that those at the end need not be drawn again."""
        more = new - old
        if more > 0:
            self._move(Place(len(self._shown) - 1, 0))
            self._out.append("\n" * more)
            self._at = Place(len(self._shown) - 1 + more, 0)
            if keeps_end:
                self._move(Place(start + old, 0))
                self._out.append(f"\x1b[{more}L")
        elif more < 0 and keeps_end:
            self._move(Place(start + new, 0))
            self._out.append(f"\x1b[{-more}M")

    def _draw(self, at: int, rows: Sequence[Row], old: Row | None) -> None:
        row = rows[at]
        above = rows[at - 1] if at else None
        begins = old is None or (row.soft and not old.soft)
        if above is not None and begins and row.text and _flows(above, row, self._columns):
            if self._at != Place(at - 1, above.width):
                self._rewrite_end(at - 1, above)
            self._out.append(row.text)
        elif old is None:
            self._move(Place(at, row.start))
            self._out.append(row.text)
        else:
            same = shared_start(old, row) if old.start == row.start else Shared(0, 0, "")
            self._move(Place(at, row.start + same.columns))
            self._out.append(same.style + row.text[same.length :])
        is_less = old is not None and (row.width < old.width or TO_END in old.text)
        if is_less and TO_END not in row.text:
            self._out.append(TO_END)
        self._at = Place(at, row.width)

    def _rewrite_end(self, at: int, row: Row) -> None:
        """Write a row's last character again: the terminal is then about to wrap."""
        char, width = last_character(row)
        self._move(Place(at, row.width - width))
        self._out.append(char)

    def _after(self, at: int) -> None:
        """To the end of a row, or past a full one to the next."""
        if at < 0:
            self._move(Place(0, self._shown[0].start))
        else:
            self._move(Place(at + 1, 0))

    def _move(self, to: Place) -> None:
        if to.row < self._at.row:
            self._out.append(f"\x1b[{self._at.row - to.row}A")
        elif to.row > self._at.row:
            self._out.append(f"\x1b[{to.row - self._at.row}B")
        if to.column == 0:
            self._out.append("\r")
        elif to.column != self._at.column or self._at.column >= self._columns:
            self._out.append(f"\x1b[{to.column + 1}G")
        self._at = to

    def _finish(self, cursor: Place, *, synchronized: bool) -> str:
        self._move(cursor)
        self._cursor = cursor
        out = self._taken()
        return f"{SYNC_BEGIN}{out}{SYNC_END}" if synchronized else out

    def _taken(self) -> str:
        out, self._out = "".join(self._out), []
        return out


def _flows(above: Row, row: Row, columns: int) -> bool:
    """Whether writing on after ``above`` comes to the start of ``row``."""
    return row.soft and above.certain and above.width == columns and bool(above.text)


# --- the screen -------------------------------------------------------------------------------


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


class Drawn(NamedTuple):
    """How many rows of text are at the top of the last frame: finished ones and the others."""

    finished: int
    unfinished: int


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
        self._drawn_size = Size(0, 0)  # of the window, when a frame was drawn
        self._drawn = Drawn(0, 0)
        self._waiting: list[Callable[[], None]] = []  # what is to be shown, while it is resized
        self._left: list[Row] = []  # rows of the region that the terminal has scrolled away
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
        self._drawn, self._drawn_size = Drawn(0, 0), self.size
        self._left.clear()
        self._begin_line()
        self.paint()

    def hide(self) -> None:
        """Take the region away; what it held of the text is printed."""
        if self._compose is None:
            return
        self._end_settling()
        self._take_pending()
        self._compose = None
        self._cancel_timer()
        rest = self._tail.rows
        out = self._frame.erase(self.columns) + (text_of(rest) + "\n" if rest else "")
        if rest and not self._tail.at_line_start:
            self._at_line_start = True
        self._tail = Rows(self.columns)
        self._write(out)

    def resized(self) -> None:
        """The terminal's size changes: nothing is drawn until it has kept one for a moment.

        While a window is dragged the reported sizes lag behind the real ones (tmux reports
        one every 250 ms): what is drawn meanwhile would stand in the wrong place.
        """
        if self._compose is None:
            return
        self._cancel_timer()
        if self._settling is not None:
            self._settling.cancel()
        self._is_asking = False
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._end_settling()
            self.paint()
        else:
            self._settling = loop.call_later(SETTLE_S, self._settle_size)

    def _settle_size(self) -> None:
        """Where lines are wrapped again, ask where that has put the cursor."""
        self._settled_size = self.size
        if self._frame.reflows or self._left:
            self._is_asking = True
            loop = asyncio.get_running_loop()
            self._settling = loop.call_later(ANSWER_S, self._place, None)
            self._write(ASK_CURSOR)
        else:
            self._place(None)

    def cursor_is_at(self, row: int) -> None:
        """The terminal reports the cursor's row, from 0."""
        if self._is_asking and self._settling is not None:
            self._settling.cancel()
            self._place(row)

    def _place(self, row: int | None) -> None:
        """Draw the region where it has come to stand."""
        if self.size != self._settled_size:
            self.resized()
        else:
            self._end_settling(row)
            self.paint()

    def _end_settling(self, row: int | None = None) -> None:
        """Go on at the size that the window has now, the cursor being in ``row`` if that is known.

        What waits is shown.
        """
        if self._settling is not None:
            self._settling.cancel()
        self._settling, self._is_asking = None, False
        if self.size != self._drawn_size:
            self._take_place(self.size, row)
        waiting, self._waiting = self._waiting, []
        for show in waiting:
            show()

    def _take_place(self, size: Size, row: int | None) -> None:
        """Know again what stands where: what was scrolled away of the region stays there.

        Text of it is finished then. Other rows of it are drawn over when a window that grows
        brings them back.
        """
        text_rows, start = self._frame.rows[: sum(self._drawn)], self._line_goes_on_at(size.columns)
        self._frame.reflow(size.columns, start)
        above = self._frame.rows_above_cursor - (size.lines - 1 if row is None else row)
        gone = self._frame.rows[: max(0, above)]
        self._frame.release(len(gone))
        scrolled = self._heights(text_rows, size.columns, start)
        number = sum(before < len(gone) for before in [0, *scrolled[:-1]]) if scrolled else 0
        if number > self._drawn.finished:
            self._settle_text(number - self._drawn.finished)
        old = self._tail.rows
        old[: len(text_rows)] = text_rows[: len(old)]
        whole = min(sum(height <= len(gone) for height in scrolled), len(old))
        self._finish_rows(old, whole)
        self._tail.drop(whole)
        start = self._line_goes_on_at(size.columns)
        is_cut = whole < min(number, len(old))
        self._lay_out(size.columns, start, is_cut=is_cut)
        if is_cut:
            part = len(gone) - (scrolled[whole - 1] if whole else 0) + bool(whole and start)
            rows = self._tail.rows
            self._finish_rows(rows, min(part, len(rows)))
            self._tail.drop(part)
        if gone:
            self._anchor = ""
            self._left += gone[scrolled[-1] if scrolled else 0 :]
        elif above < 0 and row is not None and self._left:
            layout = Rows(size.columns)
            layout.feed(text_of(self._left))
            self._left = layout.rows
            self._frame.take_back(self._left[above:])
            del self._left[above:]
        self._drawn, self._drawn_size = Drawn(0, 0), size

    def _heights(self, rows: Sequence[Row], columns: int, start: int) -> list[int]:
        """For each row how many there are up to its end, when the terminal has wrapped them."""
        if not self._frame.reflows:
            return list(range(1, len(rows) + 1))
        layout = Rows(columns, start, soft=bool(rows) and rows[0].soft)
        found = []
        for at, row in enumerate(rows):
            layout.feed(row.text if row.soft or not at else f"\n{row.text}")
            found.append(len(layout.rows) + layout.at_line_start)
        return found

    def _settle_text(self, number: int) -> None:
        """The first ``number`` unfinished rows are finished."""
        text = self._text
        if text is None:
            return
        before = 0 if text.begun else (not self._gap) + text.head.count("\n")
        self._painting = True
        self._show(text.settle(max(1, number - before)))
        self._painting = False

    def clear(self) -> None:
        """Scroll the screen away, into the scrollback, and draw the region again at its top."""
        if self._compose is None:
            return
        self._end_settling()
        self._write(self._frame.erase(self.columns) + "\n" * self.size.lines + HOME)
        self._begin_line()
        self._left.clear()
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
        size = self.size
        if size != self._drawn_size:
            self.resized()
            return
        self._painting = True
        self._take_pending()
        self._painting = False
        self._cancel_timer()
        unfinished = self._unfinished(size.columns)
        if len(unfinished) > (most := size.lines // 2):
            self._settle_text(len(unfinished) - most)
            unfinished = self._unfinished(size.columns)[:most]
        rows = self._tail.rows
        kept = min(len(rows), MAX_TAIL, max(1, size.lines // 3)) + len(unfinished)
        needs_gap = bool(unfinished) or not self._gap
        below = self._compose(Size(size.columns, max(1, size.lines - kept)), needs_gap)
        cursor = _lower(below.cursor, len(unfinished))
        self._write(self._frame_of(rows, Below([*unfinished, *below.rows], cursor), size))
        self._drawn = self._drawn._replace(unfinished=len(unfinished))

    def _unfinished(self, columns: int) -> list[Row]:
        """The end of the streamed text as far as it may still change."""
        text = self._text
        lines = text.tail() if text is not None else []
        if text is None or not lines:
            return []
        layout = Rows(columns)
        if not text.begun:
            layout.feed(f"{'' if self._gap else chr(10)}{text.head}")
        layout.feed("\n".join(lines))
        return layout.rows

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
        self._drawn = Drawn(len(drawn), 0)
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
        if finished:
            self._left.clear()
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

    def _line_goes_on_at(self, columns: int) -> int:
        """The column in which a finished line that the tail goes on with ends in such a window."""
        start, self._anchor = 0, ""
        rows = self._tail.rows
        if self._begun and rows and self._frame.reflows:
            above = Rows(columns)
            above.feed("".join(self._begun))
            ended = above.rows
            above.feed(plain(rows[0].text)[:1])
            start = ended[-1].width if len(above.rows) == len(ended) else 0
            self._anchor = "" if start else _anchor(ended[-1], columns)
        return start

    def _lay_out(self, columns: int, start: int = 0, *, is_cut: bool = False) -> None:
        """Break the tail's lines again between words; of one that ``is_cut`` a part is above."""
        tail, rows = self._tail, self._tail.rows
        is_cut = is_cut or bool(self._begun)
        lines: list[str] = []
        for at, line in enumerate(text_of(rows).split("\n") if rows else ()):
            as_is = TO_END in line or (is_cut and not at)
            lines += [line] if as_is else wrap_line(line, columns)
        self._tail = Rows(columns, start, soft=bool(self._begun))
        self._tail.feed("\n".join(lines) + ("\n" if rows and tail.at_line_start else ""))

    # --- printing: while the window is resized it waits ------------------------------------

    @property
    def _laid_out(self) -> int:
        return self.columns if self._compose is None else self._tail.columns

    def _feed(self, text: str, *, thinking: bool) -> None:
        if not self._waits(lambda: self._feed(text, thinking=thinking)):
            super()._feed(text, thinking=thinking)

    def print_block(self, lines: Sequence[str], *, gap: bool = True) -> None:
        """Print whole lines above the region."""
        if not self._waits(lambda: self.print_block(lines, gap=gap)):
            super().print_block(lines, gap=gap)

    def print_aside(self, lines: Sequence[str]) -> None:
        """Print a block that is no part of the answer."""
        if not self._waits(lambda: self.print_aside(lines)):
            super().print_aside(lines)

    def gap(self) -> None:
        """An empty line, unless there is one."""
        if not self._waits(self.gap):
            super().gap()

    def _waits(self, show: Callable[[], None]) -> bool:
        if self._settling is not None:
            self._waiting.append(show)
        return self._settling is not None

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
        if self._waits(self.end_text):
            return
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
