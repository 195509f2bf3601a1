"""Finding lines and text in a file: what an edit means to replace (TOOL-8), what comes closest.

The rules of an edit are tried in this order, each only when the ones before found nothing:

1. the exact text;
2. the same text with other line ends;
3. whole lines that differ in trailing white space only;
4. whole lines that differ in indentation as well, consistently; the replacement is re-indented;
5. rules 3 and 4 without the blank lines at either end of the text looked for.

Law: a place is used only when it is the only one that its rule finds (or all are meant to be
replaced); the replacement takes the line ends of what it replaces. Time and memory are bounded
whatever the texts (SEC-13): beyond the limits below the file is not edited, or only exactly.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from agentcli.tools.common.base import clip_line
from agentcli.tools.files.text import Line, adopt_ends, common_end_of, lines_at, split_lines

MAX_LINES_COMPARED = 20_000
_MAX_LINES_SOUGHT = 1_000
_MAX_COMPARED_CHARS = 200
MAX_SHOWN_LINES = 20
_MAX_SHOWN_CHARS = 300
_GOOD_ENOUGH = 0.6
_MAX_CANDIDATES_SHOWN = 8
_MAX_PLACES = 100_000
_MAX_LOOSE_PLACES = 1_000
_MAX_LOOSE_LINES = 200_000
_MAX_LOOSE_COMPARED = 1_000_000
_MAX_OVERLAP_CHARS = 64 * 1024 * 1024
_MAX_RESULT_CHARS = 32 * 1024 * 1024
_SPACES_PER_TAB = 4
_LINE_END = re.compile(r"\r?\n")
_NUMBERED = re.compile(r"\s*\d+[\t→|:]")


class NoMatch(Exception):
    """The text is not there, or at several places; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where something was found (offsets into the text) and what belongs there instead."""

    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that can be made. ``tolerance`` says what was overlooked, empty for nothing."""

    text: str
    spans: tuple[Span, ...]
    tolerance: str


def find_edit(text: str, old: str, new: str, *, replace_all: bool = False) -> Edit:
    """The edit that puts ``new`` in the place of ``old``; raises ``NoMatch``."""
    if old.count("\n") > _MAX_LOOSE_LINES and old not in text:
        raise NoMatch("old_string is not in the file. Nothing was changed.")
    for rule, tolerance in _RULES:
        spans = rule(text, old, new)
        if not spans:
            continue
        if len(spans) > 1 and not replace_all:
            raise NoMatch(_several(text, spans, tolerance))
        chosen = _apart(spans)
        return Edit(_replaced(text, chosen), tuple(chosen), tolerance)
    raise NoMatch(_nowhere(text, old))


def line_of(text: str, offset: int) -> int:
    """The number, from 1, of the line that ``offset`` lies in."""
    return text.count("\n", 0, offset) + 1


# --- the rules ---


def _exact(text: str, old: str, new: str) -> list[Span]:
    ends = _Ends(text)
    return [
        Span(at, at + len(old), ends.adopt(at, at + len(old), new)) for at in _positions(text, old)
    ]


def _other_line_ends(text: str, old: str, new: str) -> list[Span]:
    if "\r\n" not in text and "\r\n" not in old:
        return []
    flat_text, flat_old = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    places = _positions(flat_text, flat_old)
    if not places:
        return []
    found = enumerate(re.finditer("\r\n", text))
    dropped = array("q", (match.start() - n for n, match in found))

    def back(offset: int) -> int:  # a carriage return goes with the line feed after it
        return offset + bisect_right(dropped, offset - 1)

    ends = _Ends(text)
    spans = []
    for at in places:
        start, end = back(at), back(at + len(flat_old))
        spans.append(Span(start, end, ends.adopt(start, end, new)))
    return spans


def _trailing_space(text: str, old: str, new: str) -> list[Span]:
    return _whole_lines(text, _Sought.of(old, new), str.rstrip, reindent=False)


def _indentation(text: str, old: str, new: str) -> list[Span]:
    return _whole_lines(text, _Sought.of(old, new), str.strip, reindent=True)


def _trailing_space_trimmed(text: str, old: str, new: str) -> list[Span]:
    return _whole_lines(text, _Sought.of(old, new).trimmed(), str.rstrip, reindent=False)


def _indentation_trimmed(text: str, old: str, new: str) -> list[Span]:
    return _whole_lines(text, _Sought.of(old, new).trimmed(), str.strip, reindent=True)


_RULES: tuple[tuple[Callable[[str, str, str], list[Span]], str], ...] = (
    (_exact, ""),
    (_other_line_ends, "line ends"),
    (_trailing_space, "trailing white space"),
    (_indentation, "indentation"),
    (_trailing_space_trimmed, "blank lines around it and trailing white space"),
    (_indentation_trimmed, "blank lines around it and indentation"),
)


