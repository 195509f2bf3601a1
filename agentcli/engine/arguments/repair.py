"""Malformed argument JSON repaired, or not at all (LOOP-9).

The reader knows what models write instead of JSON: single quotes, bare keys, Python's literals,
comments, raw line ends in strings, backslashes that nobody doubled. Keys and values are taken out
of the text first and put back last, so that whatever happens to the brackets and commas between
them, they stay as they were. Where putting commas right is not enough, a library proposes where
brackets are missing, and the text proves it: a proposal counts only when it holds the same keys
and values in the order of the text.

Laws: every character of the text belongs to a token, to white space or to a closed comment, and a
string's value is told only where there is one way to read it; a repair never invents, drops or
changes a key or a value; what was cut inside a value, where another may have followed, or what can
be read in two ways, is not repaired.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Container, Iterator, Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import Any

from agentcli.domain.clean import MAX_JSON_DEPTH, loads
from agentcli.domain.values import frozen

# --- tokens --------------------------------------------------------------------------------


LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
CLOSER_OF = {"{": "}", "[": "]"}
_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}
_MAX_OUTLINE = 50

_TOKEN = re.compile(
    r"""(?P<mark>[{}\[\]:,])
    |(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+')
    |(?P<number>-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.+$-]))
    |(?P<word>[A-Za-z_$][\w$-]*+)
    |(?P<blank>[\s\ufeff]++|//[^\n]*+\n|\#[^\n]*+\n|/\*.*?\*/)""",
    re.DOTALL | re.VERBOSE | re.ASCII,
)
_FENCED = re.compile(r"```\w*[ \t]*(?:\n|(?=[{\[/#]))(.*?)(?:```\s*)?\Z", re.DOTALL)
# half a second of the library's work; the longest sound calls have a tenth of it
MAX_PIECES = 40_000
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# What a backslash stands before in regular expressions and shell commands and never in JSON,
# Python or C: there it can only be itself.
_ITSELF = frozenset("dDsSwW.()[]{}*+?^$|-#&;<>!%~=:@, ")


class TokenKind(Enum):
    """What a token is. A key is whatever stands before a colon."""

    MARK = auto()
    KEY = auto()
    VALUE = auto()


@frozen
class Token:
    """A piece of the text. ``value`` is the mark, the key, or the value it stands for."""

    kind: TokenKind
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
    """The tokens in order; raises ``UnreadableText`` where they end before the text does.

    So do more than ``MAX_PIECES`` (SEC-13).
    """
    held: tuple[str, str, int, int] | None = None
    position = number = 0
    while position < len(text):
        match = _TOKEN.match(text, position) if number < MAX_PIECES else None
        number += 1
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
            yield Token(TokenKind.MARK, piece, position)
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
            if token.kind is TokenKind.MARK:
                if token.value in CLOSER_OF and depth == 1 and key is not None:
                    found[key], key = dict if token.value == "{" else list, None
                depth += _DEPTH.get(token.value, 0)
            elif token.kind is TokenKind.KEY and depth == 1:
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
    return Token(TokenKind.KEY if is_key else TokenKind.VALUE, value, end)


def _number(piece: str, start: int) -> Any:
    try:
        return loads(re.sub(r"^(-?)\.", r"\g<1>0.", piece))
    except ValueError:
        raise UnreadableText(start) from None


def _string(piece: str, start: int) -> str:
    """The value of a quoted string, quotes included."""
    quote, body = piece[0], piece[1:-1]
    undoubled = {escape for escape in _ESCAPE.findall(body) if escape in _ITSELF}
    if quote == "'" or not undoubled:
        body = re.sub(r'\\(.)|"', _as_double_quoted, body, flags=re.DOTALL)
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


# --- repair --------------------------------------------------------------------------------


log = logging.getLogger(__name__)

MAX_CHARS = 4_000_000
_CLOSERS = frozenset(CLOSER_OF.values())
_EMPTY_OBJECT_PIECES = 2
_FENCE_BEFORE = re.compile(r"```\w*\s*\Z")
# several words or none; a colon only at their end, since "name: {" is how YAML writes a field
_PROSE_BEFORE = re.compile(r"""(?:[^\s"`{}\[\]:=]++\s++)+[^\s"`{}\[\]:=,]++:?|""")
_PROSE_AFTER = re.compile(r"""(?:```\s*)?(?![,)])[^"`{}\[\]:=]*+""")

