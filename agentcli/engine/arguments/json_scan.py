"""A lenient reader of JSON-like text: which pieces it consists of, and whether it was cut.

It knows what models write instead of JSON: single quotes, bare keys, Python's literals,
comments, raw line ends in strings, backslashes that nobody doubled. Law: every character of the
text belongs to a token, to white space or to a closed comment; a string's value is told only
where there is one way to read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

from agentcli.domain.values import frozen
from agentcli.engine.arguments.json_text import loads

LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
CLOSER_OF = {"{": "}", "[": "]"}
_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}
_MAX_OUTLINE = 50

_TOKEN = re.compile(
    r"""(?P<mark>[{}\[\]:,])
    |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+')
    |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+$-]))
    |(?P<word>[A-Za-z_$][\w$-]*+)
    |(?P<blank>[\s\ufeff]++|//[^\n]*+\n|\#[^\n]*+\n|/\*.*?\*/)""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)
_FENCED = re.compile(r"```\w*[ \t]*(?:\n|(?=[{\[/#]))(.*?)(?:```\s*)?\Z", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# What a backslash stands before in regular expressions and shell commands and never in JSON,
# Python or C: there it can only be itself.
_ITSELF = frozenset("dDsSwW.()[]{}*+?^$|-#&;<>!%~=:@, ")


class Kind(Enum):
    """What a token is. A key is whatever stands before a colon."""

    MARK = auto()
    KEY = auto()
    VALUE = auto()


@frozen
class Token:
    """A piece of the text. ``value`` is the mark, the key, or the value it stands for."""

    kind: Kind
    value: Any
    end: int


class UnreadableText(ValueError):
    """The text from ``position`` on is no token, or one that can be read in several ways."""

    def __init__(self, position: int) -> None:
        super().__init__(f"unreadable at {position}")
        self.position = position


def unfenced(text: str) -> str:
    """``text`` without white space before it and without a Markdown fence."""
    text = text.lstrip("\ufeff \t\r\n")
    fenced = _FENCED.match(text)
    return fenced.group(1) if fenced else text


def tokens(text: str) -> Iterator[Token]:
    """The tokens in order; raises ``UnreadableText`` where they end before the text does."""
    held: tuple[str, str, int, int] | None = None
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            if held is not None:
                yield _token(*held, is_key=False)
            raise UnreadableText(position)
        kind, piece, start, position = match.lastgroup, match.group(), position, match.end()
        if kind == "blank":
            continue
        if held is not None:
            yield _token(*held, is_key=piece == ":")
            held = None
        if kind == "mark":
            yield Token(Kind.MARK, piece, position)
        else:
            held = kind, piece, start, position
    if held is not None:
        yield _token(*held, is_key=False)


def outline(text: str) -> dict[str, Any]:
    """The fields of a broken object as far as they can be read, for telling what was received.

    An array stands as ``list``, an object as ``dict``, what could not be read as ``...``; a string
    that was cut is there as far as it came.
    """
    text = unfenced(text)
    found: dict[str, Any] = {}
    depth = 0
    key: str | None = None
    try:
        for token in tokens(text):
            if token.kind is Kind.MARK:
                if token.value in CLOSER_OF and depth == 1 and key is not None:
                    found[key], key = dict if token.value == "{" else list, None
                depth += _DEPTH.get(token.value, 0)
            elif token.kind is Kind.KEY and depth == 1:
                key = token.value
            elif depth == 1 and key is not None:
                found[key], key = token.value, None
            if len(found) >= _MAX_OUTLINE or (depth == 1 and not text.startswith("{")):
                break
    except UnreadableText as broken:
        if depth == 1 and key is not None:
            rest = text[broken.position :].lstrip()
            found[key] = rest[1:] if rest[:1] in {'"', "'"} else ...
    return found


def _token(kind: str, piece: str, start: int, end: int, *, is_key: bool) -> Token:
    if kind == "string":
        value: Any = _string(piece, start)
    elif is_key and kind == "word":
        value = piece
    elif not is_key and kind == "number":
        value = _number(piece, start)
    elif not is_key and piece in LITERALS:
        value = LITERALS[piece]
    else:
        raise UnreadableText(start)
    return Token(Kind.KEY if is_key else Kind.VALUE, value, end)


def _number(piece: str, start: int) -> Any:
    try:
        return loads(piece)
    except ValueError:
        raise UnreadableText(start) from None


def _string(piece: str, start: int) -> str:
    """The value of a quoted string, quotes included."""
    quote, body = piece[0], piece[1:-1]
    if quote == "'":
        body = re.sub(r'\\(.)|"', _as_double_quoted, body, flags=re.DOTALL)
    undoubled = {escape for escape in _ESCAPE.findall(body) if escape in _ITSELF}
    if undoubled:
        others = set(_ESCAPE.findall(body)) - undoubled
        if not others <= {'"'}:
            raise UnreadableText(start)
        body = _ESCAPE.sub(lambda found: found[0] if found[1] == '"' else "\\" + found[0], body)
    try:
        value = loads(f'"{body}"', raw_controls=True)
    except ValueError:
        raise UnreadableText(start) from None
    return str(value)


def _as_double_quoted(found: re.Match[str]) -> str:
    if found[0] == '"':
        return '\\"'
    return "'" if found[1] == "'" else found[0]
