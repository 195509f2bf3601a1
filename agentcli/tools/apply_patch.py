"""Apply a patch to several files, all or nothing (TOOL-9).

The old lines of a hunk are looked for from where the hunk before ended: as they are, then without
regard to trailing white space, to all white space at the ends of a line, to the kind of dashes,
quotes and blanks. A hunk that fits several places, which neither an anchor nor the hunks around it
tell apart, is refused and shown them. Law: context keeps the file's own bytes; an added line takes
the line end of the line that it replaces or follows. The search for all the hunks of a file is
bounded (SEC-13).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import Field

from agentcli.domain.clean import plural
from agentcli.domain.tools import ToolHints, Workspace
from agentcli.tools.common.base import Arguments, one_line
from agentcli.tools.files.diff import Diff, diff_bytes
from agentcli.tools.files.disk import FoundFile, look, read_state, require_unchanged, state_if_any
from agentcli.tools.files.file_tool import (
    Change,
    ChangeTool,
    FileContext,
    Plan,
    editable,
    encoded,
    name_of,
)
from agentcli.tools.files.match import MAX_LINES_COMPARED, closest_place, runs
from agentcli.tools.files.patch import (
    AddFile,
    DeleteFile,
    Hunk,
    Patch,
    PatchLine,
    PatchProblem,
    UpdateFile,
    parse_patch,
)
from agentcli.tools.files.paths import (
    FileProblem,
    located,
    located_entry,
    not_found,
    resolve,
    resolve_entry,
)
from agentcli.tools.files.text import UTF_8, Line, common_end, join_lines, split_lines

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
_MAX_NAMES = 3
_MAX_PLACES, _MAX_SHOWN, _MAX_ANCHORS = 10, 3, 50
_EXECUTABLE = 0o755


class ApplyPatchArguments(Arguments):
    """See the tool's description."""

    patch: str = Field(description="The whole patch")


class ApplyPatch(ChangeTool[ApplyPatchArguments]):
    """The patch tool."""

    name = "apply_patch"
    display_name = "Patch"
    description = (
        "Change several files at once, all or nothing. Format:\n"
        "*** Begin Patch\n"
        "*** Update File: a.py\n"
        "*** Move to: b.py (optional)\n"
        "@@ def f(): (optional: a line above the change, to find the place)\n"
        " context line\n"
        "-removed line\n"
        "+added line\n"
        "*** Add File: c.py\n"
        "+each line\n"
        "*** Delete File: d.py\n"
        "*** End Patch\n"
        "Give 3 lines of context around each change, hunks in the file's order. Unified diffs "
        "work too."
    )
    params = ApplyPatchArguments
    hints = ToolHints(destructive=True)

    def summary(self, args: ApplyPatchArguments) -> str:
        """How the call reads in one line."""
        try:
            names = [one_line(path, 60) for path in parse_patch(args.patch).paths]
        except PatchProblem:
            return "Patch (not readable)"
        more = len(names) - _MAX_NAMES
        return f"Patch {', '.join(names[:_MAX_NAMES])}" + (f" and {more} more" if more > 0 else "")

    def targets(self, args: ApplyPatchArguments, workspace: Workspace) -> list[Path]:
        """Every file that the patch names, move targets included."""
        try:
            patch = parse_patch(args.patch)
        except PatchProblem:
            return []
        deleted = [op.path for op in patch.operations if isinstance(op, DeleteFile)]
        paths = [resolve(workspace, path) for path in patch.paths]
        return paths + [resolve_entry(workspace, path) for path in deleted]

    def plan(self, args: ApplyPatchArguments, ctx: FileContext) -> Plan:
        """What every file will be, each operation seeing what those before it did."""
        try:
            patch = parse_patch(args.patch)
        except PatchProblem as problem:
            raise FileProblem(f"{problem} Nothing was changed.") from None
        if not patch.operations:
            raise FileProblem("The patch changes no file.")
        return _Staging(ctx).plan(patch)


