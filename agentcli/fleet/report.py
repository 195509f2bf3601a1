"""What a user sees of a batch: while it runs, at its end, and as a page (SCALE-2).

Laws: on a terminal that can redraw there is a table, elsewhere a line for each task that ends,
without control sequences. The page needs no network, shows texts of tasks as texts, lists what did
not go well first, and says how much it leaves out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from agentcli.domain.clean import plural
from agentcli.domain.values import frozen
from agentcli.fleet.batch import BatchEnd, BatchPlan, BatchView
from agentcli.fleet.results import (
    REPORT,
    RESULTS,
    SESSIONS,
    BatchState,
    Journal,
    TaskStanding,
    make_folder,
    write_whole,
)
from agentcli.fleet.tasks import BatchTask
from agentcli.ui import charts, wording
from agentcli.ui.charts import BarRow, Point
from agentcli.ui.sanitize import clean_line, safe_json

if TYPE_CHECKING:
    from agentcli.ui.batch_table import LiveTable

_TICK_S = 0.5
_TEXT_CHARS = 100
MOST_ROWS = 500
MOST_PAGES = 200
_RESULT_CHARS = 300
_PROMPT_CHARS = 100
_BOUNDS_S = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600)
_ORDER = {state: at for at, state in enumerate((*list(BatchState)[1:], BatchState.DONE))}


# --- while it runs, and at its end ---


class BatchProgress(BatchView):
    """Says what happens by ``write``, a line each, or in a table of its own."""

    def __init__(self, plan: BatchPlan, write: Callable[[str], None]) -> None:
        self._write = write
        self._total = len(plan.tasks)
        self._retries_failed = plan.retry_failed
        self._waiting = plan.waiting
        self._states: dict[str, BatchState] = {}
        self._costs: dict[str, float | None] = {}
        self._ended = 0
        self._table: LiveTable | None = None

    def drawn_on(self, stream: TextIO, env: Mapping[str, str]) -> AbstractContextManager[object]:
        """Show a table on ``stream`` within the block, if it is a terminal that can redraw."""
        if not stream.isatty() or env.get("TERM", "dumb") in {"dumb", "unknown"}:
            return nullcontext()
        from agentcli.ui.batch_table import LiveTable

        self._table = LiveTable(stream, self._total, env)
        return self._table

    def grows(self, tasks: Sequence[BatchTask], known: Mapping[str, TaskStanding]) -> None:
        """See ``BatchView``."""
        names = [task.id for task in tasks]
        for name in names:
            state = known[name].state if name in known else BatchState.PENDING
            if self._retries_failed and state.has_ended and state is not BatchState.DONE:
                state = BatchState.PENDING
            self._states[name] = state
            self._costs[name] = known[name].cost_usd if name in known else 0.0
        self._total = len(self._states)
        if self._table is not None:
            self._table.total = self._total
        if before := sum(self._states[name].has_ended for name in names):
            self._ended += before
            self.says(f"{plural(before, 'task')} of {self._total} ended before")

    def started(self, task: BatchTask, known: TaskStanding) -> None:
        """See ``BatchView``."""
        self._note(task, known)
        if self._table is not None:
            self._table.started(task.id, task.prompt[:_TEXT_CHARS])

    def ended(
        self, task: BatchTask, known: TaskStanding, result: str, *, again: bool = False
    ) -> None:
        """See ``BatchView``."""
        self._note(task, known)
        self._ended += known.state.has_ended
        how = f"{self._ended}/{self._total} {known.state}" if known.state.has_ended else "to go on"
        cost, took = wording.cost(known.cost_usd), wording.duration(known.duration_ms / 1000)
        line = f"{how}: {task.id} ({took}, {cost})"
        is_fault = known.state.has_ended and known.state is not BatchState.DONE
        if self._table is not None:
            self._table.ended(task.id, str(known.state), known.cost_usd)
        if is_fault:
            self.says(f"{line}: {clean_line(result)[:_RESULT_CHARS]}")
        elif self._table is None and not again:
            self.says(line)

    def says(self, text: str) -> None:
        """See ``BatchView``."""
        (self._write if self._table is None else self._table.says)(clean_line(text))

    def _note(self, task: BatchTask, known: TaskStanding) -> None:
        self._states[task.id] = known.state
        self._costs[task.id] = known.cost_usd

    async def tick(self) -> None:
        """Draw the table from time to time."""
        while self._table is not None:
            self._table.counts = _counts(self._states.values())
            self._table.waiting = self._waiting()
            self._table.spent_usd = sum(cost or 0.0 for cost in self._costs.values())
            self._table.refresh()
            await asyncio.sleep(_TICK_S)


def _counts(states: Iterable[BatchState]) -> dict[str, int]:
    found = dict.fromkeys(map(str, BatchState), 0)
    for state in states:
        found[str(state)] += 1
    return {state: count for state, count in found.items() if count}


def summary(end: BatchEnd, directory: Path, *, as_json: bool) -> str:
    """How it ended, for stdout."""
    counts = {str(state): count for state in BatchState if (count := end.states.get(state, 0))}
    if as_json:
        value = {
            "type": "batch",
            "tasks": sum(counts.values()),
            "states": counts,
            "skipped": end.skipped,
            "spent_usd": round(end.spent_usd, 6),
            "stopped_by": end.reason or None,
            "results": str(directory / RESULTS),
            "report": str(directory / REPORT),
        }
        return safe_json(json.dumps(value, ensure_ascii=False)) + "\n"
    words = ", ".join(f"{count} {state}" for state, count in counts.items()) or "nothing to do"
    skipped = f", {end.skipped} of them before" if end.skipped else ""
    total = plural(sum(counts.values()), "task")
    files = "".join(f"{clean_line(str(directory / name))}\n" for name in (RESULTS, REPORT))
    return f"{total}: {words}{skipped}; cost {wording.cost(end.spent_usd)}\n{files}"


def advice(end: BatchEnd, what: str = "TASKS") -> str:
    """What to do next; empty when all is done. ``what`` is what the batch was made of."""
    if end.reason == "budget":
        return "the budget is spent - start again with a larger --max-budget-usd"
    if end.reason:
        return f"start again with the same {what} and -o to go on"
    return "" if end.is_complete else "run what has failed again with --retry-failed"


# --- the page ---


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
            prompt_shown(prompts.get(row["id"], "")),
            row["session_id"] or "",
            BatchState(row["state"]),
            str(row.get("result", ""))[:_RESULT_CHARS],
            row["cost_usd"],
            row["duration_ms"] / 1000,
            row["attempts"],
        )
        for row in rows
    ]
    return report_order(found)


def report_order(rows: Iterable[ReportRow]) -> Sequence[ReportRow]:
    """As the page lists them."""
    return sorted(rows, key=lambda row: (_ORDER[row.state], -(row.cost_usd or 0.0)))


def prompt_shown(prompt: str) -> str:
    """As much of a prompt as the page shows."""
    return prompt[:_PROMPT_CHARS]


def write_report(
    journal: Journal,
    tasks: Sequence[BatchTask],
    page_of: Callable[[str], str | None],
    redact: Callable[[str], str],
) -> None:
    """Write ``report.html``, and a page for the session of each task at its top.

    ``page_of`` gives the page of a session, ``None`` where there is none here; ``redact`` takes
    keys out of a text. Raises ``PersistenceError``.
    """
    prompts = {task.id: task.prompt for task in tasks}
    rows = report_rows(journal.rows([task.id for task in tasks]), prompts)
    write_page(journal.directory, rows, page_of, redact)


def write_page(
    directory: Path,
    rows: Sequence[ReportRow],
    page_of: Callable[[str], str | None],
    redact: Callable[[str], str],
) -> None:
    """The same for ``rows`` that are at hand, in a directory that is there."""
    folder = directory / SESSIONS
    pages: set[str] = set()
    for row in rows[:MOST_PAGES]:
        if row.session_id and (page := page_of(row.session_id)) is not None:
            make_folder(folder)
            write_whole(folder / f"{row.session_id}.html", iter([_bytes(page)]))
            pages.add(row.session_id)
    text = redact(report(directory.name, rows, frozenset(pages)))
    write_whole(directory / REPORT, iter([_bytes(text)]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


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
                f"without {plural(unknown, 'task')} of unknown price" if unknown else "",
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
        text = plural(counts[bound], "task")
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
