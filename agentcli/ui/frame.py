"""The rows that may be redrawn, as bytes for the terminal.

Law: rows above the region are never touched, nothing is cleared that is not drawn again in the
same write, and only what differs is written. Movement is relative to the cursor, which stands
where the last frame left it: nobody has to know how high the screen is or where the region
stands. ``release`` makes the topmost rows part of the scrollback for no byte at all.

A soft row is drawn by writing on past the end of the row above, so that the terminal knows
that they are one line: it copies and reflows them as one. After a resize (``reflow``) the region
may begin in the middle of a row of the screen, where the finished part of such a line ends.

A frame may be on its way while the terminal is resized: it is then drawn over rows that have been
wrapped again. So each begins with a mark, the saved cursor, in the column that the width gives it;
after a resize the terminal is asked for it, and ``misdrawn`` says what such a frame has done.

Frames that move rows are bracketed by mode 2026 (https://gist.github.com/christianparpart/d8a62cc1ab659194337d73e399004036):
terminals that have it show them at once, others ignore it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

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
)
from agentcli.ui.theme import RESET

SYNC_BEGIN = "\x1b[?2026h"
SYNC_END = "\x1b[?2026l"
SAVE, RESTORE = "\x1b7", "\x1b8"
_TO_END = "\x1b[J"
# tmux forgets that a line goes on with a row that is erased whole, and scrolls away what is
# erased from the first place of the screen on
ALL_ROWS = "\x1b[C\x1b[J\r\x1b[X"
_MARK = 5  # the column of the mark, when the window is as wide as the frame was made for


class Below(NamedTuple):
    """The rows below the streamed text, and the cursor's place among them."""

    rows: list[Row]
    cursor: Place


