"""Unified diffs for people: line numbers, signs, colour, the words that changed (UI-2).

Law: a line of the diff is a line of the output, whole and in order; sign and number say what
colour says (UI-10); the cost is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentcli.ui.sanitize import clean, reveal
from agentcli.ui.theme import ADDED, BOLD, CHANGED, DIM, REMOVED, Theme
from agentcli.ui.word_diff import Piece, Pieces, compare

MAX_COMPARED = 2_000
"""Lines whose words are compared; a diff that changes more shows whole lines beyond."""

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NUMBER_COLUMNS = 5
_NO_FILE = "/dev/null"


def is_diff(text: str) -> bool:
    """Whether ``text`` reads as a unified diff."""
    return text.startswith("@@ -") or ("\n@@ -" in text and "--- " in text)


def diff_lines(text: str, theme: Theme, *, exact: bool = False) -> list[str]:
    """The lines of the unified diff ``text``, painted.

    ``exact`` spells out invisible characters, as an approval must (SEC-6).
    """
    safe = reveal(text) if exact else clean(text)
    return list(_Painter(theme).lines(safe.removesuffix("\n").split("\n")))


class _Painter:
    """Paints one diff. What is taken out and put in waits until the group is complete."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._name_before = ""
        self._old = self._new = 0  # the numbers of the next lines; 0, 0: before a hunk
        self._left = [0, 0]  # lines of the hunk that are still to come, by its head
        self._group: list[tuple[str, int, str]] = []
        self._compared = 0

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
        return not begins_file and not lines[at].startswith(("diff ", "index "))

    def _head(self, line: str, hunk: re.Match[str] | None) -> Iterator[str]:
        if hunk is None:
            self._old = self._new = 0
            if line.startswith("--- "):
                self._name_before = line.removeprefix("--- ").removeprefix("a/")
            elif not line.startswith(("diff ", "index ")):
                yield self._theme.paint(self._title(line), BOLD)
            return
        if self._old or self._new:
            yield self._theme.paint(f"{self._theme.symbols.more:>{_NUMBER_COLUMNS}}", DIM)
        self._old, self._new = int(hunk[1]), int(hunk[3])
        self._left = [int(hunk[2] or 1), int(hunk[4] or 1)]

    def _title(self, line: str) -> str:
        """What a file is called; what it was called where that is not the same."""
        before, self._name_before = self._name_before, ""
        name = line.removeprefix("+++ ").removeprefix("b/")
        if not line.startswith("+++ ") or before in {"", name, _NO_FILE}:
            return name
        return f"{before} (deleted)" if name == _NO_FILE else f"{before} -> {name}"

    def _context(self, line: str) -> str:
        if line[:1] == "\\":
            return self._theme.paint(f"{'':>{_NUMBER_COLUMNS}} {line}", DIM)
        shown = f"{self._theme.paint(self._number(self._new), DIM)}   {line[1:]}"
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
        for sign, number, _ in group:
            style = ADDED if sign == "+" else REMOVED
            yield f"{self._theme.paint(self._number(number), DIM)} " + self._painted(
                [Piece(f"{sign} ", changed=False), *next(pieces)], style
            )

    def _compare(self, old: list[str], new: list[str]) -> tuple[list[Pieces], list[Pieces]]:
        self._compared += len(old) + len(new)
        if self._compared > MAX_COMPARED or not self._theme.start(CHANGED):
            whole = [[Piece(line, changed=False)] for line in (*old, *new)]
            return whole[: len(old)], whole[len(old) :]
        return compare(old, new)

    def _painted(self, pieces: Pieces, style: int) -> str:
        out, text = [], ""
        for at, piece in enumerate(pieces):
            text += piece.text
            if at + 1 == len(pieces) or pieces[at + 1].changed != piece.changed:
                out.append(self._theme.paint(text, style | (CHANGED if piece.changed else 0)))
                text = ""
        return "".join(out)

    def _number(self, number: int) -> str:
        return f"{number:>{_NUMBER_COLUMNS}}"
