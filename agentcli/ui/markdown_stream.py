"""Markdown as it streams, in rows for a terminal's own scrollback (UI-1).

Law: a row that was handed out is never taken back or redrawn; the rows that ``feed`` and
``finish`` return are the same however the text was cut; the cost is linear in the text. Rows end
between words (``rows.Wrap``). ``tail`` gives the rows that would come if the text ended here: what
may still change. The input must have passed ``sanitize``.

A line's containers and kind are found first (``markdown_syntax``). A block then lays out what it
is made of: a paragraph as soon as its look is certain, code line by line, a table row by row once
its widths are fixed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence

from agentcli.domain.patterns import LazyPattern
from agentcli.ui.highlight import Highlighter, Span
from agentcli.ui.markdown_syntax import (
    CODE_INDENT,
    LINE_BREAK,
    LineKind,
    LinesBefore,
    OpenedLine,
    begins_table,
    is_open,
    open_line,
    spans,
    split_row,
)
from agentcli.ui.rows import Wrap, columns_of, most_columns, plain, unbreakable_columns
from agentcli.ui.theme import BOLD, DIM, HEADING, ITALIC, Theme

# --- blocks -----------------------------------------------------------------------------------


class MarkdownBlock:
    """Something under way. ``lead`` begins its first row, ``hang`` the others (painted)."""

    kind = LineKind.TEXT

    def __init__(self, opened: OpenedLine, theme: Theme, columns: int) -> None:
        self._theme = theme
        self.quotes = opened.quotes
        self.items = opened.items
        self.wrap = Wrap(columns, _painted(opened.lead, theme), _painted(opened.hang, theme))

    def copy(self) -> MarkdownBlock:
        """The same, to go on with in another way."""
        other = copy.copy(self)
        other.wrap = self.wrap.copy()
        return other

    def takes(self, opened: OpenedLine) -> bool:
        """Whether the line goes on with the block, which has it then."""
        del opened
        return False

    def settle(self) -> None:
        """What has come stands on the screen for good: nothing that comes changes it any more."""

    def finish(self) -> None:
        """The block is over."""

    def _write(self, line: Sequence[Span]) -> None:
        for text, style in line:
            if text == LINE_BREAK:
                self.wrap.end_line()
            else:
                self.wrap.feed(text, self._theme.start(style))


def _painted(line: Sequence[Span], theme: Theme) -> str:
    return "".join(theme.paint(text, style) for text, style in line)


# Where a long paragraph may be cut: at the first white space after ``_CUT_FROM`` characters where
# nothing that it has opened is left open, after ``_CUT_MOST`` whatever is.
_CUT_FROM = 80
_CUT_STEP = 80
_CUT_MOST = 640
_SPACE = LazyPattern(r" *\n| +")


class Paragraph(MarkdownBlock):
    """Lines of text with inline Markdown in them, in one style."""

    def __init__(self, opened: OpenedLine, theme: Theme, columns: int, style: int = 0) -> None:
        super().__init__(opened, theme, columns)
        self.style = style
        self.kind = LineKind.HEADING if style else LineKind.TEXT
        self.source = ""
        self.is_whole = True  # nothing of it is laid out yet
        self._candidate = _CUT_FROM
        self._begins_line = True  # what is left of the source begins with a line

    def add(self, text: str) -> None:
        """More of it; a line feed before each further line."""
        self.source += text
        while (place := self._cut()) is not None:
            end, after = place
            self._write(spans(self.source[:end], self.style))
            self._begins_line = "\n" in self.source[end:after]
            if self._begins_line:
                self.wrap.end_line()
            elif after > end:
                self._write([(" ", self.style)])
            self.source, self.is_whole, self._candidate = self.source[after:], False, _CUT_FROM

    def takes(self, opened: OpenedLine) -> bool:
        """Text does; a line under the first lines makes a heading of them."""
        if self.kind is LineKind.HEADING:
            return False
        if opened.start.kind is LineKind.UNDERLINE and self.is_whole:
            self.style, self.kind = HEADING, LineKind.HEADING
            return True
        if opened.start.kind in {LineKind.TEXT, LineKind.TABLE}:
            self.add("\n" + opened.rest.lstrip())
            return True
        return False

    def take_head(self, opened: OpenedLine) -> str | None:
        """The last line, no longer its own, if the line that comes makes a table's head of it."""
        before, _, last = self.source.rpartition("\n")
        if not self._has_head() or not begins_table(last, opened.rest):
            return None
        self.source = before
        return last

    def _has_head(self) -> bool:
        """Whether the last line may be the head of a table: it is whole, with a bar in it."""
        last = self.source.rpartition("\n")[2]
        is_whole = len(last) < len(self.source) or self._begins_line
        return is_whole and "|" in last and self.kind is LineKind.TEXT and len(last) < _LONG

    def _cut(self) -> tuple[int, int] | None:
        limit = self.source.rfind("\n") + 1 if self._has_head() else len(self.source)
        while True:
            found = _SPACE.search(self.source, self._candidate, limit)
            if found is None and limit < len(self.source):
                return None
            if found is None or found.end() == len(self.source):
                most = 4 * _CUT_MOST
                return (most, most) if len(self.source) > most + _CUT_MOST else None
            if found.start() > 4 * _CUT_MOST:
                return (4 * _CUT_MOST, 4 * _CUT_MOST)
            if found.start() >= _CUT_MOST or not is_open(self.source[: found.start()]):
                return found.span()
            self._candidate = found.start() + _CUT_STEP

    def settle(self) -> None:
        """Lay out what has come, but a line that may be the head of a table."""
        end = len(self.source)
        if self._has_head():
            end = max(0, self.source.rfind("\n"))
        if not end:
            return
        self._write(spans(self.source[:end], self.style))
        self._begins_line = end < len(self.source)
        if self._begins_line:
            self.wrap.end_line()
        self.source, self.is_whole, self._candidate = self.source[end + 1 :], False, _CUT_FROM

    def finish(self) -> None:
        """Lay out the rest."""
        if self.source or self.is_whole or not self._begins_line:
            self._write(spans(self.source.rstrip(" "), self.style))
            self.source = ""
            self.wrap.end_line()

    @property
    def is_begun(self) -> bool:
        """Whether something is left of it or shown."""
        return bool(self.source) or not self.is_whole


