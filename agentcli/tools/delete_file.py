"""Delete one file. Directories are refused, empty ones too: that is for a command to do."""

from __future__ import annotations

import stat
from pathlib import Path

from agentcli.domain.tools import ToolHints, Workspace
from agentcli.tools.common.base import Arguments, one_line
from agentcli.tools.files.diff import diff_bytes
from agentcli.tools.files.disk import FoundFile, kind_of, look, read_state, require_unchanged
from agentcli.tools.files.file_tool import Change, ChangeTool, FileContext, Plan, name_of
from agentcli.tools.files.paths import FileProblem, located_entry, not_found, resolve_entry


class DeleteFileArguments(Arguments):
    """See the tool's description."""

    path: str


class DeleteFileTool(ChangeTool[DeleteFileArguments]):
    """The deletion tool."""

    name = "delete_file"
    display_name = "Delete"
    description = "Delete one file, or a symbolic link (not what it leads to). No directories."
    params = DeleteFileArguments
    hints = ToolHints(destructive=True)

    def summary(self, args: DeleteFileArguments) -> str:
        """How the call reads in one line."""
        return f"Delete {one_line(args.path)}"

    def targets(self, args: DeleteFileArguments, workspace: Workspace) -> tuple[Path]:
        """The file or link itself."""
        return (resolve_entry(workspace, args.path),)

    def plan(self, args: DeleteFileArguments, ctx: FileContext) -> Plan:
        """The deletion, with the lost content as a diff."""
        path = located_entry(args.path, ctx)
        name = name_of(path, ctx)
        info = look(path, ctx.workspace)
        if info is None:
            raise not_found(path, ctx.workspace)
        if stat.S_ISDIR(info.st_mode):
            raise FileProblem(
                f"{name} is a directory, which delete_file does not delete. "
                "Use bash with rmdir or rm if it is really meant to go."
            )
        if not stat.S_ISREG(info.st_mode):
            kind = kind_of(info.st_mode)
            state = FoundFile(path, info, None, "")
            text = f"Deleted {name} ({kind})."
            return Plan((Change(path, state, None),), text, f"deleted {kind}: {name}\n", "deleted")
        state = read_state(path, ctx.workspace)
        require_unchanged(state, ctx.files, ctx.workspace)
        text = f"Deleted {name}."
        if state.data is None:
            return Plan((Change(path, state, None),), text, f"deleted: {name}\n", "deleted")
        diff = diff_bytes(name, name, state.data, None)
        return Plan((Change(path, state, None),), text, diff.text, diff.counts)


TOOL = DeleteFileTool()
