"""Which kind of Markdown line this is, decided from as few of its characters as possible.

Law: ``classify`` answers ``None`` as long as more characters could change the answer and the
line is not complete; so the answer depends on the line and not on how it was cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

_HEADING = re.compile(r"#{1,6}(?=[ \t]|$)")
_ORDERED = re.compile(r"\d{1,9}[.)](?=[ \t]|$)")
_ORDERED_BEGUN = re.compile(r"\d{1,9}[.)]?\Z")
_FENCE = re.compile(r"(`{3,})([^`]*)$|(~{3,})(.*)$")
_INDENT = re.compile(r"[ \t]*")
_UNDERLINE = re.compile(r"=+[ \t]*\Z")
CODE_INDENT = 4
_MAX_LEVEL = 6
_RULE_MARKS = 3


class Kind(Enum):
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

    kind: Kind
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
        return Start(Kind.BLANK) if complete else None
    indent = len(line[:skip].expandtabs(CODE_INDENT))
    if code_from is not None and indent >= code_from:
        return Start(Kind.INDENTED, skip, indent)
    judge = _JUDGES.get(rest[0])
    if judge is None or (rest[0] == "=" and not in_paragraph):
        return Start(Kind.TEXT, skip, indent)
    found = judge(rest, skip, indent, complete=complete)
    if found and in_paragraph and found.kind is Kind.ORDERED and found.marker[:-1] != "1":
        return Start(Kind.TEXT, skip, indent)
    return found


def waits_for_end(rest: str) -> bool:
    """Whether only the end of the line can tell the kind of one that begins so."""
    return rest[:1] == "|" or rest[:3] in {"```", "~~~"}


def _quote(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if len(rest) == 1 and not complete:
        return None
    return Start(Kind.QUOTE, skip + 1 + (rest[1:2] == " "), indent)


def _table(_rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    return Start(Kind.TABLE, skip, indent) if complete else None


def _heading(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if not complete and len(rest) <= _MAX_LEVEL and not rest.lstrip("#"):
        return None
    if found := _HEADING.match(rest):
        return Start(Kind.HEADING, skip + _with_space(rest, found.end()), indent, found[0])
    return Start(Kind.TEXT, skip, indent)


def _ordered(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if not complete and _ORDERED_BEGUN.match(rest):
        return None
    if found := _ORDERED.match(rest):
        return Start(Kind.ORDERED, skip + _with_space(rest, found.end()), indent, found[0])
    return Start(Kind.TEXT, skip, indent)


def _with_space(rest: str, end: int) -> int:
    """Past the white space after a marker; a deep indent after it is kept as text."""
    spaces = len(rest) - end - len(rest[end:].lstrip(" \t"))
    return end + min(spaces, 1)


def _fence(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if not complete:
        run = len(rest) - len(rest.lstrip(rest[0]))
        return None if run >= 3 or run == len(rest) else Start(Kind.TEXT, skip, indent)  # noqa: PLR2004 - ```
    if found := _FENCE.match(rest):
        return Start(Kind.FENCE, skip, indent, found[1] or found[3])
    return Start(Kind.TEXT, skip, indent)


def _bullet_or_rule(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    first = rest[0]
    if first != "+" and not rest.strip(f"{first} \t"):
        if not complete:
            return None
        if rest.count(first) >= _RULE_MARKS:
            return Start(Kind.RULE, skip, indent)
    if first == "_" or (len(rest) > 1 and rest[1] not in " \t"):
        return Start(Kind.TEXT, skip, indent)
    if len(rest) == 1 and not complete:
        return None
    return Start(Kind.BULLET, skip + min(2, len(rest)), indent, first)


def _underline(rest: str, skip: int, indent: int, *, complete: bool) -> Start | None:
    if not _UNDERLINE.match(rest):
        return Start(Kind.TEXT, skip, indent)
    return Start(Kind.UNDERLINE, skip, indent) if complete else None


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
