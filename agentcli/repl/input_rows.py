"""The input as rows of the screen: what is typed, wrapped, with the cursor's place.

Law: at most ``most`` rows, of which one always holds the cursor; what cannot be seen is spelt
out (SEC-6); the cost does not grow with the text above and below.
"""

from __future__ import annotations

from typing import NamedTuple

from prompt_toolkit.document import Document

from agentcli.ui.live_screen import Place
from agentcli.ui.rows import Row, Rows, char_columns, fit_row
from agentcli.ui.sanitize import reveal
from agentcli.ui.theme import BOLD, DIM, RESET, Theme

TAB = "    "
_REVERSE = "\x1b[7m"
_NARROW = 12


class InputRows(NamedTuple):
    """Rows and the cursor among them."""

    rows: list[Row]
    cursor: Place


class Look(NamedTuple):
    """How the input is shown: in ``columns``, at most ``most`` rows, after ``label``."""

    columns: int
    most: int
    label: str = "> "
    placeholder: str = ""


def input_rows(document: Document, look: Look, theme: Theme) -> InputRows:
    """Lay out ``document``."""
    label = look.label if look.columns >= _NARROW or len(look.label) < look.columns // 2 else ""
    indent = sum(map(char_columns, label))
    width = max(1, look.columns - indent)
    if not document.text and look.placeholder:
        shown = f"{theme.paint(label, BOLD)}{theme.paint(look.placeholder, DIM)}"
        return InputRows([fit_row(shown, look.columns)], Place(0, min(indent, look.columns - 1)))
    lines, cursor = _laid_out(document, width, look.most)
    first = max(0, cursor.row - look.most + 1)
    rows = []
    for at, row in enumerate(lines[first : first + look.most], first):
        is_top = at == 0 and document.cursor_position_row < look.most
        lead = theme.paint(label, BOLD) if is_top else " " * indent
        rows.append(Row(lead + row.text, row.width + indent, soft=False, certain=row.certain))
    column = min(cursor.column + indent, look.columns - 1)
    return InputRows(rows, Place(cursor.row - first, column))


def _laid_out(document: Document, width: int, most: int) -> tuple[list[Row], Place]:
    """The rows of the lines near the cursor, and the cursor among them."""
    line_number, column = document.cursor_position_row, document.cursor_position_col
    lines = document.lines
    from_line = max(0, line_number - most + 1)
    selected = document.selection_range() if document.selection else (0, 0)
    position = document.translate_row_col_to_index(from_line, 0)
    rows: list[Row] = []
    cursor = Place(0, 0)
    for at in range(from_line, min(len(lines), line_number + most + 1)):
        line = lines[at]
        before = len(rows)
        layout = Rows(width)
        if at == line_number:
            head = _shown(line[:column], position, selected)
            layout.feed(head)
            cursor = _end_of(layout, width, before)
            layout.feed(_shown(line[column:], position + column, selected))
            if not line[column:] and cursor.row - before >= len(layout.rows):
                layout.feed("\n")
                rows += [*layout.rows, Row("")]
                position += len(line) + 1
                continue
        else:
            layout.feed(_shown(line, position, selected))
        rows += layout.rows or [Row("")]
        position += len(line) + 1
    return rows, cursor


def _end_of(layout: Rows, width: int, before: int) -> Place:
    """Where the next character will stand."""
    rows = layout.rows
    if not rows:
        return Place(before, 0)
    if rows[-1].width >= width:
        return Place(before + len(rows), 0)
    return Place(before + len(rows) - 1, rows[-1].width)


def _shown(text: str, position: int, selected: tuple[int, int]) -> str:
    start, end = (max(0, min(len(text), edge - position)) for edge in selected)
    if start >= end:
        return _visible(text)
    marked = f"{_REVERSE}{_visible(text[start:end])}{RESET}"
    return f"{_visible(text[:start])}{marked}{_visible(text[end:])}"


def _visible(text: str) -> str:
    return reveal(text).replace("\t", TAB)
