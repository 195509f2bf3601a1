"""``spawn_background`` and what looks after its runs: output, end, list (BG-1..8).

Law: a call that starts something is judged as what it runs: policy, hooks, gates and preview are
those of the target (``stands_for``); nothing runs in the background that its tool would not have
been allowed to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from agentcli.domain.background import (
    Background,
    BackgroundRefused,
    BackgroundTask,
    Schedule,
    SpawnWish,
    TaskOutput,
    TaskState,
    Wake,
)
from agentcli.domain.clean import as_object
from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.sandbox import Access
from agentcli.domain.tools import Asks, StandIn, ToolContext, ToolHints, ToolOutput
from agentcli.domain.values import frozen
from agentcli.tools.common.base import Arguments, BaseTool, one_line, plain_text

_SHORT_ID = 6
_MAX_TITLE = 120
_MISSING = {
    "tool": "is missing: the name of the tool that is to run, such as bash",
    "args": "is missing: an object with the arguments of that tool",
}
PAGE_CHARS = 20_000
MAX_PAGE_CHARS = 28_000
MAX_WAIT_S = 600.0
MAX_ENDED = 50
MAX_TEXT = 300
MAX_LINE = 60


class SpawnArguments(Arguments):
    """Arguments of ``spawn_background``."""

    tool: str = Field(description="Such as bash")
    args: dict[str, Any] = Field(description="Its arguments")
    title: str | None = Field(default=None, description="In a few words")
    schedule: Any = Field(
        default=None,
        description=(
            'Run later: {"cron_expression": "0 9 * * 1-5"} or {"scheduled_at": '
            '"2030-01-31T09:00:00Z"}; "time_zone" (IANA, default UTC)'
        ),
    )
    signal_on_completion: bool = Field(default=True, description="Tell you when it ends")
    wake: Literal["silent", "completion", "message"] = Field(
        default="completion", description="While idle you react to"
    )


@frozen
class BackgroundContext(ToolContext):
    """The background runs of the session."""

    background: Background


@frozen
class SpawnContext(BackgroundContext):
    """What the policy has judged, too: the run opens no other paths and runs nowhere else."""

    judged: tuple[Path, ...] | None
    access: Access | None
    approved: bool


class SpawnTool(BaseTool[SpawnArguments]):
    """Returns at once with the names of the run."""

    name = "spawn_background"
    display_name = "Background"
    description = (
        "Start a tool in the background (bash for a long command or a server, task) and go on: "
        "a message tells when it ends, so do not poll. No time limit; cd and exports are not kept."
    )
    params = SpawnArguments
    asks = Asks.ANYTHING
    context = SpawnContext
    group = "background"
    hints = ToolHints(destructive=True, open_world=True)

    def parse(self, arguments: Mapping[str, Any]) -> SpawnArguments:
        """Validated arguments; what is missing is said in words."""
        missing = tuple(
            ArgumentProblem(name, text)
            for name, text in _MISSING.items()
            if arguments.get(name) in (None, "")
        )
        if missing:
            raise InvalidArguments(missing)
        return super().parse(arguments)

    def stands_for(self, args: SpawnArguments) -> StandIn:
        """What will run."""
        return StandIn(args.tool, args.args, args.schedule)

    def summary(self, args: SpawnArguments) -> str:
        """What starts, and that it does so in the background."""
        command = args.args.get("command")
        what = args.title or (command if isinstance(command, str) else "")
        when = "" if args.schedule is None else f", {_when(args.schedule)}"
        shown = f": {one_line(what, _MAX_TITLE)}" if what else ""
        return f"In the background{when}: {one_line(args.tool, 64)}{shown}"

    async def run(self, args: SpawnArguments, ctx: SpawnContext) -> ToolOutput:
        """The names of the run, or of the schedule."""
        wish = SpawnWish(
            args.tool,
            args.args,
            " ".join((args.title or "").split())[:_MAX_TITLE],
            args.schedule,
            args.signal_on_completion,
            Wake(args.wake),
            ctx.judged,
            ctx.access,
            ctx.approved,
        )
        try:
            spawned = await ctx.background.spawn(wish)
        except BackgroundRefused as error:
            return ToolOutput.error(str(error))
        if spawned.schedule is not None:
            planned = _planned(spawned.schedule)
            shown = f"next: {planned['next_at']}"
            return ToolOutput.json(planned, display=shown, summary="scheduled")
        started = {
            "run_id": spawned.run_id,
            "task_id": spawned.task_id,
            "log_path": spawned.log_path,
            "result_path": spawned.result_path,
        }
        number = spawned.number
        summary, shown = f"started as run {number}", f"/tail {number} shows its output"
        return ToolOutput.json(started, display=shown, summary=summary)


def _when(schedule: Any) -> str:
    """What was asked for, as it was: the user should see it before it is checked."""
    given = as_object(schedule)
    zone = given.get("time_zone") or given.get("timezone")
    at, cron = given.get("scheduled_at") or None, given.get("cron_expression") or None
    if at is not None and cron is None:
        return f"at {one_line(str(at), 64)}"
    if cron is not None and at is None:
        return f"whenever it is {one_line(str(cron), 64)} ({one_line(str(zone or 'UTC'), 64)})"
    return f"on the schedule {one_line(str(schedule), 128)}"


def _planned(schedule: Schedule) -> dict[str, Any]:
    at = schedule.next_at
    return {
        "schedule_id": schedule.id,
        "task_id": schedule.id,
        "next_at": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(),
        "time_zone": schedule.time_zone,
    }


class OutputArguments(Arguments):
    """Arguments of ``task_output``."""

    run_id: str = Field(min_length=1, description="bg_…")
    offset: int = Field(default=0, description="Negative counts from the end")
    limit: int = Field(default=PAGE_CHARS, ge=1, le=MAX_PAGE_CHARS, description="Characters")
    wait_s: float = Field(default=0, ge=0, le=MAX_WAIT_S, description="Seconds to wait for more")


class OutputTool(BaseTool[OutputArguments]):
    """Waits where it is told to, and no longer than the turn."""

    name = "task_output"
    display_name = "Background output"
    description = "Read the log of a background run, a page at a time."
    params = OutputArguments
    concurrent = True
    asks = Asks.NOTHING
    context = BackgroundContext
    group = "background"
    timeout_s = None

    def summary(self, args: OutputArguments) -> str:
        """Which run."""
        wait = f", waiting up to {args.wait_s:g} s" if args.wait_s else ""
        return f"Output of {_short(args.run_id)}{wait}"

    async def run(self, args: OutputArguments, ctx: BackgroundContext) -> ToolOutput:
        """A page, with how the run stands."""
        offset = args.offset
        try:
            if offset < 0:
                size = (await ctx.background.output(args.run_id, 0, 1, 0, ctx.cancel)).size
                offset = max(0, size + offset)
            page = await ctx.background.output(
                args.run_id, offset, args.limit, args.wait_s, ctx.cancel
            )
        except BackgroundRefused as error:
            return ToolOutput.error(str(error))
        if ctx.cancel.cancelled:
            return ToolOutput.cancelled(page.text)
        head = _head(page)
        text = plain_text(page.text.encode("utf-8", "replace"))
        return ToolOutput.text(f"{head}\n{text}" if text else head, summary=head.strip("[]"))


def _head(page: TaskOutput) -> str:
    end = page.offset + len(page.text)
    where = f"characters {page.offset}-{end} of {page.size}"
    if page.next_offset is None:
        more = "that is all"
    elif page.next_offset < page.size:
        more = f"more from offset {page.next_offset}"
    else:
        more = f"nothing more yet, go on from offset {page.next_offset}"
    if not page.text:
        where = "no output" if not page.size else f"nothing from {page.offset} of {page.size}"
    return f"[{_status(page.task)}; {where}; {more}]"


class CancelArguments(Arguments):
    """Arguments of ``task_cancel``."""

    run_id: str = Field(min_length=1, description="bg_…, or the id of a schedule")


class CancelTool(BaseTool[CancelArguments]):
    """Ends only what this session has started, so it needs no approval."""

    name = "task_cancel"
    display_name = "Cancel"
    description = "End a background run, or a schedule."
    params = CancelArguments
    asks = Asks.NOTHING
    context = BackgroundContext
    group = "background"
    hints = ToolHints(idempotent=True)

    def summary(self, args: CancelArguments) -> str:
        """Which run."""
        return f"Cancel {_short(args.run_id)}"

    async def run(self, args: CancelArguments, ctx: BackgroundContext) -> ToolOutput:
        """How it stands now."""
        try:
            ended = await ctx.background.cancel(args.run_id)
        except BackgroundRefused as error:
            return ToolOutput.error(str(error))
        if isinstance(ended, Schedule):
            row = _schedule_row(ended) | {"status": "canceled"}
            return ToolOutput.json(row, display=f"schedule: {ended.title}", summary="ended")
        if ended.is_active:
            return ToolOutput.error(f"{ended.run_id} was asked to end and has not ended yet.")
        shown = _task_line(ended)
        return ToolOutput.json(_task_row(ended), display=shown, summary=_status(ended))


class ListArguments(Arguments):
    """Arguments of ``list_tasks``."""

    ended: int = Field(default=10, ge=0, le=MAX_ENDED, description="How many ended ones")


class ListTasksTool(BaseTool[ListArguments]):
    """What is active, and the newest of what has ended."""

    name = "list_tasks"
    display_name = "Background runs"
    description = "List background runs and schedules."
    params = ListArguments
    concurrent = True
    asks = Asks.NOTHING
    context = BackgroundContext
    group = "background"

    async def run(self, args: ListArguments, ctx: BackgroundContext) -> ToolOutput:
        """One row each."""
        tasks, schedules = ctx.background.tasks(), ctx.background.schedules()
        active = [task for task in tasks if task.is_active]
        ended = [task for task in tasks if not task.is_active]
        shown = ended[-args.ended :] if args.ended else []
        rows: dict[str, Any] = {
            "active": [_task_row(task) for task in active],
            "ended": [_task_row(task) for task in shown],
            "schedules": [_schedule_row(schedule) for schedule in schedules],
        }
        if len(ended) > len(shown):
            rows["ended_not_shown"] = len(ended) - len(shown)
        lines = [_task_line(task) for task in (*active, *shown)]
        lines += [_schedule_line(schedule) for schedule in schedules]
        summary = f"{len(active)} active, {len(ended)} ended"
        return ToolOutput.json(rows, display="\n".join(lines) or "none", summary=summary)


# --- runs and schedules as the model and the user read them ---


def _task_row(task: BackgroundTask) -> dict[str, Any]:
    """What is known of a run, without what is empty."""
    progress = None
    if task.progress is not None:
        known = task.progress
        progress = {"current": known.current, "total": known.total, "unit": known.unit}
    row = {
        "run_id": task.run_id,
        "title": one_line(task.title, MAX_TEXT),
        "tool": task.tool,
        "status": _status(task),
        "started": moment(task.created_at),
        "ended": moment(task.finished_at),
        "attempt": task.attempt if task.attempt > 1 else None,
        "detail": one_line(task.detail, MAX_TEXT) if task.is_active else None,
        "asks": one_line(task.asks.text, MAX_TEXT) if task.asks else None,
        "progress": progress if task.is_active else None,
        "summary": one_line(task.summary, MAX_TEXT),
        "error": one_line(task.error_message, MAX_TEXT),
        "log_path": task.log_path,
    }
    return {name: value for name, value in row.items() if value not in (None, "")}


def _schedule_row(schedule: Schedule) -> dict[str, Any]:
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


def _task_line(task: BackgroundTask) -> str:
    """A run, for the user."""
    known = task.progress if task.is_active else None
    total = f"/{known.total:g}" if known is not None and known.total else ""
    far = f" ({known.current:g}{total} {known.unit}".rstrip() + ")" if known is not None else ""
    return f"{_status(task):<11} {one_line(task.title, MAX_LINE)}{far}"


def _schedule_line(schedule: Schedule) -> str:
    """A schedule, for the user."""
    return f"{'scheduled':<11} {one_line(schedule.title, MAX_LINE)}: {moment(schedule.next_at)}"


def _short(run_id: str) -> str:
    """The end of an id, by which the user may name the run too."""
    return f"the run {one_line(run_id, 64)[-_SHORT_ID:]}"


def _status(task: BackgroundTask) -> str:
    """The state as it is written in ``result.json``."""
    return "canceled" if task.state is TaskState.CANCELLED else task.state.value


def moment(at: float | None) -> str | None:
    """Seconds since 1970 as RFC 3339, UTC; ``None`` also for what is no time."""
    try:
        return None if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return None


TOOLS = (SpawnTool(), OutputTool(), CancelTool(), ListTasksTool())