@dataclass(slots=True)
class _Staged:
    """A file as the operations so far leave it; ``data`` is ``None`` where there is none."""

    before: FoundFile | None
    data: bytes | None
    mode: int | None = None
    came_from: Path | None = None
    removed: bool = False
    replaced: bool = False

    @property
    def exists(self) -> bool:
        """Whether something is there; what is too large to be read has no ``data``."""
        unread = self.before is not None and self.before.data is None
        return self.data is not None or (unread and not self.removed)

    def remove(self) -> None:
        self.data, self.removed = None, True


class _Staging:
    """Plays the operations on a picture of the files; nothing is written."""

    def __init__(self, ctx: FileContext) -> None:
        self._ctx = ctx
        self._files: dict[Path, _Staged] = {}

    def plan(self, patch: Patch) -> Plan:
        for operation in patch.operations:
            try:
                match operation:
                    case AddFile():
                        self._add(operation)
                    case DeleteFile():
                        self._delete(operation)
                    case UpdateFile():
                        self._update(operation)
            except PatchProblem as problem:
                raise FileProblem(
                    f"The patch does not fit {one_line(operation.path)}: {problem}\n"
                    "No file was changed."
                ) from None
            except FileProblem as problem:
                raise FileProblem(f"{problem} No file of the patch was changed.") from None
        return self._planned()

    def _look_at(self, path: Path) -> _Staged:
        if path not in self._files:
            state = state_if_any(path, self._ctx.workspace)
            self._files[path] = _Staged(state, state.data if state else None)
        return self._files[path]

    def _existing(self, path: Path) -> tuple[_Staged, FoundFile]:
        staged = self._look_at(path)
        if staged.data is None:
            if staged.before is not None and staged.before.data is None:
                editable(staged.before, name_of(path, self._ctx))
            raise not_found(path, self._ctx.workspace)
        info = staged.before.info if staged.before else os.stat_result((0,) * 10)
        return staged, FoundFile(path, info, staged.data, "")

    def _add(self, operation: AddFile) -> None:
        path = located(operation.path, self._ctx)
        staged = self._look_at(path)
        if staged.exists or staged.before is not None:
            if not operation.overwrite and staged.exists:
                raise PatchProblem("the file exists already, the patch says that it is new.")
            self._require_unchanged(staged)
        staged.replaced = staged.exists
        staged.data = encoded(operation.content, UTF_8, name_of(path, self._ctx))
        if operation.executable:
            staged.mode = _EXECUTABLE

    def _delete(self, operation: DeleteFile) -> None:
        path = located_entry(operation.path, self._ctx)
        staged = self._look_at_entry(path)
        self._require_unchanged(staged)
        if operation.hunks and staged.data is not None:
            text = editable(self._existing(path)[1], name_of(path, self._ctx))
            if apply_hunks(_lines(text.text), operation.hunks, strict_end=True):
                raise PatchProblem("the file has lines that the patch does not delete.")
        staged.remove()

    def _look_at_entry(self, path: Path) -> _Staged:
        """For a deletion: a link stands for itself, a large file need not be read."""
        if path not in self._files:
            info = look(path, self._ctx.workspace)
            if info is None:
                raise not_found(path, self._ctx.workspace)
            if stat.S_ISLNK(info.st_mode):
                self._files[path] = _Staged(FoundFile(path, info, None, ""), None)
            else:
                state = read_state(path, self._ctx.workspace)
                self._files[path] = _Staged(state, state.data)
        elif self._files[path].data is None:
            raise not_found(path, self._ctx.workspace)
        return self._files[path]

    def _update(self, operation: UpdateFile) -> None:
        ctx = self._ctx
        path = located(operation.path, ctx)
        name = name_of(path, ctx)
        staged, state = self._existing(path)
        data = staged.data
        if operation.hunks:
            text = editable(state, name)
            lines = apply_hunks(_lines(text.text), operation.hunks, strict_end=operation.strict_end)
            data = encoded(join_lines(lines), text.encoding, name)
        if operation.new_path is None:
            staged.data, staged.mode = data, operation.mode or staged.mode
            return
        self._move(operation, path, staged, data)

    def _move(self, operation: UpdateFile, path: Path, staged: _Staged, data: bytes | None) -> None:
        target = located(operation.new_path or "", self._ctx)
        if target == path:
            staged.data = data
            return
        moved = self._look_at(target)
        if moved.exists:
            if not operation.overwrite:
                raise PatchProblem(f"{name_of(target, self._ctx)} exists already.")
            self._require_unchanged(moved)
        mode = staged.before.info.st_mode & 0o777 if staged.before else staged.mode
        moved.data, moved.mode = data, operation.mode or mode
        if not operation.is_copy:
            moved.came_from = path if moved.before is None else None
            staged.remove()

    def _require_unchanged(self, staged: _Staged) -> None:
        if staged.before is not None and staged.before.fingerprint:
            require_unchanged(staged.before, self._ctx.files, self._ctx.workspace)

    # --- the plan ---

    def _planned(self) -> Plan:
        sources = {staged.came_from for staged in self._files.values() if staged.data is not None}
        changes, rows, diffs = [], [], []
        for path, staged in self._files.items():
            before = staged.before.data if staged.before else None
            gone = staged.data is None and staged.before is not None
            if before == staged.data and not gone and not (staged.mode and staged.before):
                continue
            changes.append(Change(path, staged.before, staged.data, staged.mode))
            if path in sources and gone:
                continue  # told where it went to
            diff = self._diff(path, staged, before)
            diffs.append(diff)
            note = "; it existed and was replaced" if staged.replaced and staged.data else ""
            rows.append(f"{self._told(path, staged)} ({diff.counts}{note})")
        if not changes:
            return Plan((), "The files already are as the patch makes them.", "", "unchanged")
        added, removed = sum(d.added for d in diffs), sum(d.removed for d in diffs)
        files = plural(len(rows), "file")
        text = f"Patched {files}:\n" + "\n".join(rows)
        diff_text = "".join(diff.text for diff in diffs)
        return Plan(tuple(changes), text, diff_text, f"{files}, +{added} -{removed}")

    def _told(self, path: Path, staged: _Staged) -> str:
        name = name_of(path, self._ctx)
        if staged.data is None:
            return f"D {name}"
        if staged.came_from is not None:
            return f"R {name_of(staged.came_from, self._ctx)} -> {name}"
        return f"A {name}" if staged.before is None else f"M {name}"

    def _diff(self, path: Path, staged: _Staged, before: bytes | None) -> Diff:
        name = old_name = name_of(path, self._ctx)
        if staged.came_from is not None:
            source = self._files[staged.came_from].before
            before = source.data if source else None
            old_name = name_of(staged.came_from, self._ctx)
        if staged.data is None and before is None:  # a link, or more than is read
            return Diff(f"--- a/{name}\n+++ /dev/null\n", 0, 0)
        told = self._told_mode(path, staged)
        if before == staged.data:
            told += f"rename from {old_name}\nrename to {name}\n" if old_name != name else ""
        diff = diff_bytes(old_name, name, before, staged.data)
        return Diff(told + diff.text, diff.added, diff.removed)

    def _told_mode(self, path: Path, staged: _Staged) -> str:
        """A line about a mode that is not the one that the file has or came with."""
        was = self._files[staged.came_from or path].before
        before = was.info.st_mode & 0o777 if was else None
        if staged.data is None or staged.mode in {None, before}:
            return ""
        return f"new mode {stat.S_IFREG | (staged.mode or 0):o}: {name_of(path, self._ctx)}\n"


