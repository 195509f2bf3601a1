"""Markdown as it streams, for a terminal's own scrollback (UI-1).

Law: what has been handed out is never taken back or redrawn; the concatenation of all that
``feed`` and ``finish`` return is the same however the text was cut; the cost is linear in the
text. A line of the text is a line of the output and the terminal wraps it, so that a window may
be resized and what is copied is the text itself. Code appears line by line, a table when it is
complete (or after ``MAX_TABLE_LINES``). The input must have passed ``sanitize``.

What a line stands in is found first, then its kind; its text is an ``InlineText``, which may go on
over the lines of a paragraph (``markdown_syntax``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from agentcli.ui.markdown_syntax import (
    CODE_INDENT,
    SOFT_BREAK,
    InlineText,
    LineKind,
    LinesBefore,
    OpenedLine,
    Span,
    open_line,
    spans,
    waits_for_end,
)
from agentcli.ui.rows import columns_of
from agentcli.ui.theme import (
    BOLD,
    CODE,
    COMMENT,
    DIM,
    HEADING,
    KEYWORD,
    NAME,
    NUMBER,
    RESET,
    STRING,
    Theme,
)

# --- colours for code, one line at a time -----------------------------------------------------

# Law: the line's characters come back unchanged and in order, only coloured; the cost is linear in
# the text. Lexers know no pause between lines, so the lines of an open string or comment are read
# again with each further line, at most ``MAX_REREAD`` of them.


MAX_COLORED_CHARS = 2000
MAX_REREAD = 40

_STYLES = (
    ("Token.Comment", COMMENT),
    ("Token.Keyword", KEYWORD),
    ("Token.Operator.Word", KEYWORD),
    ("Token.Name.Tag", KEYWORD),
    ("Token.Literal.String", STRING),
    ("Token.Literal.Number", NUMBER),
    ("Token.Name.Function", NAME),
    ("Token.Name.Class", NAME),
    ("Token.Name.Decorator", NAME),
    ("Token.Name.Builtin", NAME),
    ("Token.Name.Attribute", NAME),
)


class Highlighter:
    """Colours the lines of one code block in ``language``; plain when it is not known."""

    __slots__ = ("_lexer", "_open", "_styles")

    def __init__(self, language: str) -> None:
        self._lexer = _lexer(language)
        self._open: list[str] = []
        self._styles: dict[Any, int] = {}

    def line(self, line: str) -> list[Span]:
        """The spans of the next line (without its line feed)."""
        if self._lexer is None or len(line) > MAX_COLORED_CHARS or not line.strip():
            return [(line, 0)]
        before = "".join(f"{earlier}\n" for earlier in self._open)
        skip = len(before)
        out: list[Span] = []
        style = 0
        for start, kind, value in self._lexer.get_tokens_unprocessed(f"{before}{line}\n"):
            style = self._style(kind)
            shown = value[max(0, skip - start) :].rstrip("\n")
            if shown:
                out.append((shown, style))
        inside = style in {STRING, COMMENT} and self._ends_inside(before, line)
        self._open = [*self._open, line][-MAX_REREAD:] if inside else []
        if "".join(text for text, _ in out) != line:
            return [(line, 0)]
        return out

    def _ends_inside(self, before: str, line: str) -> bool:
        """Whether a string or comment goes on after the line: a probe letter takes its style."""
        if self._lexer is None:
            return False
        text = f"{before}{line}\nx"
        last = 0
        for start, kind, value in self._lexer.get_tokens_unprocessed(text):
            if start + len(value) >= len(text):
                last = self._style(kind)
        return last in {STRING, COMMENT}

    def _style(self, kind: Any) -> int:
        style = self._styles.get(kind)
        if style is None:
            name = str(kind)
            style = next((bits for prefix, bits in _STYLES if name.startswith(prefix)), 0)
            self._styles[kind] = style
        return style


def _lexer(language: str) -> Any:
    if not language or language.lower() in {"text", "txt", "plain", "plaintext", "console"}:
        return None
    from rich.syntax import Syntax

    return Syntax("", language).lexer


# --- fenced code, line by line ----------------------------------------------------------------

# Law: the code's characters are shown as they are; a line that looks like a fence ends the block
# only where CommonMark says so (https://spec.commonmark.org/0.31.2/#fenced-code-blocks).


class CodeBlock:
    """One block, begun by the line ``opened``. ``head`` is the fence as it is shown."""

    __slots__ = ("_bars", "_highlighter", "_margin", "_marker", "_marks", "head", "is_closed")

    def __init__(self, opened: OpenedLine, theme: Theme) -> None:
        self._marker = opened.start.marker
        info = opened.rest[opened.start.skip + len(self._marker) :].strip()
        language = info.split(maxsplit=1)[0].strip("{}.").partition(":")[0] if info else ""
        self._highlighter = Highlighter(language if theme.color else "")
        self._margin = opened.margin
        self._bars: list[Span] = [(f"{theme.symbols.bar} " * opened.quotes, DIM)]
        quotes = opened.quotes
        self._marks = re.compile(rf"(?: {{0,3}}> ?){{1,{quotes}}}") if quotes else None
        self.head: list[Span] = [(self._marker + info, DIM)]
        self.is_closed = False

    def line(self, line: str) -> list[Span] | None:
        """The spans of the next line; ``None`` when it is no part of the block any more."""
        if self._marks is not None:
            marks = self._marks.match(line)
            if marks is None:
                return None
            line = line[marks.end() :]
        bare = line.strip()
        margin = len(line) - len(line.lstrip(" "))
        is_fence = bare and not bare.strip(self._marker[0]) and len(bare) >= len(self._marker)
        if is_fence and margin < self._margin + CODE_INDENT:
            self.is_closed = True
            return [*self._bars, (bare, DIM)]
        return [*self._bars, *self._highlighter.line(line[min(margin, self._margin) :])]


# --- tables as aligned columns, or as records where the screen is too narrow ------------------

# Law: no line is wider than the screen as long as a column can be ``MIN_COLUMN`` wide; every cell
# is shown whole. Each row is a list of cells, each cell a list of spans.


MIN_COLUMN = 8
_DELIMITER = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_CELL_END = re.compile(r"(?<!\\)\|")
_PIECES = re.compile(r"\S+|\s+")

Cell = list[Span]
LEFT, RIGHT, CENTER = "left", "right", "center"


def is_delimiter(line: str) -> bool:
    """Whether ``line`` is the ``|---|:--:|`` under a table's head."""
    return "-" in line and _DELIMITER.match(line) is not None


