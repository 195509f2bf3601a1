"""What sessions have cost: ``agent stats`` as bars, ``agent sessions stats`` as tables (COST-1)."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json, print_table, session_files, wait
from agentcli.cli.options import choice, number
from agentcli.domain.errors import ConfigError
from agentcli.headless.streams import write_error_line, write_out
from agentcli.ui import wording
from agentcli.ui.export import cost_object
from agentcli.ui.sanitize import clean_line

if TYPE_CHECKING:
    from agentcli.domain.accounts import ModelOf, ResultCost
    from agentcli.store.catalogue.statistics import SessionTotal, Spent, Statistics, ToolUse

DAY_S = 86_400.0
MAX_SHOWN = 20
KINDS = ("day", "model", "tool", "session")
_HEAD = ("REQUESTS", "IN", "CACHED", "OUT", "COST")
_BAR = 24
_NAME = 32


class StatsOptions(FormatOption):
    """Options of ``sessions stats`` and ``stats``."""

    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Id, its beginning or end, or name. None: all."),
    ] = None
    days: Annotated[
        str | None, typer.Option("--days", metavar="N", help="Only the last N days.")
    ] = None


def collect(options: StatsOptions) -> Statistics:
    """The sums that ``options`` ask for; what cannot be read is warned about."""
    from agentcli.store.catalogue.statistics import statistics_of
    from agentcli.store.disk import stamps_in

    files = session_files()
    days = number("--days", options.days, int)
    since = 0.0 if days is None else time.time() - days * DAY_S
    if options.ids:
        wanted = [files.path_of(wait(files.resolve(text))) for text in options.ids]
    else:
        paths = map(files.path_of, stamps_in(files.directory))
        wanted = [path for path in paths if _changed(path) >= since]
    found = statistics_of(wanted, since=since, model_of=prices())
    if found.unreadable:
        sessions = wording.plural(len(found.unreadable), "session")
        write_error_line(f"warning: {sessions} cannot be read - see: agent sessions check")
    return found


def prices() -> ModelOf:
    """The models with their prices; none where the settings cannot be read."""
    from agentcli.app.models import models_by_name
    from agentcli.config.paths import Paths
    from agentcli.config.settings import load_settings

    try:
        return models_by_name(load_settings(Paths.from_env(os.environ), os.environ))
    except ConfigError as error:
        write_error_line(f"warning: prices of tool calls are unknown: {error.message}")
        return lambda _: None


def _changed(path: Path) -> float:
    """When anything was last written; a log may be newer than its file."""
    times = []
    for name in (path.name, f"{path.name}-wal"):
        try:
            times.append(path.with_name(name).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def largest(
    sessions: Sequence[SessionTotal], spent: Any, count: int = MAX_SHOWN
) -> Sequence[SessionTotal]:
    """The sessions that spent most: by cost where it is known, else by tokens."""
    return sorted(
        sessions, key=lambda one: (spent(one).known_usd, tokens(spent(one))), reverse=True
    )[:count]


def tokens(spent: Spent) -> int:
    """All tokens that were sent and received."""
    usage = spent.usage
    parts = (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
    )
    return sum(part or 0 for part in parts)


def summary_lines(found: Statistics) -> Iterable[str]:
    """The totals, in words."""
    own = sum(1 for session in found.sessions if not session.info.agent)
    agents = len(found.sessions) - own
    of_agents = f" and {agents} of sub-agents" if agents else ""
    usage = found.total.usage
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    turns = wording.plural(found.turns, "turn")
    requests = wording.plural(found.total.requests, "request")
    yield f"sessions  {own}{of_agents}, {turns}, {requests}"
    yield (
        f"tokens    {usage.input_tokens or 0:,} in, {cached:,} cached,"
        f" {usage.output_tokens or 0:,} out"
    )
    yield f"cost      {cost_text(found.total)}"


def cost_text(spent: Spent) -> str:
    """Money; what has no known price says so (COST-1)."""
    if not spent.unknown:
        return wording.exact_cost(spent.known_usd)
    if spent.unknown == spent.requests:
        return "unknown"
    return f"{wording.exact_cost(spent.known_usd)} + unknown"


def as_object(found: Statistics) -> Mapping[str, Any]:
    """All sums as JSON data."""
    return {
        "sessions": sum(1 for session in found.sessions if not session.info.agent),
        "turns": found.turns,
        **_spent_object(found.total),
        "by_session": [
            {
                "id": one.info.id,
                "title": one.info.title,
                "turns": one.turns,
                **({"agent": one.info.agent} if one.info.agent else {}),
                **_spent_object(one.spent),
            }
            for one in largest(found.sessions, lambda one: one.spent, len(found.sessions))
        ],
        "by_model": [
            {"model": key, **_spent_object(value)} for key, value in sorted(found.by_model.items())
        ],
        "by_day": [
            {"day": key, **_spent_object(value)} for key, value in sorted(found.by_day.items())
        ],
        "by_tool": [_tool_object(key, value) for key, value in sorted(found.by_tool.items())],
        "by_call": [
            {
                "session_id": call.session_id,
                "id": call.cost.call_id,
                "tool": call.cost.name,
                "line": call.cost.line,
                **cost_object(call.cost.result),
            }
            for call in found.calls
        ],
        "unreadable": found.unreadable,
    }


def _spent_object(spent: Spent) -> Mapping[str, Any]:
    usage = spent.usage
    return {
        "requests": spent.requests,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        },
        "total_cost_usd": spent.cost_usd,
        "known_cost_usd": spent.known_usd,
    }


def _tool_object(name: str, use: ToolUse) -> Mapping[str, Any]:
    return {
        "tool": name,
        "calls": use.calls,
        "seconds": round(use.seconds, 3),
        **cost_object(use.result),
    }


# --- tables --------------------------------------------------------------------------------


def stats_tables(options: StatsOptions) -> int:
    """Totals, then a line per session, model and day."""
    as_json = options.as_json
    found = collect(options)
    if as_json:
        print_json(as_object(found))
        return 0
    write_out("".join(f"{line}\n" for line in summary_lines(found)))
    if not found.sessions:
        return 0
    shown = largest(found.sessions, lambda session: session.spent)
    rows = [(*_session_cells(session), *_cells(session.spent)) for session in shown]
    write_out("\n")
    print_table(("SESSION", "TITLE", "TURNS", *_HEAD), rows)
    _more(len(found.sessions) - len(shown))
    if found.by_tool:
        write_out("\n")
        uses = _by_cost(found)[:MAX_SHOWN]
        print_table(
            ("TOOL", "CALLS", "SECONDS", *_RESULT_HEAD),
            [
                (name, f"{use.calls:,}", f"{use.seconds:,.1f}", *_result_cells(use.result))
                for name, use in uses
            ],
        )
        _more(len(found.by_tool) - len(uses))
    if found.calls:
        write_out("\nthe most expensive results\n")
        print_table(
            (*_RESULT_HEAD, "CALL"),
            [(*_result_cells(c.cost.result), c.cost.line or c.cost.name) for c in found.calls],
        )
    for name, sums in (("MODEL", found.by_model), ("DAY", found.by_day)):
        order = sorted(sums, reverse=name == "DAY")[:MAX_SHOWN]
        write_out("\n")
        print_table((name, *_HEAD), [(key, *_cells(sums[key])) for key in order])
        _more(len(sums) - len(order))
    return 0


def _cells(spent: Spent) -> tuple[str, ...]:
    usage = spent.usage
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    counts = (spent.requests, usage.input_tokens or 0, cached, usage.output_tokens or 0)
    return (*(f"{count:,}" for count in counts), cost_text(spent))


_RESULT_HEAD = ("ADDED", "AGAIN", "CACHED", "COST")


def _by_cost(found: Statistics) -> Sequence[tuple[str, ToolUse]]:
    return sorted(found.by_tool.items(), key=lambda item: (item[1].result.rank, item[0]))


def _result_cells(result: ResultCost) -> tuple[str, ...]:
    counts = (result.added_tokens, result.again_tokens, result.again_cached_tokens)
    return (*(f"{count:,}" for count in counts), wording.result_cost(result))


def _session_cells(session: SessionTotal) -> tuple[str, str, str]:
    info = session.info
    agent = f"[{info.agent}] " if info.agent else ""
    title = f"{agent}{info.title or info.detail or '-'}"
    short = title if len(title) <= 2 * MAX_SHOWN else f"{title[: 2 * MAX_SHOWN - 3]}..."
    return info.id, short, str(session.turns)


def _more(count: int) -> None:
    if count > 0:
        write_out(f"and {count} more\n")


# --- bars ----------------------------------------------------------------------------------


class Bar(NamedTuple):
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
        if options.by in {None, kind} and (lines := _bars(found, kind)):
            write_out(f"\nby {kind}\n" + "".join(_drawn(lines)))
    return 0


def _bars(found: Statistics, kind: str) -> Sequence[Bar]:
    if kind == "day":
        return [_bar(day, found.by_day[day]) for day in sorted(found.by_day)[-MAX_SHOWN:]]
    if kind == "model":
        lines = [_bar(name or "unknown", spent) for name, spent in found.by_model.items()]
    elif kind == "session":
        chosen = largest(found.sessions, lambda one: one.spent)
        return [_bar(one.info.title or one.info.id, one.spent) for one in chosen]
    else:
        lines = [
            Bar(
                name,
                use.result.tokens,
                f"{wording.plural(use.calls, 'call')}, {use.seconds:,.1f} s,"
                f" {use.result.added_tokens:,} tokens added, {use.result.again_tokens:,} again,"
                f" {wording.result_cost(use.result)}",
            )
            for name, use in found.by_tool.items()
        ]
    return sorted(lines, key=lambda line: line.size, reverse=True)[:MAX_SHOWN]


def _bar(name: str, spent: Spent) -> Bar:
    count = tokens(spent)
    return Bar(name, count, f"{count:,} tokens, {cost_text(spent)}")


def _drawn(lines: Sequence[Bar]) -> list[str]:
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
    CommandSpec("stats", "Tokens and cost by day, model, tool and session."),
    BarOptions,
    stats,
)
