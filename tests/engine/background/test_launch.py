"""What may run in the background, as whose call, and when it is due (BG-1, BG-8)."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.background import BackgroundRefused
from agentcli.domain.extensions.hooks import SILENT, HookVerdict, Permission
from agentcli.domain.messages import ToolCall
from agentcli.engine.background.launch import LATE_S, both, next_time, read_timing

CALL = ToolCall("c", "spawn_background", {"tool": "bash", "args": {"command": "changed"}})
ALLOW = HookVerdict(permission=Permission.ALLOW, reason="fine")
ASK = HookVerdict(permission=Permission.ASK, reason="look")


@pytest.mark.spec("SEC-3", "BG-1")
@pytest.mark.parametrize(
    ("inner", "outer", "permission"),
    [
        (SILENT, SILENT, None),
        (ALLOW, SILENT, Permission.ALLOW),
        (SILENT, ALLOW, None),  # it does not know what will run
        (ALLOW, ASK, Permission.ASK),
        (ASK, ALLOW, Permission.ASK),
    ],
)
def test_only_a_hook_that_knows_what_runs_allows_it(
    inner: HookVerdict, outer: HookVerdict, permission: Permission | None
) -> None:
    assert both(inner, outer, CALL).permission is permission


def test_what_both_say_is_heard_and_what_the_first_changed_stays_changed() -> None:
    inner = HookVerdict(context=("a",), notices=("n",), updated_input={"command": "changed"})
    outer = HookVerdict(context=("b",), blocked="no")
    said = both(inner, outer, CALL)
    assert (said.context, said.notices, said.blocked) == (("a", "b"), ("n",), "no")
    assert said.updated_input == CALL.arguments
    assert both(SILENT, SILENT, CALL).updated_input is None


BERLIN = "Europe/Berlin"
NOW = datetime.fromisoformat("2026-11-21T12:00:00+00:00").timestamp()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def following(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next times, as the clock on the wall there says."""
    found, moment = [], at(after)
    for _ in range(count):
        next_at = next_time(cron, zone, moment)
        assert next_at is not None and next_at > moment
        moment = next_at
        found.append(datetime.fromtimestamp(moment, ZoneInfo(zone)).isoformat(timespec="minutes"))
    return found


@pytest.mark.spec("BG-8")
@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("0 9 * * *", "schedule must be an object"),
        (["0 9 * * *"], "schedule must be an object"),
        (7, "schedule must be an object"),
        ({}, "neither cron_expression nor scheduled_at"),
        ({"time_zone": "UTC"}, "neither cron_expression nor scheduled_at"),
        (
            {"cron_expression": "* * * * *", "scheduled_at": "2030-01-01T00:00:00Z"},
            "both cron_expression and scheduled_at",
        ),
        ({"cron": "* * * * *"}, "schedule has no cron:"),
        ({"scheduled_at": "tomorrow at nine"}, "not an RFC 3339 time"),
        ({"scheduled_at": 1_900_000_000}, "not an RFC 3339 time"),
        ({"scheduled_at": "2030-01-31"}, "not an RFC 3339 time"),
        ({"scheduled_at": "2030-01-31T09:00:00"}, "not an RFC 3339 time"),
        ({"scheduled_at": "2030-01-31T09:00Z"}, "not an RFC 3339 time"),
        ({"scheduled_at": "2030-01-31T09:00:00+0100"}, "not an RFC 3339 time"),
        ({"scheduled_at": "2030-01-31T09:00:00+25:00"}, "not an RFC 3339 time"),
        ({"scheduled_at": "٢٠٣٠-01-31T09:00:00Z"}, "not an RFC 3339 time"),
        ({"scheduled_at": "2030-02-31T09:00:00Z"}, "is no time"),
        ({"scheduled_at": "9999-12-31T23:59:59-12:00"}, "is no time"),
        ({"scheduled_at": "2020-01-31T09:00:00Z"}, "has passed: it is 2026-11-21T12:00:00Z now"),
        ({"cron_expression": "* * * *"}, "4 fields, not 5"),
        ({"cron_expression": "0 * * * * *"}, "6 fields, not 5"),
        ({"cron_expression": "", "scheduled_at": " "}, "neither cron_expression nor scheduled_at"),
        (
            {"cron_expression": "* * * * *", "timezone": "UTC", "time_zone": "Europe/Oslo"},
            "two time zones",
        ),
        ({"cron_expression": "@daily"}, "1 fields, not 5"),
        ({"cron_expression": 5}, "must be a text"),
        ({"cron_expression": "61 * * * *"}, "bad minute"),
        ({"cron_expression": "* 24 * * *"}, "bad hour"),
        ({"cron_expression": "*/0 * * * *"}, "bad minute"),
        ({"cron_expression": "0 0 31 2 *"}, "bad day-of-month"),
        ({"cron_expression": f"{'1,' * 200}1 * * * *"}, "longer than 200"),
        ({"cron_expression": "* * * * *", "time_zone": "Mars/Olympus"}, "is not known"),
        ({"cron_expression": "* * * * *", "time_zone": "../../etc/passwd"}, "is not known"),
        ({"cron_expression": "* * * * *", "time_zone": "Europe"}, "is not known"),
        ({"cron_expression": "* * * * *", "time_zone": 1}, "is not known"),
        ({"cron_expression": "* * * * *", "time_zone": "localtime"}, "is not known"),
        ({"cron_expression": "* * * * *", "time_zone": "right/Europe/Berlin"}, "is not known"),
    ],
)
def test_each_mistake_in_a_schedule_has_an_error_of_its_own(schedule: Any, said: str) -> None:
    with pytest.raises(BackgroundRefused) as refused:
        read_timing(schedule, NOW)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.spec("BG-8")
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2030-01-31T09:00:00Z", "2030-01-31T09:00:00+00:00"),
        ("2030-01-31t09:00:00z", "2030-01-31T09:00:00+00:00"),
        ("2030-01-31 09:00:00.25+05:30", "2030-01-31T03:30:00.250+00:00"),
        ("2030-06-30T23:59:60Z", "2030-07-01T00:00:00+00:00"),
    ],
)
def test_a_time_is_read_as_rfc_3339_writes_it(text: str, instant: str) -> None:
    timing = read_timing({"scheduled_at": text, "cron_expression": None}, NOW)
    assert timing.next_at == at(instant)
    assert (timing.scheduled_at, timing.time_zone) == (text, "UTC")


