"""``symbols`` and ``references``: the map of the project (MEM-3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel, Field

from agentcli.domain.codemap import MapState, Symbol, SymbolUses, UsedIn
from agentcli.domain.errors import AgentError
from agentcli.domain.files import is_directory
from agentcli.domain.tools import Asks, ToolHints, ToolOutput, Workspace
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool, bounded, escaped, one_line
from agentcli.tools.files.paths import (
    FileProblem,
    FinderContext,
    not_found,
    require_judged,
    resolve,
)

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import CodeMap

A = TypeVar("A", bound=BaseModel)
MAX_SHOWN = 50
MAX_LINES_SHOWN = 20
MAX_MAYBE = 20
OVERVIEW_CHARS = 8_000
"""About 2,000 tokens."""
_NO_CODE = "The map has no code files below the working directory. Use grep_files."


@frozen
class MapContext(FinderContext):
    """Of a call that asks the map."""

    codemap: CodeMap


class SymbolsArguments(Arguments):
    """Arguments of ``symbols``."""

    query: str = Field(
        default="",
        max_length=300,
        description='Name, a part of it, or "Class.name"; empty: overview',
    )
    kind: str = Field(default="", max_length=40, description="class, function, method, type, ...")
    path: str = Field(default="", description="File or directory to look in")


class ReferencesArguments(Arguments):
    """Arguments of ``references``."""

    symbol: str = Field(default="", max_length=300, description='Name or "Class.name"')
    path: str = Field(default="", description="File that defines or uses it")
    line: int = Field(default=0, ge=0, description="Line in that file, instead of symbol")


class _MapTool(BaseTool[A], Generic[A]):
    """What both share: they read the project, and nothing else."""

    asks = Asks.NOTHING
    concurrent = True
    context = MapContext
    group = "files"
    hints = ToolHints(idempotent=True)

    def paths(self, args: A, workspace: Workspace) -> tuple[Path, ...]:
        """What is named, or all of the project."""
        try:
            return (resolve(workspace, _path_of(args) or str(workspace.root)),)
        except FileProblem:
            return ()


def _path_of(args: BaseModel) -> str:
    return str(getattr(args, "path", ""))


def _located(args: BaseModel, ctx: MapContext) -> Path | None:
    """The path that is meant, as it was judged; raises ``FileProblem``."""
    name = _path_of(args)
    path = resolve(ctx.workspace, name or str(ctx.workspace.root))
    require_judged(path, name or ".", ctx)
    if not name:
        return None
    if not (path.is_file() or is_directory(path)):
        raise not_found(path, ctx.workspace)
    return path


def _is_told(path: str, ctx: MapContext) -> bool:
    return ctx.kept_back is None or not ctx.kept_back(ctx.workspace.root / path)


def _told(found: SymbolUses, ctx: MapContext) -> SymbolUses:
    """Without the files that a rule keeps back."""
    uses, may = (
        tuple(use for use in among if _is_told(use.path, ctx)) for among in (found.uses, found.may)
    )
    return replace(found, uses=uses, may=may)


class SymbolsTool(_MapTool[SymbolsArguments]):
    """Finds what the project defines."""

    name = "symbols"
    display_name = "Symbols"
    description = (
        "Find where classes, functions and other names are defined, by the project's syntax trees. "
        "Without a query: an overview of what is used most."
    )
    params = SymbolsArguments

    def summary(self, args: SymbolsArguments) -> str:
        """What is looked for."""
        where = f" in {one_line(args.path)}" if args.path else ""
        return f"Symbols {one_line(args.query, 80)}{where}" if args.query else f"Overview{where}"

    async def run(self, args: SymbolsArguments, ctx: MapContext) -> ToolOutput:
        """Look them up."""
        try:
            below = _located(args, ctx)
            found, state = await ctx.codemap.symbols(
                args.query.strip(), args.kind.strip().lower(), below, ctx.cancel
            )
        except (FileProblem, AgentError) as problem:
            return ToolOutput.error(str(problem))
        if ctx.cancel.cancelled:
            return ToolOutput.cancelled("")
        found = [each for each in found if _is_told(each.path, ctx)]
        if not state.files and not state.waiting:
            return ToolOutput.text(_NO_CODE, summary="no code")
        if not found:
            text = f"Nothing is called like {args.query!r}. Try a part of the name, or grep_files."
            return ToolOutput.text(_noted([text], state), summary="nothing found")
        rows = _overview(found) if not args.query else [*map(_line, found[:MAX_SHOWN])]
        if len(found) > MAX_SHOWN and args.query:
            rows.append(f"[the first {MAX_SHOWN}; there are more: say kind or path]")
        text, raw = bounded(_noted(rows, state), ctx.call_id)
        count = min(len(found), MAX_SHOWN)
        return ToolOutput.text(text, raw=raw, summary=f"{count} symbol{'s' * (count != 1)}")


def _line(symbol: Symbol) -> str:
    return f"{escaped(symbol.path)}:{symbol.line} {symbol.kind} {escaped(symbol.title)}"


def _overview(found: Sequence[Symbol]) -> list[str]:
    """By file, the most used first, as far as it fits."""
    by_file: dict[str, list[Symbol]] = {}
    for symbol in found:
        by_file.setdefault(symbol.path, []).append(symbol)
    rows, left = list[str](), OVERVIEW_CHARS
    for path, symbols in by_file.items():
        names = ", ".join(
            f"{symbol.kind} {escaped(symbol.title)}:{symbol.line}"
            for symbol in sorted(symbols, key=lambda symbol: symbol.line)
        )
        row = f"{escaped(path)}: {names}"
        left -= len(row) + 1
        if left < 0:
            break
        rows.append(row)
    return rows


def _noted(rows: Iterable[str], state: MapState) -> str:
    return "\n".join((*rows, *(f"[{note}]" for note in state.notes)))


class ReferencesTool(_MapTool[ReferencesArguments]):
    """Finds who uses what."""

    name = "references"
    display_name = "References"
    description = (
        "Find the lines that use a class, function or other name: give symbol, or path and line. "
        "Found by name and imports, not by types: check before you rely on it."
    )
    params = ReferencesArguments

    def summary(self, args: ReferencesArguments) -> str:
        """What is looked for."""
        place = f"{one_line(args.path)}:{args.line}" if args.line else one_line(args.path)
        return f"References {one_line(args.symbol, 80) or place}"

    async def run(self, args: ReferencesArguments, ctx: MapContext) -> ToolOutput:
        """Look them up."""
        if not args.symbol.strip() and not (args.path and args.line):
            return ToolOutput.error("Give symbol, or path and line.")
        try:
            path = _located(args, ctx)
            found, state = await ctx.codemap.references(
                args.symbol.strip(), path, args.line, ctx.cancel
            )
        except (FileProblem, AgentError) as problem:
            return ToolOutput.error(str(problem))
        if ctx.cancel.cancelled:
            return ToolOutput.cancelled("")
        found = [_told(each, ctx) for each in found if _is_told(each.symbol.path, ctx)]
        if not found:
            what = args.symbol or f"{args.path}:{args.line}"
            text = f"The map knows no definition of {what!r}. Try symbols, or grep_files."
            return ToolOutput.text(_noted([text], state), summary="nothing found")
        rows = [row for each in found for row in _uses(each)]
        text, raw = bounded(_noted(rows, state), ctx.call_id)
        count = len({(one.path, line) for each in found for one in each.uses for line in one.lines})
        return ToolOutput.text(text, raw=raw, summary=f"{count} line{'s' * (count != 1)}")


def _uses(found: SymbolUses) -> Iterable[str]:
    yield f"{_line(found.symbol)}, used in:"
    yield from map(_used_in, found.uses)
    if not found.uses:
        yield "  nothing that the map knows of"
    if found.may:
        count = f"{found.alike:,} other definition{'s' * (found.alike != 1)}"
        yield f"  maybe ({count} of the same name, and what this is a member of is not known):"
        yield from map(_used_in, found.may[:MAX_MAYBE])
        if len(found.may) > MAX_MAYBE:
            yield f"  and {len(found.may) - MAX_MAYBE:,} more files"


def _used_in(use: UsedIn) -> str:
    lines = ", ".join(map(str, use.lines[:MAX_LINES_SHOWN]))
    more = len(use.lines) - MAX_LINES_SHOWN
    return f"  {escaped(use.path)}:{lines}" + (f" and {more} more" if more > 0 else "")


TOOLS = (SymbolsTool(), ReferencesTool())
