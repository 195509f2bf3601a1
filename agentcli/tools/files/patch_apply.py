"""Applying the hunks of a patch to the lines of a file.

Old lines are looked for from where the hunk before ended: as they are, then without regard to
trailing white space, to all white space at the ends of a line, to the kind of dashes, quotes and
blanks. Law: context keeps the file's own bytes; an added line takes the line end of the line that
it replaces or follows. The search for all the hunks of a file is bounded (SEC-13).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from agentcli.tools.files.closest import MAX_LINES_COMPARED, closest_place
from agentcli.tools.files.patch_model import Hunk, PatchLine, PatchProblem
from agentcli.tools.files.runs import runs
from agentcli.tools.files.text import Line, common_end

_PUNCTUATION = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys(
            "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
    }
)
_MAX_FUZZ = 2
MAX_LINES = 200_000
_MAX_COMPARED_LINES = 20_000_000


def _plain(line: str) -> str:
    return line.strip().translate(_PUNCTUATION)


_PASSES: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip, _plain)


@dataclass(frozen=True, slots=True)
class _Replacement:
    start: int
    end: int
    lines: tuple[Line, ...]


def apply_hunks(lines: Sequence[Line], hunks: Sequence[Hunk], *, strict_end: bool) -> list[Line]:
    """The file's lines after ``hunks``; raises ``PatchProblem`` where one does not fit.

    ``strict_end``: the hunks say whether the last line has a line end, otherwise it gets one.
    """
    texts = _Texts([line.text for line in lines])
    end_of_line = common_end(lines)
    replacements: list[_Replacement] = []
    at = shift = 0
    for hunk in hunks:
        if hunk.old_start is None:
            found, hunk_lines = _place(texts, hunk, at)
        else:
            found, hunk_lines = _place_near(texts, hunk, at, hunk.old_start - 1 + shift)
            shift = found - (hunk.old_start - 1) if hunk.old else shift
        replacement = _replacement(lines, found, hunk_lines, end_of_line)
        replacements.append(replacement)
        if hunk.old or hunk.anchors:
            at = replacement.end
    result: list[Line] = []
    at = 0
    for replacement in sorted(replacements, key=lambda r: (r.start, r.end)):
        result += [*lines[at : replacement.start], *replacement.lines]
        at = max(at, replacement.end)
    return _ended([*result, *lines[at:]], end_of_line, keep_last=strict_end)


# --- placing a hunk ------------------------------------------------------------------------


class _Texts:
    """The file's lines, each pass's form of them made once."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._forms: dict[int, list[str]] = {}
        self._compared = 0

    def __len__(self) -> int:
        return len(self.lines)

    def find(self, wanted: Sequence[str], start: int, *, at_end: bool = False) -> int | None:
        """Where ``wanted`` first stands from ``start`` on, by the strictest pass that finds it."""
        for number in range(len(_PASSES)):
            if places := self.places(wanted, start, number, first_only=True, at_end=at_end):
                return places[0]
        return None

    def places(
        self,
        wanted: Sequence[str],
        start: int,
        number: int,
        *,
        first_only: bool = False,
        at_end: bool = False,
    ) -> list[int]:
        """Every place of ``wanted`` by one pass."""
        last = len(self.lines) - len(wanted)
        if last < 0:
            return []
        if number not in self._forms:
            self._forms[number] = [_PASSES[number](line) for line in self.lines]
        sought = [_PASSES[number](line) for line in wanted]
        begin = max(last if at_end else start, 0)
        found = list(islice(runs(self._forms[number], sought, begin), 1 if first_only else None))
        end = found[0] + len(wanted) if found and first_only else len(self.lines)
        self._compared += len(wanted) + max(0, end - begin)
        if self._compared > _MAX_COMPARED_LINES:
            raise PatchProblem("it takes too long to find its places. Use several smaller patches.")
        return found

    def stand_at(self, wanted: Sequence[str], place: int) -> bool:
        """Whether ``wanted`` stands there as it is."""
        return self.lines[place : place + len(wanted)] == list(wanted)


