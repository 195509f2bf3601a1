"""Markdown as it streams, for a terminal's own scrollback (UI-1).

Law: what has been handed out is never taken back or redrawn; the concatenation of all that
``feed`` and ``finish`` return is the same however the text was cut; the cost is linear in the
text. A line of the text is a line of the output and the terminal wraps it, so that a window may
be resized and what is copied is the text itself. Code appears line by line, a table when it is
complete (or after ``MAX_TABLE_LINES``). The input must have passed ``sanitize``.

Each line is classified (``blocks``) as soon as that is certain and then handed to ``inline``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto

from agentcli.ui import table
from agentcli.ui.blocks import Kind, Start, classify
from agentcli.ui.highlight import Highlighter
from agentcli.ui.inline import Line, Span
from agentcli.ui.theme import CODE, DIM, HEADING, RESET, Theme

MAX_TABLE_LINES = 300
MAX_QUOTES = 16
_RULE_COLUMNS = 40
_QUOTE_MARKS = re.compile(r"(?: {0,3}> ?)+")


class _State(Enum):
    START = auto()  # the line's kind is not known yet
    INLINE = auto()  # the rest of the line is inline Markdown
    CODE = auto()  # inside a fence: whole lines only


class MarkdownStream:
    """One text. ``columns`` tells the screen's width when a table is laid out."""

    def __init__(self, theme: Theme, columns: Callable[[], int]) -> None:
        self._theme = theme
        self._columns = columns
        self._out: list[str] = []
        self._style = 0
        self._state = _State.START
        self._parts: list[str] = []  # the line so far, as far as it is not handed out
        self._line = Line()
        self._quotes = 0
        self._fence: Start | None = None
        self._fence_quotes = 0
        self._code = Highlighter("")
        self._table: list[str] = []
        self._started = False  # anything was printed
        self._blank = False  # an empty line waits for what comes after it
        self._after_blank = True
        self._in_list = False

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
        if not complete and (self._state is _State.CODE or self._holds_whole_line()):
            return
        line = "".join(self._parts)
        self._parts = [line] if line else []
        if self._state is _State.CODE:
            self._parts = []
            self._code_line(line)
        else:
            self._start(line, complete=complete)

    def _holds_whole_line(self) -> bool:
        """Whether the piece that has just come cannot settle what kind of line this is."""
        if len(self._parts) < 2:  # noqa: PLR2004 - one piece: not looked at yet
            return False
        begin = self._parts[0].lstrip(" \t")
        return (
            begin[:1] == "|" or begin[:3] in {"```", "~~~"} or not self._parts[-1].strip(" \t-*_>")
        )

    def _start(self, line: str, *, complete: bool) -> None:
        """Begin a line whose kind may now be certain."""
        quotes, skip = 0, 0
        while True:
            start = classify(
                line[skip:],
                complete=complete,
                code_allowed=self._after_blank and not self._in_list and not quotes,
            )
            if start is None or start.kind is not Kind.QUOTE or quotes == MAX_QUOTES:
                break
            quotes += 1
            skip += start.skip
        if start is None:
            return
        rest = line[skip:]
        if start.kind is Kind.TABLE and not quotes:
            self._parts = []
            self._table_line(rest)
            return
        self._parts = []
        self._end_table()
        self._open_line(rest, start, quotes, complete=complete)

    def _open_line(self, rest: str, start: Start, quotes: int, *, complete: bool) -> None:
        kind = start.kind
        if kind is Kind.BLANK and not quotes:
            self._blank = self._started
            self._after_blank = True
            return
        if kind is Kind.TEXT and start.indent == 0 and self._after_blank:
            self._in_list = False
        self._in_list = self._in_list or kind in {Kind.BULLET, Kind.ORDERED}
        self._begin_output()
        self._after_blank = kind is Kind.INDENTED
        self._quotes = quotes
        self._write(f"{self._theme.symbols.bar} " * quotes, DIM)
        indent = " " * start.indent if self._in_list else ""
        if kind is Kind.FENCE:
            self._open_fence(rest, start)
        elif kind is Kind.RULE:
            self._write(self._theme.symbols.rule * min(_RULE_COLUMNS, self._columns()), DIM)
            self._new_line()
        elif kind is Kind.INDENTED:
            self._hold_code(rest)
            if complete:
                self._inline(complete=True)
        else:
            if kind is Kind.QUOTE:
                start = Start(Kind.TEXT)
            style = HEADING if kind is Kind.HEADING else 0
            marker = self._marker(start)
            self._write(indent + marker, style or DIM if marker else 0)
            self._line = Line(style)
            self._line.add(rest[start.skip :])
            self._state = _State.INLINE
            self._inline(complete=complete)

    def _marker(self, start: Start) -> str:
        if start.kind is Kind.BULLET:
            return f"{self._theme.symbols.bullet} "
        return f"{start.marker} " if start.kind in {Kind.ORDERED, Kind.HEADING} else ""

    def _inline(self, *, complete: bool) -> None:
        """Show what is certain of the line's inline Markdown."""
        self._show(self._line.take(final=complete))
        if complete:
            self._new_line()

    # --- code ------------------------------------------------------------------------------

    def _hold_code(self, line: str) -> None:
        """An indented code line: literal text."""
        self._line = _Literal()
        self._line.add(line)
        self._state = _State.INLINE

    def _open_fence(self, rest: str, start: Start) -> None:
        info = rest[start.skip + len(start.marker) :].strip()
        self._write(start.marker + info, DIM)
        self._new_line()
        self._fence = start
        self._fence_quotes = self._quotes
        language = info.split(maxsplit=1)[0].strip("{}.").partition(":")[0] if info else ""
        self._code = Highlighter(language if self._theme.color else "")
        self._state = _State.CODE

    def _code_line(self, line: str) -> None:
        """One whole line inside a fence: code, or the fence that closes it."""
        fence = self._fence
        if fence is None:
            raise RuntimeError("a code line outside a fence")
        if self._fence_quotes:
            marks = _QUOTE_MARKS.match(line)
            if marks is None:
                self._fence = None
                self._state = _State.START
                self._add(line, complete=True)
                return
            line = line[marks.end() :]
        self._begin_output()
        self._write(f"{self._theme.symbols.bar} " * self._fence_quotes, DIM)
        bare = line.strip()
        if bare and not bare.strip(fence.marker[0]) and len(bare) >= len(fence.marker):
            self._write(bare, DIM)
            self._fence = None
            self._new_line()
            return
        margin = len(line) - len(line.lstrip(" "))
        for text, style in self._code.line(line[min(margin, fence.indent) :]):
            self._write(text, style)
        self._new_line()

    # --- tables ----------------------------------------------------------------------------

    def _table_line(self, line: str) -> None:
        if len(self._table) == 1 and not table.is_delimiter(line):
            self._end_table()
        self._table.append(line)
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
            shown = table.render(lines, self._columns(), self._theme)
        self._quotes = 0
        for line in shown:
            self._begin_output()
            self._show(line)
            self._new_line()
        self._after_blank = False

    # --- output ----------------------------------------------------------------------------

    def _begin_output(self) -> None:
        if self._blank:
            self._out.append("\n")
            self._blank = False
        self._started = True

    def _show(self, line: list[Span]) -> None:
        """Write spans; a span that is a line feed is a break within the line's block."""
        for text, style in line:
            if text == "\n":
                self._switch(0)
                self._out.append("\n")
                self._write(f"{self._theme.symbols.bar} " * self._quotes, DIM)
            else:
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
        self._state = _State.CODE if self._fence else _State.START

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
