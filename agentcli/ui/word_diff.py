"""Which words differ between the lines that a diff takes out and those that it puts in.

Law: the pieces of a line, joined, are the line; the cost is bounded whatever the lines hold:
long lines are compared from both ends only, large groups line by line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

MAX_TOKENS = 300
MAX_GROUP = 24
LEAST_ALIKE = 0.4
_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")


class Piece(NamedTuple):
    """A part of a line, and whether the other line has something else there."""

    text: str
    changed: bool


Pieces = list[Piece]


def compare(old: Sequence[str], new: Sequence[str]) -> tuple[list[Pieces], list[Pieces]]:
    """The pieces of lines that were replaced by others. A line without a like is one piece."""
    left = [[Piece(line, changed=False)] for line in old]
    right = [[Piece(line, changed=False)] for line in new]
    for a, b in _pairs(old, new):
        found = compare_lines(old[a], new[b])
        if found is not None:
            left[a], right[b] = found
    return left, right


def compare_lines(old: str, new: str) -> tuple[Pieces, Pieces] | None:
    """The pieces of two lines; ``None`` when they have too little in common to be compared."""
    if old == new:
        return None
    a, b = _TOKENS.findall(old), _TOKENS.findall(new)
    if max(len(a), len(b)) > MAX_TOKENS:
        spans = _ends(old, new)
        texts: tuple[Sequence[str], Sequence[str]] = (old, new)
    else:
        matcher = SequenceMatcher(None, a, b, autojunk=False)
        spans = [(op[0] != "equal", *op[1:]) for op in matcher.get_opcodes()]
        texts = (a, b)
    left, right = Pieces(), Pieces()
    for changed, a1, a2, b1, b2 in spans:
        _add(left, "".join(texts[0][a1:a2]), changed=changed)
        _add(right, "".join(texts[1][b1:b2]), changed=changed)
    same = sum(len(piece.text.strip()) for piece in left if not piece.changed)
    whole = min(len(old.strip()), len(new.strip()))
    return (left, right) if same >= LEAST_ALIKE * whole and same else None


def _add(pieces: Pieces, text: str, *, changed: bool) -> None:
    """One more piece; a sign or blanks between two changed pieces are changed with them."""
    if not text:
        return
    if changed and len(pieces) > 1 and _is_small(pieces[-1].text) and pieces[-2].changed:
        text = pieces.pop().text + text
    if pieces and pieces[-1].changed == changed:
        text = pieces.pop().text + text
    pieces.append(Piece(text, changed=changed))


def _is_small(text: str) -> bool:
    return text.isspace() or (len(text) == 1 and not text.isalnum())


def _ends(old: str, new: str) -> list[tuple[bool, int, int, int, int]]:
    """What differs between the common beginning and the common end, found in one pass."""
    least = min(len(old), len(new))
    start = next((at for at in range(least) if old[at] != new[at]), least)
    rest = least - start
    end = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    a, b = len(old) - end, len(new) - end
    return [
        (False, 0, start, 0, start),
        (True, start, a, start, b),
        (False, a, len(old), b, len(new)),
    ]


def _pairs(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Which line stands for which, in order."""
    if len(old) == len(new) or max(len(old), len(new)) > MAX_GROUP:
        return [(at, at) for at in range(min(len(old), len(new)))]
    bags = [[Counter(_TOKENS.findall(line[:2000])) for line in lines] for lines in (old, new)]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for a in range(len(old) - 1, -1, -1):
        for b in range(len(new) - 1, -1, -1):
            paired = _alike(bags[0][a], bags[1][b]) + best[a + 1][b + 1]
            best[a][b] = max(best[a + 1][b], best[a][b + 1], paired)
    pairs = []
    a = b = 0
    while a < len(old) and b < len(new):
        if best[a][b] == best[a + 1][b]:
            a += 1
        elif best[a][b] == best[a][b + 1]:
            b += 1
        else:
            pairs.append((a, b))
            a, b = a + 1, b + 1
    return pairs


def _alike(left: Counter[str], right: Counter[str]) -> float:
    """How much two lines share: nothing below ``LEAST_ALIKE``, 1 for the same words."""
    words = left.total() + right.total()
    share = 2 * (left & right).total() / words if words else 0.0
    return share if share >= LEAST_ALIKE else 0.0
