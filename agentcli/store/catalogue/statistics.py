"""What sessions have cost, from their ``usage`` and ``tool_run`` tables (CLI-8, CLI-9, COST-1).

Laws: nothing is counted twice: a fork carries the rows of its original, which count where they
were made, and what a sub-agent spent counts in its own session, not again in the one that asked.
What an imported session has cost elsewhere does not count here.
A cost with an unknown part is unknown. Files are read one after the other; a damaged one is
counted and hides no other; of single calls only the most expensive are kept.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Any

from agentcli.domain.accounts import (
    SUBAGENT,
    CallCost,
    Ledger,
    ModelOf,
    ResultCost,
    UsageRow,
    call_costs,
)
from agentcli.domain.errors import StoreError
from agentcli.domain.messages import Usage
from agentcli.domain.ports import RunStatus
from agentcli.domain.session import SessionInfo
from agentcli.domain.values import frozen, mutable
from agentcli.store import reads as _rows
from agentcli.store.codec import from_column
from agentcli.store.file import read_with
from agentcli.store.ledger import read_ledger
from agentcli.store.writes import IMPORTED_KIND

MOST_CALLS = 20


@mutable
class Spent:
    """A sum of requests. ``known_usd`` leaves out the ``unknown`` ones, which have no price."""

    requests: int = 0
    unknown: int = 0
    usage: Usage = field(default_factory=Usage)
    known_usd: float = 0.0

    def add(self, usage: Usage, cost_usd: float | None) -> None:
        """One more request."""
        self.requests += 1
        self.usage += usage
        if cost_usd is None:
            self.unknown += 1
        else:
            self.known_usd += cost_usd

    @property
    def cost_usd(self) -> float | None:
        """The cost, or ``None`` when a part of it is unknown."""
        return None if self.unknown else self.known_usd


@mutable
class ToolUse:
    """How often a tool ran, for how long, and what its results have cost."""

    calls: int = 0
    seconds: float = 0.0
    result: ResultCost = field(default_factory=ResultCost)


@frozen
class SessionTotal:
    """What one session has spent by itself, in ``turns`` of its own."""

    info: SessionInfo
    turns: int
    spent: Spent


@frozen
class CallTotal:
    """What the result of one call has cost in the session it belongs to."""

    session_id: str
    cost: CallCost


@mutable
class Statistics:
    """The sums over some sessions; ``sessions`` are those of users and of sub-agents.

    ``calls`` are the ``MOST_CALLS`` most expensive, those first.
    """

    sessions: list[SessionTotal] = field(default_factory=list)
    total: Spent = field(default_factory=Spent)
    by_model: dict[str, Spent] = field(default_factory=dict)
    by_day: dict[str, Spent] = field(default_factory=dict)
    by_tool: dict[str, ToolUse] = field(default_factory=dict)
    calls: list[CallTotal] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def turns(self) -> int:
        """Turns of users; those of sub-agents are parts of them."""
        return sum(session.turns for session in self.sessions if not session.info.is_subagent)


@frozen
class _Read:
    info: SessionInfo
    turns: int
    ledger: Ledger
    tools: list[tuple[Any, ...]]


def statistics_of(
    files: Iterable[Path], *, since: float = 0.0, model_of: ModelOf = lambda _: None
) -> Statistics:
    """The sums over the session ``files``, of what was spent since then (seconds since 1970).

    ``model_of`` gives the prices by which a request's cost is shared out among what it sent.
    """
    found = Statistics()
    seen: set[Any] = set()
    # the oldest first: what a fork has in common with its original belongs to the original
    for path in sorted(files, key=lambda path: path.stem):
        try:
            read = read_with(path, lambda db: _read(db, since))
        except StoreError:
            found.unreadable.append(path.stem)
            continue
        _add(found, read, seen, since, model_of)
    return found


def _read(db: sqlite3.Connection, since: float) -> _Read:
    info = _rows.read_info(db)
    turns = info.turns
    since = max(since, info.origin.imported_at if info.origin is not None else 0.0)
    if since or (info.parent_id is not None and not info.agent):
        begun = max(since, info.created_at if info.parent_id is not None else 0.0)
        query = "SELECT count(*) FROM message WHERE role = 'user' AND created_at >= ?"
        turns = min(turns, db.execute(query, (begun,)).fetchone()[0])
    tools = db.execute(
        "SELECT call_id, name, started_at, CASE WHEN status != ? THEN finished_at END"
        " FROM tool_run WHERE started_at >= ?",  # when an interrupted one ended, nobody knows
        (RunStatus.INTERRUPTED, since),
    ).fetchall()
    tools = [(from_column(row[0]), from_column(row[1]), *row[2:]) for row in tools]
    return _Read(info, turns, read_ledger(db), tools)


def _add(found: Statistics, read: _Read, seen: set[Any], since: float, model_of: ModelOf) -> None:
    spent = Spent()
    rows = [
        row
        for row in read.ledger.rows
        if row.kind not in {SUBAGENT, IMPORTED_KIND}
        and row.created_at >= since
        and _key(row) not in seen
    ]
    seen.update(map(_key, rows))
    for row in rows:
        by_model = found.by_model.setdefault(row.model, Spent())
        by_day = found.by_day.setdefault(_day(row.created_at), Spent())
        for sums in (spent, found.total, by_model, by_day):
            sums.add(row.usage, row.cost_usd)
    tools = [row for row in read.tools if row[:3] not in seen]  # one may have ended otherwise
    seen.update(row[:3] for row in tools)
    for _, name, started_at, finished_at in tools:
        use = found.by_tool.setdefault(name, ToolUse())
        use.calls += 1
        if isinstance(started_at, int | float) and isinstance(finished_at, int | float):
            use.seconds += max(0.0, finished_at - started_at)
    ours = set(map(id, rows))
    for cost in call_costs(read.ledger, model_of, lambda row: id(row) in ours).values():
        if cost.result.tokens:
            found.by_tool.setdefault(cost.name, ToolUse()).result.add(cost.result)
            found.calls.append(CallTotal(read.info.id, cost))
    found.calls = heapq.nsmallest(MOST_CALLS, found.calls, key=lambda call: call.cost.result.rank)
    found.sessions.append(SessionTotal(read.info, read.turns, spent))


def _key(row: UsageRow) -> tuple[Any, ...]:
    """By what a row is known in another file; within one file nothing is a copy."""
    return row.kind, row.created_at, row.model, row.usage, row.cost_usd


def _day(seconds: float) -> str:
    """The day on the clock here, as ``2026-01-31``."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().date().isoformat()
    except (ValueError, OverflowError, OSError):
        return "unknown"
