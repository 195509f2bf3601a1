"""Painted text laid out in the rows of a screen.

Law: text breaks where a terminal breaks it, so that rows drawn one by one look as the text
printed whole does; a row is complete in itself (its style begins and ends in it); ``text_of``
gives the text back. The cost is linear in the text.

A row is ``certain`` when every terminal gives its characters the same width. Others (emoji,
combining signs, scripts that shape) may be narrower or wider than counted here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from agentcli.ui.theme import RESET

# --- the width of text; wide characters take two columns --------------------------------------


def columns_of(text: str) -> int:
    """The width of one line of ``text`` in columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, columns: int, ellipsis: str = "…") -> str:
    """``text`` cut to at most ``columns``; a cut shows."""
    if columns <= 0:
        return ""
    if len(text) <= columns and columns_of(text) <= columns:
        return text
    room = columns - columns_of(ellipsis)
    if room <= 0:
        return ellipsis[:columns]
    used = end = 0
    for end, char in enumerate(text):  # noqa: B007 - where the loop stopped
        used += columns_of(char)
        if used > room:
            break
    return text[:end] + ellipsis


# --- rows -------------------------------------------------------------------------------------


TAB_COLUMNS = 8
_TOKEN = re.compile(r"\x1b\[[0-9;]*m|[\n\t]|[^\x1b\n\t]+|\x1b")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_CERTAIN = re.compile(
    "[ -~\xa1-\xac\xae-\u02ff\u0370-\u0373\u0376\u0377\u037b-\u037e\u0386\u0388-\u038a\u038e-\u03a1"
    "\u03a3-\u03ff\u0400-\u0481\u048a-\u052f\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2190-\u2199"
    "\u2500-\u25fc\u2713\u2717\u3001-\u303d\u3041-\u3096\u30a0-\u30ff\u4e00-\u9fff\uac00-\ud7a3"
    "\uff01-\uff60]*"
)


class Row(NamedTuple):
    """One row: painted text, the column after it, whether it goes on with the row above.

    ``start`` is the column where it begins: not 0 when what is before it on the same row of
    the screen is finished already.
    """

    text: str
    width: int = 0
    soft: bool = False
    certain: bool = True
    start: int = 0


class Rows:
    """Lays out text that comes in pieces; ``columns`` wide.

    ``soft``: the text goes on with a line that began above, at column ``start``.
    """

    def __init__(self, columns: int, start: int = 0, *, soft: bool = False) -> None:
        self.columns = max(1, columns)
        self._done: list[Row] = []
        self._body: list[str] = []
        self._start = self._width = start
        self._style = ""
        self._soft = soft
        self._certain = True
        self._open = False  # the current row has begun

    def feed(self, text: str) -> None:
        """More text; only SGR sequences, line feeds and tabs are control characters in it."""
        for piece in _TOKEN.findall(text):
            if piece[0] == "\x1b":
                self._switch(piece)
            elif piece == "\n":
                self._end(soft=False)
            elif piece == "\t":
                spaces = TAB_COLUMNS - self._width % TAB_COLUMNS
                self._add(" " * max(0, min(spaces, self.columns - self._width)))
            else:
                self._add(piece)

    @property
    def rows(self) -> list[Row]:
        """All rows; the last one may still grow."""
        return [*self._done, self._current()] if self._open else list(self._done)

    @property
    def at_line_start(self) -> bool:
        """Whether every row is complete."""
        return not self._open

    def drop(self, number: int) -> None:
        """Forget the first ``number`` rows."""
        if number > len(self._done):
            self._end(soft=False)
        del self._done[:number]

    def _switch(self, sequence: str) -> None:
        self._style = "" if sequence == RESET else sequence
        if self._body:
            self._body.append(sequence)

    def _add(self, text: str) -> None:
        if text.isascii():
            while text:
                room = self._room()
                self._put(text[:room], min(room, len(text)))
                text = text[room:]
            return
        for char in text:
            width = min(char_columns(char), self.columns)
            if self._room() < width:
                self._end(soft=True)
            self._put(char, width)

    def _room(self) -> int:
        """The columns left, in a new row when there are none."""
        if self._width >= self.columns:
            self._end(soft=True)
        return self.columns - self._width

    def _put(self, text: str, width: int) -> None:
        if not self._body and self._style:
            self._body.append(self._style)
        self._open = True
        self._body.append(text)
        self._width += width
        self._certain = self._certain and _CERTAIN.fullmatch(text) is not None

    def _current(self) -> Row:
        end = RESET if self._style and self._body else ""
        text = "".join(self._body) + end
        return Row(text, self._width, self._soft, self._certain, self._start)

    def _end(self, *, soft: bool) -> None:
        self._done.append(self._current())
        self._body, self._width, self._start, self._certain = [], 0, 0, True
        self._soft = self._open = soft


def char_columns(char: str) -> int:
    """The columns that a character takes: 0, 1 or 2."""
    if char.isascii():
        return 1
    from rich.cells import get_character_cell_size

    return get_character_cell_size(char)


def text_of(rows: Sequence[Row]) -> str:
    """The text that ``rows`` were made of, without a line feed at its end."""
    parts: list[str] = []
    for at, row in enumerate(rows):
        if at and not row.soft:
            parts.append("\n")
        parts.append(row.text)
    return "".join(parts)


def fit_row(line: str, columns: int, more: str = "…") -> Row:
    """A painted line as one row; a cut shows."""
    layout = Rows(columns)
    layout.feed(line.replace("\n", " "))
    found = layout.rows
    if not found:
        return Row("")
    if len(found) == 1:
        return found[0]
    short = Rows(max(1, columns - len(more)))
    short.feed(line.replace("\n", " "))
    first = short.rows[0]
    if columns <= len(more):
        return Row(more[:columns], min(columns, len(more)))
    ends_styled = first.text.endswith(RESET)
    text = first.text.removesuffix(RESET) + more + (RESET if ends_styled else "")
    return Row(text, first.width + len(more), soft=False, certain=first.certain)


def plain(text: str) -> str:
    """``text`` without its styles."""
    return _STYLE.sub("", text)


class Shared(NamedTuple):
    """What two texts have in common at their beginning: where the second goes on, and how."""

    length: int
    columns: int
    style: str


def shared_start(old: Row, new: Row) -> Shared:
    """How far ``new`` may be left as ``old`` stands on the screen."""
    nothing = Shared(0, 0, "")
    if not (old.certain and new.certain):
        return nothing
    a, b = old.text, new.text
    end = min(len(a), len(b))
    length = next((at for at in range(end) if a[at] != b[at]), end)
    style = ""
    safe = columns = 0
    for found in _TOKEN.finditer(b):
        if found.start() >= length:
            break
        token = found[0]
        if token[0] == "\x1b":
            if found.end() > length:
                break
            style = "" if token == RESET else token
            safe = found.end()
        else:
            piece = token[: length - found.start()]
            columns += len(piece) if piece.isascii() else sum(map(char_columns, piece))
            safe = found.start() + len(piece)
    return Shared(safe, columns, style)