Shape = list[tuple[TokenKind, Any]]


class _NotRepairable(ValueError):
    pass


def repair_json(text: str, *, may_be_cut: bool) -> dict[str, Any] | list[Any] | None:
    """The object or list that ``text`` says, or ``None`` when that is not certain.

    ``may_be_cut`` allows closing brackets to be missing at the end.
    """
    if len(text) > MAX_CHARS:
        return None
    text = unfenced(text)
    if (found := _repaired(text, may_be_cut=may_be_cut)) is None:
        alone = _object_in_prose(text)
        found = _repaired(alone, may_be_cut=False) if alone else None
    return found


def _repaired(text: str, *, may_be_cut: bool) -> dict[str, Any] | list[Any] | None:
    try:
        pieces = list(tokens(text))
        value, missing = _only_value(pieces)
        if missing:
            _require_whole_end(value[-1], text, may_be_cut=may_be_cut)
        found = _assembled([*value, *(Token(TokenKind.MARK, closer, 0) for closer in missing)])
    except (UnreadableText, _NotRepairable):
        return None
    return found if isinstance(found, dict | list) else None


def _object_in_prose(text: str) -> str:
    """The one object among words that can be no part of it; empty where they might be.

    Quotes, brackets and what could be a key and its colon are no words.
    """
    start = text.find("{")
    before = _FENCE_BEFORE.sub("", text[:start]).rstrip()
    if start < 0 or not _PROSE_BEFORE.fullmatch(before):
        return ""
    depth, end = 0, 0
    try:
        for token in tokens(text[start:]):
            depth += _DEPTH.get(token.value, 0) if token.kind is TokenKind.MARK else 0
            if depth == 0:
                end = start + token.end
                break
    except UnreadableText:
        return ""
    return text[start:end] if end and _PROSE_AFTER.fullmatch(text[end:].strip()) else ""


def _only_value(pieces: Sequence[Token]) -> tuple[Sequence[Token], str]:
    """The tokens of the one value there is, and the closers that it lacks.

    After it may come closers in excess or the same value again; an empty object may come before
    the real one (both are what servers make of a stream).
    """
    size, missing = _extent(pieces)
    if size == _EMPTY_OBJECT_PIECES and len(pieces) > size and _is_mark(pieces[size], "{"):
        pieces = pieces[size:]
        size, missing = _extent(pieces)
    value, rest = pieces[:size], pieces[size:]
    if not all(_is_mark(token, _CLOSERS) for token in rest):
        content = [(token.kind, type(token.value), token.value) for token in pieces]
        again = [content[start : start + size] for start in range(size, len(content), size)]
        if any(each != content[:size] for each in again):
            raise _NotRepairable
    return value, missing


def _extent(pieces: Sequence[Token]) -> tuple[int, str]:
    """How many tokens the first value has, and the closers that it lacks."""
    expected: list[str] = []
    for number, token in enumerate(pieces, start=1):
        if token.kind is TokenKind.MARK:
            _nest(expected, token.value)
        if not expected:
            if not _is_mark(token, _CLOSERS):
                raise _NotRepairable
            return number, ""
    if not expected:
        raise _NotRepairable
    return len(pieces), "".join(reversed(expected))


def _nest(expected: list[str], mark: str) -> None:
    """Go into a bracket or out of one; one that was left open ends with the one around it."""
    if mark in CLOSER_OF:
        expected.append(CLOSER_OF[mark])
        if len(expected) > MAX_JSON_DEPTH:
            raise _NotRepairable
    elif mark in _CLOSERS:
        if mark not in expected:
            raise _NotRepairable
        while expected.pop() != mark:
            pass


def _require_whole_end(last: Token, text: str, *, may_be_cut: bool) -> None:
    """A cut text must end with a value that can be no longer: not ``12``, not ``,`` or ``{``."""
    is_number = isinstance(last.value, int | float) and not isinstance(last.value, bool)
    may_go_on = is_number and last.end == len(text)
    is_whole = last.kind is TokenKind.VALUE and not may_go_on
    if not may_be_cut or not (is_whole or _is_mark(last, _CLOSERS)):
        raise _NotRepairable


