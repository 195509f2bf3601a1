"""The syntax of Markdown: the kind of a line, what it stands in, what is in it.

Blocks are told apart line by line, because a text that streams cannot wait for its end; what is in
a paragraph is parsed by markdown-it, the parser that Rich's Markdown uses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum, auto
from functools import cache
from typing import TYPE_CHECKING, Protocol

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen, mutable
from agentcli.ui.highlight import Span
from agentcli.ui.sanitize import clean
from agentcli.ui.theme import BOLD, CODE, DIM, ITALIC, LINK, MARKER, STRIKE, Symbols

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_HEADING = LazyPattern(r"#{1,6}(?=[ \t]|$)")
_ORDERED = LazyPattern(r"\d{1,9}[.)](?=[ \t]|$)")
_FENCE = LazyPattern(r"(`{3,})([^`]*)$|(~{3,})(.*)$")
_INDENT = LazyPattern(r"[ \t]*")
_UNDERLINE = LazyPattern(r"(?:=+|-{2,})[ \t]*\Z")
CODE_INDENT = 4
_RULE_MARKS = 3


class LineKind(IntEnum):
    """What a line begins or is."""

    BLANK = auto()
    TEXT = auto()
    HEADING = auto()
    RULE = auto()
    FENCE = auto()
    QUOTE = auto()
    BULLET = auto()
    ORDERED = auto()
    TABLE = auto()
    INDENTED = auto()
    UNDERLINE = auto()


@frozen
class Start:
    """A line's kind; ``skip`` characters of it are marks that are shown in another way.

    ``marker`` is what a list item, fence or heading begins with, ``indent`` the columns before.
    """

    kind: LineKind
    skip: int = 0
    indent: int = 0
    marker: str = ""


def classify(line: str, *, code_from: int | None = None, in_paragraph: bool = False) -> Start:
    """The kind of ``line``; it holds no line feed.

    ``code_from``: the columns of indentation that make it code, where any do. Only after a line
    of a paragraph ``===`` makes that one a heading, and a number but 1 is no list.
    """
    match = _INDENT.match(line)
    skip = match.end() if match else 0
    rest = line[skip:]
    if not rest:
        return Start(LineKind.BLANK)
    indent = len(line[:skip].expandtabs(CODE_INDENT))
    if code_from is not None and indent >= code_from:
        return Start(LineKind.INDENTED, skip, indent)
    if in_paragraph and _UNDERLINE.match(rest):
        return Start(LineKind.UNDERLINE, skip, indent)
    judge = _JUDGES.get(rest[0])
    found = judge(rest, skip, indent) if judge else None
    if found and in_paragraph and found.kind is LineKind.ORDERED and found.marker[:-1] != "1":
        found = None
    return found or Start(LineKind.TEXT, skip, indent)


def _quote(rest: str, skip: int, indent: int) -> Start | None:
    return Start(LineKind.QUOTE, skip + 1 + (rest[1:2] == " "), indent)


def _table(_rest: str, skip: int, indent: int) -> Start | None:
    return Start(LineKind.TABLE, skip, indent)


def _heading(rest: str, skip: int, indent: int) -> Start | None:
    if found := _HEADING.match(rest):
        return Start(LineKind.HEADING, skip + _with_space(rest, found.end()), indent, found[0])
    return None


def _ordered(rest: str, skip: int, indent: int) -> Start | None:
    if found := _ORDERED.match(rest):
        return Start(LineKind.ORDERED, skip + _with_space(rest, found.end()), indent, found[0])
    return None


def _with_space(rest: str, end: int) -> int:
    """Past the white space after a marker; a deep indent after it is kept as text."""
    spaces = len(rest) - end - len(rest[end:].lstrip(" \t"))
    return end + min(spaces, 1)


def _fence(rest: str, skip: int, indent: int) -> Start | None:
    if found := _FENCE.match(rest):
        return Start(LineKind.FENCE, skip, indent, found[1] or found[3])
    return None


def _bullet_or_rule(rest: str, skip: int, indent: int) -> Start | None:
    first = rest[0]
    is_rule = first != "+" and not rest.strip(f"{first} \t") and rest.count(first) >= _RULE_MARKS
    if is_rule:
        return Start(LineKind.RULE, skip, indent)
    if first == "_" or (len(rest) > 1 and rest[1] not in " \t"):
        return None
    return Start(LineKind.BULLET, skip + min(2, len(rest)), indent, first)


class _Judge(Protocol):
    def __call__(self, rest: str, skip: int, indent: int, /) -> Start | None: ...


_JUDGES: dict[str, _Judge] = {
    **dict.fromkeys("`~", _fence),
    **dict.fromkeys("-*_+", _bullet_or_rule),
    **dict.fromkeys("0123456789", _ordered),
    ">": _quote,
    "|": _table,
    "#": _heading,
}


# --- what a line stands in: quotes and list items ---------------------------------------------

MAX_DEPTH = 16
_CONTAINERS = frozenset({LineKind.QUOTE, LineKind.BULLET, LineKind.ORDERED})
_NEVER_LAZY = frozenset(
    {LineKind.HEADING, LineKind.RULE, LineKind.FENCE, LineKind.TABLE, LineKind.QUOTE}
)
_TASK = LazyPattern(r"\[([ xX])\](?=[ \t]|$)[ \t]?")


@frozen
class LinesBefore:
    """What the lines before have left open. ``items``: the column where each item's text begins."""

    items: tuple[int, ...] = ()
    quotes: int = 0
    after_blank: bool = True
    in_paragraph: bool = False


