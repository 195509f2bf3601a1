"""What sessions have cost: ``agent stats`` as bars or a page, ``sessions stats`` as tables."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from agentcli.cli.commands import CommandSpec, add_command, new_app
from agentcli.cli.listing import (
    FormatOption,
    prices,
    print_json,
    print_table,
    session_files,
    wait,
)
from agentcli.cli.options import choice, number
from agentcli.cli.redacting import exported, know_secrets, write_private
from agentcli.domain.clean import plural
from agentcli.domain.errors import UsageError
from agentcli.headless.streams import write_error_line, write_out
from agentcli.ui import charts, wording
from agentcli.ui.charts import BarRow, Point
from agentcli.ui.export import cost_object
from agentcli.ui.sanitize import clean_line

if TYPE_CHECKING:
    from agentcli.domain.accounts import ResultCost
    from agentcli.store.catalogue.statistics import SessionTotal, Spent, Statistics, ToolUse

DAY_S = 86_400.0
MAX_SHOWN = 20
KINDS = ("day", "model", "tool", "session")
_HEAD = ("REQUESTS", "IN", "CACHED", "OUT", "COST")
_BAR = 24
_WORTH_SAYING = 1_000  # some seconds
_NAME = 32
MOST_DAYS = 90
MOST_ROWS = 50
_HEAD_BYTES = 4_096
_SPENT = ("Requests", "Tokens in", "Cached", "Tokens out", "Cost")


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
    if len(wanted) > _WORTH_SAYING:
        write_error_line(f"reading {len(wanted):,} sessions")
    found = statistics_of(wanted, since=since, model_of=prices())
    know_secrets()
    found = _without_keys(found)
    if found.unreadable:
        sessions = plural(len(found.unreadable), "session")
        write_error_line(f"warning: {sessions} cannot be read - see: agent sessions check")
    return found


def _without_keys(found: Statistics) -> Statistics:
    """The same; a key in a line that is cut later would not be known by what is left of it."""
    sessions = []
    for one in found.sessions:
        title, detail = exported(one.info.title), exported(one.info.detail)
        sessions.append(replace(one, info=replace(one.info, title=title, detail=detail)))
    calls = [
        replace(call, cost=replace(call.cost, line=exported(call.cost.line)))
        for call in found.calls
    ]
    return replace(found, sessions=sessions, calls=calls)


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
    own = sum(1 for session in found.sessions if not session.info.is_subagent)
    agents = len(found.sessions) - own
    of_agents = f" and {agents} of sub-agents" if agents else ""
    usage = found.total.usage
    cached = (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)
    turns = plural(found.turns, "turn")
    requests = plural(found.total.requests, "request")
    yield f"sessions  {own}{of_agents}, {turns}, {requests}"
    yield (
        f"tokens    {usage.input_tokens or 0:,} in, {cached:,} cached,"
        f" {usage.output_tokens or 0:,} out"
    )
    yield f"cost      {_cost(found.total)}"


def as_object(found: Statistics) -> Mapping[str, Any]:
    """All sums as JSON data."""
    return {
        "sessions": sum(1 for session in found.sessions if not session.info.is_subagent),
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


def _cost(spent: Spent) -> str:
    """Nothing was asked for: that is not free."""
    return wording.sum_cost(spent) if spent.requests else "-"


def _cells(spent: Spent) -> tuple[str, ...]:
    counts = (spent.requests, spent.usage.input_tokens or 0, _cached(spent), _out(spent))
    return (*(f"{count:,}" for count in counts), _cost(spent))


_RESULT_HEAD = ("ADDED", "AGAIN", "CACHED", "COST")


def _by_cost(found: Statistics) -> Sequence[tuple[str, ToolUse]]:
    return sorted(found.by_tool.items(), key=lambda item: (item[1].result.rank, item[0]))


def _result_cells(result: ResultCost) -> tuple[str, ...]:
    counts = (result.added_tokens, result.again_tokens, result.again_cached_tokens)
    return (*(f"{count:,}" for count in counts), wording.sum_cost(result))


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
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write a page with charts to FILE."),
    ] = None


def stats(options: BarOptions) -> int:
    """Totals, then bars."""
    as_json = options.as_json
    if options.by is not None:
        choice("--by", options.by, KINDS)
    if options.html is not None and (as_json or options.by is not None):
        raise UsageError("--html writes everything", "leave --format and --by out")
    if options.html is not None and not options.html.strip():
        raise UsageError("--html needs the name of a file", "for example --html stats.html")
    found = collect(options)
    if options.html is not None:
        write_page(options.html, found, largest(found.sessions, lambda one: one.spent, MOST_ROWS))
        write_error_line(f"written: {clean_line(options.html)}")
        return 0
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
                f"{plural(use.calls, 'call')}, {use.seconds:,.1f} s,"
                f" {wording.count(use.result.added_tokens)} tokens added,"
                f" {wording.count(use.result.again_tokens)} again,"
                f" {wording.sum_cost(use.result)}",
            )
            for name, use in found.by_tool.items()
        ]
    return sorted(lines, key=lambda line: line.size, reverse=True)[:MAX_SHOWN]


def _bar(name: str, spent: Spent) -> Bar:
    count = tokens(spent)
    return Bar(name, count, f"{count:,} tokens, {_cost(spent)}")


def _drawn(lines: Sequence[Bar]) -> list[str]:
    """The bars, each no wider than the terminal; without UTF-8 they are made of ``#``."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    mark = "\u2588" if encoding == "utf8" else "#"
    most = max(line.size for line in lines) or 1
    names = [clean_line(line.name)[:_NAME] for line in lines]
    width = max(map(len, names))
    room = shutil.get_terminal_size((100, 24)).columns - width - max(len(x.text) for x in lines) - 6
    bar = max(4, min(_BAR, room))
    drawn = []
    for name, line in zip(names, lines, strict=True):
        length = round(line.size / most * bar) or int(line.size > 0)
        drawn.append(f"  {name:<{width}}  {mark * length:<{bar}}  {line.text}\n")
    return drawn


