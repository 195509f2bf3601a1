"""What may run in the background, and when: the checks before anything starts, each with its text.

Laws. A run is started with arguments that its tool has validated, and is judged by the policy as
what it runs (SEC-3, BG-1). Of a cron expression the rules of Debian's cron hold where clocks are
changed (BG-8): what falls into the hour that is skipped runs right after it, a fixed time in the
hour that comes twice runs once (https://manpages.debian.org/stable/cron/cron.8.en.html). Nothing is
due before or at the time that it is asked for, whatever that time is, so that a clock that jumps
starts one run at most.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from agentcli.domain.background import BackgroundRefused
from agentcli.domain.errors import InvalidArguments
from agentcli.domain.extensions.hooks import HookVerdict, Permission
from agentcli.domain.messages import ResultStatus, ToolCall
from agentcli.domain.tools import PREFIX, StandIn, Tool, ToolBox
from agentcli.domain.values import frozen
from agentcli.engine.arguments.problems import gated, invalid, unknown_tool
from agentcli.engine.gates import Passage

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


SPAWN = "spawn_background"


@frozen
class Launch:
    """A tool that will run, its validated ``args`` and the ``arguments`` they were made of.

    ``when`` is its schedule as it was given, for the one who is to say yes.
    """

    tool: Tool
    args: Any
    arguments: Mapping[str, Any]
    field: str = "args"
    is_direct: bool = False
    when: str = ""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.definition.name

    def call(self, call_id: str) -> ToolCall:
        """The call that it amounts to."""
        return ToolCall(call_id, self.name, dict(self.arguments))


def look_through(
    target: StandIn, toolbox: ToolBox, passage: Passage
) -> tuple[Launch | None, str, ResultStatus | None]:
    """What a call has run in its place, ``target``: that is what is gated and judged.

    Where it may not run: ``None``, why, and the status of the result if it is no error.
    """
    if target.is_direct:
        return _in_place(target, toolbox, passage)
    try:
        launch = check_launch(toolbox, target.tool, target.arguments)
        if target.schedule is not None:
            read_timing(target.schedule, time.time())  # before the user is asked about it
            launch = replace(launch, when=json.dumps(target.schedule, ensure_ascii=False))
    except BackgroundRefused as error:
        return None, str(error), None
    if passage.allowed is not None and launch.name not in passage.allowed:
        return None, gated(launch.name, passage), ResultStatus.REFUSED
    return launch, "", None


def _in_place(
    target: StandIn, toolbox: ToolBox, passage: Passage
) -> tuple[Launch | None, str, ResultStatus | None]:
    """A tool that runs as the call itself: gated by its own name where the model is shown it."""
    tool, shown = toolbox.get(target.tool), [each.name for each in toolbox.definitions]
    if tool is None:
        return None, unknown_tool(target.tool, toolbox.near(target.tool), shown), None
    name = tool.definition.name
    if name in shown and not name.startswith(PREFIX):
        return None, f"{name} is one of your tools: call it directly.", None
    if passage.allowed is not None and name in shown and name not in passage.allowed:
        return None, gated(name, passage), ResultStatus.REFUSED
    try:
        args = tool.parse(target.arguments)
    except InvalidArguments as error:
        call = ToolCall("", name, dict(target.arguments))
        return None, invalid(call, tool.definition, error), None
    return Launch(tool, args, target.arguments, target.field, is_direct=True), "", None


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
    if not tool.definition.hints.background:
        raise BackgroundRefused(f"{name} cannot run in the background; call it directly. {can}")
    try:
        return Launch(tool, tool.parse_background(arguments), arguments)
    except InvalidArguments as error:
        wrong = "; ".join(f"{problem.field}: {problem.problem}" for problem in error.problems)
        raise BackgroundRefused(f"args do not fit {name}: {wrong}. Nothing was started.") from None


def both(inner: HookVerdict, outer: HookVerdict, call: ToolCall) -> HookVerdict:
    """What hooks have said of what will run and of the call that has it run, made one.

    ``call`` has the arguments that the first of them may have changed. Only a hook that knows
    what will run can allow it, with the arguments that it was told.
    """
    permission, reason = inner.permission, inner.reason
    if outer.permission is Permission.ASK:
        permission, reason = outer.permission, outer.reason
    elif outer.updated_input is not None and permission is Permission.ALLOW:
        permission = None
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


# --- when ----------------------------------------------------------------------------------


FIELDS = 5
LATE_S = 300.0
"""How long ago a time may be and still be meant: while the user was asked."""
_LONGEST = 200
_WAYS = 'exactly one of cron_expression ("0 9 * * 1-5") and scheduled_at ("2030-01-31T09:00:00Z")'
_NAMES = ("cron_expression", "scheduled_at", "time_zone")
_ZONE_NAMES = {"timezone": "time_zone"}  # what models write as well
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:(\d\d)(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_OF_ONE_MACHINE = re.compile(r"(localtime|posixrules|Factory)$|posix/|right/")  # not IANA's
_TRIES = 200  # times of the hour that comes twice, which have been


@frozen
class Timing:
    """When something starts. ``next_at`` is in seconds since 1970."""

    next_at: float
    cron_expression: str | None = None
    scheduled_at: str | None = None
    time_zone: str = "UTC"


def read_timing(value: object, now: float) -> Timing:
    """``value`` as the model gave it, at ``now``. Raises ``BackgroundRefused``."""
    if not isinstance(value, Mapping):
        raise BackgroundRefused(f"schedule must be an object with {_WAYS}.")
    if strange := [str(name)[:60] for name in value if name not in {*_NAMES, *_ZONE_NAMES}]:
        raise BackgroundRefused(
            f"schedule has no {', '.join(strange[:5])}: give {_WAYS}, and time_zone if need be."
        )
    given = _given(value)
    cron, at = given.get("cron_expression"), given.get("scheduled_at")
    if cron is not None and at is not None:
        raise BackgroundRefused("schedule has both cron_expression and scheduled_at: give one.")
    if cron is None and at is None:
        raise BackgroundRefused(
            f"schedule has neither cron_expression nor scheduled_at: give {_WAYS}."
        )
    zone = _zone(given.get("time_zone", "UTC"))
    if at is not None:
        return Timing(_moment(at, now), scheduled_at=str(at), time_zone=zone.key)
    if not isinstance(cron, str):
        raise BackgroundRefused('cron_expression must be a text such as "0 9 * * 1-5".')
    following = next_time(cron, zone.key, now)
    if following is None:
        raise BackgroundRefused(f"cron_expression {_shown(cron)} matches no time.")
    return Timing(following, cron_expression=" ".join(cron.split()), time_zone=zone.key)


def _given(value: Mapping[str, object]) -> dict[str, object]:
    """What says something: no nulls, and no empty texts, which stand for a field left out."""
    given: dict[str, object] = {}
    for written, meant in value.items():
        if meant is None or (isinstance(meant, str) and not meant.strip()):
            continue
        name = _ZONE_NAMES.get(written, written)
        if given.setdefault(name, meant) != meant:
            raise BackgroundRefused("schedule has two time zones: give time_zone alone.")
    return given


def next_time(cron_expression: str, time_zone: str, after: float) -> float | None:
    """The first time after ``after``; ``None`` for never. Raises ``BackgroundRefused``."""
    from cronsim import CronSim, CronSimError

    fields = cron_expression.split()
    wrong = f"cron_expression {_shown(cron_expression)} is not valid"
    if len(fields) != FIELDS:
        raise BackgroundRefused(
            f"{wrong}: it has {len(fields)} fields, not {FIELDS} (minute hour day month weekday)."
        )
    if len(cron_expression) > _LONGEST:
        raise BackgroundRefused(f"{wrong}: it is longer than {_LONGEST} characters.")
    zone = _zone(time_zone)
    try:
        start = datetime.fromtimestamp(after, zone)
        for found in islice(CronSim(" ".join(fields), start), _TRIES):
            if found.timestamp() > after:
                return found.timestamp()
    except (CronSimError, AssertionError, ValueError) as error:
        why = f"{error}".replace("Bad ", "bad ")
        raise BackgroundRefused(f"{wrong}: {why or 'bad field'}.") from None
    except OverflowError:  # beyond the last year there is
        return None
    return None


def _moment(text: object, now: float) -> float:
    found = _RFC_3339.fullmatch(text.strip().upper()) if isinstance(text, str) else None
    if found is None or not isinstance(text, str):
        raise BackgroundRefused(
            f"scheduled_at {_shown(text)} is not an RFC 3339 time with an offset, such as"
            ' "2030-01-31T09:00:00Z" or "2030-01-31T09:00:00+01:00".'
        )
    whole = text.strip().upper()
    leap = found[1] == "60"
    if leap:
        whole = f"{whole[: found.start(1)]}59{whole[found.end(1) :]}"
    try:
        moment = datetime.fromisoformat(whole) + timedelta(seconds=leap)
        at = moment.astimezone(UTC).timestamp()  # what no calendar of ours holds is refused
    except (ValueError, OverflowError) as error:
        raise BackgroundRefused(f"scheduled_at {_shown(text)} is no time: {error}.") from None
    if at < now - LATE_S:
        clock = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%SZ}"
        raise BackgroundRefused(f"scheduled_at {_shown(text)} has passed: it is {clock} now.")
    return at


def _zone(name: object) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    try:
        if isinstance(name, str) and name.strip() and not _OF_ONE_MACHINE.match(name.strip()):
            return ZoneInfo(name.strip())
    except (ValueError, OSError, KeyError):
        pass
    raise BackgroundRefused(
        f'time_zone {_shown(name)} is not known: give an IANA name such as "Europe/Oslo" or "UTC".'
    )


def _shown(value: object) -> str:
    text = " ".join(str(value).split())
    return f'"{text if len(text) <= _LONGEST // 2 else text[: _LONGEST // 2] + "…"}"'
