"""A terminal in the process that wraps its lines again when it is resized, as tmux and VTE do.

It knows what the chat writes. Law: rows that were printed through the margin are one line; what does
not fit above the cursor goes to the scrollback, and comes back from there when the window grows.
"""

from __future__ import annotations

import re

from agentcli.ui.rows import Place, char_columns

_TOKEN = re.compile(r"\x1b[78]|\x1b\[(\??[0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|.", re.DOTALL)


class _Line:
    """Cells (an empty one follows a wide character); ``goes_on``: with the next line."""

    def __init__(self, cells: list[str] | None = None, *, goes_on: bool = False) -> None:
        self.cells = cells or []
        self.goes_on = goes_on

    def erase(self, start: int, end: int | None = None) -> None:
        if end is None or end >= len(self.cells):
            del self.cells[start:]
            self.goes_on = False
        else:
            self.cells[start:end] = [" "] * (end - start)


class ReflowingTerminal:
    """``reflows``: false for one that keeps its rows, and cuts them."""

    def __init__(self, columns: int = 80, lines: int = 24, *, reflows: bool = True) -> None:
        self.columns, self.lines, self.reflows = columns, lines, reflows
        self._all = [_Line() for _ in range(lines)]  # the scrollback as well
        self._row = self._column = 0  # of the screen; the column may be past the last one
        self._saved = 0, 0

    @property
    def row(self) -> int:
        """The cursor's."""
        return self._row

    @property
    def cursor(self) -> Place:
        """Where it is, as it would be reported."""
        return Place(self._row, min(self._column, self.columns - 1))

    @property
    def mark(self) -> Place:
        """Where the saved cursor is, as it would be restored."""
        return Place(min(self._saved[0], self.lines - 1), min(self._saved[1], self.columns - 1))

    def text(self) -> str:
        """Scrollback and screen; a line that was wrapped is one line."""
        parts = ["".join(line.cells) + ("" if line.goes_on else "\n") for line in self._all]
        return "".join(parts)

    # --- what a program writes -------------------------------------------------------------

    def feed(self, text: str) -> None:
        """Text and sequences; a line feed goes to the start of the next line."""
        for found in _TOKEN.finditer(text):
            if found[2]:
                self._sequence(found[2], found[1])
            elif found[0] == "\r":
                self._column = 0
            elif found[0] == "\n":
                self._here.goes_on = False
                self._feed_line()
                self._column = 0
            elif found[0] == "\x1b7":
                self._saved = self._row, min(self._column, self.columns - 1)
            elif found[0] == "\x1b8":
                self._row = min(self._saved[0], self.lines - 1)
                self._column = min(self._saved[1], self.columns - 1)
            elif found[0][0] != "\x1b":
                self._print(found[0])

    @property
    def _top(self) -> int:
        return len(self._all) - self.lines

    @property
    def _here(self) -> _Line:
        return self._all[self._top + self._row]

    def _feed_line(self) -> None:
        if self._row < self.lines - 1:
            self._row += 1
        else:
            self._all.append(_Line())

    def _print(self, char: str) -> None:
        width = char_columns(char)
        cells = self._here.cells
        if not width:
            at = min(self._column, len(cells)) - 1
            while at > 0 and not cells[at]:
                at -= 1
            if at >= 0:
                cells[at] += char
            return
        if self._column + width > self.columns:
            self._here.goes_on = True
            self._feed_line()
            self._column, cells = 0, self._here.cells
        cells += [" "] * (self._column - len(cells))
        cells[self._column : self._column + width] = [char, ""][:width]
        self._column += width

    def _sequence(self, kind: str, parameter: str) -> None:
        number = int(parameter) if parameter.isdecimal() else 1
        row, column = self._row, min(self._column, self.columns - 1)
        screen = self._all[self._top :]
        if kind in "AB":
            self._row = max(0, min(row + (number if kind == "B" else -number), self.lines - 1))
            self._column = column
        elif kind in "CD":
            column += number if kind == "C" else -number
            self._column = max(0, min(column, self.columns - 1))
        elif kind == "G":
            self._column = min(number, self.columns) - 1
        elif kind == "H":
            place = [int(each) - 1 for each in parameter.split(";")] if parameter else [0, 0]
            self._row = min(place[0], self.lines - 1)
            self._column = min(place[1], self.columns - 1)
        elif kind == "K":
            screen[row].erase(column)
        elif kind == "X":
            screen[row].erase(column, column + number)
        elif kind == "J":
            screen[row].erase(column)
            for line in screen[row + 1 :]:
                line.erase(0)
        elif kind == "L":
            screen[row:row] = [_Line() for _ in range(number)]
            self._all[self._top :] = screen[: self.lines]
        elif kind == "M":
            del screen[row : row + number]
            screen += [_Line() for _ in range(self.lines - len(screen))]
            self._all[self._top :] = screen
        elif kind not in "mhln":
            raise AssertionError(f"what is {kind!r} {parameter!r}?")

    # --- what a user does ------------------------------------------------------------------

    def resize(self, columns: int, lines: int) -> None:
        """First the height: rows below the cursor give way before those at the top."""
        below = min(self.lines - 1 - self._row, max(0, self.lines - lines))
        if below:
            del self._all[-below:]
        at = self._top + self._row + below if below else self._top + self._row
        at = min(at, len(self._all) - 1)
        self.lines = lines
        if len(self._all) < lines:
            self._all += [_Line() for _ in range(lines - len(self._all))]
        self._row = at - self._top
        if columns != self.columns:
            if self.reflows:
                self._wrap_again(columns)
            else:
                for line in self._all[self._top :]:
                    line.erase(columns)
            self.columns = columns
        self._column = min(self._column, columns - 1)

    def _wrap_again(self, columns: int) -> None:
        at, column = self._top + self._row, self._column
        wrapped: list[_Line] = []
        start = 0
        while start < len(self._all):
            end = start
            while self._all[end].goes_on and end + 1 < len(self._all):
                end += 1
            rows = [_Line()]
            for number in range(start, end + 1):
                cells = self._all[number].cells
                for index, cell in enumerate([*cells, None]):
                    if number == at and (index == column or (cell is None and index < column)):
                        beyond = max(0, column - index) if cell is None else 0
                        place = len(wrapped) + len(rows) - 1, len(rows[-1].cells) + beyond
                    if cell is None:
                        continue
                    width = 2 if index + 1 < len(cells) and cells[index + 1] == "" else 1
                    if cell and len(rows[-1].cells) + width > columns:
                        rows[-1].goes_on = True
                        rows.append(_Line())
                        if number == at and index == column:
                            place = len(wrapped) + len(rows) - 1, 0
                    rows[-1].cells.append(cell)
            wrapped += rows
            start = end + 1
        wrapped += [_Line() for _ in range(self.lines - len(wrapped))]
        self._all = wrapped
        self._row, self._column = max(0, place[0] - self._top), place[1]
