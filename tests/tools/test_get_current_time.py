"""The time in the local and in named zones."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import available_timezones

import pytest

from agentcli.domain.tools import OutputKind
from agentcli.tools.get_current_time import TOOL
from tests.support.tool_context import text_of, tool_context

zones = pytest.mark.skipif(not available_timezones(), reason="no time zone data on this machine")


def told(tmp_path: Path, **arguments: str) -> str:
    return text_of(asyncio.run(TOOL.run(TOOL.parse(arguments), tool_context(tmp_path))))


@pytest.mark.spec("TOOL-5")
def test_local_time_has_an_offset_and_a_weekday(tmp_path: Path) -> None:
    text = told(tmp_path)
    match = re.fullmatch(r"(\S+) \((\w+day), .+\)", text)
    assert match is not None
    now = datetime.fromisoformat(match[1])
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)
    assert f"{now:%A}" == match[2]


@zones
@pytest.mark.spec("TOOL-5")
def test_a_named_zone_and_utc(tmp_path: Path) -> None:
    assert "+05:45 (" in told(tmp_path, timezone="Asia/Kathmandu")
    assert "+00:00 (" in told(tmp_path, timezone="utc")
    assert "+05:45 (" in told(tmp_path, time_zone="Asia/Kathmandu")


@zones
@pytest.mark.spec("LOOP-5")
@pytest.mark.parametrize(
    "zone", ["Oslo", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "a\0b", "."]
)
def test_an_unknown_zone_is_an_error_with_advice(tmp_path: Path, zone: str) -> None:
    output = asyncio.run(TOOL.run(TOOL.parse({"timezone": zone}), tool_context(tmp_path)))
    assert output.kind is OutputKind.TOOL_ERROR
    assert "Europe/Oslo" in text_of(output)