def _place(texts: _Texts, hunk: Hunk, start: int) -> tuple[int, tuple[PatchLine, ...]]:
    """Where a hunk without line numbers belongs, and its lines as they fit there."""
    anchored_at = start
    for anchor in hunk.anchors:
        found = texts.find([anchor], start)
        if found is None:
            raise PatchProblem(
                f"the anchor of the hunk at line {hunk.number} of the patch, '@@ {anchor}', is "
                f"not in the file{_after(start)}. {_near(texts, [anchor])}"
            )
        anchored_at, start = found, found + 1
    if not hunk.old:
        if hunk.anchors:
            return start, hunk.lines
        before_blank = bool(texts.lines) and not texts.lines[-1]
        return len(texts) - before_blank, hunk.lines
    lines = hunk.lines
    found = texts.find(hunk.old, start, at_end=hunk.at_end)
    if found is None and hunk.anchors:  # the anchor repeated as the first line of the context
        found = texts.find(hunk.old, anchored_at, at_end=hunk.at_end)
    if found is None and not hunk.old[-1]:  # a blank that stands for the end of the file
        lines = _without_last_old(lines)
        old = hunk.old[:-1]
        found = texts.find(old, start, at_end=hunk.at_end) if old else None
    if found is None:
        raise _misfit(texts, hunk, start)
    return found, lines


def _place_near(
    texts: _Texts, hunk: Hunk, start: int, expected: int
) -> tuple[int, tuple[PatchLine, ...]]:
    """Where a hunk with line numbers belongs: the place nearest to what they say."""
    if not hunk.old:
        return min(max(expected + 1, start), len(texts)), hunk.lines
    if expected >= start and texts.stand_at(hunk.old, expected):
        return expected, hunk.lines
    for number in range(len(_PASSES)):
        if places := texts.places(hunk.old, start, number):
            return min(places, key=lambda place: abs(place - expected)), hunk.lines
    for fuzz in range(1, _MAX_FUZZ + 1):
        lines = _less_context(hunk.lines, fuzz)
        old = [line.text for line in lines if line.sign != "+"]
        if lines == hunk.lines or not any(text.strip() for text in old):
            continue
        for number in range(len(_PASSES)):
            if len(places := texts.places(old, start, number)) == 1:
                return places[0], lines
    raise _misfit(texts, hunk, start)


def _less_context(lines: tuple[PatchLine, ...], fuzz: int) -> tuple[PatchLine, ...]:
    start = 0
    while start < fuzz and lines[start].sign == " ":
        start += 1
    end = len(lines)
    while len(lines) - end < fuzz and end > start and lines[end - 1].sign == " ":
        end -= 1
    return lines[start:end]


def _without_last_old(lines: tuple[PatchLine, ...]) -> tuple[PatchLine, ...]:
    last = max(at for at, line in enumerate(lines) if line.sign != "+")
    return lines[:last] + lines[last + 1 :]


def _misfit(texts: _Texts, hunk: Hunk, start: int) -> PatchProblem:
    expected = "\n".join(hunk.old)
    earlier = texts.find(hunk.old, 0)
    if hunk.at_end and earlier is not None:
        why = f"They are at line {earlier + 1}, not at the end: leave '*** End of File' out."
    elif earlier is not None:
        why = f"They are at line {earlier + 1}, before that: put the hunks in the file's order."
    else:
        why = _near(texts, hunk.old)
    return PatchProblem(
        f"the lines that the hunk at line {hunk.number} of the patch expects are not in the file"
        f"{_after(start)}:\n{expected}\n{why}"
    )


def _after(start: int) -> str:
    return f" after line {start}" if start else ""


def _near(texts: _Texts, wanted: Sequence[str]) -> str:
    lines = [Line(text, "\n") for text in texts.lines[:MAX_LINES_COMPARED]]
    place = closest_place(lines, wanted)
    return place or "Read the file again and write the patch from what it holds."


# --- replacing -----------------------------------------------------------------------------


def _replacement(
    lines: Sequence[Line], start: int, hunk_lines: Sequence[PatchLine], end_of_line: str
) -> _Replacement:
    out: list[Line] = []
    at = start
    removed: list[Line] = []  # of the group of changes at hand, not yet stood for by an added line
    for line in hunk_lines:
        if line.sign == "+":
            if removed:
                end = removed.pop(0).end
            elif out:
                end = out[-1].end
            else:
                end = lines[at - 1].end if at else end_of_line
            out.append(Line(line.text, (end or end_of_line) if line.ended else ""))
        elif line.sign == "-":
            removed.append(lines[at])
            at += 1
        else:
            removed = []
            out.append(lines[at] if line.ended else Line(lines[at].text, ""))
            at += 1
    return _Replacement(start, at, tuple(out))


def _ended(lines: list[Line], end_of_line: str, *, keep_last: bool) -> list[Line]:
    """Every line but the last must have an end; the last one too unless it may go without."""
    stop = len(lines) - 1 if keep_last else len(lines)
    return [
        Line(line.text, line.end or end_of_line) if at < stop else line
        for at, line in enumerate(lines)
    ]
