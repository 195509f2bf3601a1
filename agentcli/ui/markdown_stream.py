"""Markdown as it streams, for a terminal's own scrollback (UI-1).

Law: what has been handed out is never taken back or redrawn; the concatenation of all that
``feed`` and ``finish`` return is the same however the text was cut; the cost is linear in the
text. A line of the text is a line of the output and the terminal wraps it, so that a window may
be resized and what is copied is the text itself. Code appears line by line, a table when it is
complete (or after ``MAX_TABLE_LINES``). The input must have passed ``sanitize``.

What a line stands in is found first (``containers``), then its kind (``blocks``); its text is
handed to ``inline``, which may go on over the lines of a paragraph.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from agentcli.ui import table
from agentcli.ui.blocks import Kind, waits_for_end
from agentcli.ui.code_block import CodeBlock
from agentcli.ui.containers import Context, Opened, open_line
from agentcli.ui.inline import SOFT_BREAK, Line, Span
from agentcli.ui.theme import CODE, DIM, HEADING, RESET, Theme

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
        self._line = Line()
        self._goes_on = False  # the paragraph's inline Markdown may go on in the next line
        self._leads: list[list[Span]] = []  # what is shown at the beginning of its further lines
        self._quotes = 0
        self._context = Context()
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
        if kind is Kind.TABLE and not opened.markers:
            self._table_line(opened)
            return
        self._end_table()
        self._open_line(opened, complete=complete)

    def _is_continued(self, opened: Opened) -> bool:
        """Whether the line goes on with the paragraph whose inline Markdown is open."""
        same = opened.quotes == self._quotes and not opened.markers
        return same and opened.start.kind is Kind.TEXT and not self._context.after_blank

    def _open_line(self, opened: Opened, *, complete: bool) -> None:
        kind = opened.start.kind
        if kind is Kind.BLANK and not opened.quotes and not opened.markers:
            self._blank = self._started
            self._context = Context(self._context.items, self._context.quotes)
            return
        self._begin_output()
        self._quotes = opened.quotes
        self._remember(opened)
        self._show_lead([*opened.lead, *self._indent(opened)])
        if kind is Kind.FENCE:
            self._code = CodeBlock(opened, self._theme)
            self._show(self._code.head)
            self._new_line()
        elif kind in {Kind.RULE, Kind.UNDERLINE}:
            self._write(self._theme.symbols.rule * min(_RULE_COLUMNS, self._columns()), DIM)
            self._new_line()
        elif kind is Kind.INDENTED:
            self._line = _Literal()
            self._open_inline(opened.rest, complete=complete)
        else:
            style = HEADING if kind is Kind.HEADING else 0
            if kind is Kind.HEADING:
                self._write(f"{opened.start.marker} ", style)
            self._line = Line(style)
            self._open_inline(opened.rest[self._skip(opened) :], complete=complete)

    def _skip(self, opened: Opened) -> int:
        """How much of the rest is white space and marks that are shown in another way."""
        return opened.start.skip if opened.start.kind in {Kind.TEXT, Kind.HEADING} else 0

    def _indent(self, opened: Opened) -> list[Span]:
        """The white space before the text of a list item's further lines."""
        is_text = opened.start.kind in {Kind.TEXT, Kind.HEADING}
        columns = opened.start.indent if is_text and opened.items else 0
        return [(" " * columns, 0)] if columns else []

    def _remember(self, opened: Opened) -> None:
        kind = opened.start.kind
        self._context = Context(
            tuple(opened.items),
            opened.quotes,
            after_blank=kind is Kind.INDENTED,
            in_paragraph=kind is Kind.TEXT,
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

    def _table_line(self, opened: Opened) -> None:
        lead = [span for span in opened.lead if span[0].strip()]
        line = opened.rest
        if len(self._table) == 1 and not table.begins(self._table[0], line):
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
            shown = table.render(lines, room, self._theme)
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


class _Literal(Line):
    """A line without Markdown in it."""

    __slots__ = ()

    def take(self, *, final: bool = False) -> list[Span]:
        del final
        text, self._text = self._text, ""
        return [(text, CODE)] if text else []


def _whole(line: str) -> list[Span]:
    whole = Line()
    whole.add(line)
    return whole.take(final=True)
