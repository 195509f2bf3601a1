"""Malformed argument JSON mended, or not at all (LOOP-9).

Keys and values are taken out of the text first and put back last, so that whatever happens to
the brackets and commas between them, they stay as they were. Where putting commas right is not
enough, a library proposes where brackets are missing, and the text proves it: a proposal counts
only when it holds the same keys and values in the order of the text. Law: mending never invents,
drops or changes a key or a value; what was cut inside a value, where another may have followed,
or what can be read in two ways, is not mended.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Any

from agentcli.engine.arguments.json_scan import (
    CLOSER_OF,
    Kind,
    Token,
    UnreadableText,
    tokens,
    unfenced,
)
from agentcli.engine.arguments.json_text import MAX_DEPTH, loads

log = logging.getLogger(__name__)

# half a second of the library's work; the longest sound calls have a tenth of it
MAX_PIECES = 40_000
MAX_CHARS = 4_000_000
_CLOSERS = frozenset(CLOSER_OF.values())
_EMPTY_OBJECT_PIECES = 2

Shape = list[tuple[Kind, Any]]


class _NotMendable(ValueError):
    pass


def mended(text: str, *, may_be_cut: bool) -> dict[str, Any] | list[Any] | None:
    """The object or list that ``text`` says, or ``None`` when that is not certain.

    ``may_be_cut`` allows closing brackets to be missing at the end.
    """
    if len(text) > MAX_CHARS:
        return None
    text = unfenced(text)
    try:
        pieces = _pieces(text)
        value, missing = _only_value(pieces)
        if missing:
            _require_whole_end(value[-1], text, may_be_cut=may_be_cut)
        found = _mended([*value, *(Token(Kind.MARK, closer, 0) for closer in missing)])
    except (UnreadableText, _NotMendable):
        return None
    return found if isinstance(found, dict | list) else None


def _pieces(text: str) -> list[Token]:
    found = []
    for token in tokens(text):
        found.append(token)
        if len(found) > MAX_PIECES:
            raise _NotMendable
    return found


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
            raise _NotMendable
    return value, missing


def _extent(pieces: Sequence[Token]) -> tuple[int, str]:
    """How many tokens the first value has, and the closers that it lacks."""
    expected: list[str] = []
    for number, token in enumerate(pieces, start=1):
        if token.kind is Kind.MARK:
            _nest(expected, token.value)
        if not expected:
            if not _is_mark(token, _CLOSERS):
                raise _NotMendable
            return number, ""
    if not expected:
        raise _NotMendable
    return len(pieces), "".join(reversed(expected))


def _nest(expected: list[str], mark: str) -> None:
    """Go into a bracket or out of one; one that was left open ends with the one around it."""
    if mark in CLOSER_OF:
        expected.append(CLOSER_OF[mark])
        if len(expected) > MAX_DEPTH:
            raise _NotMendable
    elif mark in _CLOSERS:
        if mark not in expected:
            raise _NotMendable
        while expected.pop() != mark:
            pass


def _require_whole_end(last: Token, text: str, *, may_be_cut: bool) -> None:
    """A cut text must end with a value that can be no longer: not ``12``, not ``,`` or ``{``."""
    is_number = isinstance(last.value, int | float) and not isinstance(last.value, bool)
    may_go_on = is_number and last.end == len(text)
    is_whole = last.kind is Kind.VALUE and not may_go_on
    if not may_be_cut or not (is_whole or _is_mark(last, _CLOSERS)):
        raise _NotMendable


def _mended(pieces: Sequence[Token]) -> Any:
    """The value that the pieces make when commas and brackets are put right."""
    shape = _with_sound_commas(_shape(pieces))
    skeleton = "".join(item if kind is Kind.MARK else f'"{item}"' for kind, item in shape)
    try:
        value = loads(skeleton)
    except ValueError:
        value = _proposed(skeleton)
        if not _proves(shape, value):
            raise _NotMendable from None
    return _filled(value, [token.value for token in pieces if token.kind is not Kind.MARK])


def _proposed(skeleton: str) -> Any:
    import json_repair

    try:
        return json_repair.loads(skeleton, skip_json_loads=True)
    except Exception as error:
        log.warning("no repair of malformed arguments", exc_info=error)
        raise _NotMendable from None


def _shape(pieces: Sequence[Token]) -> Shape:
    """The tokens with a number, as text, in the place of each key and value."""
    shape: Shape = []
    number = 0
    for token in pieces:
        if token.kind is Kind.MARK:
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
        if after == (Kind.MARK, ",") and (before[1] == "," or before[1] in CLOSER_OF):
            return False
        if after[0] is Kind.VALUE and (before[0] is Kind.VALUE or before[1] in _CLOSERS):
            return False
    left = [each for each in shape if each[1] not in {",", ":"}]
    left.reverse()
    for token in _brackets_and_values(proposal):
        if left and token == left[-1]:
            left.pop()
        elif token[0] is not Kind.MARK or token[1] not in _CLOSERS:
            return False
    return not left


def _brackets_and_values(value: Any) -> Shape:
    """The keys, values and brackets of a proposal, in order."""
    if not isinstance(value, dict | list):
        return [(Kind.VALUE, value)]
    opener = "{" if isinstance(value, dict) else "["
    found: Shape = [(Kind.MARK, opener)]
    for item in value:
        inner = value[item] if isinstance(value, dict) else item
        if type(inner) is type(value):
            raise _NotMendable
        if isinstance(value, dict):
            found.append((Kind.KEY, item))
        found += _brackets_and_values(inner)
    return [*found, (Kind.MARK, CLOSER_OF[opener])]


def _with_sound_commas(shape: Shape) -> Shape:
    """Without a comma before a closer, and with one where nothing else can be meant.

    That is before a key, and between two brackets.
    """
    sound: Shape = []
    for kind, item in shape:
        before = sound[-1] if sound else (Kind.MARK, "")
        ended = before[0] is Kind.VALUE or before[1] in _CLOSERS
        if kind is Kind.MARK and item in _CLOSERS and before == (Kind.MARK, ","):
            if sound[-2:-1][0][1] not in CLOSER_OF:
                sound.pop()
        elif (kind is Kind.KEY and ended) or (item in CLOSER_OF and before[1] in _CLOSERS):
            sound.append((Kind.MARK, ","))
        sound.append((kind, item))
    return sound


def _filled(value: Any, content: Sequence[Any]) -> Any:
    """The proposal with the text's own keys and values; a key given twice is not mended."""
    if isinstance(value, dict):
        made = {content[int(key)]: _filled(child, content) for key, child in value.items()}
        if len(made) != len(value):
            raise _NotMendable
        return made
    if isinstance(value, list):
        return [_filled(child, content) for child in value]
    return content[int(value)]


def _is_mark(token: Token, marks: Container[str]) -> bool:
    return token.kind is Kind.MARK and token.value in marks
