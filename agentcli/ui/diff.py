"""Unified diffs for people: line numbers, signs, colour (UI-2)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentcli.ui.sanitize import clean, reveal
from agentcli.ui.theme import ADDED, BOLD, DIM, REMOVED, Theme

_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@(.*)$")


def is_diff(text: str) -> bool:
    """Whether ``text`` reads as a unified diff."""
    return text.startswith("@@ -") or ("\n@@ -" in text and "--- " in text)


def diff_lines(text: str, theme: Theme, *, exact: bool = False) -> list[str]:
    """The lines of the unified diff ``text``, painted.

    ``exact`` spells out invisible characters, as an approval must (SEC-6).
    """
    safe = reveal(text) if exact else clean(text)
    return list(_painted(safe.removesuffix("\n").split("\n"), theme))


def _painted(lines: list[str], theme: Theme) -> Iterator[str]:
    old = new = 0
    for at, line in enumerate(lines):
        sign, body = line[:1], line[1:]
        if hunk := _HUNK.match(line):
            if old or new:
                yield theme.paint(f"{theme.symbols.more:>5}", DIM)
            old, new = int(hunk[1]), int(hunk[2])
        elif not (old or new):
            if not line.startswith(("--- ", "diff ", "index ")):
                name = line.removeprefix("+++ ").removeprefix("b/")
                yield theme.paint(name, BOLD)
        elif (
            line.startswith("--- ") and lines[at + 1 : at + 2] and lines[at + 1].startswith("+++ ")
        ):
            old = new = 0
        elif sign == "+":
            yield f"{theme.paint(f'{new:>5}', DIM)} {theme.paint(f'+ {body}', ADDED)}"
            new += 1
        elif sign == "-":
            yield f"{theme.paint(f'{old:>5}', DIM)} {theme.paint(f'- {body}', REMOVED)}"
            old += 1
        elif sign == "\\":
            yield theme.paint(f"      {line}", DIM)
        else:
            yield f"{theme.paint(f'{new:>5}', DIM)}   {body}"
            old += 1
            new += 1
