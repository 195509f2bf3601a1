"""What a path is: kind, size, times, mode, where a link leads."""

from __future__ import annotations

import asyncio
import stat
from datetime import UTC, datetime
from pathlib import Path

from agentcli.domain.files import lstat_of, readlink_of
from agentcli.domain.tools import ToolHints, ToolOutput, Workspace
from agentcli.tools.common.base import Arguments, escaped, one_line
from agentcli.tools.files.disk import human_size, kind_of
from agentcli.tools.files.file_tool import FileTool, name_of
from agentcli.tools.files.paths import (
    JudgedContext,
    located,
    located_entry,
    not_found,
    os_problem,
    resolve,
    resolve_entry,
)


class StatFileArguments(Arguments):
    """See the tool's description."""

    path: str


class StatFile(FileTool[StatFileArguments]):
    """The stat tool."""

    name = "stat_file"
    display_name = "Stat"
    description = "Tell kind, size, modification time and mode of a path, without reading it."
    params = StatFileArguments
    hints = ToolHints(idempotent=True)

    def summary(self, args: StatFileArguments) -> str:
        """How the call reads in one line."""
        return f"Stat {one_line(args.path)}"

    def targets(self, args: StatFileArguments, workspace: Workspace) -> tuple[Path, Path]:
        """The path with links followed, and the entry itself."""
        return (resolve(workspace, args.path), resolve_entry(workspace, args.path))

    async def work(self, args: StatFileArguments, ctx: JudgedContext) -> ToolOutput:
        """The facts, one on a line."""
        return await asyncio.to_thread(_facts, args, ctx)


def _facts(args: StatFileArguments, ctx: JudgedContext) -> ToolOutput:
    entry = located_entry(args.path, ctx)
    target = located(args.path, ctx)
    rows = [f"path: {escaped(str(entry))}"]
    try:
        info = lstat_of(entry)
        if stat.S_ISLNK(info.st_mode):
            link = escaped(str(readlink_of(entry)))
            rows.append(f"symbolic link to: {link} ({escaped(str(target))})")
    except (FileNotFoundError, NotADirectoryError):
        raise not_found(entry, ctx.workspace) from None
    except OSError as error:
        raise os_problem(error, "look at", name_of(entry, ctx)) from error
    if stat.S_ISLNK(info.st_mode):
        try:
            info = lstat_of(target)
        except OSError:
            rows.append("the link is broken: its target cannot be reached")
            return ToolOutput.text("\n".join(rows), summary="a broken link")
    kind = kind_of(info.st_mode)
    changed = datetime.fromtimestamp(info.st_mtime, UTC).isoformat(timespec="seconds")
    size = human_size(info.st_size)
    exact = "" if size.endswith("bytes") else f" ({info.st_size:,} bytes)"
    rows += [
        f"kind: {kind}",
        f"size: {size}{exact}",
        f"modified: {changed}",
        f"mode: {stat.filemode(info.st_mode)} ({stat.S_IMODE(info.st_mode):04o})",
    ]
    if info.st_nlink > 1 and stat.S_ISREG(info.st_mode):
        rows.append(f"hard links: {info.st_nlink}")
    return ToolOutput.text("\n".join(rows), summary=f"{kind}, {size}")


TOOL = StatFile()
