"""Where in a file something like the lines looked for stands, for error messages that help."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from agentcli.tools._output import clip_line
from agentcli.tools.files.text import Line

MAX_LINES_COMPARED = 20_000
_MAX_LINES_SOUGHT = 1_000
_MAX_COMPARED_CHARS = 200
MAX_SHOWN_LINES = 20
_MAX_SHOWN_CHARS = 300
_GOOD_ENOUGH = 0.6


def numbered(lines: Sequence[Line], start: int, end: int) -> str:
    """Lines ``start`` to ``end`` (from 0, end excluded) as ``read_file`` shows them."""
    return numbered_rows(lines[start : min(end, start + MAX_SHOWN_LINES)], start + 1)


def numbered_rows(lines: Sequence[Line], first: int) -> str:
    """These lines, the first of which has the number ``first``."""
    return "\n".join(
        f"{number:>6}\t{clip_line(line.text, _MAX_SHOWN_CHARS)}"
        for number, line in enumerate(lines, first)
    )


def closest_place(lines: Sequence[Line], sought: Sequence[str]) -> str:
    """A sentence with the lines most like ``sought``; empty when nothing is like them."""
    wanted = [line.strip() for line in sought if line.strip()]
    if not wanted:
        return ""
    have = [line.text.strip()[:_MAX_COMPARED_CHARS] for line in lines[:MAX_LINES_COMPARED]]
    start = _by_equal_lines(have, wanted[:_MAX_LINES_SOUGHT])
    if start is None:
        start = _by_similar_line(have, wanted[0])
    if start is None:
        return ""
    end = min(start + len(wanted), len(lines))
    return (
        f"The closest place is line{'s' if end > start + 1 else ''} {start + 1}"
        f"{f'-{end}' if end > start + 1 else ''}:\n{numbered(lines, start, end)}"
    )


def _by_equal_lines(have: list[str], wanted: list[str]) -> int | None:
    """The start of the window that shares most lines with ``wanted``, offset by offset."""
    where: dict[str, list[int]] = {}
    for at, line in enumerate(have):
        where.setdefault(line, []).append(at)
    votes: dict[int, int] = {}
    for offset, line in enumerate(wanted):
        places = where.get(line[:_MAX_COMPARED_CHARS], ())
        for at in places if len(places) <= len(wanted) + 10 else ():
            votes[at - offset] = votes.get(at - offset, 0) + 1
    if not votes:
        return None
    best = max(votes, key=lambda start: (votes[start], -start))
    return max(best, 0)


def _by_similar_line(have: list[str], wanted: str) -> int | None:
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[:_MAX_COMPARED_CHARS])
    best, best_at = _GOOD_ENOUGH, None
    for at, line in enumerate(have):
        matcher.set_seq1(line)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, best_at = ratio, at
    return best_at