@mutable
class OpenedLine:
    """The beginning of a line. ``lead`` is shown before ``rest``, for what that stands in."""

    items: list[int]
    start: Start = field(default_factory=lambda: Start(LineKind.BLANK))
    rest: str = ""
    quotes: int = 0
    markers: int = 0
    lead: list[Span] = field(default_factory=list)

    @property
    def hang(self) -> list[Span]:
        """What stands before the further rows: the bars of quotes, white space for marks."""
        return [
            (text, style) if style != MARKER else (" " * len(text), 0) for text, style in self.lead
        ]

    @property
    def margin(self) -> int:
        """The column where ``rest`` begins, as far as it is indented by its list items."""
        return self.items[-1] if self.markers else self.start.indent


def open_line(line: str, context: LinesBefore, symbols: Symbols) -> OpenedLine:
    """How ``line`` begins."""
    opened = OpenedLine(list(context.items))
    position = column = 0
    while True:
        rest = line[position:]
        same = not opened.markers and opened.quotes == context.quotes
        start = classify(
            rest,
            code_from=_code_from(opened, context),
            in_paragraph=same and context.in_paragraph and _is_within(rest, opened.items),
        )
        if not opened.markers and start.kind is not LineKind.QUOTE and same:
            _leave_items(opened.items, start, context)
        depth = opened.quotes + opened.markers
        if start.kind not in _CONTAINERS or depth == MAX_DEPTH:
            opened.start, opened.rest = start, rest
            if opened.items and not opened.markers and start.kind is not LineKind.BLANK:
                opened.lead.append((" " * opened.items[-1], 0))
            return opened
        if start.kind is LineKind.QUOTE:
            if not opened.markers and not opened.quotes and not context.quotes:
                _leave_items(opened.items, start, context)
            opened.lead += _indent(start.indent, opened)
            opened.lead.append((f"{symbols.bar} ", DIM))
            opened.quotes += 1
        else:
            opened.lead += _indent(start.indent, opened)
            mark = symbols.bullet if start.kind is LineKind.BULLET else start.marker
            column += start.indent + len(start.marker) + 1
            opened.items.append(column)
            opened.markers += 1
            task = _TASK.match(rest, start.skip)
            if task:
                box = symbols.todo if task[1] == " " else symbols.done
                mark = box if start.kind is LineKind.BULLET else f"{mark} {box}"
                start = Start(start.kind, task.end(), start.indent, start.marker)
            opened.lead.append((f"{mark} ", MARKER))
        position += start.skip


def _is_within(rest: str, items: list[int]) -> bool:
    """Whether a line is indented as far as the text of the item that it may belong to."""
    return not items or len(rest) - len(rest.lstrip(" ")) >= items[-1] or rest[:1] == "\t"