@dataclass(frozen=True, slots=True)
class _Sought:
    """``old`` and ``new`` as lines. ``ended``: ``old`` ends with a line end, which it replaces."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    ended: bool

    @classmethod
    def of(cls, old: str, new: str) -> _Sought:
        old_lines, new_lines = _flat_lines(old), _flat_lines(new)
        ended = len(old_lines) > 1 and not old_lines[-1]
        return cls(old_lines[:-1] if ended else old_lines, new_lines, ended)

    def trimmed(self) -> _Sought:
        """Without the blank lines at either end; of ``new`` no more are taken than of ``old``."""
        old, new = list(self.old), list(self.new)
        tail = [new.pop()] if self.ended and len(new) > 1 and not new[-1] else []
        for at in (0, -1):
            while len(old) > 1 and not old[at].strip():
                del old[at]
                if len(new) > 1 and not new[at].strip():
                    del new[at]
        return _Sought(tuple(old), (*new, *tail), self.ended)


def _whole_lines(
    text: str, sought: _Sought, key: Callable[[str], str], *, reindent: bool
) -> list[Span]:
    wanted = [key(line) for line in sought.old]
    if not any(wanted) or text.count("\n") > _MAX_LOOSE_LINES:
        return []
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    ends = _Ends(text)
    spans: list[Span] = []
    seen_lines = offset = 0
    for count, at in enumerate(runs([key(line) for line in lines], wanted)):
        if count >= _MAX_LOOSE_PLACES or count * len(wanted) > _MAX_LOOSE_COMPARED:
            raise NoMatch("old_string is like too many places in the file. Add lines around it.")
        found = [line.removesuffix("\r") for line in lines[at : at + len(wanted)]]
        new = list(sought.new)
        if reindent:
            mapping = _indent_mapping(sought.old, found)
            if mapping is None:
                continue
            new = [_reindented(line, mapping) for line in new]
        offset += sum(len(line) + 1 for line in lines[seen_lines:at])
        seen_lines = at
        start = offset
        end = start + sum(len(line) + 1 for line in lines[at : at + len(wanted)])
        has_end = end <= len(text)  # only the file's last line may lack one
        if sought.ended:
            end = min(end, len(text))
            if not has_end and new[-1] == "" and len(new) > 1:
                new.pop()  # the last line keeps having none
        else:
            end -= 1 + (has_end and text[end - 2 : end] == "\r\n")
        spans.append(Span(start, end, ends.adopt(start, end, "\n".join(new))))
    return spans


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _indent_mapping(old: tuple[str, ...], found: list[str]) -> dict[str, str] | None:
    """From the indentation in ``old`` to that in the file; ``None`` when it is not a function."""
    mapping: dict[str, str] = {}
    for given, real in zip(old, found, strict=True):
        if given.strip() and mapping.setdefault(_indent(given), _indent(real)) != _indent(real):
            return None
    return mapping


def _reindented(line: str, mapping: dict[str, str]) -> str:
    if not line.strip():
        return line
    given = _indent(line)
    known = [indent for indent in mapping if given.startswith(indent)]
    if known:
        nearest = max(known, key=len)
        return mapping[nearest] + _rest(given[len(nearest) :], mapping) + line[len(given) :]
    # less indented than anything in the text looked for: shift by the same amount
    least = min(mapping, key=len)
    real, missing = mapping[least], len(least) - len(given)
    if real.endswith(least):
        return real[: len(real) - len(least)] + line
    return real[: max(len(real) - missing, 0)] + line[len(given) :]


def _rest(extra: str, mapping: dict[str, str]) -> str:
    """Further indentation in the file's own kind of white space, where that can be told."""
    pairs = sorted(mapping.items(), key=lambda pair: len(pair[0]))
    for (less, real_less), (more, real_more) in pairwise(pairs):
        step, real = more[len(less) :], real_more[len(real_less) :]
        if step and real and more.startswith(less) and real_more.startswith(real_less):
            count, odd = divmod(len(extra), len(step))
            if extra == step * count + extra[:odd] and not odd:
                return real * count
    if "\t" in "".join(mapping.values()) and extra and not extra.strip(" "):
        count, odd = divmod(len(extra), _SPACES_PER_TAB)
        return extra if odd else "\t" * count
    return extra


