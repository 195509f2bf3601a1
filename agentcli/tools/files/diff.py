"""What a change amounts to: a unified diff for the user, line counts for the summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from agentcli.tools.files.text import Line, Text, count_lines, decode, lines_at, split_lines

_CONTEXT = 3
_MAX_COMPARED_LINES = 5_000
MAX_KEPT_CHARS = 200_000
"""Of a diff that is kept with a result."""
MAX_DIFF_CHARS = 2_000_000
_MAX_SPLIT_LINES = 100_000

_BYTES = " (binary)"
_MARK = "\ufeff"
_NO_END = "\\ No newline at end of file\n"

_Opcode = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff of one file and the numbers of lines added and removed."""

    text: str
    added: int
    removed: int

    @property
    def counts(self) -> str:
        """``+3 -1``."""
        return f"+{self.added} -{self.removed}"


def diff_bytes(old_name: str, new_name: str, before: bytes | None, after: bytes | None) -> Diff:
    """The diff of two contents; ``None`` is a file that does not exist.

    What differs has a diff, if only a head. Bytes have no lines; a text with a NUL that is put
    in has, since programs read it all the same.
    """
    was, now = decode(before or b""), decode(after or b"")
    old, new = was.text if was else "", now.text if now else _with_nuls(after or b"")
    if now and _unseen(was) != _unseen(now):  # else a diff of texts would not show it (SEC-6)
        old, new = _spelt(was) if was else "", _spelt(now)
    old_label = "/dev/null" if before is None else f"a/{old_name}{'' if was else _BYTES}"
    new_label = "/dev/null" if after is None else f"b/{new_name}{_BYTES if new is None else ''}"
    found = diff_texts(old_label, new_label, old, new or "")
    if found.text or before == after:
        return found
    return Diff(f"--- {old_label}\n+++ {new_label}\n", 0, 0)


def _unseen(text: Text | None) -> tuple[bool, str]:
    """Whether it begins with a mark, and how its lines end where a text does not say so."""
    return (bool(text.encoding.bom), text.encoding.line_end) if text else (False, "\n")


def _spelt(text: Text) -> str:
    """``text`` with its mark and its line ends, as characters."""
    mark, end = _unseen(text)
    return (_MARK if mark else "") + text.text.replace("\n", end)


def _with_nuls(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def diff_texts(old_label: str, new_label: str, old: str, new: str) -> Diff:
    """The diff of two texts; empty when they are equal. Only what differs is split into lines."""
    if old == new:
        return Diff("", 0, 0)
    head = f"--- {old_label}\n+++ {new_label}\n"
    start = old.rfind("\n", 0, _common(old, new)) + 1
    old_end, new_end = _tails(old, new, start)
    parts = old[start:old_end], new[start:new_end]
    skipped = old.count("\n", 0, start)
    if max(part.count("\n") for part in parts) > _MAX_SPLIT_LINES:
        return _rough(head, parts, skipped)
    above = split_lines(old[_lines_back(old, start) : start])
    below = lines_at(old, old_end, _CONTEXT) if old_end < len(old) else []
    before, after = ([*above, *split_lines(part), *below] for part in parts)
    skipped -= len(above)
    mark = "\r" if len({line.end for line in (*before, *after) if line.end}) > 1 else ""
    out = [head]
    added = removed = 0
    for group in _groups(before, after, len(above), len(below)):
        _, i1, _, j1, _ = group[0]
        _, _, i2, _, j2 = group[-1]
        out.append(f"@@ -{_span(i1 + skipped, i2 - i1)} +{_span(j1 + skipped, j2 - j1)} @@\n")
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                out += [_shown(" ", line, mark) for line in before[old_from:old_to]]
                continue
            out += [_shown("-", line, mark) for line in before[old_from:old_to]]
            out += [_shown("+", line, mark) for line in after[new_from:new_to]]
            removed += old_to - old_from
            added += new_to - new_from
    return Diff(shortened("".join(out)), added, removed)


def _rough(head: str, parts: tuple[str, str], skipped: int) -> Diff:
    """All of one text for all of the other; they are not taken apart."""
    removed, added = (count_lines(part) for part in parts)
    text = f"{head}@@ -{_span(skipped, removed)} +{_span(skipped, added)} @@\n"
    for sign, part in zip("-+", parts, strict=True):
        body = part.removesuffix("\n").replace("\n", f"\n{sign}")
        text += f"{sign}{body}\n" if part else ""
        text += "" if part.endswith("\n") or not part else _NO_END
    return Diff(shortened(text), added, removed)


def shortened(text: str, most: int = MAX_DIFF_CHARS) -> str:
    """The diff ``text``, of a long one its head and its tail."""
    if len(text) <= most:
        return text
    half = most // 2
    between = f"\n … {len(text) - 2 * half:,} more characters of the diff\n "
    return f"{text[:half]}{between}{text[-half:]}"


def _groups(
    before: list[Line], after: list[Line], above: int, below: int
) -> Iterator[list[_Opcode]]:
    """The changes with their context; ``above`` and ``below`` lines at the ends are context.

    Only what is between those is compared: a change that is like its surroundings must not be
    moved to where the context is missing, ``patch`` would take that for the end of the file.
    """
    old_end, new_end = len(before) - below, len(after) - below
    codes: Sequence[_Opcode] = [("replace", 0, old_end - above, 0, new_end - above)]
    if max(old_end, new_end) <= _MAX_COMPARED_LINES:
        codes = SequenceMatcher(None, before[above:old_end], after[above:new_end]).get_opcodes()
    group: list[_Opcode] = [("equal", 0, above, 0, above)]
    for tag, *places in codes:
        i1, i2, j1, j2 = (place + above for place in places)
        if tag == "equal" and i2 - i1 > 2 * _CONTEXT:
            yield [*group, (tag, i1, i1 + _CONTEXT, j1, j1 + _CONTEXT)]
            group = [(tag, i2 - _CONTEXT, i2, j2 - _CONTEXT, j2)]
        else:
            group.append((tag, i1, i2, j1, j2))
    yield [*group, ("equal", old_end, len(before), new_end, len(after))]


def _common(old: str, new: str) -> int:
    """How many characters at the beginning are the same in both."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _lines_back(text: str, position: int) -> int:
    """``position``, at the start of a line, moved back by the lines of context."""
    for _ in range(_CONTEXT):
        if position == 0:
            return 0
        position = text.rfind("\n", 0, position - 1) + 1
    return position


def _tails(old: str, new: str, start: int) -> tuple[int, int]:
    """Where the lines that both texts end with begin in each, not before ``start``."""
    low, high = 0, min(len(old), len(new)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]:
            low = middle
        else:
            high = middle - 1
    tail = len(old) - low
    if not (_begins_line(old, tail) and _begins_line(new, len(new) - low)):
        tail = old.find("\n", tail) + 1 or len(old)
    return tail, len(new) - (len(old) - tail)


def _begins_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _span(start: int, length: int) -> str:
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _shown(sign: str, line: Line, mark: str) -> str:
    """``mark`` is told of a line that ends with a carriage return, too."""
    end = f"{mark}\n" if line.end == "\r\n" else "\n"
    return f"{sign}{line.text}{end}{'' if line.end else _NO_END}"