def _lines(text: str) -> list[Line]:
    if text.count("\n") > MAX_LINES:
        raise PatchProblem(f"the file has more than {MAX_LINES:,} lines. Use edit_file or bash.")
    return split_lines(text)


# --- the hunks of one file ---


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
    starts: list[int] = []
    at = shift = 0
    for hunk in hunks:
        starts.append(at)
        if hunk.old_start is None:
            found, hunk_lines = _place(texts, hunk, at)
        else:
            found, hunk_lines = _place_near(texts, hunk, at, hunk.old_start - 1 + shift)
            shift = found - (hunk.old_start - 1) if hunk.old else shift
        replacement = _replacement(lines, found, hunk_lines, end_of_line)
        replacements.append(replacement)
        if hunk.old or hunk.anchors:
            at = replacement.end
    _require_one_reading(texts, hunks, starts, replacements)
    result: list[Line] = []
    at = 0
    for replacement in sorted(replacements, key=lambda r: (r.start, r.end)):
        result += [*lines[at : replacement.start], *replacement.lines]
        at = max(at, replacement.end)
    return _ended([*result, *lines[at:]], end_of_line, keep_last=strict_end)


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

    def strictest(self, wanted: Sequence[str], start: int, limit: int) -> list[int]:
        """Every place of ``wanted`` between the two, by the strictest pass that finds it."""
        part = _Texts(self.lines[start:limit])
        found = (part.places(wanted, 0, number) for number in range(len(_PASSES)))
        return [start + place for place in next(filter(None, found), [])]

    def around(self, place: int, count: int) -> str:
        """Lines of the file with their numbers, one of them before the place."""
        shown = range(max(place - 1, 0), min(place + min(count, 3), len(self.lines)))
        return "\n".join(f"{at + 1:>6}\t{self.lines[at][:200]}" for at in shown)

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
    old = hunk.old
    while found is None and len(old) > 1 and not old[-1]:  # blanks that stand for the file's end
        lines, old = _without_last_old(lines), old[:-1]
        found = texts.find(old, start, at_end=hunk.at_end)
    if found is None:
        raise _misfit(texts, hunk, start)
    return found, lines


