"""Balancing a session whose process died, once, at the next open (REC-1).

The repair is the one of ``domain.history``, committed to the file: from then on every reader
and every request sees the same history. Doing it again changes nothing.
"""

from __future__ import annotations

from agentcli.domain.errors import HistoryViolation
from agentcli.domain.history import History, RepairReason, repair_results
from agentcli.domain.messages import ToolResult
from agentcli.domain.session import LoadedSession, SessionStatus
from agentcli.store._faults import damaged
from agentcli.store._status import CRASH_DETAIL
from agentcli.store.sqlite import SqliteStore


async def recover(store: SqliteStore) -> tuple[LoadedSession, tuple[ToolResult, ...]]:
    """The session of ``store`` (open for writing), balanced, and the results that took.

    A result that was stored but not yet a message comes back as it was. Raises
    ``SessionDamaged`` for a history that breaks the law in a way no crash can cause.
    """
    loaded = await store.load()
    try:
        history = History(stored.message for stored in loaded.messages)
    except HistoryViolation as error:
        raise damaged(store.path, error.message) from error
    crashed = loaded.info.status is SessionStatus.CRASHED
    if not history.pending and not (crashed and await _is_news(store)):
        return loaded, ()
    results = repair_results(history.pending, loaded.runs, RepairReason.CRASHED)
    detail = loaded.info.detail if crashed else ""
    await store.record_crash(results, detail or CRASH_DETAIL)
    return await store.load(), results


async def _is_news(store: SqliteStore) -> bool:
    """Whether the file still says "running"."""
    return await store.stored_status() is SessionStatus.RUNNING
