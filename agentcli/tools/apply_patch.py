"""Apply a patch to several files, all or nothing (TOOL-9)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from agentcli.domain.tools import ToolContext, ToolHints, Workspace
from agentcli.tools._base import Arguments
from agentcli.tools.files.diff import Diff, diff_bytes
from agentcli.tools.files.file_tool import (
    Change,
    ChangeTool,
    Plan,
    editable,
    encoded,
    name_of,
    plural,
)
from agentcli.tools.files.files import FileState, look, read_state, require_unchanged, state_if_any
from agentcli.tools.files.patch_apply import MAX_LINES, apply_hunks
from agentcli.tools.files.patch_model import AddFile, DeleteFile, Patch, PatchProblem, UpdateFile
from agentcli.tools.files.patch_parse import parse_patch
from agentcli.tools.files.paths import (
    FileProblem,
    located,
    located_entry,
    not_found,
    one_line,
    resolve,
    resolve_entry,
)
from agentcli.tools.files.text import UTF_8, Line, join_lines, split_lines

_MAX_NAMES = 3
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

    def plan(self, args: ApplyPatchArguments, ctx: ToolContext) -> Plan:
        """What every file will be, each operation seeing what those before it did."""
        try:
            patch = parse_patch(args.patch)
        except PatchProblem as problem:
            raise FileProblem(f"{problem} Nothing was changed.") from None
        if not patch.operations:
            raise FileProblem("The patch changes no file.")
        return _Staging(ctx).plan(patch)


def _lines(text: str) -> list[Line]:
    if text.count("\n") > MAX_LINES:
        raise PatchProblem(f"the file has more than {MAX_LINES:,} lines. Use edit_file or bash.")
    return split_lines(text)


@dataclass(slots=True)
class _Staged:
    """A file as the operations so far leave it; ``data`` is ``None`` where there is none."""

    before: FileState | None
    data: bytes | None
    mode: int | None = None
    came_from: Path | None = None
    removed: bool = False

    @property
    def exists(self) -> bool:
        """Whether something is there; what is too large to be read has no ``data``."""
        unread = self.before is not None and self.before.data is None
        return self.data is not None or (unread and not self.removed)

    def remove(self) -> None:
        self.data, self.removed = None, True


class _Staging:
    """Plays the operations on a picture of the files; nothing is written."""

    def __init__(self, ctx: ToolContext) -> None:
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

    def _existing(self, path: Path) -> tuple[_Staged, FileState]:
        staged = self._look_at(path)
        if staged.data is None:
            if staged.before is not None and staged.before.data is None:
                editable(staged.before, name_of(path, self._ctx))
            raise not_found(path, self._ctx.workspace)
        info = staged.before.info if staged.before else os.stat_result((0,) * 10)
        return staged, FileState(path, info, staged.data, "")

    def _add(self, operation: AddFile) -> None:
        path = located(operation.path, self._ctx)
        staged = self._look_at(path)
        if staged.exists or staged.before is not None:
            if not operation.overwrite and staged.exists:
                raise PatchProblem("the file exists already, the patch says that it is new.")
            self._require_unchanged(staged)
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
                self._files[path] = _Staged(FileState(path, info, None, ""), None)
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
            rows.append(f"{self._told(path, staged)} ({diff.counts})")
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
        if before == staged.data:
            renamed = f"rename from {old_name}\nrename to {name}\n" if old_name != name else ""
            return Diff(renamed, 0, 0)
        return diff_bytes(old_name, name, before, staged.data)


TOOL = ApplyPatch()