# --- the page ------------------------------------------------------------------------------

# Law: it is bounded, however many sessions there are; a file that is not a report of ours is never
# written over.


def write_page(name: str, found: Statistics, sessions: Sequence[SessionTotal]) -> None:
    """Write the page to the file ``name``; ``sessions`` are those that spent most, first.

    Raises ``UsageError``.
    """
    path = Path(name).expanduser()
    text: str = exported(stats_page(found, sessions))
    try:
        if path.is_file() and not _is_ours(path):
            what = f"{name} exists already, and is no report of agentcli"
            raise UsageError(what, "name another file")
        write_private(path, [text], replace=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write {name}: {reason}", "give --html another file") from error


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return not head or f'content="{charts.GENERATOR}"'.encode() in head


def stats_page(found: Statistics, sessions: Sequence[SessionTotal]) -> str:
    """The page."""
    days = sorted(day for day in found.by_day if day != "unknown")
    lead = [f"From {days[0]} to {days[-1]}, on the clock of this machine."] if days else []
    lead.append(f"Made by agentcli on {time.strftime('%Y-%m-%d %H:%M')}. Prices are list prices.")
    if found.unreadable:
        lead.append(f"{plural(len(found.unreadable), 'session')} could not be read.")
    return charts.report_page("What agentcli has used", lead, _sections(found, sessions, days))


def _sections(
    found: Statistics, sessions: Sequence[SessionTotal], days: Sequence[str]
) -> Iterator[tuple[str, str]]:
    yield "In all", _totals(found)
    if not found.total.requests:
        return
    measure = _Measure(found.total)
    if days:
        yield "By day", _by_day(found.by_day, days, measure)
    yield "By model", _by_model(found.by_model, measure)
    if found.by_tool:
        yield "By tool", _by_tool(found)
    if found.calls:
        yield "The most expensive tool results", _by_call(found)
    yield "By session", _by_session(sessions, len(found.sessions), measure)


class _Measure:
    """What the charts are about: money, or tokens where no price is known."""

    def __init__(self, total: Spent) -> None:
        self.is_money = total.known_usd > 0
        self.name = "Cost" if self.is_money else "Tokens"

    def of(self, spent: Spent) -> float:
        """How long a bar is."""
        return spent.known_usd if self.is_money else float(tokens_in(spent) + _out(spent))

    def words(self, spent: Spent) -> str:
        """The same in words."""
        tokens = wording.tokens_of(tokens_in(spent) + _out(spent))
        return f"{_cost(spent)}, {tokens}" if self.is_money else tokens

    def axis(self, size: float) -> str:
        """A line of the grid."""
        if not self.is_money:
            return wording.count(round(size))
        return f"${size:,.2f}" if not size or size >= 0.01 else f"${size:.4f}"  # noqa: PLR2004 - a cent


def tokens_in(spent: Spent) -> int:
    """All that was sent, cached or not."""
    return (spent.usage.input_tokens or 0) + _cached(spent)


def _cached(spent: Spent) -> int:
    return (spent.usage.cache_read_tokens or 0) + (spent.usage.cache_write_tokens or 0)


def _out(spent: Spent) -> int:
    return spent.usage.output_tokens or 0


def _totals(found: Statistics) -> str:
    total = found.total
    own = sum(1 for session in found.sessions if not session.info.is_subagent)
    agents = len(found.sessions) - own
    sent = tokens_in(total)
    read = total.usage.cache_read_tokens or 0
    cost = total.known_usd if total.known_usd or not total.unknown else None
    share = f"{100 * read / sent:.0f} % read from caches" if sent else ""
    unknown = f"without {plural(total.unknown, 'request')} of unknown price"
    return charts.facts(
        (
            (
                "Cost",
                wording.cost(cost) if total.requests else "-",
                unknown if total.unknown else "",
            ),
            ("Tokens sent", wording.count(sent), share),
            ("Tokens written", wording.count(_out(total)), ""),
            ("Sessions", f"{own:,}", f"and {agents:,} of sub-agents" if agents else ""),
            ("Turns", f"{found.turns:,}", ""),
            ("Requests", f"{total.requests:,}", ""),
        )
    )


def _by_day(by_day: Mapping[str, Spent], days: Sequence[str], measure: _Measure) -> str:
    last = date.fromisoformat(days[-1])
    span = min((last - date.fromisoformat(days[0])).days + 1, MOST_DAYS)
    names = [(last - timedelta(days=back)).isoformat() for back in reversed(range(span))]
    points = []
    for name in names:
        spent = by_day.get(name)
        size, text = (measure.of(spent), measure.words(spent)) if spent else (0.0, "nothing")
        points.append(Point(name, size, text, name[5:]))
    chart = charts.column_chart(f"{measure.name} by day", points, measure.axis)
    newest = list(reversed(days))
    rows = [(day, *_cells(by_day[day])) for day in newest[:MOST_DAYS]]
    table = charts.plain_table(
        "Days, the newest first", ("Day", *_SPENT), rows, more=_left_out(len(days), len(rows))
    )
    return chart + charts.folded("The days as a table", table)


def _by_model(by_model: Mapping[str, Spent], measure: _Measure) -> str:
    order = sorted(by_model.items(), key=lambda item: (-measure.of(item[1]), item[0]))
    rows = [
        BarRow(name or "unknown", (measure.of(spent),), _cells(spent))
        for name, spent in order[:MOST_ROWS]
    ]
    caption = f"Models; the bars show {measure.name.lower()}"
    return charts.bar_table(
        caption, ("Model", *_SPENT), rows, more=_left_out(len(order), len(rows))
    )


def _by_tool(found: Statistics) -> str:
    order = sorted(found.by_tool.items(), key=lambda item: (item[1].result.rank, item[0]))
    rows = [
        BarRow(
            name,
            (float(use.result.added_tokens), float(use.result.again_tokens)),
            (
                f"{use.calls:,}",
                f"{use.seconds:,.1f}",
                f"{use.result.added_tokens:,}",
                f"{use.result.again_tokens:,}",
                f"{use.result.again_cached_tokens:,}",
                wording.sum_cost(use.result),
            ),
        )
        for name, use in order[:MOST_ROWS]
    ]
    return charts.bar_table(
        "Tools; the bars show the tokens of their results",
        ("Tool", "Calls", "Seconds", "Added", "Sent again", "of it cached", "Cost"),
        rows,
        key=("added when a result was first sent", "sent again in later requests"),
        more=_left_out(len(order), len(rows)),
    )


def _by_call(found: Statistics) -> str:
    titles = {one.info.id: one.info.title for one in found.sessions}
    rows = []
    for call in found.calls:
        cost = call.cost.result
        cells = (
            f"{cost.added_tokens:,}",
            f"{cost.again_requests:,}",
            f"{cost.again_cached_tokens:,}",
            f"{cost.again_uncached_tokens:,}",
            wording.sum_cost(cost),
        )
        parts = (float(cost.added_tokens), float(cost.again_tokens))
        below = titles.get(call.session_id) or call.session_id
        rows.append(BarRow(call.cost.line or call.cost.name, parts, cells, below))
    return charts.bar_table(
        "Single results; the bars show their tokens",
        ("Call", "Added", "Sent again", "cached", "not cached", "Cost"),
        rows,
        key=("added when it was first sent", "sent again in later requests"),
    )


def _by_session(sessions: Sequence[SessionTotal], count: int, measure: _Measure) -> str:
    rows = []
    for one in sessions[:MOST_ROWS]:
        agent = f"[{one.info.agent}] " if one.info.agent else ""
        name = f"{agent}{one.info.title or one.info.detail or 'untitled'}"
        cells = (f"{one.turns:,}", *_cells(one.spent))
        rows.append(BarRow(name, (measure.of(one.spent),), cells, one.info.id))
    caption = f"Sessions that used most; the bars show {measure.name.lower()}"
    head = ("Session", "Turns", *_SPENT)
    return charts.bar_table(caption, head, rows, more=_left_out(count, len(rows)))


def _left_out(count: int, shown: int) -> str:
    return f"and {count - shown:,} more" if count > shown else ""


APP = new_app("")
add_command(
    APP,
    CommandSpec("stats", "Tokens and cost by day, model, tool and session."),
    BarOptions,
    stats,
)
