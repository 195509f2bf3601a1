"""What sessions have cost, from their ``usage`` and ``tool_run`` tables (CLI-8, CLI-9, COST-1).

Laws: nothing is counted twice: a fork carries the rows of its original, which count where they
were made, and what a sub-agent spent counts in its own session, not again in the one that asked.
A cost with an unknown part is unknown. Files are read one after the other; a damaged one is
counted and hides no other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Any

from agentcli.domain.errors import StoreError
from agentcli.domain.messages import Usage
from agentcli.domain.session import SessionInfo
from agentcli.domain.values import frozen, mutable
from agentcli.store import reads as _rows
from agentcli.store.codec import from_column
from agentcli.store.file import read_with

SUBAGENT_KIND = "subagent"
_CHARACTERS_PER_TOKEN = 4


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
    """How often a tool ran, for how long, and about how many tokens its results had."""

    calls: int = 0
    seconds: float = 0.0
    result_tokens: int = 0


@frozen
class SessionTotal:
    """What one session has spent by itself, in ``turns`` of its own."""

    info: SessionInfo
    turns: int
    spent: Spent


@mutable
class Statistics:
    """The sums over some sessions; ``sessions`` are those of users and of sub-agents."""

    sessions: list[SessionTotal] = field(default_factory=list)
    total: Spent = field(default_factory=Spent)
    by_model: dict[str, Spent] = field(default_factory=dict)
    by_day: dict[str, Spent] = field(default_factory=dict)
    by_tool: dict[str, ToolUse] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    @property
    def turns(self) -> int:
        """Turns of users; those of sub-agents are parts of them."""
        return sum(session.turns for session in self.sessions if not session.info.agent)


@frozen
class _Read:
    info: SessionInfo
    turns: int
    usage: list[tuple[Any, ...]]
    tools: list[tuple[Any, ...]]


def statistics_of(files: Iterable[Path], *, since: float = 0.0) -> Statistics:
    """The sums over the session ``files``, of what was spent since then (seconds since 1970)."""
    found = Statistics()
    seen: set[tuple[Any, ...]] = set()
    # the oldest first: what a fork has in common with its original belongs to the original
    for path in sorted(files, key=lambda path: path.stem):
        try:
            read = read_with(path, lambda db: _read(db, since))
        except StoreError:
            found.unreadable.append(path.stem)
            continue
        _add(found, read, seen)
    return found


def _read(db: sqlite3.Connection, since: float) -> _Read:
    info = _rows.read_info(db)
    turns = info.turns
    if since or (info.parent_id is not None and not info.agent):
        begun = max(since, info.created_at if info.parent_id is not None else 0.0)
        query = "SELECT count(*) FROM message WHERE role = 'user' AND created_at >= ?"
        turns = min(turns, db.execute(query, (begun,)).fetchone()[0])
    usage = db.execute(
        "SELECT created_at, model, input_tokens, output_tokens, cache_read_tokens,"
        " cache_write_tokens, reasoning_tokens, cost_usd FROM usage"
        " WHERE kind <> ? AND created_at >= ?",
        (SUBAGENT_KIND, since),
    ).fetchall()
    tools = db.execute(
        "SELECT call_id, name, started_at, finished_at, length(body) FROM tool_run"
        " LEFT JOIN message ON message.seq = tool_run.result_seq WHERE started_at >= ?",
        (since,),
    ).fetchall()
    return _Read(info, turns, usage, tools)


def _add(found: Statistics, read: _Read, seen: set[tuple[Any, ...]]) -> None:
    spent = Spent()
    for row in _new(read.usage, seen):
        created_at, model, *tokens, cost_usd = row
        usage, cost = Usage(*map(_count, tokens)), _amount(cost_usd)
        day = _day(created_at)
        name = from_column(model)
        by_model = found.by_model.setdefault(name, Spent())
        for sums in (spent, found.total, by_model, found.by_day.setdefault(day, Spent())):
            sums.add(usage, cost)
    for _, name, started_at, finished_at, size in _new(read.tools, seen):
        use = found.by_tool.setdefault(from_column(name), ToolUse())
        use.calls += 1
        use.result_tokens += (_count(size) or 0) // _CHARACTERS_PER_TOKEN
        if isinstance(started_at, int | float) and isinstance(finished_at, int | float):
            use.seconds += max(0.0, finished_at - started_at)
    found.sessions.append(SessionTotal(read.info, read.turns, spent))


def _new(rows: list[tuple[Any, ...]], seen: set[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Those that no earlier file had; within one file nothing is a copy."""
    fresh = [row for row in rows if row not in seen]
    seen.update(fresh)
    return iter(fresh)


def _day(seconds: Any) -> str:
    """The day on the clock here, as ``2026-01-31``."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().date().isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return "unknown"


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _amount(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