def _indent(columns: int, opened: OpenedLine) -> list[Span]:
    """The white space before a mark: kept where it says how deep an item is."""
    return [(" " * columns, 0)] if columns and (opened.items or opened.markers) else []


def _code_from(opened: OpenedLine, context: LinesBefore) -> int | None:
    if opened.markers:
        return CODE_INDENT
    if opened.quotes or not context.after_blank:
        return None
    return CODE_INDENT + (opened.items[-1] if opened.items else 0)


def _leave_items(items: list[int], start: Start, context: LinesBefore) -> None:
    """Forget the items that a line of this indentation does not belong to."""
    kind = start.kind
    if kind in {LineKind.BLANK, LineKind.INDENTED}:
        return
    if kind in {LineKind.BULLET, LineKind.ORDERED} or kind in _NEVER_LAZY or context.after_blank:
        while items and start.indent < items[-1]:
            items.pop()


# --- tables -----------------------------------------------------------------------------------

_DELIMITER = LazyPattern(r"^\s*(?:\|\s*)?:?-+:?\s*(?:\|\s*:?-+:?\s*)*(?:\|\s*)?$")
_CELL_END = LazyPattern(r"(?<!\\)\|")


def begins_table(head: str, line: str) -> bool:
    """Whether ``line`` (``|---|:--:|``) under ``head`` makes a table of them."""
    is_delimiter = "-" in line and "|" in line and _DELIMITER.match(line) is not None
    return is_delimiter and len(split_row(head)) == len(split_row(line))


def split_row(line: str) -> list[str]:
    """The cells' source, without the outer bars."""
    body = line.strip()
    body = body.removeprefix("|")
    if body.endswith("|") and not body.endswith("\\|"):
        body = body[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(body)]


# --- within a paragraph: emphasis, code, links ------------------------------------------------

# Law: what cannot be decided from the text so far is ``is_open``. Link targets are shown (SEC-10),
# HTML tags stay text, what an entity stands for is sanitized.


LINE_BREAK = "\n"
"""The text of a span that is a line break."""

MAX_PARSED = 4_000
"""Longer stretches without a place to cut them are shown as they are."""
_MOST_BRACKETS = 128  # images within images take the parser a time that grows with its square

_SPECIAL = LazyPattern(r"[\\`*_~\[!<&]|(?<! )  +\n")
_BREAK = LazyPattern(r"<br\s*/?>\Z", re.IGNORECASE)
_OPENS = LazyPattern(r"`|~~|\*+(?=\S)|(?<!\w)_+(?=\S)|<(?=[A-Za-z/!?])|\]\([^)]*\Z|\\\Z")
_STYLES = {"strong": BOLD, "em": ITALIC, "s": STRIKE, "link": LINK}


def spans(text: str, style: int = 0) -> list[Span]:
    """The styled pieces of ``text``, all of it in ``style``; addresses in it are links.

    Line breaks stay, as https://spec.commonmark.org/0.31.2/#soft-line-breaks allows: who breaks a
    line for a terminal means it.
    """
    if len(text) > MAX_PARSED or not _SPECIAL.search(text) or text.count("[") > _MOST_BRACKETS:
        found = _literal(text, style)
    elif (simple := _simple(text, style)) is not None:
        found = simple
    else:
        found = _styled(_inline(text), style)
    return _linked(found) if "://" in text else found


# https://github.github.com/gfm/#autolinks-extension-: without the punctuation at its end, and
# without a parenthesis that it does not open
_ADDRESS = LazyPattern(r"(?<![\w/])https?://[^\s<>\"'`]+")


def _linked(line: Sequence[Span]) -> list[Span]:
    """``line`` with the addresses that stand in plain text as links."""
    out: list[Span] = []
    for text, style in _joined(line):
        at = 0
        for found in _ADDRESS.finditer(text) if not style & (CODE | LINK | DIM) else ():
            address = found[0].rstrip("?!.,:;*_~")
            while address.endswith(")") and address.count(")") > address.count("("):
                address = address[:-1].rstrip("?!.,:;*_~")
            end = found.start() + len(address)
            out += [(text[at : found.start()], style), (address, style | LINK)]
            at = end
        out.append((text[at:], style))
    return [span for span in out if span[0]]


