"""Create a file or replace its whole content."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import Field

from agentcli.domain.clean import plural
from agentcli.domain.tools import ToolHints, Workspace
from agentcli.tools.common.base import Arguments, one_line
from agentcli.tools.files.diff import diff_bytes
from agentcli.tools.files.disk import FoundFile, human_size, require_unchanged, state_if_any
from agentcli.tools.files.file_tool import (
    Change,
    ChangeTool,
    FileContext,
    Plan,
    encoded,
    name_of,
)
from agentcli.tools.files.paths import FileProblem, located, resolve
from agentcli.tools.files.text import UTF_8, Encoding, count_lines, decode, line_end_label


class WriteFileArguments(Arguments):
    """See the tool's description."""

    path: str
    content: str = Field(description="The whole content of the file")


class WriteFile(ChangeTool[WriteFileArguments]):
    """The write tool."""

    name = "write_file"
    display_name = "Write"
    description = (
        "Create a file, or replace the whole content of one; missing directories are made. "
        "To change a part of a file use edit_file."
    )
    params = WriteFileArguments
    hints = ToolHints(idempotent=True, destructive=True)

    def summary(self, args: WriteFileArguments) -> str:
        """How the call reads in one line."""
        return f"Write {one_line(args.path)} ({plural(count_lines(args.content), 'line')})"

    def targets(self, args: WriteFileArguments, workspace: Workspace) -> tuple[Path]:
        """The file."""
        return (resolve(workspace, args.path),)

    def plan(self, args: WriteFileArguments, ctx: FileContext) -> Plan:
        """The new content, in the encoding that the file has."""
        path = located(args.path, ctx)
        name = name_of(path, ctx)
        if args.path.endswith("/"):
            raise FileProblem(f"{one_line(args.path)} names a directory. Give the file's name too.")
        state = state_if_any(path, ctx.workspace)
        lines = plural(count_lines(args.content), "line")
        if state is None:
            after = encoded(args.content, UTF_8, name)
            diff = diff_bytes(name, name, None, after)
            text = f"Created {name} ({lines})."
            return Plan((Change(path, None, after),), text, diff.text, diff.counts)
        require_unchanged(state, ctx.files, ctx.workspace)
        after, note = _in_encoding_of(state, args.content, name)
        if after == state.data:
            return Plan(
                (),
                f"{name} already has this content ({lines}).",
                "",
                "unchanged: it has this content already",
            )
        if state.data is None:
            size = human_size(state.info.st_size)
            text, diff_text, summary = f"{name}: {size} replaced\n", "", "replaced"
            return Plan((Change(path, state, after),), text + note, diff_text, summary)
        diff = diff_bytes(name, name, state.data, after)
        text = f"Overwrote {name} ({lines}, {diff.counts}).{note}"
        return Plan((Change(path, state, after),), text, diff.text, diff.counts)


def _in_encoding_of(state: FoundFile, content: str, name: str) -> tuple[bytes, str]:
    """``content`` as bytes, and what the model should know of them."""
    before = decode(state.data) if state.data is not None else None
    if before is None:
        return encoded(content, UTF_8, name), ""
    encoding = replace(before.encoding, line_end="\n")
    if encoding.bom:
        content = content.removeprefix("\ufeff")
    try:
        after, note = encoding.encode(content), ""
    except UnicodeEncodeError:
        encoding = Encoding(bom=encoding.bom) if encoding.codec == "utf-8" else UTF_8
        after = encoded(content, encoding, name)
        note = f" It was {before.encoding.label} and is now {encoding.label or 'UTF-8'}."
    if encoding.label:
        note = note or f" Its encoding is still {encoding.label}."
    was = "CR" if before.encoding.line_end == "\r" else line_end_label(before.text)
    if was and not line_end_label(content):
        note += f" Its line ends were {was} and are now LF."
    return after, note


TOOL = WriteFile()