def _assembled(pieces: Sequence[Token]) -> Any:
    """The value that the pieces make when commas and brackets are put right."""
    shape = _with_sound_commas(_shape(pieces))
    skeleton = "".join(item if kind is TokenKind.MARK else f'"{item}"' for kind, item in shape)
    try:
        value = loads(skeleton)
    except ValueError:
        value = _proposed(skeleton)
        if not _proves(shape, value):
            raise _NotRepairable from None
    return _filled(value, [token.value for token in pieces if token.kind is not TokenKind.MARK])


def _proposed(skeleton: str) -> Any:
    import json_repair

    try:
        return json_repair.loads(skeleton, skip_json_loads=True)
    except Exception as error:
        log.warning("no repair of malformed arguments", exc_info=error)
        raise _NotRepairable from None


def _shape(pieces: Sequence[Token]) -> Shape:
    """The tokens with a number, as text, in the place of each key and value."""
    shape: Shape = []
    number = 0
    for token in pieces:
        if token.kind is TokenKind.MARK:
            shape.append((token.kind, token.value))
        else:
            shape.append((token.kind, str(number)))
            number += 1
    return shape


def _proves(shape: Shape, proposal: Any) -> bool:
    """Whether the proposal only closes brackets that the text has left open, in the one way.

    There are two ways where brackets of one kind stand directly in each other.
    """
    for before, after in pairwise(shape):
        if after == (TokenKind.MARK, ",") and (before[1] == "," or before[1] in CLOSER_OF):
            return False
        if after[0] is TokenKind.VALUE and (before[0] is TokenKind.VALUE or before[1] in _CLOSERS):
            return False
    left = [each for each in shape if each[1] not in {",", ":"}]
    left.reverse()
    for token in _brackets_and_values(proposal):
        if left and token == left[-1]:
            left.pop()
        elif token[0] is not TokenKind.MARK or token[1] not in _CLOSERS:
            return False
    return not left


def _brackets_and_values(value: Any) -> Shape:
    """The keys, values and brackets of a proposal, in order."""
    if not isinstance(value, dict | list):
        return [(TokenKind.VALUE, value)]
    opener = "{" if isinstance(value, dict) else "["
    found: Shape = [(TokenKind.MARK, opener)]
    for item in value:
        inner = value[item] if isinstance(value, dict) else item
        if type(inner) is type(value):
            raise _NotRepairable
        if isinstance(value, dict):
            found.append((TokenKind.KEY, item))
        found += _brackets_and_values(inner)
    return [*found, (TokenKind.MARK, CLOSER_OF[opener])]


def _with_sound_commas(shape: Shape) -> Shape:
    """Without a comma before a closer, and with one where nothing else can be meant.

    That is before a key, and between two brackets.
    """
    sound: Shape = []
    for kind, item in shape:
        before = sound[-1] if sound else (TokenKind.MARK, "")
        ended = before[0] is TokenKind.VALUE or before[1] in _CLOSERS
        if kind is TokenKind.MARK and item in _CLOSERS and before == (TokenKind.MARK, ","):
            if sound[-2:-1][0][1] not in CLOSER_OF:
                sound.pop()
        elif (kind is TokenKind.KEY and ended) or (item in CLOSER_OF and before[1] in _CLOSERS):
            sound.append((TokenKind.MARK, ","))
        sound.append((kind, item))
    return sound


def _filled(value: Any, content: Sequence[Any]) -> Any:
    """The proposal with the text's own keys and values; a key given twice is not repaired."""
    if isinstance(value, dict):
        made = {content[int(key)]: _filled(child, content) for key, child in value.items()}
        if len(made) != len(value):
            raise _NotRepairable
        return made
    if isinstance(value, list):
        return [_filled(child, content) for child in value]
    return content[int(value)]


def _is_mark(token: Token, marks: Container[str]) -> bool:
    return token.kind is TokenKind.MARK and token.value in marks
