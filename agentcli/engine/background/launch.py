"""What may run in the background: the checks before anything starts, each with its own text.

Law: a run is started with arguments that its tool has validated, and is judged by the policy as
what it runs (SEC-3, BG-1).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from agentcli.domain.background import BackgroundRefused
from agentcli.domain.errors import InvalidArguments
from agentcli.domain.hooks import HookVerdict, Permission
from agentcli.domain.messages import ResultStatus, ToolCall
from agentcli.domain.tools import BackgroundTool, StandIn, Tool, ToolBox
from agentcli.domain.values import frozen
from agentcli.engine.arguments.problems import gated
from agentcli.engine.gates import Passage

SPAWN = "spawn_background"


@frozen
class Launch:
    """A tool that will run, its validated ``args`` and the ``arguments`` they were made of."""

    tool: Tool
    args: Any
    arguments: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.definition.name

    @property
    def background(self) -> BackgroundTool:
        """The tool, as what can run in the background."""
        return cast("BackgroundTool", self.tool)

    def call(self, call_id: str) -> ToolCall:
        """The call that it amounts to."""
        return ToolCall(call_id, self.name, dict(self.arguments))


def look_through(
    tool: Tool, args: Any, toolbox: ToolBox, passage: Passage
) -> tuple[Launch | None, str, ResultStatus | None]:
    """What a call of ``tool`` has run in its place: that is what is gated and judged.

    Where it may not run: ``None``, why, and the status of the result if it is no error.
    """
    try:
        name, arguments = cast("StandIn", tool).stands_for(args)
        launch = check_launch(toolbox, name, arguments)
        check_schedule(getattr(args, "schedule", None))
    except BackgroundRefused as error:
        return None, str(error), None
    if passage.allowed is not None and launch.name not in passage.allowed:
        return None, gated(launch.name, passage), ResultStatus.REFUSED
    return launch, "", None


def check_schedule(schedule: object) -> None:
    """Raises ``BackgroundRefused`` for one that is wrong, before anybody is asked about it."""
    if schedule is not None:
        from agentcli.engine.background.schedule_times import read_timing

        read_timing(schedule, time.time())


def check_launch(toolbox: ToolBox, name: str, arguments: Mapping[str, Any]) -> Launch:
    """The tool with its arguments validated. Raises ``BackgroundRefused``."""
    if not name.strip():
        raise BackgroundRefused("tool is missing: name the tool that is to run, such as bash.")
    if name == SPAWN:
        raise BackgroundRefused(f"{SPAWN} cannot start itself: name the tool that is to run.")
    tool = toolbox.get(name)
    able = ", ".join(each.name for each in toolbox.definitions if each.hints.background)
    can = f"These can run in the background: {able}." if able else "None can here."
    if tool is None:
        raise BackgroundRefused(f"There is no tool {name!r}. {can}")
    if not tool.definition.hints.background or not hasattr(tool, "run_background"):
        raise BackgroundRefused(f"{name} cannot run in the background; call it directly. {can}")
    try:
        parse = getattr(tool, "parse_background", tool.parse)
        return Launch(tool, parse(arguments), arguments)
    except InvalidArguments as error:
        wrong = "; ".join(f"{problem.field}: {problem.problem}" for problem in error.problems)
        raise BackgroundRefused(f"args do not fit {name}: {wrong}. Nothing was started.") from None


def both(inner: HookVerdict, outer: HookVerdict, call: ToolCall) -> HookVerdict:
    """What hooks have said of what will run and of the call that has it run, made one.

    ``call`` has the arguments that the first of them may have changed. Only a hook that knows
    what will run can allow it.
    """
    permission, reason = inner.permission, inner.reason
    if outer.permission is Permission.ASK:
        permission, reason = outer.permission, outer.reason
    updated = outer.updated_input
    if updated is None and inner.updated_input is not None:
        updated = call.arguments
    return replace(
        outer,
        context=(*inner.context, *outer.context),
        notices=(*inner.notices, *outer.notices),
        permission=permission,
        reason=reason,
        updated_input=updated,
    )
