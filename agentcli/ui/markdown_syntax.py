"""The syntax of Markdown that streams: the kind of a line, what it stands in, what is in it.

Law: each is decided from as few characters as possible; as long as more of them could change the
answer, there is none yet. So the answer depends on the text and not on how it was cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar, Protocol

from agentcli.ui.sanitize import clean
from agentcli.ui.theme import BOLD, CODE, DIM, ITALIC, LINK, STRIKE, Symbols

_HEADING = re.compile(r"#{1,6}(?=[ \t]|$)")
_ORDERED = re.compile(r"\d{1,9}[.)](?=[ \t]|$)")
_ORDERED_BEGUN = re.compile(r"\d{1,9}[.)]?\Z")
_FENCE = re.compile(r"(`{3,})([^`]*)$|(~{3,})(.*)$")
_INDENT = re.compile(r"[ \t]*")
_UNDERLINE = re.compile(r"=+[ \t]*\Z")
CODE_INDENT = 4
_MAX_LEVEL = 6
_RULE_MARKS = 3


class LineKind(Enum):
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


@dataclass(frozen=True, slots=True)
class Start:
    """A line's kind; ``skip`` characters of it are marks that are shown in another way.

    ``marker`` is what a list item, fence or heading begins with, ``indent`` the columns before.
    """

    kind: LineKind
    skip: int = 0
    indent: int = 0
    marker: str = ""


def classify(
    line: str, *, complete: bool, code_from: int | None = None, in_paragraph: bool = False
) -> Start | None:
    """The kind of ``line`` or of the line that begins so; holds no line feed.

    ``code_from``: the columns of indentation that make it code, where any do. Only after a line
    of a paragraph ``===`` makes that one a heading, and a number but 1 is no list.
    """
    match = _INDENT.match(line)
    skip = match.end() if match else 0
    rest = line[skip:]
    if not rest:
        return Start(LineKind.BLANK) if complete else None
    indent = len(line[:skip].expandtabs(CODE_INDENT))
    if code_from is not None and indent >= code_from:
        return Start(LineKind.INDENTED, skip, indent)
    judge = _JUDGES.get(rest[0])
    if judge is None or (rest[0] == "=" and not in_paragraph):
        return Start(LineKind.TEXT, skip, indent)
    found = judge(rest, skip, indent, complete=complete)
    if found and in_paragraph and found.kind is LineKind.ORDERED and found.marker[:-1] != "1":
        return Start(LineKind.TEXT, skip, indent)
    return found


def waits_for_end(rest: str) -> bool:
    """Whether only the end of the line can tell the kind of one that begins so."""
    return rest[:1] == "|" or rest[:3] in {"```", "~~~"}


def _quote(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if len(rest) == 1 and not complete:
        return None
    return Start(LineKind.QUOTE, skip + 1 + (rest[1:2] == " "), indent)


def _table(_rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    return Start(LineKind.TABLE, skip, indent) if complete else None


def _heading(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if not complete and len(rest) <= _MAX_LEVEL and not rest.lstrip("#"):
        return None
    if found := _HEADING.match(rest):
        return Start(LineKind.HEADING, skip + _with_space(rest, found.end()), indent, found[0])
    return Start(LineKind.TEXT, skip, indent)


def _ordered(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if not complete and _ORDERED_BEGUN.match(rest):
        return None
    if found := _ORDERED.match(rest):
        return Start(LineKind.ORDERED, skip + _with_space(rest, found.end()), indent, found[0])
    return Start(LineKind.TEXT, skip, indent)


def _with_space(rest: str, end: int) -> int:
    """Past the white space after a marker; a deep indent after it is kept as text."""
    spaces = len(rest) - end - len(rest[end:].lstrip(" \t"))
    return end + min(spaces, 1)


def _fence(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if not complete:
        run = len(rest) - len(rest.lstrip(rest[0]))
        return None if run >= 3 or run == len(rest) else Start(LineKind.TEXT, skip, indent)  # noqa: PLR2004 - ```
    if found := _FENCE.match(rest):
        return Start(LineKind.FENCE, skip, indent, found[1] or found[3])
    return Start(LineKind.TEXT, skip, indent)


def _bullet_or_rule(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    first = rest[0]
    if first != "+" and not rest.strip(f"{first} \t"):
        if not complete:
            return None
        if rest.count(first) >= _RULE_MARKS:
            return Start(LineKind.RULE, skip, indent)
    if first == "_" or (len(rest) > 1 and rest[1] not in " \t"):
        return Start(LineKind.TEXT, skip, indent)
    if len(rest) == 1 and not complete:
        return None
    return Start(LineKind.BULLET, skip + min(2, len(rest)), indent, first)


def _underline(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if not _UNDERLINE.match(rest):
        return Start(LineKind.TEXT, skip, indent)
    return Start(LineKind.UNDERLINE, skip, indent) if complete else None


class _Judge(Protocol):
    def __call__(self, rest: str, skip: int, indent: int, /, *, complete: bool) -> Start | None: ...


_JUDGES: dict[str, _Judge] = {
    **dict.fromkeys("`~", _fence),
    **dict.fromkeys("-*_+", _bullet_or_rule),
    **dict.fromkeys("0123456789", _ordered),
    ">": _quote,
    "|": _table,
    "#": _heading,
    "=": _underline,
}


# --- what a line stands in: quotes and list items ---------------------------------------------

MAX_DEPTH = 16
_CONTAINERS = frozenset({LineKind.QUOTE, LineKind.BULLET, LineKind.ORDERED})
_NEVER_LAZY = frozenset(
    {LineKind.HEADING, LineKind.RULE, LineKind.FENCE, LineKind.TABLE, LineKind.QUOTE}
)


@dataclass(frozen=True, slots=True)
class LinesBefore:
    """What the lines before have left open. ``items``: the column where each item's text begins."""

    items: tuple[int, ...] = ()
    quotes: int = 0
    after_blank: bool = True
    in_paragraph: bool = False