def _joined(line: Sequence[Span]) -> list[Span]:
    """``line`` with neighbours of one style as one; a break stays by itself."""
    out: list[Span] = []
    for text, style in line:
        if out and out[-1][1] == style and LINE_BREAK not in (text, out[-1][0]):
            out[-1] = (out[-1][0] + text, style)
        else:
            out.append((text, style))
    return out


def is_open(text: str) -> bool:
    """Whether what follows ``text`` could change how it looks."""
    if (
        text.count("[") > _MOST_BRACKETS
        or not _SPECIAL.search(text)
        or _simple(text, 0) is not None
    ):
        return False
    left = "".join(token.content for token in _inline(text) if token.type == "text")
    return _OPENS.search(left) is not None or left.count("[") > left.count("]")


# what most lines are made of; what the parser makes of it is known without asking
_SIMPLE = LazyPattern(
    r"([^\\`*_~\[!<&\n]+|!(?!\[)|&(?![#\w])|(?<=\w)_(?=\w)|<(?![A-Za-z/!?])|(?<= )\*(?= ))"
    r"|`(?! )([^`\n]*[^` \n])`(?!`)"
    r"|(?:(?<=\s)|(?<![^\n]))\*\*(?=\w)([^\\`*_~\[!<&\n]*\w)\*\*(?=[\s.,:;)]|\Z)"
)


def _simple(text: str, style: int) -> list[Span] | None:
    """The spans of ``text`` where it has code and bold words at most, and no line break."""
    out: list[Span] = []
    at = 0
    for found in _SIMPLE.finditer(text):
        if found.start() != at:
            return None
        at = found.end()
        piece, code, bold = found.groups()
        if piece is None:
            out.append((code, style | CODE) if code else (bold, style | BOLD))
        elif out and out[-1][1] == style:
            out[-1] = (out[-1][0] + piece, style)
        else:
            out.append((piece, style))
    return out if at == len(text) else None


def _inline(text: str) -> list[Token]:
    tokens = _parser().parseInline(text)
    return (tokens[0].children or []) if tokens else []


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    class AsWritten(MarkdownIt):
        """Links as they were written: they are shown, and nothing opens them."""

        def normalizeLink(self, url: str) -> str:  # noqa: N802 - the name of the parser's hook
            return url

        def validateLink(self, url: str) -> bool:  # noqa: N802 - the name of the parser's hook
            del url
            return True

    return AsWritten("commonmark").enable("strikethrough")


def _literal(text: str, style: int) -> list[Span]:
    out: list[Span] = []
    for at, line in enumerate(text.split("\n")):
        if at:
            out.append((LINE_BREAK, style))
        if line:
            out.append((line, style))
    return out


def _styled(tokens: list[Token], style: int) -> list[Span]:
    out: list[Span] = []
    links: list[tuple[str, int]] = []  # the target of each open link and where its text began
    for token in tokens:
        name, _, edge = token.type.rpartition("_")
        if token.type == "link_open":
            links.append((str(token.attrs.get("href", "")), len(out)))
        elif token.type == "link_close":
            target, begun = links.pop()
            out += _target(out[begun:], target, style & ~LINK)
        if edge in {"open", "close"}:
            bit = _STYLES.get(name, 0)
            style = style | bit if edge == "open" else style & ~bit
        elif token.type in {"softbreak", "hardbreak"} or _is_break(token):
            out.append((LINE_BREAK, style))
        elif token.type == "image":
            inner = _styled(token.children or [], style | LINK)
            out += inner + _target(inner, str(token.attrs.get("src", "")), style)
        else:
            bit = CODE if token.type == "code_inline" else 0
            text = clean(token.content).replace("\n", " ").replace("\t", " ")
            out.append((text, style | bit))
    return [span for span in out if span[0]]


def _is_break(token: Token) -> bool:
    return token.type == "html_inline" and _BREAK.match(token.content) is not None


def _target(shown: list[Span], target: str, style: int) -> list[Span]:
    """What follows a link's text: its target, unless the text is that."""
    target = clean(target).replace("\n", " ")
    text = "".join(part for part, _ in shown)
    if not text.strip():
        return [(target, style | LINK)]
    return [] if target in {text, f"mailto:{text}"} else [(f" ({target})", style | DIM)]
