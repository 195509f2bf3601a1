"""The few rows at the end of the scrollback that may be redrawn, as bytes for the terminal.

Law: rows above the region are never touched, nothing is cleared that is not drawn again in the
same write, and only what differs is written. Movement is relative to the cursor, which stands
where the last frame left it: nobody has to know how high the screen is or where the region
stands. ``release`` makes the topmost rows part of the scrollback for no byte at all.

A soft row is drawn by writing on past the end of the row above, so that the terminal knows
that they are one line: it copies and reflows them as one.

Frames that move rows are bracketed by mode 2026 (https://gist.github.com/christianparpart/d8a62cc1ab659194337d73e399004036):
terminals that have it show them at once, others ignore it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentcli.ui.rows import Row, char_columns, plain, shared_start
from agentcli.ui.theme import RESET

SYNC_BEGIN = "\x1b[?2026h"
SYNC_END = "\x1b[?2026l"
_TO_END = "\x1b[J"


class Place(NamedTuple):
    """A row and a column of the region, both from 0."""

    row: int
    column: int


class Frame:
    """What is drawn. ``reflows``: whether the terminal breaks lines anew when it is resized."""

    def __init__(self, *, reflows: bool = False) -> None:
        self._reflows = reflows
        self._shown: list[Row] = []
        self._cursor = Place(0, 0)
        self._at = Place(0, 0)  # where the cursor is while a frame is written
        self._columns = 0
        self._out: list[str] = []
        self.line_above = 0  # columns of the line that the first row goes on with, if it does

    @property
    def height(self) -> int:
        """How many rows are drawn."""
        return len(self._shown)

    def update(self, rows: Sequence[Row], cursor: Place, columns: int) -> str:
        """Draw ``rows`` in place of what is shown."""
        if columns != self._columns or not self._shown:
            return self._fresh("", rows, cursor, columns)
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
        self._to_top(columns)
        self._out.append(_TO_END)
        return self._taken()

    def forget(self) -> None:
        """Nothing is drawn any more: somebody else has cleared it."""
        self._shown, self._cursor, self._at = [], Place(0, 0), Place(0, 0)

    # --- drawing ---------------------------------------------------------------------------

    def _fresh(
        self, text: str, rows: Sequence[Row], cursor: Place, columns: int, anchor: str = ""
    ) -> str:
        self._to_top(columns)
        if anchor:
            self._move(Place(-1, columns - char_columns(plain(anchor))))
        self._out.append((RESET if anchor else "") + _TO_END + anchor + text)
        before: Row | None = None
        for at, row in enumerate(rows):
            flows = (row.soft and bool(text)) if before is None else _flows(before, row, columns)
            if at and not flows:
                self._out.append("\n")
            self._out.append(row.text)
            before = row
        self._shown, self._columns = list(rows), columns
        self._at = Place(max(0, len(rows) - 1), before.width if before else 0)
        return self._finish(cursor, synchronized=True)

    def _to_top(self, columns: int) -> None:
        """To the region's first column, wherever a new width has put that."""
        up, column = self._cursor.row, 0
        if self._shown and columns != self._columns and self._reflows:
            above = self._shown[: self._cursor.row]
            up = _reflowed(above, columns, self.line_above) + self._cursor.column // columns
            column = self.line_above % columns
        self._out.append(f"\x1b[{up}A\r" if up else "\r")
        if column:
            self._out.append(f"\x1b[{column + 1}G{_TO_END}\n")
        self._at = Place(0, 0)
        self.forget()

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
            self._move(Place(at, 0))
            self._out.append(row.text)
        else:
            same = shared_start(old, row)
            self._move(Place(at, same.columns))
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
            self._move(Place(0, 0))
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
    return start, end


def _flows(above: Row, row: Row, columns: int) -> bool:
    """Whether writing on after ``above`` comes to the start of ``row``."""
    return row.soft and above.certain and above.width == columns and bool(above.text)


def _reflowed(rows: Sequence[Row], columns: int, line_above: int) -> int:
    """How many rows ``rows`` take when their lines are broken anew at ``columns``.

    The first row goes on with a line of which ``line_above`` columns stand above it.
    """
    height = 0
    start = width = line_above
    for at, row in enumerate(rows):
        if row.soft and (at or line_above):
            width += row.width
            continue
        if at:
            height += _rows_between(start, width, columns)
        start, width = 0, row.width
    return height + (_rows_between(start, width, columns) if rows else 0)


def _rows_between(start: int, end: int, columns: int) -> int:
    """The rows from the one where column ``start`` of a line stands to that of its end."""
    return max(1, -(-end // columns) - start // columns)