def begins_table(head: str, line: str) -> bool:
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


def render_table(lines: Sequence[str], columns: int, theme: Theme) -> list[list[Span]]:
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


# --- the stream -------------------------------------------------------------------------------


MAX_TABLE_LINES = 300
_RULE_COLUMNS = 40


class _State(Enum):
    START = auto()  # the line's kind is not known yet
    INLINE = auto()  # the rest of the line is inline Markdown
    CODE = auto()  # inside a fence: whole lines only


class _Wait(Enum):
    NOTHING = auto()
    MARK = auto()  # something else than more of the same marks
    END = auto()  # the end of the line


class MarkdownStream:
    """One text. ``columns`` tells the screen's width when a table is laid out."""

    def __init__(self, theme: Theme, columns: Callable[[], int]) -> None:
        self._theme = theme
        self._columns = columns
        self._out: list[str] = []
        self._style = 0
        self._state = _State.START
        self._parts: list[str] = []  # the line so far, as far as it is not handed out
        self._wait = _Wait.NOTHING
        self._line = InlineText()
        self._goes_on = False  # the paragraph's inline Markdown may go on in the next line
        self._leads: list[list[Span]] = []  # what is shown at the beginning of its further lines
        self._quotes = 0
        self._context = LinesBefore()
        self._code: CodeBlock | None = None
        self._table: list[str] = []
        self._table_lead: list[Span] = []
        self._started = False  # anything was printed
        self._blank = False  # an empty line waits for what comes after it

    def feed(self, text: str) -> str:
        """What can be shown of the text so far and was not shown before."""
        first, *others = text.split("\n")
        self._add(first, complete=bool(others))
        for at, line in enumerate(others, 1):
            self._add(line, complete=at < len(others))
        return self._taken()

    def finish(self) -> str:
        """The rest, ended by a line feed if anything was shown; nothing may be fed afterwards."""
        if self._parts or self._state is _State.INLINE:
            self._add("", complete=True)
        self._end_paragraph()
        self._end_table()
        self._switch(0)
        return self._taken()

    # --- lines -----------------------------------------------------------------------------

    def _add(self, piece: str, *, complete: bool) -> None:
        """More of the current line, or its end."""
        if self._state is _State.INLINE:
            self._line.add(piece)
            self._inline(complete=complete)
            return
        if piece:
            self._parts.append(piece)
        if not complete and (self._state is _State.CODE or self._is_undecided(piece)):
            return
        line = "".join(self._parts)
        self._parts = [line] if line else []
        self._wait = _Wait.NOTHING
        if self._state is _State.CODE:
            self._parts = []
            self._code_line(line)
        else:
            self._start(line, complete=complete)

    def _is_undecided(self, piece: str) -> bool:
        """Whether the piece that has just come cannot settle what kind of line this is."""
        if self._wait is _Wait.MARK:
            return not piece.strip(" \t-*_>=")
        return self._wait is _Wait.END

    def _start(self, line: str, *, complete: bool) -> None:
        """Begin a line whose kind may now be certain."""
        opened = open_line(line, self._context, self._theme.symbols, complete=complete)
        if isinstance(opened, str):
            undecided = opened.lstrip(" \t")
            self._wait = _Wait.END if waits_for_end(undecided) else _Wait.MARK
            return
        self._parts = []
        kind = opened.start.kind
        if self._goes_on and self._is_continued(opened):
            self._leads.append([*opened.lead, *self._indent(opened)])
            self._line.add(SOFT_BREAK + opened.rest[opened.start.skip :])
            self._state = _State.INLINE
            self._inline(complete=complete)
            return
        self._end_paragraph()
        if kind is LineKind.TABLE and not opened.markers:
            self._table_line(opened)
            return
        self._end_table()
        self._open_line(opened, complete=complete)

    def _is_continued(self, opened: OpenedLine) -> bool:
        """Whether the line goes on with the paragraph whose inline Markdown is open."""
        same = opened.quotes == self._quotes and not opened.markers
        return same and opened.start.kind is LineKind.TEXT and not self._context.after_blank

    def _open_line(self, opened: OpenedLine, *, complete: bool) -> None:
        kind = opened.start.kind
        if kind is LineKind.BLANK and not opened.quotes and not opened.markers:
            self._blank = self._started
            self._context = LinesBefore(self._context.items, self._context.quotes)
            return
        self._begin_output()
        self._quotes = opened.quotes
        self._remember(opened)
        self._show_lead([*opened.lead, *self._indent(opened)])
        if kind is LineKind.FENCE:
            self._code = CodeBlock(opened, self._theme)
            self._show(self._code.head)
            self._new_line()
        elif kind in {LineKind.RULE, LineKind.UNDERLINE}:
            self._write(self._theme.symbols.rule * min(_RULE_COLUMNS, self._columns()), DIM)
            self._new_line()
        elif kind is LineKind.INDENTED:
            self._line = _Literal()
            self._open_inline(opened.rest, complete=complete)
        else:
            style = HEADING if kind is LineKind.HEADING else 0
            if kind is LineKind.HEADING:
                self._write(f"{opened.start.marker} ", style)
            self._line = InlineText(style)
            self._open_inline(opened.rest[self._skip(opened) :], complete=complete)

    def _skip(self, opened: OpenedLine) -> int:
        """How much of the rest is white space and marks that are shown in another way."""
        return opened.start.skip if opened.start.kind in {LineKind.TEXT, LineKind.HEADING} else 0

    def _indent(self, opened: OpenedLine) -> list[Span]:
        """The white space before the text of a list item's further lines."""
        is_text = opened.start.kind in {LineKind.TEXT, LineKind.HEADING}
        columns = opened.start.indent if is_text and opened.items else 0
        return [(" " * columns, 0)] if columns else []

    def _remember(self, opened: OpenedLine) -> None:
        kind = opened.start.kind
        self._context = LinesBefore(
            tuple(opened.items),
            opened.quotes,
            after_blank=kind is LineKind.INDENTED,
            in_paragraph=kind is LineKind.TEXT,
        )

    def _open_inline(self, text: str, *, complete: bool) -> None:
        self._line.add(text)
        self._state = _State.INLINE
        self._inline(complete=complete)

    def _inline(self, *, complete: bool) -> None:
        """Show what is certain of the line's inline Markdown."""
        is_paragraph = self._context.in_paragraph
        self._show(self._line.take(final=complete and not is_paragraph))
        if not complete:
            return
        if self._line.is_open:
            self._goes_on = True
            self._state = _State.START
        else:
            self._new_line()

    def _end_paragraph(self) -> None:
        """No further line of the paragraph comes: what its inline Markdown held is text."""
        if self._goes_on:
            self._show(self._line.take(final=True))
            self._new_line()

    # --- code ------------------------------------------------------------------------------

    def _code_line(self, line: str) -> None:
        """One whole line inside a fence: code, or the fence that closes it."""
        code = self._code
        if code is None:
            raise RuntimeError("a code line outside a fence")
        found = code.line(line)
        if found is None:  # the quote that it stands in has ended
            self._end_code()
            self._add(line, complete=True)
            return
        self._begin_output()
        self._show(found)
        if code.is_closed:
            self._end_code()
        self._new_line()

    def _end_code(self) -> None:
        self._code = None
        self._state = _State.START

    # --- tables ----------------------------------------------------------------------------

    def _table_line(self, opened: OpenedLine) -> None:
        lead = [span for span in opened.lead if span[0].strip()]
        line = opened.rest
        if len(self._table) == 1 and not begins_table(self._table[0], line):
            self._end_table()
        if self._table and lead != self._table_lead:
            self._end_table()
        self._table.append(line)
        self._table_lead = lead
        self._remember(opened)
        self._quotes = opened.quotes
        if len(self._table) > MAX_TABLE_LINES:
            head = self._table[:2]
            self._end_table()
            self._table = head

    def _end_table(self) -> None:
        """Show the table that is complete now; without a delimiter row it is text."""
        lines, self._table = self._table, []
        if not lines:
            return
        if len(lines) == 1:
            shown = [_whole(lines[0].strip())]
        else:
            room = self._columns() - sum(len(text) for text, _ in self._table_lead)
            shown = render_table(lines, room, self._theme)
        for line in shown:
            self._begin_output()
            self._show_lead(self._table_lead)
            self._leads = [self._table_lead] * sum(text == "\n" for text, _ in line)
            self._show(line)
            self._new_line()

    # --- output ----------------------------------------------------------------------------

    def _begin_output(self) -> None:
        if self._blank:
            self._out.append("\n")
            self._blank = False
        self._started = True

    def _show(self, line: list[Span]) -> None:
        """Write spans; a break in them is a new line in the same block."""
        for text, style in line:
            if text == "\n":
                self._break([(f"{self._theme.symbols.bar} " * self._quotes, DIM)])
                continue
            first, *others = text.split(SOFT_BREAK)
            self._write(first, style)
            for part in others:
                self._break(self._leads.pop(0) if self._leads else [])
                self._write(part, style)

    def _break(self, lead: list[Span]) -> None:
        self._switch(0)
        self._out.append("\n")
        self._show_lead(lead)

    def _show_lead(self, lead: list[Span]) -> None:
        for text, style in lead:
            self._write(text, style)

    def _write(self, text: str, style: int) -> None:
        if not text:
            return
        self._switch(style)
        self._out.append(text)

    def _switch(self, style: int) -> None:
        if style == self._style:
            return
        before, after = self._theme.start(self._style), self._theme.start(style)
        if before != after:
            self._out.append((RESET if before else "") + after)
        self._style = style

    def _new_line(self) -> None:
        self._switch(0)
        self._out.append("\n")
        self._goes_on = False
        self._leads.clear()
        self._state = _State.CODE if self._code else _State.START

    def _taken(self) -> str:
        out, self._out = "".join(self._out), []
        return out


class _Literal(InlineText):
    """A line without Markdown in it."""

    __slots__ = ()

    def take(self, *, final: bool = False) -> list[Span]:
        del final
        text, self._text = self._text, ""
        return [(text, CODE)] if text else []


def _whole(line: str) -> list[Span]:
    whole = InlineText()
    whole.add(line)
    return whole.take(final=True)
