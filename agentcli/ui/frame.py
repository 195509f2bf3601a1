"""The few rows at the end of the scrollback that may be redrawn, as bytes for the terminal.

Law: rows above the region are never touched, nothing is cleared that is not drawn again in the
same write, and only what differs is written. Movement is relative to the cursor, which stands
where the last frame left it: nobody has to know how high the screen is or where the region
stands. ``release`` makes the topmost rows part of the scrollback for no byte at all.

A soft row is drawn by writing on past the end of the row above, so that the terminal knows
that they are one line: it copies and reflows them as one. After a resize (``reflow``) the region
may begin in the middle of a row of the screen, where the finished part of such a line ends.

Frames that move rows are bracketed by mode 2026 (https://gist.github.com/christianparpart/d8a62cc1ab659194337d73e399004036):
terminals that have it show them at once, others ignore it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentcli.ui.rows import Row, Rows, Shared, char_columns, plain, shared_start, text_of
from agentcli.ui.theme import RESET

SYNC_BEGIN = "\x1b[?2026h"
SYNC_END = "\x1b[?2026l"
_TO_END = "\x1b[J"
# tmux forgets that a line goes on with a row that is erased whole, and scrolls away what is
# erased from the first place of the screen on
_ALL_ROWS = "\x1b[C\x1b[J\r\x1b[X"


class Place(NamedTuple):
    """A row and a column of the region, both from 0."""

    row: int
    column: int


class Frame:
    """What is drawn. ``reflows``: whether the terminal breaks lines anew when it is resized."""

    def __init__(self, *, reflows: bool = False) -> None:
        self.reflows = reflows
        self._shown: list[Row] = []
        self._cursor = Place(0, 0)
        self._at = Place(0, 0)  # where the cursor is while a frame is written
        self._columns = 0
        self._is_moved = False  # the terminal has moved what is shown: all is to be drawn anew
        self._out: list[str] = []

    @property
    def height(self) -> int:
        """How many rows are drawn."""
        return len(self._shown)

    def reflow(self, columns: int, start: int = 0) -> None:
        """The terminal is ``columns`` wide now, and has broken what is shown anew if it does so.

        ``start`` is where the first row has come to begin, when it goes on with a finished line.
        """
        if self._shown and self.reflows:
            self._cursor = _reflowed(self._shown, self._cursor, columns, start)
            first = self._shown[0]
            layout = Rows(columns, start, soft=first.soft)
            layout.feed(text_of(self._shown) + "\n")
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
        start, end = _differing(old, new)
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

    def release(self, number: int) -> None:
        """The first ``number`` rows belong to the scrollback from now on."""
        del self._shown[:number]
        self._cursor = Place(self._cursor.row - number, self._cursor.column)

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
        if old is not None and row.width < old.width:
            self._out.append("\x1b[K")
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


def last_character(row: Row) -> tuple[str, int]:
    """The last character of a certain row, painted, and its width."""
    text = row.text.removesuffix(RESET)
    style = _style_at_end(text) if text != row.text else ""
    return f"{style}{text[-1]}{RESET if style else ''}", char_columns(text[-1])


def _style_at_end(text: str) -> str:
    found = text.rpartition("\x1b[")
    return f"\x1b[{found[2].partition('m')[0]}m" if found[1] else ""


def _differing(old: Sequence[Row], new: Sequence[Row]) -> tuple[int, int]:
    """How many rows are the same at the start, and how many of the rest at the end."""
    most = min(len(old), len(new))
    start = 0
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    while end and new[-end].soft:  # drawn through the margin of the row above, not moved below it
        end -= 1
    return start, end


def _flows(above: Row, row: Row, columns: int) -> bool:
    """Whether writing on after ``above`` comes to the start of ``row``."""
    return row.soft and above.certain and above.width == columns and bool(above.text)


def _reflowed(rows: Sequence[Row], cursor: Place, columns: int, start: int) -> Place:
    """Where the cursor comes to stand when the lines of ``rows`` are broken anew."""
    at = rows[cursor.row]
    head = Rows(columns, start, soft=rows[0].soft)
    if cursor.row:
        head.feed(text_of(rows[: cursor.row]) + ("" if at.soft else "\n"))
    body = plain(at.text)
    before = Rows(max(1, cursor.column - at.start))
    before.feed(body)
    begun = before.rows[0].text if before.rows and cursor.column > at.start else ""
    head.feed(begun + " " * (cursor.column - max(at.start, at.width)))
    found = head.rows
    if head.at_line_start:
        return Place(len(found), start if not cursor.row else 0)
    if found[-1].width >= columns and cursor.column < at.width:
        return Place(len(found), 0)
    return Place(len(found) - 1, found[-1].width)