@dataclass(slots=True)
class OpenedLine:
    """The beginning of a line. ``lead`` is shown for what ``rest`` stands in."""

    items: list[int]
    start: Start = field(default_factory=lambda: Start(LineKind.BLANK))
    rest: str = ""
    quotes: int = 0
    markers: int = 0
    lead: list[Span] = field(default_factory=list)

    @property
    def margin(self) -> int:
        """The column where ``rest`` begins, as far as it is indented by its list items."""
        return self.items[-1] if self.markers else self.start.indent


def open_line(
    line: str, context: LinesBefore, symbols: Symbols, *, complete: bool
) -> OpenedLine | str:
    """How ``line`` begins; while that is undecided, the part of it that is."""
    opened = OpenedLine(list(context.items))
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
        if not opened.markers and start.kind is not LineKind.QUOTE and same:
            _leave_items(opened.items, start, context)
        depth = opened.quotes + opened.markers
        if start.kind not in _CONTAINERS or depth == MAX_DEPTH:
            opened.start, opened.rest = start, rest
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
            opened.lead.append((f"{mark} ", DIM))
            column += start.indent + len(start.marker) + 1
            opened.items.append(column)
            opened.markers += 1
        position += start.skip


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


# --- within a paragraph: emphasis, code, links ------------------------------------------------

# Law: ``InlineText.take`` hands out text as soon as its look is certain and never takes it back;
# what a delimiter opens is held until it is closed, the text ends or ``LOOK_AHEAD`` characters have
# come without a close. The rules follow https://spec.commonmark.org/0.31.2/#inlines where that can
# be decided within these bounds; link targets are shown (SEC-10), HTML tags stay text.


LOOK_AHEAD = 500
_MAX_DEPTH = 6
_MAX_RUN = 3

SOFT_BREAK = "\r"
"""Where a line of the source ends within a paragraph; sanitized text holds no such character."""

Span = tuple[str, int]

_SPECIAL = re.compile(r"[\\`*_~\[!<&]")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_RUNS = {c: re.compile(re.escape(c) + "+") for c in "`*_~"}
_CLOSERS = {c: re.compile(rf"\\\\.|`+|{re.escape(c)}+") for c in "*_~"}
_BRACKETS = re.compile(r"\\.|[\[\]]")
_LINK_TAIL = re.compile(
    r"\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))"
    r"(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
)
_AUTOLINK = re.compile(r"<((?:https?|ftp|mailto|file):[^\s<>]*)>")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TAG_BEGUN = re.compile(r"<[A-Za-z][^\s<>]*\s?/?\Z")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ENTITY_BEGUN = re.compile(r"&[#A-Za-z0-9]{0,33}\Z")
_EMPHASIS = {1: ITALIC, 2: BOLD, 3: BOLD | ITALIC}

