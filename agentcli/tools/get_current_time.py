"""``get_current_time``: the date and time, which a model cannot know."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from agentcli.domain.tools import Asks, ToolContext, ToolOutput
from agentcli.tools.common.base import Arguments, BaseTool, one_line


class TimeArguments(Arguments):
    """Arguments of ``get_current_time``."""

    timezone: str | None = Field(
        default=None, max_length=100, description='IANA name like "Europe/Oslo"; default: local'
    )


class TimeTool(BaseTool[TimeArguments]):
    """Tells the time."""

    name = "get_current_time"
    display_name = "Time"
    description = "The current date and time."
    params = TimeArguments
    asks = Asks.NOTHING
    concurrent = True
    group = "time"

    def parse(self, arguments: Mapping[str, Any]) -> TimeArguments:
        """``time_zone``, as schedules call it, is ``timezone`` too."""
        if "time_zone" in arguments and not arguments.get("timezone"):
            others = {name: value for name, value in arguments.items() if name != "time_zone"}
            arguments = others | {"timezone": arguments["time_zone"]}
        return super().parse(arguments)

    def summary(self, args: TimeArguments) -> str:
        """The time zone, if one was named."""
        return f"Time in {one_line(args.timezone, 40)}" if args.timezone else "Time"

    async def run(self, args: TimeArguments, _ctx: ToolContext) -> ToolOutput:
        """ISO 8601 with offset, weekday, zone; an unknown zone is an error with near names."""
        now = datetime.now(UTC)
        name = (args.timezone or "").strip()
        if not name:
            here = now.astimezone()
            return _told(here, here.tzname() or "local time")
        if name.upper() in {"UTC", "Z", "GMT"}:
            return _told(now, "UTC")
        try:
            return _told(now.astimezone(ZoneInfo(name)), name)
        except (ValueError, OSError, KeyError):
            return ToolOutput.error(_unknown(name))


def _told(now: datetime, zone: str) -> ToolOutput:
    text = f"{now.isoformat(timespec='seconds')} ({now:%A}, {zone})"
    return ToolOutput.text(text, summary=now.isoformat(" ", timespec="minutes"))


def _unknown(name: str) -> str:
    last = name.replace(" ", "_").casefold().rpartition("/")[2]
    near = sorted(zone for zone in available_timezones() if last and last in zone.casefold())[:3]
    hint = f"did you mean {', '.join(near)}?" if near else 'use an IANA name like "Europe/Oslo".'
    return f"Unknown time zone {one_line(name, 60)}: {hint}"


TOOL = TimeTool()
