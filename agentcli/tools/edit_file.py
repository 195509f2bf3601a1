"""Replace a piece of a text file (TOOL-8); how the piece is found is in ``_match``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from agentcli.domain.clean import plural
from agentcli.domain.tools import Workspace
from agentcli.tools.common.base import Arguments, one_line
from agentcli.tools.files.diff import diff_bytes
from agentcli.tools.files.disk import require_unchanged, state_if_any
from agentcli.tools.files.file_tool import (
    Change,
    ChangeTool,
    FileContext,
    Plan,
    editable,
    encoded,
    name_of,
)
from agentcli.tools.files.match import (
    MAX_SHOWN_LINES,
    Edit,
    NoMatch,
    find_edit,
    line_of,
    numbered_rows,
)
from agentcli.tools.files.paths import FileProblem, located, not_found, resolve
from agentcli.tools.files.text import UTF_8, lines_at

# a longer diff tells the model little that it did not write itself
_MAX_DIFF_CHARS = 2_000


class EditFileArguments(Arguments):
    """See the tool's description."""

    path: str
    old_string: str = Field(
        description="Text to replace, as it stands in the file, without line numbers; unique"
    )
    new_string: str = Field(description="Text to put in its place")
    replace_all: bool = Field(default=False, description="Replace every occurrence")


class EditFile(ChangeTool[EditFileArguments]):
    """The edit tool."""

    name = "edit_file"
    display_name = "Edit"
    description = (
        "Replace old_string with new_string in a text file. old_string must match one place "
        "exactly, indentation included: add surrounding lines until it is unique, or set "
        "replace_all. An empty old_string creates a new file. Encoding and line ends are kept."
    )
    params = EditFileArguments

    def summary(self, args: EditFileArguments) -> str:
        """How the call reads in one line."""
        return f"Edit {one_line(args.path)}"

    def targets(self, args: EditFileArguments, workspace: Workspace) -> tuple[Path]:
        """The file."""
        return (resolve(workspace, args.path),)

    def plan(self, args: EditFileArguments, ctx: FileContext) -> Plan:
        """The edited content."""
        path = located(args.path, ctx)
        name = name_of(path, ctx)
        if args.old_string == args.new_string:
            raise FileProblem("old_string and new_string are identical: nothing to change.")
        state = state_if_any(path, ctx.workspace)
        if state is None:
            if args.old_string:
                raise not_found(path, ctx.workspace)
            return _creation(path, name, args.new_string)
        if not args.old_string:
            raise FileProblem(
                f"{name} exists and old_string is empty. Give the text to replace, or use "
                "write_file to replace the whole file."
            )
        require_unchanged(state, ctx.files, ctx.workspace)
        before, old = editable(state, name), args.old_string
        if before.encoding.line_end == "\r":
            old = old.replace("\r\n", "\n").replace("\r", "\n")
        try:
            edit = find_edit(before.text, old, args.new_string, replace_all=args.replace_all)
        except NoMatch as error:
            raise FileProblem(f"{name}: {error}") from None
        if edit.text == before.text:
            raise FileProblem(f"{name} would not change: line ends are kept as they are.")
        after = encoded(edit.text, before.encoding, name)
        diff = diff_bytes(name, name, state.data, after)
        text = f"Edited {name} {_place(before.text, edit)} ({diff.counts}).{_as_written(edit)}"
        if len(diff.text) <= _MAX_DIFF_CHARS:
            text += f"\n{diff.text.rstrip()}"
        return Plan((Change(path, state, after),), text, diff.text, diff.counts)


def _creation(path: Path, name: str, content: str) -> Plan:
    after = encoded(content, UTF_8, name)
    diff = diff_bytes(name, name, None, after)
    text = f"Created {name} ({plural(diff.added, 'line')})."
    return Plan((Change(path, None, after),), text, diff.text, diff.counts)


def _place(before: str, edit: Edit) -> str:
    if len(edit.spans) == 1:
        return f"at line {line_of(before, edit.spans[0].start)}"
    return f"at {plural(len(edit.spans), 'place')}"


def _as_written(edit: Edit) -> str:
    """After a tolerant match the model should see what is in the file now."""
    if not edit.tolerance:
        return ""
    first = edit.spans[0]
    count = min(first.replacement.rstrip("\n").count("\n") + 1, MAX_SHOWN_LINES)
    now = numbered_rows(lines_at(edit.text, first.start, count), line_of(edit.text, first.start))
    return f" old_string matched overlooking {edit.tolerance}. It now reads:\n{now}"


TOOL = EditFile()
