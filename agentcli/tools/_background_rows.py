"""Background runs and schedules as the model reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agentcli.domain.background import BackgroundTask, Schedule, TaskState
from agentcli.tools.files.paths import one_line

MAX_TEXT = 300
MAX_LINE = 60


def task_row(task: BackgroundTask) -> dict[str, Any]:
    """What is known of a run, without what is empty."""
    progress = None
    if task.progress is not None:
        known = task.progress
        progress = {"current": known.current, "total": known.total, "unit": known.unit}
    row = {
        "run_id": task.run_id,
        "title": one_line(task.title, MAX_TEXT),
        "tool": task.tool,
        "status": status_of_task(task),
        "started": moment(task.created_at),
        "ended": moment(task.finished_at),
        "attempt": task.attempt if task.attempt > 1 else None,
        "detail": one_line(task.detail, MAX_TEXT) if task.is_active else None,
        "progress": progress if task.is_active else None,
        "summary": one_line(task.summary, MAX_TEXT),
        "error": one_line(task.error_message, MAX_TEXT),
        "log_path": task.log_path,
    }
    return {name: value for name, value in row.items() if value not in (None, "")}


def schedule_row(schedule: Schedule) -> dict[str, Any]:
    """What is known of a schedule."""
    row = {
        "schedule_id": schedule.id,
        "title": one_line(schedule.title, MAX_TEXT),
        "tool": schedule.tool,
        "cron_expression": schedule.cron_expression,
        "scheduled_at": schedule.scheduled_at,
        "time_zone": schedule.time_zone,
        "next_at": moment(schedule.next_at),
    }
    return {name: value for name, value in row.items() if value not in (None, "")}


def task_line(task: BackgroundTask) -> str:
    """A run, for the person."""
    known = task.progress if task.is_active else None
    total = f"/{known.total:g}" if known is not None and known.total else ""
    far = f" ({known.current:g}{total} {known.unit}".rstrip() + ")" if known is not None else ""
    return f"{status_of_task(task):<11} {one_line(task.title, MAX_LINE)}{far}"


def schedule_line(schedule: Schedule) -> str:
    """A schedule, for the person."""
    return f"{'scheduled':<11} {one_line(schedule.title, MAX_LINE)}: {moment(schedule.next_at)}"


def status_of_task(task: BackgroundTask) -> str:
    """The state as it is written in ``result.json``."""
    return "canceled" if task.state is TaskState.CANCELLED else task.state.value


def moment(at: float | None) -> str | None:
    """Seconds since 1970 as RFC 3339, UTC; ``None`` also for what is no time."""
    try:
        return None if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None