class Code(MarkdownBlock):
    """Code line by line, behind a bar; a long line goes on in the next row behind a mark.

    Law: the code's characters are shown as they are; a line that looks like a fence ends the block
    only where CommonMark says so (https://spec.commonmark.org/0.31.2/#fenced-code-blocks).
    """

    kind = LineKind.FENCE

    def __init__(self, opened: OpenedLine, theme: Theme, columns: int) -> None:
        super().__init__(opened, theme, columns)
        fence = opened.start.skip + len(opened.start.marker)
        info = opened.rest[fence:].strip() if opened.start.marker else ""
        word = info.split(maxsplit=1)[0].strip("{}.").partition(":")[0] if info else ""
        self._marker = opened.start.marker
        self.highlighter = Highlighter(word if theme.color else "")
        self._margin = opened.margin
        quotes = opened.quotes
        self._marks = re.compile(rf"(?: {{0,3}}> ?){{1,{quotes}}}") if quotes else None
        bar = theme.paint(f"{theme.symbols.code} ", DIM) if theme.symbols.code else ""
        self._bar = _painted(opened.hang, theme) + bar
        rest = self._bar + theme.paint(f"{theme.symbols.wrap} ", DIM)
        self.wrap = Wrap(columns, _painted(opened.lead, theme) + bar, rest)
        self._has_mark = opened.markers > 0 and not info  # which nothing has shown yet
        if info:
            self._write([(info, DIM | ITALIC)])
            self.wrap.end_line(self._bar)

    @property
    def is_fenced(self) -> bool:
        """Whether a fence ends it."""
        return bool(self._marker)

    def copy(self) -> Code:
        """The same, to go on with in another way."""
        other = copy.copy(self)
        other.wrap, other.highlighter = self.wrap.copy(), copy.copy(self.highlighter)
        return other

    def finish(self) -> None:
        """The mark of a list item is shown though no code has come."""
        if self._has_mark:
            self.wrap.end_line()

    def line(self, line: str) -> bool | None:
        """Show the next line of a fenced block.

        False when it was the fence that ends it, ``None`` when it is no part of it any more.
        """
        if self._marks is not None:
            marks = self._marks.match(line)
            if marks is None:
                return None
            line = line[marks.end() :]
        bare = line.strip()
        margin = len(line) - len(line.lstrip(" "))
        is_fence = bare and not bare.strip(self._marker[0]) and len(bare) >= len(self._marker)
        if is_fence and margin < self._margin + CODE_INDENT:
            return False
        self.show(line[min(margin, self._margin) :])
        return True

    def begin_line(self, line: str) -> str:
        """Show the line under way up to its last word; what is left of it, as a line of its own."""
        marks = self._marks.match(line) if self._marks is not None else None
        end = line.rfind(" ") + 1
        if end > (marks.end() if marks else 0) and _WORD.search(line, 0, end):
            self.line(line[:end])
            return (marks[0] if marks else "") + line[end:]
        return line

    def takes(self, opened: OpenedLine) -> bool:
        """A block of indented lines has another one."""
        if opened.start.kind is LineKind.INDENTED:
            self.show(_outdented(opened))
            return True
        return False

    def show(self, line: str) -> None:
        """Show a line of code as it is."""
        self._has_mark = False
        self._write(self.highlighter.line(line.expandtabs(CODE_INDENT)))
        self.wrap.end_line(self._bar)


