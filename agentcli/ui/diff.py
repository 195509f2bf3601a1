"""Unified diffs for people: line numbers, signs, colour, the words that changed (UI-2).

Law: a line of the diff is a line of the output, whole and in order; sign and number say what
colour says (UI-10); the cost is linear in the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from agentcli.domain.patterns import LazyPattern
from agentcli.ui.highlight import Highlighter, Span, language_of
from agentcli.ui.sanitize import clean, reveal
from agentcli.ui.theme import ADDED, ADDED_WORD, BOLD, DIM, REMOVED, REMOVED_WORD, Theme

# --- which words differ -----------------------------------------------------------------------

# Law: the pieces of a line, joined, are the line; the cost is bounded whatever the lines hold:
# long lines are compared from both ends only, large groups line by line.


MAX_TOKENS = 300
MAX_GROUP = 24
LEAST_ALIKE = 0.4
_TOKENS = LazyPattern(r"\w+|\s+|[^\w\s]")


class LinePiece(NamedTuple):
    """A part of a line, and whether the other line has something else there."""

    text: str
    changed: bool


Pieces = list[LinePiece]


def compare(old: Sequence[str], new: Sequence[str]) -> tuple[list[Pieces], list[Pieces]]:
    """The pieces of lines that were replaced by others. A line without a like is one piece."""
    left = [[LinePiece(line, changed=False)] for line in old]
    right = [[LinePiece(line, changed=False)] for line in new]
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
    pieces.append(LinePiece(text, changed=changed))


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


# --- the lines --------------------------------------------------------------------------------


MAX_COMPARED = 2_000
"""Lines whose words are compared; a diff that changes more shows whole lines beyond."""

_HUNK = LazyPattern(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NUMBER_COLUMNS = 5
_NO_FILE = "/dev/null"


def is_diff(text: str) -> bool:
    """Whether ``text`` reads as a unified diff."""
    return text.startswith("@@ -") or ("\n@@ -" in text and "--- " in text)


def diff_lines(text: str, theme: Theme, *, named: str = "", exact: bool = False) -> list[str]:
    """The lines of the unified diff ``text``, painted.

    ``exact`` spells out invisible characters, as an approval must (SEC-6). A diff of one file that
    ``named`` names already has no line for its name.
    """
    safe = reveal(text) if exact else clean(text)
    painter = _Painter(theme)
    lines = list(painter.lines(safe.removesuffix("\n").split("\n")))
    is_named = len(painter.titles) == 1 and painter.titles[0] in named.split(" ")
    return lines[1:] if is_named else lines


class _Painter:
    """Paints one diff. What is taken out and put in waits until the group is complete."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._name_before = self._language = ""
        self._old = self._new = 0  # the numbers of the next lines; 0, 0: before a hunk
        self._left = [0, 0]  # lines of the hunk that are still to come, by its head
        self._group: list[tuple[str, int, str]] = []
        self._compared = 0
        self.titles: list[str] = []
        self._code = {"-": Highlighter(""), "+": Highlighter("")}  # before and after

    def lines(self, lines: list[str]) -> Iterator[str]:
        """The painted lines."""
        for at, line in enumerate(lines):
            hunk = None if self._left[0] > 0 or self._left[1] > 0 else _HUNK.match(line)
            if hunk or not self._is_body(lines, at):
                yield from self._flush()
                yield from self._head(line, hunk)
            elif line[:1] in {"+", "-"}:
                if line[0] == "-" and self._group and self._group[-1][0] == "+":
                    yield from self._flush()
                self._change(line[0], line[1:])
            else:
                yield from self._flush()
                yield self._context(line)
        yield from self._flush()

    def _is_body(self, lines: list[str], at: int) -> bool:
        """Whether the line belongs to a hunk; its head says how long that is at least."""
        if not (self._old or self._new):
            return False
        if self._left[0] > 0 or self._left[1] > 0:
            return True
        following = lines[at + 1] if at + 1 < len(lines) else ""
        begins_file = lines[at].startswith("--- ") and following.startswith("+++ ")
        return not begins_file and lines[at][:1] in {"", " ", "+", "-", "\\"}

    def _head(self, line: str, hunk: re.Match[str] | None) -> Iterator[str]:
        if hunk is None:
            self._old = self._new = 0
            if line.startswith("--- "):
                self._name_before = line.removeprefix("--- ").removeprefix("a/")
            elif not line.startswith(("diff ", "index ")):
                self.titles.append(self._title(line))
                yield self._theme.paint(self.titles[-1], BOLD)
            return
        if self._old or self._new:
            yield self._theme.paint(f"{self._theme.symbols.more:>{_NUMBER_COLUMNS}}", DIM)
        self._code = {sign: Highlighter(self._language) for sign in "-+"}
        self._old, self._new = int(hunk[1]), int(hunk[3])
        self._left = [int(hunk[2] or 1), int(hunk[4] or 1)]

    def _title(self, line: str) -> str:
        """What a file is called; what it was called where that is not the same."""
        before, self._name_before = self._name_before, ""
        name = line.removeprefix("+++ ").removeprefix("b/")
        is_known = self._theme.color and line.startswith("+++ ")
        self._language = language_of(before if name == _NO_FILE else name) if is_known else ""
        if not line.startswith("+++ ") or before in {"", name, _NO_FILE}:
            return name
        return f"{before} (deleted)" if name == _NO_FILE else f"{before} -> {name}"

    def _context(self, line: str) -> str:
        if line[:1] == "\\":
            return self._theme.paint(f"{'':>{_NUMBER_COLUMNS}} {line}", DIM)
        number = self._theme.paint(self._number(self._new), DIM)
        self._spans("-", line[1:])
        spans = self._spans("+", line[1:])
        shown = f"{number}   " + "".join(self._theme.paint(text, style) for text, style in spans)
        self._old, self._new = self._old + 1, self._new + 1
        self._left = [self._left[0] - 1, self._left[1] - 1]
        return shown

    def _change(self, sign: str, body: str) -> None:
        if sign == "+":
            self._group.append((sign, self._new, body))
            self._new += 1
            self._left[1] -= 1
        else:
            self._group.append((sign, self._old, body))
            self._old += 1
            self._left[0] -= 1

    def _flush(self) -> Iterator[str]:
        group, self._group = self._group, []
        old = [body for sign, _, body in group if sign == "-"]
        new = [body for sign, _, body in group if sign == "+"]
        removed, added = self._compare(old, new)
        pieces = iter([*removed, *added])
        for sign, number, body in group:
            style = ADDED if sign == "+" else REMOVED
            yield (
                f"{self._theme.paint(self._number(number), DIM)} "
                + self._theme.paint(f"{sign} ", style)
                + self._painted(next(pieces), self._spans(sign, body), style)
            )

    def _spans(self, sign: str, body: str) -> list[Span]:
        """The syntax of a line, as far as the diff is not too long."""
        if not self._language or self._compared > MAX_COMPARED:
            return [(body, 0)]
        return self._code[sign].line(body)

    def _compare(self, old: list[str], new: list[str]) -> tuple[list[Pieces], list[Pieces]]:
        self._compared += len(old) + len(new)
        if self._compared > MAX_COMPARED or not self._theme.start(ADDED_WORD):
            whole = [[LinePiece(line, changed=False)] for line in (*old, *new)]
            return whole[: len(old)], whole[len(old) :]
        return compare(old, new)

    def _painted(self, pieces: Pieces, spans: list[Span], style: int) -> str:
        """A line in the colours of its language, or else its own; what changed stands out."""
        word = ADDED_WORD if style == ADDED else REMOVED_WORD
        out: list[Span] = []
        left = spans
        for piece in pieces:
            wanted = len(piece.text)
            while wanted:
                (text, syntax), *left = left
                if len(text) > wanted:
                    left = [(text[wanted:], syntax), *left]
                    text = text[:wanted]
                wanted -= len(text)
                look = (syntax if self._language else style) | (word if piece.changed else 0)
                if out and out[-1][1] == look:
                    text = out.pop()[0] + text
                out.append((text, look))
        return "".join(self._theme.paint(text, look) for text, look in out)

    def _number(self, number: int) -> str:
        return f"{number:>{_NUMBER_COLUMNS}}"
