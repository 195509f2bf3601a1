"""Markdown within a paragraph: emphasis, code, links, found while the text still grows.

Law: ``Line.take`` hands out text as soon as its look is certain and never takes it back; what a
delimiter opens is held until it is closed, the text ends or ``LOOK_AHEAD`` characters have come
without a close, so the outcome depends on the text and not on how it was cut. The rules follow
https://spec.commonmark.org/0.31.2/#inlines where that can be decided within these bounds;
link targets are shown (SEC-10), HTML tags stay text.
"""

from __future__ import annotations

import re
from typing import ClassVar, Protocol

from agentcli.ui.sanitize import clean
from agentcli.ui.theme import BOLD, CODE, DIM, ITALIC, LINK, STRIKE

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
    line = Line(style)
    line.add(text)
    return line.take(final=True)


class _Judge(Protocol):
    def __call__(self, line: Line, text: str, at: int, /, *, final: bool) -> Found: ...


class Line:
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
        judge = self._JUDGES.get(text[at], Line._emphasis)
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
        line = Line(self._style | style, self._depth + 1)
        line.add(text)
        return line.take(final=True)

    _JUDGES: ClassVar[dict[str, _Judge]] = {
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