class _Sent(NamedTuple):
    """The last frame: what it was drawn over, from which row on, the texts and their columns."""

    rows: list[Row]
    cursor: Place
    start: int
    texts: list[tuple[int, str]]


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
        self._sent = _Sent([], Place(0, 0), 0, [])

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
    def _is_marked(self) -> bool:
        return self.reflows and self._columns > _MARK + 1

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
        sent, self._sent = self._sent, _Sent(self.rows, self._cursor, start, [])
        changed_old = len(old) - end - start
        changed_new = len(new) - end - start
        self._at = Place(self._cursor.row, _MARK) if self._is_marked else self._cursor
        self._make_room(start, changed_old, changed_new, keeps_end=end > 0)
        for at in range(start, start + changed_new):
            self._draw(at, new, old[at] if at < start + changed_old else None)
        if changed_new < changed_old and not end:
            self._after(len(new) - 1)
            self._out.append(_TO_END)
        if not self._out and cursor == self._cursor:
            self._sent = sent
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

    def standing(self, rows: Sequence[Row], most: int, columns: int) -> int:
        """How many of ``rows``, at most ``most`` of the first, are drawn already as whole lines."""
        if self._is_moved or columns != self._columns:
            return 0
        same = min(most, differing(self._shown, rows)[0])
        while same and same < len(rows) and rows[same].soft:
            same -= 1
        return same

    def release(self, number: int) -> None:
        """The first ``number`` rows belong to the scrollback from now on."""
        del self._shown[:number]
        self._cursor = Place(self._cursor.row - number, self._cursor.column)

    def take_back(self, rows: Sequence[Row]) -> None:
        """``rows`` above the region belong to it again: they are to be drawn over."""
        self._shown[:0] = rows
        self._cursor = Place(self._cursor.row + len(rows), self._cursor.column)

    def is_misdrawn(self, mark: Place, columns: int, now: int) -> bool:
        """Whether the last frame was drawn in ``columns``, by its mark in a window of ``now``."""
        found = min(max(0, columns - self._columns + _MARK), now - 1)
        return mark.column == found != _MARK

    def misdrawn(self, mark: Place, columns: int, kept: int) -> tuple[int, int]:
        """What the last frame has done in a window of ``columns``; its rows are all here again.

        ``kept`` of them, the first, were none of it. How many rows further down the cursor is
        than it should be, and how many rows stood there before it, as they are.
        """
        before, cursor, start, texts = self._sent
        rows = self.rows
        down = reflowed(before, cursor, columns, 0).row - cursor.row if before else 0
        down += reflowed(rows, Place(kept, 0), columns, 0).row - kept if kept else 0
        down += max(0, cursor.row - start - mark.row)  # it cannot move up beyond the screen
        for at, text in texts:
            begin = min(at, columns - (at < self._columns))
            down += _height(begin, text, columns) - _height(at, text, self._columns)
        more = self._cursor.row + down - reflowed(rows, self._cursor, columns, 0).row
        same = min(kept + differing(before, rows[kept:])[0], len(rows) - 1)
        return more, reflowed(rows, Place(same, 0), columns, 0).row

    def move_cursor(self, rows: int) -> None:
        """The cursor is so many rows further down than it was meant to be."""
        self._cursor = Place(self._cursor.row + rows, self._cursor.column)

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
        return _TO_END if self._at.column else ALL_ROWS

    def forget(self) -> None:
        """Nothing is drawn any more: somebody else has cleared it."""
        self._shown, self._cursor, self._at = [], Place(0, 0), Place(0, 0)

    # --- drawing ---------------------------------------------------------------------------

    def _fresh(
        self, text: str, rows: Sequence[Row], cursor: Place, columns: int, anchor: str = ""
    ) -> str:
        if columns != self._columns:
            self.reflow(columns)
        self._sent = _Sent(self.rows, self._cursor, 0, [(0, text)] if text else [])
        self._to_top()
        if anchor:
            self._move(Place(-1, columns - char_columns(plain(anchor))))
        self._out.append((RESET if anchor else "") + self._erasing() + anchor + text)
        before: Row | None = None
        for row in rows:
            if before is not None and not _flows(before, row, columns):
                self._out.append("\n")
            self._out.append(row.text)
            self._sent.texts.append((row.start, row.text))
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
            self._sent.texts.append((above.width, row.text))
        elif old is None:
            self._move(Place(at, row.start))
            self._out.append(row.text)
            self._sent.texts.append((row.start, row.text))
        else:
            same = shared_start(old, row) if old.start == row.start else Shared(0, 0, "")
            self._move(Place(at, row.start + same.columns))
            self._out.append(same.style + row.text[same.length :])
            self._sent.texts.append((row.start + same.columns, row.text[same.length :]))
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
            down = to.row - self._at.row
            if self.reflows and not any(row.soft for row in self._shown):
                # a terminal that has lost rows at its end gets them back
                self._out.append("\n" * down)
                self._at = Place(to.row, 0)
            else:
                self._out.append(f"\x1b[{down}B")
        if to.column == 0:
            self._out.append("\r")
        elif to.column != self._at.column or self._at.column >= self._columns:
            self._out.append(f"\x1b[{to.column + 1}G")
        self._at = to

    def _finish(self, cursor: Place, *, synchronized: bool) -> str:
        self._move(cursor)
        self._cursor = cursor
        out = self._taken()
        if self._is_marked:
            out = f"\x1b[999C\x1b[{self._columns - 1 - _MARK}D{SAVE}{out}"
        return f"{SYNC_BEGIN}{out}{SYNC_END}" if synchronized else out

    def _taken(self) -> str:
        out, self._out = "".join(self._out), []
        return out


def _height(start: int, text: str, columns: int) -> int:
    """How many rows ``text`` takes from column ``start`` on."""
    layout = Rows(columns, start)
    layout.feed(text)
    return len(layout.rows)


def _flows(above: Row, row: Row, columns: int) -> bool:
    """Whether writing on after ``above`` comes to the start of ``row``."""
    return row.soft and above.certain and above.width == columns and bool(above.text)
