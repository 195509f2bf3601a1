"""``glob_files``: files by name, with or without ripgrep (TOOL-10)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from agentcli.domain.files import is_directory
from agentcli.domain.tools import Asks, ToolHints, ToolOutput, Workspace
from agentcli.process.run import Ending
from agentcli.tools.common.base import Arguments, BaseTool, bounded, one_line
from agentcli.tools.files.disk import look
from agentcli.tools.files.paths import (
    FileProblem,
    FinderContext,
    not_found,
    require_judged,
    resolve,
    shown,
)
from agentcli.tools.search.globs import BadGlob, PathFilter, split_base
from agentcli.tools.search.search import (
    TIME_LIMIT_S,
    Found,
    Query,
    SearchFailed,
    changed_note,
    search,
)

LIMIT = 1_000


class GlobArguments(Arguments):
    """Arguments of ``glob_files``."""

    pattern: str = Field(min_length=1, description='Like "*.py" (any depth), "src/**/*.{ts,tsx}"')
    path: str | None = Field(default=None, description="Directory to look in")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to look, and for what, relative to it."""

    directory: Path
    path_filter: PathFilter


class GlobTool(BaseTool[GlobArguments]):
    """Lists files by glob, leaving out what .gitignore does."""

    name = "glob_files"
    display_name = "Find"
    description = (
        "Find files by glob, sorted by path. A pattern without / matches names at any depth. "
        "Skips .gitignored files, and hidden ones unless the pattern names them or has **."
    )
    params = GlobArguments
    asks = Asks.NOTHING
    concurrent = True
    context = FinderContext
    group = "files"
    hints = ToolHints(idempotent=True)

    def summary(self, args: GlobArguments) -> str:
        """Pattern and place."""
        where = f" in {one_line(args.path)}" if args.path else ""
        return f"Find {one_line(args.pattern, 80)}{where}"

    def paths(self, args: GlobArguments, workspace: Workspace) -> tuple[Path, ...]:
        """Where it looks."""
        try:
            return (_place(args, workspace).directory,)
        except (FileProblem, BadGlob):
            return ()

    async def run(self, args: GlobArguments, ctx: FinderContext) -> ToolOutput:
        """List; a bad glob or place is an error with advice."""
        try:
            place = await asyncio.to_thread(_checked_place, args, ctx)
            if place is None:
                return ToolOutput.text(f"No files match {args.pattern}.", summary="no files")
            where, path_filter = place.directory, place.path_filter
            query = Query(where, path_filter=path_filter, kept_back=ctx.kept_back)
            outside = (ctx.workspace.root, *ctx.workspace.extra)
            found = await search(query, LIMIT, ctx.cancel, outside)
        except BadGlob as problem:
            return ToolOutput.error(f"Cannot use the glob: {problem}.")
        except FileProblem as problem:
            return ToolOutput.error(str(problem))
        except SearchFailed as problem:
            return ToolOutput.error(f"The search failed: {problem}.")
        return _output(args, ctx, place, found)


def _place(args: GlobArguments, workspace: Workspace) -> _Place:
    """A pattern that begins with plain directories starts there."""
    base, rest = split_base(args.pattern)
    start = resolve(workspace, args.path or ".")
    if base:
        start = resolve(workspace, str(start / Path(base).expanduser()))
        rest = f"/{rest}"
    return _Place(start, PathFilter(rest))


def _checked_place(args: GlobArguments, ctx: FinderContext) -> _Place | None:
    """``None`` when the pattern's own directory does not exist: nothing can match."""
    workspace = ctx.workspace
    place = _place(args, workspace)
    require_judged(place.directory, args.path or args.pattern, ctx)
    if is_directory(place.directory):
        return place
    given = resolve(workspace, args.path or ".")
    if is_directory(given) or not (given == place.directory or workspace.contains(given)):
        return None
    if look(given, workspace) is not None:
        raise FileProblem(f"{shown(given, workspace)} is a file; give a directory, or read it.")
    raise not_found(given, workspace)


def _output(args: GlobArguments, ctx: FinderContext, place: _Place, found: Found) -> ToolOutput:
    rows = [shown(place.directory / line.path, ctx.workspace) for line in found.lines]
    text, raw = bounded("\n".join(rows), ctx.call_id)
    if found.ending is Ending.CANCELLED:
        return ToolOutput.cancelled(text)
    if found.ending is Ending.TIMED_OUT:
        note = f"[stopped after {TIME_LIMIT_S:g} s; look in a smaller directory]"
        return ToolOutput.error(f"{text}\n{note}".strip(), raw=raw, summary="timed out")
    changed = changed_note(found.changed, "file")
    if not rows:
        return ToolOutput.text(f"No files match {args.pattern}.{changed}", summary="no files")
    counted = f"{len(rows)} file" + ("" if len(rows) == 1 else "s")
    if found.more:
        text += f"\n[the first {counted}; there are more: narrow the pattern]"
    text += changed
    return ToolOutput.text(text, raw=raw, summary=f"first {counted}" if found.more else counted)


TOOL = GlobTool()
