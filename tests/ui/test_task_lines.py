"""Background runs and schedules as a person reads them (UI-6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentcli.domain.background import BackgroundTask, Schedule, TaskProgress, TaskState
from agentcli.ui.task_lines import bar, details, next_time, overview
from agentcli.ui.theme import PLAIN

NOW = 1_795_262_400.0  # 2026-11-21T12:00:00Z
RUN = BackgroundTask(
    run_id="bg_1",
    task_id="task_1",
    tool="bash",
    arguments={},
    title="the build",
    state=TaskState.RUNNING,
    created_at=NOW - 125,
    updated_at=NOW,
    log_path="/x/output.log",
)
PLAN = Schedule("sch_1", "bash", {}, "nightly", NOW, "0 3 * * *", next_at=NOW + 3600)


@pytest.mark.spec("UI-6")
def test_a_bar_tells_the_share_and_the_amount() -> None:
    assert bar(TaskProgress(5, 10, "files", "copying"), 10) == (
        "[#####-----] 50% (5 of 10 files) copying"
    )
    assert bar(TaskProgress(12, None, "MB")) == "12 MB"
    assert bar(TaskProgress(30, 10), 10).startswith("[##########] 100%")
    assert bar(TaskProgress(-1, 10), 10).startswith("[----------] 0%")
    assert bar(TaskProgress(1, 0)) == "1"


@pytest.mark.spec("UI-6", "BG-8")
def test_runs_and_schedules_are_listed_with_what_they_do() -> None:
    busy = replace(RUN, progress=TaskProgress(1, 4))
    over = replace(
        RUN, run_id="bg_2", state=TaskState.FAILED, finished_at=NOW - 60, summary="exit 3"
    )
    told = "\n".join(overview((over, busy), (PLAN,), {"bg_1": "compiling x.c"}, NOW, PLAIN))
    assert "  2  running     the build" in told and "for 2 min 5 s" in told
    assert "25% (1 of 4)" in told and "compiling x.c" in told
    assert "  1  failed      the build" in told and "1 min ago" in told and "exit 3" in told
    assert "sch_1  nightly" in told and "0 3 * * *" in told
    assert "next Sat 2026-11-21 13:00 (UTC)" in told
    assert overview((), (), {}, NOW, PLAIN) == ["No background runs and no schedules."]


@pytest.mark.spec("BG-8")
def test_the_next_time_is_told_by_the_clock_of_its_own_zone() -> None:
    assert (
        next_time(replace(PLAN, time_zone="Asia/Tokyo"), NOW) == "Sat 2026-11-21 22:00 (Asia/Tokyo)"
    )
    assert next_time(replace(PLAN, time_zone="No/Where"), NOW).startswith("Sat 2026-11-21 13:00")
    assert next_time(replace(PLAN, next_at=NOW - 1), NOW) == "due"
    assert next_time(replace(PLAN, next_at=None), NOW) == "never"
    assert next_time(replace(PLAN, next_at=1e18), NOW) == "unknown"


@pytest.mark.spec("SEC-10")
def test_what_a_run_has_printed_reaches_the_terminal_cleaned() -> None:
    evil = replace(RUN, title="a\x1b]0;owned\x07b", summary="s\x1b[2J")
    log = "".join(f"line {number}\n" for number in range(50)) + "\x1b[31mred\x1b[0m\n"
    shown = "\n".join(details(evil, log, NOW, PLAIN))
    listed = "\n".join(overview((evil,), (), {"bg_1": "\x1b[2Jgone"}, NOW, PLAIN))
    assert "\x1b" not in shown + listed and "\x07" not in shown + listed
    assert "line 49" in shown and "line 20" not in shown and "lines above" in shown
    assert "red" in shown and "/x/output.log" in shown
    assert "(no output)" in "\n".join(details(RUN, "", NOW, PLAIN))


@pytest.mark.spec("UI-6")
def test_the_end_of_a_log_without_line_breaks_is_no_flood() -> None:
    told = details(RUN, "z" * 200_000 + "\nend\n", NOW, PLAIN)
    assert sum(map(len, told)) < 1_000 and told[-2] == "  end"


@pytest.mark.spec("UI-6")
def test_of_a_line_that_was_overwritten_the_last_state_is_shown() -> None:
    log = "begun\r\n" + "".join(f"{share}%\r" for share in range(101)) + "\nend"
    assert details(RUN, log, NOW, PLAIN)[2:-1] == ["  begun", "  100%", "  end"]
