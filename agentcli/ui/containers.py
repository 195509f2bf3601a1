"""What a Markdown line stands in: quotes and list items, several of which may begin in it.

Law: ``open_line`` answers a text, the undecided rest, as long as more characters could change the
answer and the line is not complete; so the answer depends on the line and not on how it was cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentcli.ui.blocks import CODE_INDENT, Kind, Start, classify
from agentcli.ui.inline import Span
from agentcli.ui.theme import DIM, Symbols

MAX_DEPTH = 16
_CONTAINERS = frozenset({Kind.QUOTE, Kind.BULLET, Kind.ORDERED})
_NEVER_LAZY = frozenset({Kind.HEADING, Kind.RULE, Kind.FENCE, Kind.TABLE, Kind.QUOTE})


@dataclass(frozen=True, slots=True)
class Context:
    """What the lines before have left open. ``items``: the column where each item's text begins."""

    items: tuple[int, ...] = ()
    quotes: int = 0
    after_blank: bool = True
    in_paragraph: bool = False


@dataclass(slots=True)
class Opened:
    """The beginning of a line. ``lead`` is shown for what ``rest`` stands in."""

    items: list[int]
    start: Start = field(default_factory=lambda: Start(Kind.BLANK))
    rest: str = ""
    quotes: int = 0
    markers: int = 0
    lead: list[Span] = field(default_factory=list)

    @property
    def margin(self) -> int:
        """The column where ``rest`` begins, as far as it is indented by its list items."""
        return self.items[-1] if self.markers else self.start.indent


def open_line(line: str, context: Context, symbols: Symbols, *, complete: bool) -> Opened | str:
    """How ``line`` begins; while that is undecided, the part of it that is."""
    opened = Opened(list(context.items))
    position = column = 0
    while True:
        rest = line[position:]
        same = not opened.markers and opened.quotes == context.quotes
        start = classify(
            rest,
            complete=complete,
            code_from=_code_from(opened, context),
            in_paragraph=same and context.in_paragraph,
        )
        if start is None:
            return rest
        if not opened.markers and start.kind is not Kind.QUOTE and same:
            _leave_items(opened.items, start, context)
        depth = opened.quotes + opened.markers
        if start.kind not in _CONTAINERS or depth == MAX_DEPTH:
            opened.start, opened.rest = start, rest
            return opened
        if start.kind is Kind.QUOTE:
            if not opened.markers and not opened.quotes and not context.quotes:
                _leave_items(opened.items, start, context)
            opened.lead += _indent(start.indent, opened)
            opened.lead.append((f"{symbols.bar} ", DIM))
            opened.quotes += 1
        else:
            opened.lead += _indent(start.indent, opened)
            mark = symbols.bullet if start.kind is Kind.BULLET else start.marker
            opened.lead.append((f"{mark} ", DIM))
            column += start.indent + len(start.marker) + 1
            opened.items.append(column)
            opened.markers += 1
        position += start.skip


def _indent(columns: int, opened: Opened) -> list[Span]:
    """The white space before a mark: kept where it says how deep an item is."""
    return [(" " * columns, 0)] if columns and (opened.items or opened.markers) else []


def _code_from(opened: Opened, context: Context) -> int | None:
    if opened.markers:
        return CODE_INDENT
    if opened.quotes or not context.after_blank:
        return None
    return CODE_INDENT + (opened.items[-1] if opened.items else 0)


def _leave_items(items: list[int], start: Start, context: Context) -> None:
    """Forget the items that a line of this indentation does not belong to."""
    kind = start.kind
    if kind in {Kind.BLANK, Kind.INDENTED}:
        return
    if kind in {Kind.BULLET, Kind.ORDERED} or kind in _NEVER_LAZY or context.after_blank:
        while items and start.indent < items[-1]:
            items.pop()
