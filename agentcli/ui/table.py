"""Markdown tables as aligned columns, or as records where the screen is too narrow.

Law: no line is wider than the screen as long as a column can be ``MIN_COLUMN`` wide; every cell
is shown whole. Each row is a list of cells, each cell a list of spans.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentcli.ui.inline import Span, spans
from agentcli.ui.theme import BOLD, DIM, Theme
from agentcli.ui.width import columns_of

MIN_COLUMN = 8
_DELIMITER = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_CELL_END = re.compile(r"(?<!\\)\|")
_PIECES = re.compile(r"\S+|\s+")

Cell = list[Span]
LEFT, RIGHT, CENTER = "left", "right", "center"


def is_delimiter(line: str) -> bool:
    """Whether ``line`` is the ``|---|:--:|`` under a table's head."""
    return "-" in line and _DELIMITER.match(line) is not None


def begins(head: str, line: str) -> bool:
    """Whether ``line`` under ``head`` makes a table of them: as many columns in both."""
    return is_delimiter(line) and len(split_row(head)) == len(split_row(line))


def split_row(line: str) -> list[str]:
    """The cells' source, without the outer bars."""
    body = line.strip()
    body = body.removeprefix("|")
    if body.endswith("|") and not body.endswith("\\|"):
        body = body[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(body)]


def alignments(line: str) -> list[str]:
    """The alignment that each cell of the delimiter row asks for."""
    found = []
    for cell in split_row(line):
        right = cell.endswith(":")
        found.append(CENTER if right and cell.startswith(":") else RIGHT if right else LEFT)
    return found


def render(lines: Sequence[str], columns: int, theme: Theme) -> list[list[Span]]:
    """The table whose source lines are ``lines`` (head, delimiter, rows) as lines of spans."""
    aligned = alignments(lines[1])
    size = len(aligned)
    rows = [_cells(line, size, head=not at) for at, line in enumerate(lines) if at != 1]
    natural = [max(1, *(_width(row[at]) for row in rows)) for at in range(size)]
    room = columns - 1 - 3 * (size - 1)
    widths = _share(natural, room)
    if widths is None:
        return _records(rows, theme)
    symbols = theme.symbols
    joint = f"{symbols.rule}{symbols.cross}{symbols.rule}"
    rule: list[Span] = [(joint.join(symbols.rule * width for width in widths), DIM)]
    out: list[list[Span]] = []
    for at, row in enumerate(rows):
        out += _row(row, widths, aligned, symbols.bar)
        if at == 0:
            out.append(rule)
    return out


def _cells(line: str, size: int, *, head: bool) -> list[Cell]:
    source = split_row(line)
    source += [""] * (size - len(source))
    # what is too much is shown in the last column rather than left out
    source[size - 1 :] = [" | ".join(source[size - 1 :])]
    return [
        [(text.replace("\n", " "), style) for text, style in spans(cell, BOLD if head else 0)]
        for cell in source
    ]


def _width(cell: Cell) -> int:
    return sum(columns_of(text) for text, _ in cell)


def _share(natural: list[int], room: int) -> list[int] | None:
    """Column widths that fit ``room``; ``None`` when some column would become too narrow."""
    if sum(natural) <= room:
        return natural
    widths = list(natural)
    open_columns = sorted(range(len(natural)), key=lambda at: natural[at])
    for done, at in enumerate(open_columns):
        fair = room // (len(open_columns) - done)
        if natural[at] > fair and fair < MIN_COLUMN:
            return None
        widths[at] = min(natural[at], fair)
        room -= widths[at]
    return widths


def _row(row: list[Cell], widths: list[int], aligned: list[str], bar: str) -> list[list[Span]]:
    wrapped = [_wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    out = []
    for at in range(max(len(cell) for cell in wrapped)):
        line: list[Span] = []
        for column, width in enumerate(widths):
            if column:
                line.append((f" {bar} ", DIM))
            piece = wrapped[column][at] if at < len(wrapped[column]) else []
            gap = width - _width(piece)
            before = gap if aligned[column] == RIGHT else gap // 2
            before = 0 if aligned[column] == LEFT else before
            last = column == len(widths) - 1
            line += [(" " * before, 0), *piece, ("" if last else " " * (gap - before), 0)]
        out.append([span for span in line if span[0]])
    return out


def _wrap(cell: Cell, width: int) -> list[Cell]:
    """The cell's spans in lines of at most ``width`` columns, broken between words if possible."""
    lines: list[Cell] = [[]]
    used = 0
    for text, style in cell:
        for piece in _PIECES.findall(text):
            size = columns_of(piece)
            if piece.isspace():
                if used > 0 and used + size <= width:
                    lines[-1].append((" ", style))
                    used += 1
                continue
            if used and used + size > width:
                lines.append([])
                used = 0
            for part in _chop(piece, width) if size > width else [piece]:
                if used and used + columns_of(part) > width:
                    lines.append([])
                    used = 0
                lines[-1].append((part, style))
                used += columns_of(part)
    return lines


def _chop(word: str, width: int) -> list[str]:
    parts, current, used = [], "", 0
    for char in word:
        size = columns_of(char)
        if current and used + size > width:
            parts.append(current)
            current, used = "", 0
        current += char
        used += size
    return [*parts, current]


def _records(rows: list[list[Cell]], theme: Theme) -> list[list[Span]]:
    """Each row as lines of ``head: cell``; the terminal wraps them."""
    head, *body = rows
    out: list[list[Span]] = []
    for row in body or [head]:
        if out:
            out.append([(theme.symbols.rule * 3, DIM)])
        for name, cell in zip(head, row, strict=True):
            label = [*name, (": ", 0)] if name and body else []
            out.append([*label, *cell])
    return out
