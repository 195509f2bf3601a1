"""A batch as one page: how its tasks ended, what they cost, how long they took (SCALE-2).

Laws: the page needs no network; texts of tasks are shown as texts; it lists what did not go well
first, and says how much it leaves out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentcli.domain.values import frozen
from agentcli.fleet.results import BatchState
from agentcli.ui import charts, wording
from agentcli.ui.charts import BarRow, Point

MOST_ROWS = 500
MOST_PAGES = 200
SESSIONS = "sessions"
"""The folder beside the report with a page for each session that it links to."""
_RESULT_CHARS = 300
_PROMPT_CHARS = 100
_BOUNDS_S = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600)
_ORDER = {state: at for at, state in enumerate((*list(BatchState)[1:], BatchState.DONE))}


@frozen
class ReportRow:
    """What the page says of a task."""

    id: str
    prompt: str
    session_id: str
    state: BatchState
    result: str
    cost_usd: float | None
    duration_s: float
    attempts: int


def report_rows(
    rows: Iterable[Mapping[str, Any]], prompts: Mapping[str, str]
) -> Sequence[ReportRow]:
    """``rows`` of ``results.jsonl`` for the page: what did not go well, then what cost most."""
    found = [
        ReportRow(
            row["id"],
            prompts.get(row["id"], "")[:_PROMPT_CHARS],
            row["session_id"] or "",
            BatchState(row["state"]),
            str(row.get("result", ""))[:_RESULT_CHARS],
            row["cost_usd"],
            row["duration_ms"] / 1000,
            row["attempts"],
        )
        for row in rows
    ]
    return sorted(found, key=lambda row: (_ORDER[row.state], -(row.cost_usd or 0.0)))


def report(name: str, rows: Sequence[ReportRow], pages: frozenset[str]) -> str:
    """The page about ``rows``; ``pages`` are the sessions that have one of their own."""
    lead = [f"Made by agentcli on {time.strftime('%Y-%m-%d %H:%M')}. Prices are list prices."]
    return charts.report_page(f"Batch {name}", lead, _sections(rows, pages))


def _sections(rows: Sequence[ReportRow], pages: frozenset[str]) -> Iterator[tuple[str, str]]:
    yield "In all", _totals(rows)
    states = Counter(row.state for row in rows)
    ends = [
        BarRow(str(state), (float(states[state]),), (f"{states[state]:,}",))
        for state in BatchState
        if states[state]
    ]
    yield "How they stand", charts.bar_table("Tasks by state", ("State", "Tasks"), ends)
    begun = [row for row in rows if row.duration_s]
    if begun:
        yield "How long they took", _durations(begun)
    yield "Tasks", _tasks(rows, pages)


def _totals(rows: Sequence[ReportRow]) -> str:
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    unknown = len(rows) - len(costs)
    done = sum(row.state is BatchState.DONE for row in rows)
    took = sorted(row.duration_s for row in rows if row.duration_s)
    middle = wording.duration(took[len(took) // 2]) if took else "-"
    longest = f"longest {wording.duration(took[-1])}" if took else ""
    again = sum(max(0, row.attempts - 1) for row in rows)
    return charts.facts(
        (
            ("Tasks", f"{len(rows):,}", ""),
            ("Done", f"{done:,}", f"{100 * done / len(rows):.0f} %" if rows else ""),
            (
                "Cost",
                wording.cost(sum(costs)),
                f"without {wording.plural(unknown, 'task')} of unknown price" if unknown else "",
            ),
            ("Typical duration", middle, longest),
            ("Begun more than once", f"{again:,}", "further attempts" if again else ""),
        )
    )


def _durations(rows: Sequence[ReportRow]) -> str:
    counts = Counter(
        next((bound for bound in _BOUNDS_S if row.duration_s <= bound), 0) for row in rows
    )
    used = [at for at, bound in enumerate((*_BOUNDS_S, 0)) if counts[bound]]
    points = []
    for bound in (*_BOUNDS_S, 0)[used[0] : used[-1] + 1]:
        words = f"up to {wording.duration(bound)}" if bound else "longer"
        label = f"≤ {wording.duration(bound)}" if bound else "longer"
        text = wording.plural(counts[bound], "task")
        points.append(Point(words, float(counts[bound]), text, label))
    chart = charts.column_chart("Tasks by duration", points, lambda size: f"{size:,.0f}")
    table = charts.plain_table(
        "Tasks by duration", ("Duration", "Tasks"), [(point.name, point.text) for point in points]
    )
    return chart + charts.folded("The same as a table", table)


def _tasks(rows: Sequence[ReportRow], pages: frozenset[str]) -> str:
    is_money = any(row.cost_usd for row in rows)
    shown = [
        BarRow(
            row.id,
            ((row.cost_usd or 0.0) if is_money else row.duration_s,),
            (
                str(row.state),
                str(row.attempts),
                wording.duration(row.duration_s),
                wording.cost(row.cost_usd),
            ),
            row.prompt if row.state is BatchState.DONE else f"{row.prompt} - {row.result}",
            f"{SESSIONS}/{row.session_id}.html" if row.session_id in pages else "",
        )
        for row in rows[:MOST_ROWS]
    ]
    measure = "cost" if is_money else "duration"
    left_out = len(rows) - len(shown)
    return charts.bar_table(
        f"What did not go well comes first; the bars show {measure}",
        ("Task", "State", "Attempts", "Duration", "Cost"),
        shown,
        more=f"and {left_out:,} more: see results.jsonl" if left_out else "",
    )
