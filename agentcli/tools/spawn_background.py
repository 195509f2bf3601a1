"""``spawn_background``: start a tool and go on without waiting for it (BG-1, BG-8).

Law: the call is judged as what it runs: policy, hooks, gates and preview are those of the target
(``stands_for``); nothing runs in the background that its tool would not have been allowed to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from agentcli.domain.background import BackgroundRefused, Schedule, Spawned, SpawnWish
from agentcli.domain.errors import ArgumentProblem, InvalidArguments
from agentcli.domain.tools import Effect, ToolContext, ToolHints, ToolOutput
from agentcli.tools._base import Arguments, BaseTool
from agentcli.tools.files.paths import one_line

_MAX_TITLE = 120
_MISSING = {
    "tool": "is missing: the name of the tool that is to run, such as bash",
    "args": "is missing: an object with the arguments of that tool",
}


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


class SpawnTool(BaseTool[SpawnArguments]):
    """Returns at once with the names of the run."""

    name = "spawn_background"
    display_name = "Background"
    description = (
        "Start a tool in the background (bash for a long command or a server, task) and go on: "
        "a message tells when it ends, so do not poll. No time limit; cd and exports are not kept."
    )
    params = SpawnArguments
    effect = Effect.EXEC
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

    def stands_for(self, args: SpawnArguments) -> tuple[str, Mapping[str, Any]]:
        """What will run."""
        return args.tool, args.args

    def summary(self, args: SpawnArguments) -> str:
        """What starts, and that it does so in the background."""
        command = args.args.get("command")
        what = args.title or (command if isinstance(command, str) else "")
        when = "" if args.schedule is None else f", {_when(args.schedule)}"
        shown = f": {one_line(what, _MAX_TITLE)}" if what else ""
        return f"In the background{when}: {one_line(args.tool, 64)}{shown}"

    async def run(self, args: SpawnArguments, ctx: ToolContext) -> ToolOutput:
        """The names of the run, or of the schedule."""
        if ctx.background is None:
            return ToolOutput.error("There are no background runs here. Call the tool directly.")
        wish = SpawnWish(
            args.tool,
            args.args,
            " ".join((args.title or "").split())[:_MAX_TITLE],
            args.schedule,
            args.signal_on_completion,
            ctx.judged,
        )
        try:
            spawned = await ctx.background.spawn(wish)
        except BackgroundRefused as error:
            return ToolOutput.error(str(error))
        if spawned.schedule is not None:
            planned = _planned(spawned.schedule)
            shown = f"next: {planned['next_at']}"
            return ToolOutput.json(planned, display=shown, summary="scheduled")
        summary, shown = f"started as {spawned.run_id}", f"log: {spawned.log_path}"
        return ToolOutput.json(_started(spawned), display=shown, summary=summary)


def _started(spawned: Spawned) -> dict[str, Any]:
    return {
        "run_id": spawned.run_id,
        "task_id": spawned.task_id,
        "log_path": spawned.log_path,
        "result_path": spawned.result_path,
    }


def _when(schedule: Any) -> str:
    """What was asked for, as it was: the person should see it before it is checked."""
    given = schedule if isinstance(schedule, dict) else {}
    zone = given.get("time_zone")
    at, cron = given.get("scheduled_at"), given.get("cron_expression")
    if at is not None and cron is None:
        return f"at {one_line(str(at), 64)}"
    if cron is not None and at is None:
        return f"whenever it is {one_line(str(cron), 64)} ({one_line(str(zone or 'UTC'), 64)})"
    return f"on the schedule {one_line(str(schedule), 128)}"


def _planned(schedule: Schedule) -> dict[str, Any]:
    from datetime import UTC, datetime

    at = schedule.next_at
    return {
        "schedule_id": schedule.id,
        "task_id": schedule.id,
        "next_at": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(),
        "time_zone": schedule.time_zone,
    }


TOOL = SpawnTool()
