"""Malformed argument JSON mended, or not at all (LOOP-9).

The library proposes the structure, the tokens of the text prove it: keys and values are taken
out before the library sees the text and put back after, and its proposal counts only when it
holds all of them in the order and nesting of the text. Law: mending adds or removes commas and
closing brackets, and reads keys and values in the one way there is, but never invents, drops or
changes one; what was cut inside a value, or where another may have followed, is not mended.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Sequence
from typing import Any

from agentcli.engine.json_scan import CLOSER_OF, Kind, Token, UnreadableText, tokens, unfenced
from agentcli.engine.json_text import MAX_DEPTH

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
        found = _proposed([*value, *(Token(Kind.MARK, closer, 0) for closer in missing)])
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
        if token.kind is not Kind.MARK:
            if not expected:
                break
        elif token.value in CLOSER_OF:
            expected.append(CLOSER_OF[token.value])
            if len(expected) > MAX_DEPTH:
                break
        elif token.value in _CLOSERS:
            if not expected or expected.pop() != token.value:
                break
            if not expected:
                return number, ""
    else:
        if expected:
            return len(pieces), "".join(reversed(expected))
    raise _NotMendable


def _require_whole_end(last: Token, text: str, *, may_be_cut: bool) -> None:
    """A cut text must end with a value that can be no longer: not ``12``, not ``,`` or ``{``."""
    is_number = isinstance(last.value, int | float) and not isinstance(last.value, bool)
    may_go_on = is_number and last.end == len(text)
    is_whole = last.kind is Kind.VALUE and not may_go_on
    if not may_be_cut or not (is_whole or _is_mark(last, _CLOSERS)):
        raise _NotMendable


def _proposed(pieces: Sequence[Token]) -> Any:
    """The library's proposal with the text's own keys and values, when the tokens prove it."""
    import json_repair

    shape = _shape(pieces)
    skeleton = " ".join(item if kind is Kind.MARK else f'"{item}"' for kind, item in shape)
    try:
        proposal = json_repair.loads(skeleton, skip_json_loads=True)
    except Exception as error:
        log.warning("no repair of malformed arguments", exc_info=error)
        raise _NotMendable from None
    if list(_shape_of(proposal)) != _with_sound_commas(shape):
        raise _NotMendable
    return _filled(proposal, [token.value for token in pieces if token.kind is not Kind.MARK])


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


def _shape_of(value: Any) -> Iterator[tuple[Kind, Any]]:
    """The tokens of a proposal, as JSON writes them."""
    if not isinstance(value, dict | list):
        yield Kind.VALUE, value
        return
    opener = "{" if isinstance(value, dict) else "["
    yield Kind.MARK, opener
    for number, item in enumerate(value):
        if number:
            yield Kind.MARK, ","
        if isinstance(value, dict):
            yield Kind.KEY, item
            yield Kind.MARK, ":"
        yield from _shape_of(value[item] if isinstance(value, dict) else item)
    yield Kind.MARK, CLOSER_OF[opener]


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