def _require_one_reading(
    texts: _Texts,
    hunks: Sequence[Hunk],
    starts: Sequence[int],
    replacements: Sequence[_Replacement],
) -> None:
    """Refuse a hunk that fits a later place as well, the hunks after it being where they are.

    The hunks have been placed as early as they go. From the last on, each is put as late as it
    goes: where that is another place, there are two readings.
    """
    limit = len(texts)
    for hunk, start, placed in reversed(list(zip(hunks, starts, replacements, strict=True))):
        size = placed.end - placed.start
        if not size and not hunk.anchors:
            continue  # goes to the end of the file, or where its line number says
        places = [placed.start]
        if hunk.old_start is None and not hunk.at_end:
            places += _other_places(texts, hunk, start, placed, limit)
        fitting = sorted({place for place in places if place + size <= limit})
        if len(fitting) > 1:
            shown = ", ".join(f"{place + 1}" for place in fitting[:_MAX_PLACES])
            more = f" and {len(fitting) - _MAX_PLACES} more" if len(fitting) > _MAX_PLACES else ""
            example = "\n".join(texts.around(place, size) for place in fitting[:_MAX_SHOWN])
            raise PatchProblem(
                f"the hunk at line {hunk.number} of the patch fits {len(fitting)} places, at lines "
                f"{shown}{more} of the file:\n{example}\n"
                "Add lines of context, or '@@' with a line above the place that is there only once."
            )
        limit = placed.start


def _other_places(
    texts: _Texts, hunk: Hunk, start: int, placed: _Replacement, limit: int
) -> list[int]:
    """Where else before ``limit`` a hunk without line numbers could go."""
    if not hunk.anchors:
        return texts.strictest(hunk.old[: placed.end - placed.start], placed.start, limit)
    found = []
    for at in texts.strictest([hunk.anchors[0]], start, limit)[1:_MAX_ANCHORS]:
        with contextlib.suppress(PatchProblem):
            found.append(_place(texts, hunk, at)[0])
    return found


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
    """Without the last line expected, and without the blank that takes its place."""
    last = max(at for at, line in enumerate(lines) if line.sign != "+")
    after = lines[last + 1 :]
    if lines[last].sign == "-" and after and not after[-1].text:
        after = after[:-1]
    return lines[:last] + after


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


TOOL = ApplyPatch()