class _Ends:
    """Gives a replacement the line ends of what it replaces."""

    def __init__(self, text: str) -> None:
        self._text = text
        crlf = text.count("\r\n")
        self._only = None
        if not crlf or crlf == text.count("\n"):
            self._only = "\r\n" if crlf else "\n"
        self._common = common_end_of(text)
        self._any = "\n" in text
        self._adopted: dict[tuple[str, str, str], str] = {}
        self._made_chars = 0

    def adopt(self, start: int, end: int, new: str) -> str:
        if not self._any or "\n" not in new:
            return new
        if self._only is not None:
            key = (new, "", self._only)
            if key not in self._adopted:
                self._adopted[key] = self._only.join(_flat_lines(new))
            return self._adopted[key]
        region = self._text[start:end]
        # the line that the place ends in tells most about a replacement within one line
        after = None if "\n" in region else _LINE_END.search(self._text, end)
        default = after[0] if after else self._common
        key = (new, region, default)
        if key not in self._adopted:
            self._made_chars += len(new) + len(region)
            if self._made_chars > _MAX_RESULT_CHARS:
                raise _too_large()
            lines = split_lines(region)
            self._adopted[key] = adopt_ends(
                [line.text for line in lines],
                [line.end for line in lines if line.end],
                _flat_lines(new),
                default,
            )
        return self._adopted[key]


def _flat_lines(text: str) -> tuple[str, ...]:
    return tuple(text.replace("\r\n", "\n").split("\n"))


def _positions(text: str, old: str) -> list[int]:
    """Where ``old`` begins, overlapping places included: both are candidates."""
    found, at = [], text.find(old)
    while at != -1:
        found.append(at)
        if len(found) > _MAX_PLACES:
            raise NoMatch(f"old_string is found at more than {_MAX_PLACES:,} places. Use bash.")
        if len(found) * len(old) > max(_MAX_OVERLAP_CHARS, len(text)):
            raise NoMatch("old_string is found at too many places that overlap. Use bash.")
        at = text.find(old, at + 1)
    return found


def _apart(spans: list[Span]) -> list[Span]:
    chosen: list[Span] = []
    for span in spans:
        if not chosen or span.start >= chosen[-1].end:
            chosen.append(span)
    return chosen


def _replaced(text: str, spans: list[Span]) -> str:
    pieces, at = [], 0
    if len(text) + sum(len(span.replacement) for span in spans) > _MAX_RESULT_CHARS:
        raise _too_large()
    for span in spans:
        pieces += [text[at : span.start], span.replacement]
        at = span.end
    return "".join([*pieces, text[at:]])


def _too_large() -> NoMatch:
    return NoMatch("The file would become too large to be edited. Use bash.")


def _several(text: str, spans: list[Span], tolerance: str) -> str:
    loosely = f" (overlooking {tolerance})" if tolerance else ""
    places = [(line_of(text, at), at) for at in (s.start for s in spans[:_MAX_CANDIDATES_SHOWN])]
    shown = "\n".join(
        numbered_rows(lines_at(text, at, 1), number) for number, at in dict(places).items()
    )
    more = len(spans) - _MAX_CANDIDATES_SHOWN
    return (
        f"old_string is found at {len(spans)} places{loosely}, so it is not clear which is meant. "
        "Nothing was changed. Add lines around it until it is unique, or set replace_all.\n"
        f"{shown}" + (f"\n… and {more} more" if more > 0 else "")
    )


def _nowhere(text: str, old: str) -> str:
    message = "old_string is not in the file. Nothing was changed."
    sought = [line for line in _flat_lines(old) if line.strip()]
    if sought and all(_NUMBERED.match(line) for line in sought):
        message += " It seems to contain line numbers from read_file: leave them out."
    if text.count("\n") > _MAX_LOOSE_LINES:
        message += " The file has so many lines that old_string has to be exact."
    place = closest_place(lines_at(text, 0, MAX_LINES_COMPARED), sought)
    return f"{message} {place}" if place else f"{message} Read the file again."


# --- a run of lines, and the lines most like others ---


def runs(lines: Sequence[str], wanted: Sequence[str], start: int = 0) -> Iterator[int]:
    """Every place, overlapping ones included, from ``start`` on; ``wanted`` is not empty.

    Knuth, Morris and Pratt's search: a long run of equal lines costs no more than any other.
    """
    fallback = [0] * len(wanted)
    length = 0
    for at in range(1, len(wanted)):
        while length and wanted[at] != wanted[length]:
            length = fallback[length - 1]
        length += wanted[at] == wanted[length]
        fallback[at] = length
    matched = 0
    for at in range(start, len(lines)):
        line = lines[at]
        while matched and (matched == len(wanted) or line != wanted[matched]):
            matched = fallback[matched - 1]
        matched += line == wanted[matched]
        if matched == len(wanted):
            yield at - matched + 1


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


def numbered(lines: Sequence[Line], start: int, end: int) -> str:
    """Lines ``start`` to ``end`` (from 0, end excluded) as ``read_file`` shows them."""
    return numbered_rows(lines[start : min(end, start + MAX_SHOWN_LINES)], start + 1)


def numbered_rows(lines: Sequence[Line], first: int) -> str:
    """These lines, the first of which has the number ``first``."""
    return "\n".join(
        f"{number:>6}\t{clip_line(line.text, _MAX_SHOWN_CHARS)}"
        for number, line in enumerate(lines, first)
    )