# what a handler found at a special character: the spans and where they end, or one of these
_LITERAL = None
_HOLD: tuple[list[Span], int] = ([], -1)
Found = tuple[list[Span], int] | None


def spans(text: str, style: int = 0) -> list[Span]:
    """The spans of a whole line."""
    line = InlineText(style)
    line.add(text)
    return line.take(final=True)


class _SpanReader(Protocol):
    def __call__(self, line: InlineText, text: str, at: int, /, *, final: bool) -> Found: ...


class InlineText:
    """Text as it comes. ``style`` is the look of everything in it."""

    __slots__ = ("_base", "_depth", "_previous", "_style", "_text", "_unclosed")

    def __init__(self, style: int = 0, depth: int = 0) -> None:
        self._style = style
        self._depth = depth
        self._text = ""
        self._previous = " "
        self._base = 0  # how many characters of the line were handed out
        self._unclosed: dict[str, int] = {}  # opener: no close stands before this place

    def add(self, text: str) -> None:
        """More of the text; holds no line feed."""
        self._text += text

    @property
    def is_open(self) -> bool:
        """Whether the look of some of the text is not certain yet."""
        return bool(self._text)

    def take(self, *, final: bool = False) -> list[Span]:
        """The spans that are certain; all that is left when the line is complete."""
        text = self._text
        out: list[Span] = []
        start = position = 0
        while True:
            special = _SPECIAL.search(text, position)
            if special is None:
                position = len(text)
                break
            at = special.start()
            found = self._found(text, at, final=final)
            if found is _HOLD:
                position = at
                break
            if found is _LITERAL:
                position = _run_end(text, at)
                continue
            if at > start:
                out.append((text[start:at], self._style))
            out += found[0]
            start = position = found[1]
        if position > start:
            out.append((text[start:position], self._style))
        if position:
            self._previous = text[position - 1]
            self._text = text[position:]
            self._base += position
        return out

    def _found(self, text: str, at: int, *, final: bool) -> Found:
        """What stands at the special character ``at``."""
        judge = self._JUDGES.get(text[at], InlineText._emphasis)
        return judge(self, text, at, final=final or len(text) - at > LOOK_AHEAD)

    def _bang(self, text: str, at: int, *, final: bool) -> Found:
        if at + 1 == len(text):
            return _LITERAL if final else _HOLD
        return self._link(text, at + 1, final=final) if text[at + 1] == "[" else _LITERAL

    def _escape(self, text: str, at: int, *, final: bool) -> Found:
        if at + 1 == len(text):
            return _LITERAL if final else _HOLD
        if text[at + 1] == SOFT_BREAK:  # a hard line break: every break is one here
            return [("", self._style)], at + 1
        if text[at + 1] in _PUNCTUATION:
            return [(text[at + 1], self._style)], at + 2
        return _LITERAL

    def _entity(self, text: str, at: int, *, final: bool) -> Found:
        match = _ENTITY.match(text, at)
        if match is None:
            return _LITERAL if final or not _ENTITY_BEGUN.match(text, at) else _HOLD
        from html import unescape

        plain = clean(unescape(match[0])).replace("\n", " ").replace("\t", " ")
        return [(plain, self._style)], match.end()

    def _angle(self, text: str, at: int, *, final: bool) -> Found:
        if match := _AUTOLINK.match(text, at, at + LOOK_AHEAD):
            return [(match[1], self._style | LINK)], match.end()
        if match := _BREAK.match(text, at):
            return [("\n", self._style)], match.end()
        begun = _TAG_BEGUN.match(text, at) or at + 1 == len(text)
        return _HOLD if begun and not final else _LITERAL

    def _code(self, text: str, at: int, *, final: bool) -> Found:
        start = _run_end(text, at)
        if start == len(text) and not final:
            return _HOLD
        for run in _RUNS["`"].finditer(text, start, at + LOOK_AHEAD):
            if run.end() == len(text) and not final:
                return _HOLD
            if len(run[0]) == start - at:
                break
        else:
            return _LITERAL if final else _HOLD
        body = text[start : run.start()]
        if body.strip() and body[0] == body[-1] == " ":
            body = body[1:-1]
        return [(body, self._style | CODE)], run.end()

    def _link(self, text: str, at: int, *, final: bool) -> Found:
        close = _closing_bracket(text, at)
        if close is None or (close + 1 == len(text)):
            return _LITERAL if final else _HOLD
        if text[close + 1] != "(":
            return _LITERAL
        tail = _LINK_TAIL.match(text, close + 1, at + LOOK_AHEAD)
        if tail is None:
            return _LITERAL if final else _HOLD
        target = tail[1] if tail[1] is not None else tail[2]
        label = self._inner(text[at + 1 : close], LINK)
        shown = "".join(part for part, _ in label)
        if not shown.strip():
            return [(target, self._style | LINK)], tail.end()
        if target in {shown, f"mailto:{shown}"}:
            return label, tail.end()
        return [*label, (f" ({target})", self._style | DIM)], tail.end()

    def _emphasis(self, text: str, at: int, *, final: bool) -> Found:
        end = _run_end(text, at)
        if end == len(text):
            return _LITERAL if final else _HOLD
        char, length = text[at], end - at
        before = text[at - 1] if at else self._previous
        if length > _MAX_RUN or (char == "~" and length != 2):  # noqa: PLR2004 - "~~"
            return _LITERAL
        if not _opens(char, before, text[end]):
            return _LITERAL
        opener = char * length
        searched = self._unclosed.get(opener, 0) - self._base
        close = _closing_run(text, (max(end, searched), at + LOOK_AHEAD), opener, final=final)
        if close is None:
            if not final:
                return _HOLD
            self._unclosed[opener] = self._base + at + LOOK_AHEAD
            return _LITERAL
        style = STRIKE if char == "~" else _EMPHASIS[length]
        return self._inner(text[end:close], style), close + length

    def _inner(self, text: str, style: int) -> list[Span]:
        """The spans of what stands between two delimiters."""
        if self._depth >= _MAX_DEPTH:
            return [(text, self._style | style)]
        line = InlineText(self._style | style, self._depth + 1)
        line.add(text)
        return line.take(final=True)

    _JUDGES: ClassVar[dict[str, _SpanReader]] = {
        "\\": _escape,
        "&": _entity,
        "<": _angle,
        "!": _bang,
        "[": _link,
        "`": _code,
    }


