"""Background runs and schedules as users read them (UI-6, CLI-9). Plain words, cleaned.

Law: what a run has printed, and what it is called, is text of others: it is cleaned here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from agentcli.domain.background import (
    Background,
    BackgroundTask,
    Schedule,
    TaskProgress,
    TaskQuestion,
    TaskState,
)
from agentcli.domain.errors import UsageError
from agentcli.ui import wording
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.theme import BOLD, DIM, ERROR, Theme

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

BAR_COLUMNS = 20
TAIL_LINES = 20
SHOWN_ENDED = 10
HOW_TO_NAME = (
    "/tasks N, /tasks answer N TEXT, /tasks cancel N, /tail N (the number of a run, or its id or"
    " the end of it)"
)
_SHORTEST_END = 4
_TITLE_COLUMNS = 50
_LINE_COLUMNS = 100
_TAIL_COLUMNS = 400


def meant(background: Background, text: str) -> BackgroundTask | Schedule:
    """The run or schedule that ``text`` names; raises ``UsageError``."""
    tasks = background.tasks()
    if text.isdecimal() and 1 <= int(text) <= len(tasks):
        return tasks[int(text) - 1]
    is_end = len(text) >= _SHORTEST_END  # no number that happens to end an id
    named: Sequence[BackgroundTask | Schedule] = [
        *(task for task in tasks if is_end and task.run_id.endswith(text)),
        *(each for each in background.schedules() if is_end and each.id.endswith(text)),
    ]
    if len(named) != 1:
        what = "several" if named else "no background run or schedule"
        raise UsageError(f"{clean_line(text)!r} names {what}", HOW_TO_NAME)
    return named[0]


def bar(progress: TaskProgress, columns: int = BAR_COLUMNS) -> str:
    """``[#####-----] 50% (5 of 10 files) label``; without a total just how much."""
    label = clean_line(progress.label)
    unit = f" {clean_line(progress.unit)}" if progress.unit else ""
    if not progress.total or progress.total <= 0:
        return f"{progress.current:g}{unit} {label}".rstrip()
    share = min(1.0, max(0.0, progress.current / progress.total))
    filled = round(share * columns)
    drawn = "#" * filled + "-" * (columns - filled)
    amount = f"{progress.current:g} of {progress.total:g}{unit}"
    return f"[{drawn}] {round(100 * share)}% ({amount}) {label}".rstrip()


def state_word(task: BackgroundTask) -> str:
    """How a run stands, in a word or two."""
    if task.is_active and task.cancel_requested_at is not None:
        return "stopping"
    return task.state.value.replace("_", " ")


def question_lines(question: TaskQuestion) -> list[str]:
    """A question with the answers it offers, cleaned."""
    first, *more = clean(question.text).strip().split("\n")
    return [f"? {first}", *(f"  {line}" for line in more), *map(_option, question.options)]


def _option(text: str) -> str:
    return f"  - {clean_line(text)}"


def took(task: BackgroundTask, now: float) -> str:
    """How long it runs, or how long ago it ended."""
    if task.is_active:
        return f"for {wording.elapsed(now - task.created_at)}"
    return wording.age(now - (task.finished_at or task.updated_at))


def next_time(schedule: Schedule, now: float) -> str:
    """When it starts next, by the clock of its own time zone."""
    if schedule.next_at is None:
        return "never"
    if schedule.next_at <= now:
        return "due"
    zone = _zone(schedule.time_zone)
    try:
        at = datetime.fromtimestamp(schedule.next_at, zone)
    except (ValueError, OverflowError, OSError):
        return "unknown"
    return f"{at:%a %Y-%m-%d %H:%M} ({clean_line(schedule.time_zone)})"


def when(schedule: Schedule) -> str:
    """The rule of a schedule."""
    return clean_line(schedule.cron_expression or "once")


def overview(
    tasks: Sequence[BackgroundTask],
    schedules: Sequence[Schedule],
    last_lines: Mapping[str, str],
    now: float,
    theme: Theme,
) -> list[str]:
    """Painted lines: active runs, the newest that have ended, schedules. Numbers are lasting."""
    if not tasks and not schedules:
        return ["No background runs and no schedules."]
    numbered = list(enumerate(tasks, 1))
    active = [(number, task) for number, task in numbered if task.is_active]
    ended = [(number, task) for number, task in numbered if not task.is_active]
    lines: list[str] = []
    for number, task in [*active, *ended[-SHOWN_ENDED:][::-1]]:
        lines.append(_row(number, task, now, theme))
        if task.is_active:
            if task.progress is not None:
                lines.append(f"     {bar(task.progress)}")
            if question := task.asks:
                lines += [f"     {line}" for line in question_lines(question)]
                continue
            said = clean_line(task.detail) or clean_line(last_lines.get(task.run_id, ""))
            if said:
                lines.append(theme.paint(f"     {fit(said, _LINE_COLUMNS)}", DIM))
    if len(ended) > SHOWN_ENDED:
        lines.append(theme.paint(f"     and {len(ended) - SHOWN_ENDED} earlier ones", DIM))
    if schedules:
        lines.append(theme.paint("Schedules:", BOLD))
    for schedule in schedules:
        title = fit(clean_line(schedule.title), _TITLE_COLUMNS)
        next_at = f"next {next_time(schedule, now)}"
        parts = f" {theme.symbols.dot} ".join((title, when(schedule), next_at))
        lines.append(f"  {schedule.id}  {parts}")
    return lines


def details(task: BackgroundTask, log: str, now: float, theme: Theme) -> list[str]:
    """Painted lines: one run, with the end of its log."""
    dot = f" {theme.symbols.dot} "
    head = dot.join((state_word(task), clean_line(task.tool), took(task, now)))
    lines = [theme.paint(clean_line(task.title), BOLD), head]
    if task.is_active and task.progress is not None:
        lines.append(bar(task.progress))
    if question := task.question:
        lines += question_lines(question)
        if question.answer is not None:
            lines.append(f"  answered: {clean_line(question.answer)}")
    for text in (task.summary, task.error_message):
        if text and not task.is_active:
            lines += [clean_line(line) for line in text.splitlines()[:5]]
    kept = log_lines(log)
    if len(kept) > TAIL_LINES:
        lines.append(theme.paint(f"{theme.symbols.more} {len(kept) - TAIL_LINES} lines above", DIM))
    lines += [f"  {line}" for line in kept[-TAIL_LINES:]] or [theme.paint("(no output)", DIM)]
    return [*lines, theme.paint(f"{task.run_id}  {clean_line(task.log_path)}", DIM)]


def log_lines(log: str) -> list[str]:
    """The lines of a log, safe to print and of a bounded width."""
    if not log.strip():
        return []
    cleaned = clean(_overwritten(log)).rstrip("\n")
    return [fit(line, _TAIL_COLUMNS) for line in cleaned.split("\n")]


def _overwritten(log: str) -> str:
    """Of a line that was written again and again, as progress bars are, the last state."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in log.split("\n"))


def _row(number: int, task: BackgroundTask, now: float, theme: Theme) -> str:
    style = {TaskState.FAILED: ERROR, TaskState.INTERRUPTED: ERROR}.get(task.state, 0)
    style = BOLD if task.is_active else style
    state = theme.paint(f"{state_word(task):<11}", style)
    title = fit(clean_line(task.title), _TITLE_COLUMNS)
    parts = [title, took(task, now)]
    if task.summary and not task.is_active:
        parts.append(fit(clean_line(task.summary), _TITLE_COLUMNS))
    return f"{number:>3}  {state} {f' {theme.symbols.dot} '.join(parts)}"


def _zone(name: str) -> ZoneInfo | tzinfo:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return UTC
