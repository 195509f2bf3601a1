"""``grep_files``: lines that match a regular expression, with or without ripgrep (TOOL-10)."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from agentcli.domain.files import opened_directory
from agentcli.domain.tools import Asks, ToolHints, ToolOutput, Workspace
from agentcli.process.run import Ending
from agentcli.tools.common.base import Arguments, BaseTool, bounded, one_line
from agentcli.tools.files.disk import look, opened
from agentcli.tools.files.paths import (
    FileProblem,
    FinderContext,
    located,
    not_found,
    os_problem,
    resolve,
    shown,
)
from agentcli.tools.search.globs import BadGlob, PathFilter
from agentcli.tools.search.search import (
    TIME_LIMIT_S,
    BadPattern,
    Found,
    FoundLine,
    Query,
    SearchFailed,
    changed_note,
    search,
)
from agentcli.tools.search.worker import BINARY_PROBE_BYTES, encoding_of

DEFAULT_LIMIT = 200
MAX_LIMIT = 2_000
MAX_PATTERN_CHARS = 10_000
MAX_CONTEXT = 20
_MAX_NAMED = 5
LINE_CHARS = 500
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_LINE_END = re.compile(r"\n|(?<!\\)(?:\\\\)*\\n")

# a search for what defines a name: the map knows it from the syntax (TOOL-14, MEM-3)
_DEFINITION = re.compile(
    r"\b(?:class|def|fn|func|function|interface|struct|trait)(?: +|\\s[+*]?)[\w(\[\\]"
)
_BY_MAP = (
    "[definitions by syntax: the tool symbols {query, kind, path}; who uses one: references"
    " {symbol, path, line}]"
)


class GrepArguments(Arguments):
    """Arguments of ``grep_files``."""

    pattern: str = Field(min_length=1, description="Regular expression, tried on each line")
    path: str | None = Field(default=None, description="Directory or file; default: all")
    glob: str | None = Field(default=None, description='Only these files, like "*.py" or "src/**"')
    ignore_case: bool = False
    context: int = Field(default=0, ge=0, le=MAX_CONTEXT, description="Lines around each match")
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Matching lines")


class GrepTool(BaseTool[GrepArguments]):
    """Searches text files, leaving out what .gitignore does."""

    name = "grep_files"
    display_name = "Search"
    description = (
        "Search files for a regular expression. Prints path:line:text, sorted by path. Skips "
        "binary and .gitignored files, and hidden ones unless path or glob names them or has **."
    )
    params = GrepArguments
    asks = Asks.NOTHING
    concurrent = True
    context = FinderContext
    group = "files"
    hints = ToolHints(idempotent=True)

    def summary(self, args: GrepArguments) -> str:
        """Pattern and place."""
        where = " ".join(one_line(part) for part in (args.glob, args.path) if part)
        return f"Search `{one_line(args.pattern, 80)}`" + (f" in {where}" if where else "")

    def paths(self, args: GrepArguments, workspace: Workspace) -> tuple[Path, ...]:
        """Where it searches."""
        try:
            return (resolve(workspace, args.path or "."),)
        except FileProblem:
            return ()

    async def run(self, args: GrepArguments, ctx: FinderContext) -> ToolOutput:
        """Search; a bad pattern or place is an error with advice."""
        try:
            query = await asyncio.to_thread(_query, args, ctx)
            outside = (ctx.workspace.root, *ctx.workspace.extra)
            found = await search(query, args.limit, ctx.cancel, outside)
        except BadPattern as problem:
            advice = "escape special characters with a backslash"
            return ToolOutput.error(f"Cannot use the pattern: {problem}; {advice}.")
        except BadGlob as problem:
            return ToolOutput.error(f"Cannot use the glob: {problem}.")
        except FileProblem as problem:
            return ToolOutput.error(str(problem))
        except SearchFailed as problem:
            return ToolOutput.error(f"The search failed: {problem}.")
        return _output(args, ctx, query, found)


def _query(args: GrepArguments, ctx: FinderContext) -> Query:
    pattern = _within_a_line(args.pattern)
    path_filter = PathFilter(args.glob) if args.glob else None
    place = located(args.path or ".", ctx)
    name = shown(place, ctx.workspace)
    info = look(place, ctx.workspace)
    if info is None:
        raise not_found(place, ctx.workspace)
    if stat.S_ISDIR(info.st_mode):
        _require_readable(place, name)
        where = (place, "", pattern, args.ignore_case, args.context, path_filter)
        return Query(*where, kept_back=ctx.kept_back)
    if not stat.S_ISREG(info.st_mode):
        raise FileProblem(f"{name} is neither a file nor a directory.")
    with opened(place, ctx.workspace) as descriptor:
        head = os.pread(descriptor, BINARY_PROBE_BYTES, 0)
        _, codec = encoding_of(head, descriptor)
    if not codec:
        raise FileProblem(f"{name} is a binary file; nothing was searched.")
    return Query(place.parent, place.name, pattern, args.ignore_case, args.context)


def _within_a_line(pattern: str) -> str:
    """``pattern``, if a command can be given it and a line can match it."""
    if len(pattern) > MAX_PATTERN_CHARS or "\0" in pattern:
        raise FileProblem("Cannot use the pattern: it is too long, or has a NUL in it.")
    if _LINE_END.search(pattern):
        reason = "a match lies within one line: search for a part of it, or use context"
        raise FileProblem(f"Cannot use the pattern: {reason}.")
    return pattern


def _require_readable(directory: Path, name: str) -> None:
    try:
        with opened_directory(directory) as descriptor:
            os.stat(".", dir_fd=descriptor)
    except OSError as error:
        raise os_problem(error, "read", name) from error


def _output(args: GrepArguments, ctx: FinderContext, query: Query, found: Found) -> ToolOutput:
    text, raw = bounded("\n".join(_rows(ctx.workspace, query, found.lines)), ctx.call_id)
    if found.ending is Ending.CANCELLED:
        return ToolOutput.cancelled(text)
    matches = sum(line.matches for line in found.lines)
    files = len({line.path for line in found.lines})
    if found.ending is Ending.TIMED_OUT:
        note = f"[stopped after {TIME_LIMIT_S:g} s; search a smaller path or a simpler pattern]"
        return ToolOutput.error(f"{text}\n{note}".strip(), raw=raw, summary="timed out")
    changed = changed_note(found.changed, "line") + _withheld_note(found, query, ctx.workspace)
    if found.unsearched:
        changed += (
            f"\n[files in older encodings not searched ({found.unsearched}): simplify the pattern]"
        )
    if not matches:
        where = f" in {args.path}" if args.path else ""
        only = f" (only files {args.glob})" if args.glob else ""
        return ToolOutput.text(f"No matches{where}{only}.{changed}", summary="no matches")
    counted = f"{matches} {'match' if matches == 1 else 'matches'} in {files} file"
    counted += "" if files == 1 else "s"
    note = f"[{counted}]"
    if found.more:
        counted = f"first {counted}"
        note = f"[{counted}; there are more: narrow the search or raise limit (max {MAX_LIMIT})]"
    if _DEFINITION.search(args.pattern):
        note += "\n" + _BY_MAP
    return ToolOutput.text(f"{text}\n{note}{changed}", raw=raw, summary=counted)


def _withheld_note(found: Found, query: Query, workspace: Workspace) -> str:
    names = sorted(shown(query.root / each, workspace) for each in found.withheld)
    if not names:
        return ""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    why = "since they hold credentials or a rule is about them"
    return f"\n[not shown, {why}: {', '.join(names[:_MAX_NAMED])}{more}]"


def _rows(workspace: Workspace, query: Query, lines: list[FoundLine]) -> Iterator[str]:
    last: FoundLine | None = None
    name = ""
    for line in lines:
        if last is None or line.path != last.path:
            name = shown(query.root / line.path, workspace)
        gap = last is not None and (line.path != last.path or line.number != last.number + 1)
        if gap and query.context:
            yield "--"
        mark = ":" if line.matches else "-"
        yield f"{name}{mark}{line.number}{mark}{_shortened(line)}"
        last = line


def _shortened(line: FoundLine) -> str:
    text = _CONTROLS.sub(_visible, line.text[:LINE_CHARS])
    cut = line.cut_bytes + len(line.text[LINE_CHARS:])
    return f"{text}… [{cut} more]" if cut else text


def _visible(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"


TOOL = GrepTool()