def _run_end(text: str, at: int) -> int:
    """Where the run of equal delimiters at ``at`` ends; elsewhere the next character."""
    run = _RUNS.get(text[at])
    match = run.match(text, at, at + LOOK_AHEAD) if run else None
    return match.end() if match else at + 1


def _closing_bracket(text: str, at: int) -> int | None:
    """The ``]`` that belongs to the ``[`` at ``at``, within the look-ahead."""
    depth = 0
    if text.find("]", at, at + LOOK_AHEAD) < 0:
        return None
    for match in _BRACKETS.finditer(text, at, at + LOOK_AHEAD):
        if match[0] == "[":
            depth += 1
            if depth > _MAX_DEPTH:
                return None
        elif match[0] == "]":
            depth -= 1
            if depth == 0:
                return match.start()
    return None


def _opens(char: str, before: str, after: str) -> bool:
    """Whether a run of ``char`` between these two can open emphasis (left-flanking)."""
    if after.isspace():
        return False
    edge = before.isspace() or before in _PUNCTUATION
    if after in _PUNCTUATION and not edge:
        return False
    return edge if char == "_" else True


def _closing_run(text: str, span: tuple[int, int], opener: str, *, final: bool) -> int | None:
    """Where in ``span`` the delimiter that closes ``opener`` stands; ``None``: not in sight."""
    char, length = opener[0], len(opener)
    position, limit = span
    while match := _CLOSERS[char].search(text, position, limit):
        position = match.end()
        if position == len(text) and not final:
            return None
        if match[0][0] == "\\":
            continue
        if match[0][0] == "`":
            closing = text.find(match[0], position, limit)
            if closing < 0 and not final:
                return None
            position = position if closing < 0 else closing + len(match[0])
            continue
        run = len(match[0])
        if (run != length and run < max(length, _MAX_RUN)) or text[match.start() - 1].isspace():
            continue
        if char == "_" and text[position : position + 1].isalnum():
            continue
        return position - length
    return None