# A table's widths are fixed by its first ``_FIXED_ROWS`` rows, so that later ones can be shown as
# they come; they are fixed again when a later word is wider than its column. Where the words do not
# fit beside each other, each cell is a line of ``head: cell``.

_FIXED_ROWS = 12
_LEAST_COLUMN = 8
LEFT, RIGHT, CENTER = "left", "right", "center"
_Cells = list[list[Span]]


class Table(MarkdownBlock):
    """Rows of cells in columns; ``head`` is its first line."""

    kind = LineKind.TABLE

    def __init__(self, opened: OpenedLine, theme: Theme, columns: int, head: str) -> None:
        super().__init__(opened, theme, columns)
        self.lines = [head]
        self._head: _Cells = []
        self._aligned: list[str] = []
        self._widths: list[int] | None = None
        self._fixed_for = 0  # the columns of the window that the widths were made for

    def copy(self) -> Table:
        """The same, to go on with in another way."""
        other = copy.copy(self)
        other.wrap, other.lines = self.wrap.copy(), list(self.lines)
        return other

    def takes(self, opened: OpenedLine) -> bool:
        """The delimiter row under the head; then each line with a bar in it."""
        line = opened.rest.strip()
        is_row = opened.start.kind in {LineKind.TABLE, LineKind.TEXT} and "|" in line
        if opened.items != self.items or not is_row:
            return False
        self.lines.append(line)
        if self._head or len(self.lines) == _FIXED_ROWS + 2:
            self._lay_out()
        return True

    def settle(self) -> None:
        """The widths are those that the rows so far want."""
        if self.lines:
            self._lay_out()

    finish = settle

    def _lay_out(self) -> None:
        lines, self.lines = self.lines, []
        begins = not self._head
        if begins:
            self._aligned = [_alignment(cell) for cell in split_row(lines[1])]
            self._head = self._cells(lines[0], BOLD)
            lines = lines[2:]
        rows = [self._cells(line, 0) for line in lines]
        if begins or self._fixed_for != self.wrap.columns or not self._fits(rows):
            self._fix([*([self._head] if begins or rows else []), *rows], begins=begins)
        if self._widths is None:
            self._records(rows, begins=begins)
            return
        if begins:
            self._row(self._head, self._widths)
            symbols = self._theme.symbols
            joint = f"{symbols.rule}{symbols.cross}{symbols.rule}"
            self._line([(joint.join(symbols.rule * width for width in self._widths), DIM)])
        for row in rows:
            self._row(row, self._widths)

    def _cells(self, line: str, style: int) -> _Cells:
        size = len(self._aligned)
        source = split_row(line)
        source += [""] * (size - len(source))
        # what is too much is shown in the last column rather than left out
        source[size - 1 :] = [" | ".join(source[size - 1 :])]
        return [spans(cell, style) for cell in source]

    def _fits(self, rows: Sequence[_Cells]) -> bool:
        widths = self._widths
        return widths is None or all(
            _widest_word(cell) <= width
            for row in rows
            for cell, width in zip(row, widths, strict=True)
        )

    def _fix(self, rows: Sequence[_Cells], *, begins: bool) -> None:
        size = len(self._aligned)
        before = [1] * size if begins or self._widths is None else self._widths
        natural = [max(before[at], *(_width(row[at]) for row in rows)) for at in range(size)]
        least = [
            max(min(natural[at], _LEAST_COLUMN), *(_widest_word(row[at]) for row in rows))
            for at in range(size)
        ]
        room = self.wrap.room - 3 * (size - 1)
        self._widths = _share(natural, least, room) if self._theme.symbols.cross else None
        self._fixed_for = self.wrap.columns

    def _row(self, row: _Cells, widths: list[int]) -> None:
        wrapped = [self._wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        bar = self._theme.paint(f" {self._theme.symbols.bar} ", DIM)
        for at in range(max(len(cell) for cell in wrapped)):
            parts = []
            for column, width in enumerate(widths):
                piece = wrapped[column][at] if at < len(wrapped[column]) else ""
                gap = width - columns_of(plain(piece))
                before = {LEFT: 0, RIGHT: gap, CENTER: gap // 2}[self._aligned[column]]
                after = 0 if column == len(widths) - 1 else gap - before
                parts.append(" " * before + piece + " " * after)
            self.wrap.put(bar.join(parts))

    def _wrapped(self, cell: list[Span], width: int) -> list[str]:
        wrap = Wrap(width)
        for text, style in cell:
            if text == LINE_BREAK:
                wrap.end_line()
            else:
                wrap.feed(text, self._theme.start(style))
        wrap.end_line()
        return wrap.rows

    def _records(self, rows: Sequence[_Cells], *, begins: bool) -> None:
        if begins and not rows:
            for cell in self._head:
                self._line(cell)
        for at, row in enumerate(rows):
            if at or not begins:
                self._line([(self._theme.symbols.rule * 3, DIM)])
            for name, cell in zip(self._head, row, strict=True):
                self._line([*name, (": ", 0), *cell] if name else cell, 2)

    def _line(self, line: Sequence[Span], indent: int = 0) -> None:
        hang = self.wrap.hang
        self.wrap.hang += " " * indent
        self._write(line)
        self.wrap.end_line(hang)
        self.wrap.hang = hang


def _alignment(cell: str) -> str:
    right = cell.endswith(":")
    return CENTER if right and cell.startswith(":") else RIGHT if right else LEFT


def _width(cell: list[Span]) -> int:
    lines = "".join(text for text, _ in cell).split(LINE_BREAK)
    return max(map(most_columns, lines))


def _widest_word(cell: list[Span]) -> int:
    words = "".join(text for text, _ in cell).split()
    return max(map(unbreakable_columns, words), default=0)


def _share(natural: list[int], least: list[int], room: int) -> list[int] | None:
    """Column widths that fit ``room``; ``None`` when there are none that hold the words."""
    if sum(natural) <= room:
        return natural
    spare = room - sum(least)
    if spare < 0:
        return None
    widths = list(least)
    by_need = sorted(range(len(natural)), key=lambda at: natural[at] - least[at])
    for done, at in enumerate(by_need):
        more = min(natural[at] - least[at], spare // (len(by_need) - done))
        widths[at] += more
        spare -= more
    return widths


# --- the stream -------------------------------------------------------------------------------


# A longer line is worked on in pieces before it is complete, one that may belong to a table or be
# a fence much later.
_PIECE = 80
_LONG = 2_000
_NEEDS_WHOLE = LazyPattern(r"\||```|~~~")
_LONGEST_TAIL = 4_000  # of an incomplete line, shown before it is complete
_RULE_COLUMNS = 40
_WORD = LazyPattern(r"[^\W\d_]")
_FENCE = LazyPattern(r"(?:[ \t>]|[-*+] |\d+[.)] )*(?:```|~~~)")
_SET_APART = frozenset({LineKind.HEADING, LineKind.FENCE, LineKind.TABLE, LineKind.RULE})


class MarkdownStream:
    """One text. ``columns`` tells how wide a row may be."""

    def __init__(self, theme: Theme, columns: Callable[[], int]) -> None:
        self._theme = theme
        self._columns = columns
        self._width = max(1, columns())  # when something was last fed
        self._rows: list[str] = []
        self._parts: list[str] = []  # the line so far, as far as it was not worked on
        self._size = 0
        self._goes_on = False  # the line so far was worked on in part
        self._context = LinesBefore()
        self._block: MarkdownBlock | None = None
        self._last: LineKind | None = None  # what was shown last
        self._blank = False  # an empty line waits for what comes after it

    def feed(self, text: str) -> list[str]:
        """The rows that are certain now and were not before."""
        self._measure()
        first, *others = text.split("\n")
        self._add(first)
        for piece in others:
            self._end_line()
            self._add(piece)
        return self._taken()

    def tail(self) -> list[str]:
        """The rows that would follow if the text ended here."""
        kept = dict(vars(self))
        # a table's row comes whole
        line = "" if isinstance(self._block, Table) else "".join(self._parts)[:_LONGEST_TAIL]
        self._rows, self._parts, self._size = [], [line], len(line)
        if self._block is not None:
            self._block = self._block.copy()
        rows = self.finish()
        vars(self).update(kept)
        return rows

    def settle(self, number: int) -> list[str]:
        """The first ``number`` rows of ``tail`` stand on the screen for good.

        Returns them and all that is as certain as they are; later text goes on after them.
        """
        self._measure()
        if self._goes_on:
            self._begin_line()
        rows = self._settled()
        if len(rows) < number:
            self._begin_line()
            rows += self._settled()
        if len(rows) < number and isinstance(self._block, Paragraph):
            self._block.wrap.break_row()
            rows += self._taken()
        return rows

    def _settled(self) -> list[str]:
        if self._block is not None:
            self._block.settle()
        return self._taken()

    def _begin_line(self) -> None:
        """Work on the line so far as far as it is plain what it is."""
        line = "".join(self._parts)
        block = self._block
        if isinstance(block, Code):
            line = block.begin_line(line) if block.is_fenced else line
        elif not isinstance(block, Table) and _WORD.search(line) and not _FENCE.match(line):
            self._piece(line)
            self._goes_on, line = True, ""
        elif self._goes_on and isinstance(block, Paragraph):
            block.add(line)
            line = ""
        self._parts, self._size = [line], len(line)

    def finish(self) -> list[str]:
        """The rest; nothing may be fed afterwards."""
        self._measure()
        if self._size or self._goes_on:
            self._end_line()
        self._close()
        return self._taken()

    def _measure(self) -> None:
        """What follows is laid out at the width that there is now."""
        self._width = max(1, self._columns())
        if self._block is not None:
            self._block.wrap.columns = self._width

    def _taken(self) -> list[str]:
        if self._block is not None:
            self._collect(self._block)
        out, self._rows = self._rows, []
        return out

    # --- lines -----------------------------------------------------------------------------

    def _add(self, piece: str) -> None:
        self._parts.append(piece)
        self._size += len(piece)
        if self._size >= _PIECE and not isinstance(self._block, Code | Table):
            self._cut_long()

    def _cut_long(self) -> None:
        """Work on the line so far in pieces."""
        line = "".join(self._parts)
        at = 0
        if not self._goes_on:
            size = _LONG if _NEEDS_WHOLE.search(line, 0, _PIECE) else _PIECE
            if len(line) < size:
                self._parts = [line]
                return
            self._piece(line[:size])
            at, self._goes_on = size, True
        while len(line) - at >= _PIECE and not isinstance(self._block, Code | Table):
            self._piece(line[at : at + _PIECE])
            at += _PIECE
        self._parts, self._size = [line[at:]], len(line) - at

    def _end_line(self) -> None:
        line = "".join(self._parts)
        self._parts, self._size = [], 0
        self._piece(line)
        self._goes_on = False

    def _piece(self, text: str) -> None:
        """A line, or a part of one."""
        if not self._goes_on:
            self._line(text)
        elif isinstance(self._block, Paragraph):
            self._block.add(text)
        elif text.strip(" \t-*_="):  # more than the rest of a rule
            self._goes_on = False
            self._line(text)

    def _line(self, line: str) -> None:
        block = self._block
        if isinstance(block, Code) and block.is_fenced:
            found = block.line(line)
            if found:
                return
            self._close()
            if found is False:
                return
        opened = open_line(line, self._context, self._theme.symbols)
        if not self._goes_into_block(opened):
            self._close()
            self._open(opened)
        self._remember(opened)

    def _goes_into_block(self, opened: OpenedLine) -> bool:
        """Whether the line goes on with what is under way, which has it then."""
        block = self._block
        if block is None or opened.markers or opened.quotes != block.quotes:
            return False
        head = block.take_head(opened) if isinstance(block, Paragraph) else None
        if head is None:
            return block.takes(opened)
        table = Table(opened, self._theme, block.wrap.columns, head)
        if isinstance(block, Paragraph) and block.is_begun:
            self._close()
            self._set_apart(opened, LineKind.TABLE)
        else:
            table.wrap = block.wrap
        self._block = table
        return table.takes(opened)

    def _open(self, opened: OpenedLine) -> None:
        kind, theme, columns = opened.start.kind, self._theme, self._width
        if kind is LineKind.BLANK and not opened.quotes and not opened.markers:
            self._blank = self._last is not None
            return
        self._set_apart(opened, LineKind.TEXT if kind is LineKind.TABLE else kind)
        text = opened.rest[opened.start.skip :]
        if kind is LineKind.FENCE:
            self._block = Code(opened, theme, columns)
        elif kind is LineKind.INDENTED:
            code = self._block = Code(opened, theme, columns)
            code.show(_outdented(opened))
        elif kind in {LineKind.RULE, LineKind.UNDERLINE}:
            self._show(opened, [(theme.symbols.rule * min(_RULE_COLUMNS, columns), DIM)])
        elif kind is LineKind.BLANK:
            self._show(opened, [])
        else:
            is_heading = kind is LineKind.HEADING
            style = _heading_style(opened.start.marker) if is_heading else 0
            paragraph = Paragraph(opened, theme, columns, style)
            self._block = paragraph
            paragraph.add(_CLOSING.sub("", text) if is_heading else text.lstrip(" \t"))
        self._last = kind

    def _set_apart(self, opened: OpenedLine, kind: LineKind) -> None:
        """An empty row before what follows, where the text has one or the kinds want one."""
        kinds = {kind, self._last}
        wanted = bool(kinds & _SET_APART) and not opened.items and not opened.quotes
        if self._last is not None and (self._blank or wanted):
            self._rows.append("")
        self._blank = False

    def _show(self, opened: OpenedLine, line: Sequence[Span]) -> None:
        """A row that is complete at once."""
        block = MarkdownBlock(opened, self._theme, self._width)
        for text, style in line:
            block.wrap.feed(text, self._theme.start(style))
        block.wrap.end_line()
        self._collect(block)

    def _remember(self, opened: OpenedLine) -> None:
        kind = opened.start.kind
        if kind is LineKind.BLANK and not opened.quotes and not opened.markers:
            self._context = LinesBefore(self._context.items, self._context.quotes)
            return
        self._context = LinesBefore(
            tuple(opened.items),
            opened.quotes,
            after_blank=kind is LineKind.INDENTED,
            in_paragraph=isinstance(self._block, Paragraph) and self._block.kind is LineKind.TEXT,
        )

    def _close(self) -> None:
        """What is under way is over."""
        block, self._block = self._block, None
        if block is not None:
            block.finish()
            self._last = block.kind
            self._collect(block)

    def _collect(self, block: MarkdownBlock) -> None:
        self._rows += block.wrap.rows
        block.wrap.rows = []
        block.wrap.columns = self._width


_CLOSING = LazyPattern(r"(?<![ \t])[ \t]+#+[ \t]*\Z")


def _heading_style(marker: str) -> int:
    return HEADING if len(marker) <= 2 else HEADING | ITALIC  # noqa: PLR2004 - the parts of a text


def _outdented(opened: OpenedLine) -> str:
    """A line of indented code without what makes it one."""
    line = opened.rest.expandtabs(CODE_INDENT)
    at_least = CODE_INDENT + (opened.items[-1] if opened.items and not opened.markers else 0)
    margin = len(line) - len(line.lstrip(" "))
    return line[min(margin, at_least) :]
