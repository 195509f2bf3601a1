"""``agent stats``: tokens and cost by day, model, tool and session, as bars (CLI-9, COST-1)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from agentcli.cli.commands import Spec, add_command, new_app
from agentcli.cli.listing import print_json
from agentcli.cli.options import choice
from agentcli.cli.sessions_stats import (
    MAX_SHOWN,
    StatsOptions,
    as_object,
    collect,
    cost_text,
    largest,
    summary_lines,
    tokens,
)
from agentcli.headless.streams import write_out
from agentcli.ui.sanitize import clean_line

if TYPE_CHECKING:
    from agentcli.store.catalogue.statistics import Spent, Statistics

KINDS = ("day", "model", "tool", "session")
_BAR = 24
_NAME = 32


class Line(NamedTuple):
    """One bar: its name, its length in any unit, and what stands behind it."""

    name: str
    size: float
    text: str


class BarOptions(StatsOptions):
    """Options of ``stats``."""

    by: Annotated[
        str | None, typer.Option("--by", metavar="|".join(KINDS), help="Only this (all).")
    ] = None


def stats(options: BarOptions) -> int:
    """Totals, then bars."""
    as_json = options.as_json
    if options.by is not None:
        choice("--by", options.by, KINDS)
    found = collect(options)
    if as_json:
        value = dict(as_object(found))
        for kind in KINDS:
            if options.by not in {None, kind}:
                del value[f"by_{kind}"]
        print_json(value)
        return 0
    write_out("".join(f"{line}\n" for line in summary_lines(found)))
    for kind in KINDS:
        if options.by in {None, kind} and (lines := _lines(found, kind)):
            write_out(f"\nby {kind}\n" + "".join(_drawn(lines)))
    return 0


def _lines(found: Statistics, kind: str) -> Sequence[Line]:
    if kind == "day":
        return [_line(day, found.by_day[day]) for day in sorted(found.by_day)[-MAX_SHOWN:]]
    if kind == "model":
        lines = [_line(name or "unknown", spent) for name, spent in found.by_model.items()]
    elif kind == "session":
        chosen = largest(found.sessions, lambda one: one.spent)
        return [_line(one.info.title or one.info.id, one.spent) for one in chosen]
    else:
        lines = [
            Line(
                name,
                use.result_tokens,
                f"{use.calls:,} calls, {use.seconds:,.1f} s, about {use.result_tokens:,} tokens",
            )
            for name, use in found.by_tool.items()
        ]
    return sorted(lines, key=lambda line: line.size, reverse=True)[:MAX_SHOWN]


def _line(name: str, spent: Spent) -> Line:
    count = tokens(spent)
    return Line(name, count, f"{count:,} tokens, {cost_text(spent)}")


def _drawn(lines: Sequence[Line]) -> list[str]:
    """The bars, each no wider than the terminal; without UTF-8 they are made of ``#``."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    mark = "\u2588" if encoding == "utf8" else "#"
    most = max(line.size for line in lines) or 1
    names = [clean_line(line.name)[:_NAME] for line in lines]
    width = max(map(len, names))
    bar = max(4, min(_BAR, shutil.get_terminal_size((100, 24)).columns - width - 45))
    drawn = []
    for name, line in zip(names, lines, strict=True):
        length = round(line.size / most * bar) or int(line.size > 0)
        drawn.append(f"  {name:<{width}}  {mark * length:<{bar}}  {line.text}\n")
    return drawn


APP = new_app("")
add_command(
    APP,
    Spec("stats", "Tokens and cost by day, model, tool and session."),
    BarOptions,
    stats,
)
