"""What a directory holds."""

from __future__ import annotations

import asyncio
import os
import stat
from itertools import islice
from pathlib import Path

from pydantic import Field

from agentcli.domain.clean import plural
from agentcli.domain.files import opened_directory
from agentcli.domain.tools import ToolHints, ToolOutput, Workspace
from agentcli.tools.common.base import MAX_CHARS, Arguments, escaped, one_line
from agentcli.tools.files.disk import human_size, kind_of
from agentcli.tools.files.file_tool import FileTool, name_of
from agentcli.tools.files.paths import (
    FileProblem,
    JudgedContext,
    located,
    not_found,
    os_problem,
    resolve,
)

_MAX_SHOWN = 1_000
_MAX_SCANNED = 100_000
_NOTE_ROOM = 300


class ListDirectoryArguments(Arguments):
    """See the tool's description."""

    path: str = Field(default=".", description="Default: the working directory")


class ListDirectory(FileTool[ListDirectoryArguments]):
    """The listing tool."""

    name = "list_directory"
    display_name = "List"
    description = (
        "List a directory: directories first, marked with /, then files with their sizes. "
        "Hidden and ignored files are included."
    )
    params = ListDirectoryArguments
    hints = ToolHints(idempotent=True)

    def summary(self, args: ListDirectoryArguments) -> str:
        """How the call reads in one line."""
        return f"List {one_line(args.path)}"

    def targets(self, args: ListDirectoryArguments, workspace: Workspace) -> tuple[Path]:
        """The directory."""
        return (resolve(workspace, args.path),)

    async def work(self, args: ListDirectoryArguments, ctx: JudgedContext) -> ToolOutput:
        """The entries."""
        return await asyncio.to_thread(_listed, args, ctx)


def _listed(args: ListDirectoryArguments, ctx: JudgedContext) -> ToolOutput:
    path = located(args.path, ctx)
    name = name_of(path, ctx)
    try:
        with opened_directory(path) as directory:
            return _listing(name, directory)
    except FileNotFoundError:
        raise not_found(path, ctx.workspace) from None
    except NotADirectoryError:
        raise FileProblem(
            f"{name} is a file, not a directory. Use read_file or stat_file."
        ) from None
    except OSError as error:
        raise os_problem(error, "list", name) from error


def _listing(name: str, directory: int) -> ToolOutput:
    with os.scandir(directory) as scan:
        entries = list(islice(scan, _MAX_SCANNED + 1))
    more_unseen = len(entries) > _MAX_SCANNED
    entries = entries[:_MAX_SCANNED]
    if not entries:
        return ToolOutput.text(f"{name}/ is empty.", summary="empty")
    entries.sort(key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name))
    rows: list[str] = []
    room = MAX_CHARS - _NOTE_ROOM
    for entry in entries[:_MAX_SHOWN]:
        row = _row(entry, directory)
        room -= len(row) + 1
        if room < 0:
            break
        rows.append(row)
    count = f"{plural(len(entries), 'entry').replace('entrys', 'entries')}"
    count = f"more than {count}" if more_unseen else count
    text = f"{name}/ ({count})\n" + "\n".join(rows)
    if len(rows) < len(entries):
        left = len(entries) - len(rows)
        text += f"\n[{left:,} more not shown; use glob_files with a pattern to find some of them]"
    return ToolOutput.text(text, summary=count)


def _row(entry: os.DirEntry[str], directory: int) -> str:
    name = escaped(entry.name)
    try:
        if entry.is_symlink():
            return f"{name} -> {escaped(os.readlink(entry.name, dir_fd=directory))}"
        info = entry.stat(follow_symlinks=False)
    except OSError:
        return f"{name} (not readable)"
    if stat.S_ISDIR(info.st_mode):
        return f"{name}/"
    if stat.S_ISREG(info.st_mode):
        return f"{name}  {human_size(info.st_size)}"
    return f"{name}  ({kind_of(info.st_mode)})"


TOOL = ListDirectory()
