"""Golden screens: what a person sees, as text that is kept in ``tests/snapshots``.

A golden screen is the visible lines of a window of a given size, with the cursor marked, and
seconds replaced. ``UPDATE_SNAPSHOTS=1`` writes
them anew; look at the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.support.pty_driver import Terminal

SNAPSHOTS = Path(__file__).resolve().parents[1] / "snapshots"
SIZES = ((80, 24), (120, 40), (40, 15))
CURSOR = "▂"
_UPDATE = bool(os.environ.get("UPDATE_SNAPSHOTS"))


def golden(terminal: Terminal) -> str:
    """The visible lines; the cursor is a sign of its own."""
    lines = terminal.screen()
    row, column = terminal.cursor
    line = lines[row].ljust(column + 1)
    lines[row] = line[:column] + CURSOR + line[column + 1 :].rstrip()
    while lines and not lines[-1]:
        lines.pop()
    return re.sub(r"\b\d+(?:\.\d+)? s\b", "N s", "\n".join(lines)) + "\n"


def matches_snapshot(name: str, text: str) -> bool:
    """Whether ``text`` is the golden screen ``name``; an assertion shows the difference."""
    path = SNAPSHOTS / f"{name}.txt"
    if _UPDATE:
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden screen {path.name}: run with UPDATE_SNAPSHOTS=1"
    assert text == path.read_text(encoding="utf-8")
    return True
