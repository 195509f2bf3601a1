"""What a change amounts to: a unified diff for the person, line counts for the summary."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from agentcli.tools.files.text import Line, count_lines, decode, lines_at, split_lines

_CONTEXT = 3
_MAX_COMPARED_LINES = 5_000
_MAX_DIFF_CHARS = 200_000
_MAX_SPLIT_LINES = 100_000

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
    """The diff of two contents; ``None`` is a file that does not exist."""
    old, new = decode(before or b""), decode(after or b"")
    if old is None or new is None:
        return Diff(f"Binary files {old_name} and {new_name} differ\n", 0, 0)
    old_label = "/dev/null" if before is None else f"a/{old_name}"
    new_label = "/dev/null" if after is None else f"b/{new_name}"
    return diff_texts(old_label, new_label, old.text, new.text)


def diff_texts(old_label: str, new_label: str, old: str, new: str) -> Diff:
    """The diff of two texts; empty when they are equal. Only what differs is split into lines."""
    start = _lines_back(old, old.rfind("\n", 0, _common(old, new)) + 1)
    old_end, new_end = _tails(old, new, start)
    skipped = old.count("\n", 0, start)
    removed, added = old.count("\n", start, old_end), new.count("\n", start, new_end)
    if max(removed, added) > _MAX_SPLIT_LINES:
        return _rough(
            f"--- {old_label}\n+++ {new_label}\n", (old[start:old_end], new[start:new_end]), skipped
        )
    before, after = split_lines(old[start:old_end]), split_lines(new[start:new_end])
    out: list[str] = []
    added = removed = 0
    for group in _groups(before, after):
        _, i1, _, j1, _ = group[0]
        _, _, i2, _, j2 = group[-1]
        out.append(f"@@ -{_span(i1 + skipped, i2 - i1)} +{_span(j1 + skipped, j2 - j1)} @@\n")
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                out += [_shown(" ", line) for line in before[old_from:old_to]]
                continue
            out += [_shown("-", line) for line in before[old_from:old_to]]
            out += [_shown("+", line) for line in after[new_from:new_to]]
            removed += old_to - old_from
            added += new_to - new_from
    if not out:
        return Diff("", 0, 0)
    text = f"--- {old_label}\n+++ {new_label}\n{''.join(out)}"
    return Diff(_cut(text, len(text)), added, removed)


def _rough(head: str, parts: tuple[str, str], skipped: int) -> Diff:
    """All of one text for all of the other, as far as it is shown; they are not taken apart."""
    removed, added = (count_lines(part) for part in parts)
    text = f"{head}@@ -{_span(skipped, removed)} +{_span(skipped, added)} @@\n"
    length = len(text) + sum(map(len, parts)) + removed + added
    for sign, part in zip("-+", parts, strict=True):
        shown = lines_at(part[:_MAX_DIFF_CHARS], 0, _MAX_DIFF_CHARS)
        text += "".join(_shown(sign, line) for line in shown)
        if len(text) > _MAX_DIFF_CHARS:
            break
    return Diff(_cut(text, length), added, removed)


def _cut(text: str, length: int) -> str:
    """``text``, which is the beginning of one of ``length`` characters, as far as it is shown."""
    if len(text) <= _MAX_DIFF_CHARS:
        return text
    cut = text.rfind("\n", 0, _MAX_DIFF_CHARS) + 1
    return f"{text[:cut]}… {length - cut:,} more characters of the diff\n"


def _groups(before: list[Line], after: list[Line]) -> list[list[_Opcode]]:
    if max(len(before), len(after)) > _MAX_COMPARED_LINES:
        return [[("replace", 0, len(before), 0, len(after))]]
    matcher = SequenceMatcher(None, before, after)
    groups = [list(group) for group in matcher.get_grouped_opcodes(_CONTEXT)]
    return [group for group in groups if any(code[0] != "equal" for code in group)]


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
    """Where the common tail, less the context, begins in both texts."""
    low, high = 0, min(len(old), len(new)) - start
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]:
            low = middle
        else:
            high = middle - 1
    tail = len(old) - low
    if (
        tail > 0
        and low
        and (old[tail - 1] != "\n" or new[len(new) - low - 1 : len(new) - low] != "\n")
    ):
        tail = old.find("\n", tail) + 1 or len(old)
    for _ in range(_CONTEXT):
        tail = old.find("\n", tail) + 1 or len(old)
    return tail, len(new) - (len(old) - tail)


def _span(start: int, length: int) -> str:
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _shown(sign: str, line: Line) -> str:
    return (
        f"{sign}{line.text}\n" if line.end else f"{sign}{line.text}\n\\ No newline at end of file\n"
    )