def test_a_time_that_passed_while_somebody_was_asked_still_counts() -> None:
    text = datetime.fromtimestamp(NOW - LATE_S + 1, ZoneInfo("UTC")).isoformat()
    assert read_timing({"scheduled_at": text}, NOW).next_at < NOW


@pytest.mark.spec("BG-8")
def test_a_cron_expression_is_read_in_its_time_zone() -> None:
    timing = read_timing({"cron_expression": " 0  9 * * MON-FRI", "time_zone": "Asia/Tokyo"}, NOW)
    assert timing.next_at == at("2026-11-23T09:00:00+09:00")
    assert timing.cron_expression == "0 9 * * MON-FRI"
    other = {"cron_expression": "0 9 * * MON-FRI", "scheduled_at": "", "timezone": "Asia/Tokyo"}
    assert read_timing(other, NOW) == timing
    plain = read_timing({"cron_expression": "0 9 * * *"}, NOW)
    assert (plain.next_at, plain.time_zone) == (at("2026-11-22T09:00:00+00:00"), "UTC")


@pytest.mark.spec("BG-8")
def test_a_time_in_the_hour_that_is_skipped_runs_once_right_after_it() -> None:
    found = following("30 2 * * *", BERLIN, "2026-03-28T02:00:00+01:00", 3)
    assert found == ["2026-03-28T02:30+01:00", "2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]


@pytest.mark.spec("BG-8")
def test_a_time_in_the_hour_that_comes_twice_runs_once() -> None:
    found = following("30 2 * * *", BERLIN, "2026-10-25T00:00:00+02:00", 2)
    assert found == ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]
    again = following("0,15,30,45 2 * * *", BERLIN, "2026-10-25T02:10:00+01:00", 1)
    assert again == ["2026-10-26T02:00+01:00"]


def test_what_runs_all_day_long_goes_on_through_changes_of_the_clock() -> None:
    spring = following("*/30 * * * *", BERLIN, "2026-03-29T01:10:00+01:00", 3)
    assert spring == ["2026-03-29T01:30+01:00", "2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00"]
    autumn = following("0 * * * *", BERLIN, "2026-10-25T01:30:00+02:00", 3)
    assert autumn == ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T03:00+01:00"]


def test_the_last_of_february_may_be_years_away() -> None:
    assert following("0 0 29 2 *", "UTC", "2026-11-21T00:00:00+00:00", 1) == [
        "2028-02-29T00:00+00:00"
    ]


def test_a_clock_beyond_the_last_year_is_refused_and_breaks_nothing() -> None:
    with pytest.raises(BackgroundRefused):
        next_time("* * * * *", "UTC", 3e11)


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "59", "*/7", "5-10", "0,30"]),
    st.sampled_from(["*", "0", "2", "1-3", "*/6", "23"]),
    st.sampled_from(["*", "1", "29", "*/10", "L"]),
    st.sampled_from(["*", "2", "3,10", "*/4"]),
    st.sampled_from(["*", "0", "MON-FRI", "7", "5#1"]),
)
ZONES = [
    "UTC",
    BERLIN,
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
]


@settings(max_examples=150, deadline=None)
@given(FIELDS, st.sampled_from(ZONES), st.integers(1_300_000_000, 2_000_000_000))
def test_what_comes_next_lies_ahead_whatever_the_clock_says(
    fields: tuple[str, ...], zone: str, now: int
) -> None:
    found = next_time(" ".join(fields), zone, now)
    assert found is None or found > now


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789*/,-LW#MON \n٣é", max_size=30))
def test_any_text_is_a_cron_expression_or_refused(text: str) -> None:
    try:
        found = next_time(text, BERLIN, NOW)
    except BackgroundRefused:
        return
    assert found is None or found > NOW
