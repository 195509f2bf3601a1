"""Events as lines: what a person reads of a call, an error, a wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentcli.domain.errors import AgentError, ErrorKind, ProviderError
from agentcli.domain.events import (
    Cancelled,
    Failed,
    Notice,
    Outcome,
    RetryWait,
    ToolFinished,
    TurnSummary,
)
from agentcli.domain.messages import ResultStatus, TextPart, ToolCall, ToolResult, Usage
from agentcli.tools.common.base import bounded
from agentcli.ui import render
from agentcli.ui.diff import diff_lines, is_diff
from agentcli.ui.rows import columns_of, plain
from agentcli.ui.theme import PLAIN, Theme

COLOR = Theme(color=True, attributes=True, live=True)
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -9,3 +9,3 @@ def f\n same\n-old\n+new\n same\n"


def finished(
    text: str,
    status: ResultStatus = ResultStatus.OK,
    *,
    summary: str = "",
    display: str = "",
    name: str = "bash",
) -> ToolFinished:
    call = ToolCall("c", name, {})
    return ToolFinished(
        call, ToolResult("c", name, (TextPart(text),), status), summary, 2.04, display
    )


@pytest.mark.spec("UI-2")
def test_a_call_shows_its_line_outcome_duration_and_the_end_of_its_output() -> None:
    text = "\n".join(f"line {n}" for n in range(9)) + "\n[exit code 0, 2.0 s]"
    assert render.tool_lines(finished(text, summary="exit 0 · 2.0 s"), "Run make", PLAIN) == [
        "● Run make",
        "  └ exit 0 · 2.0 s",
        "    … 4 earlier lines",
        *(f"    line {n}" for n in range(4, 9)),
    ]


@pytest.mark.spec("UI-2", "CAN-1")
@pytest.mark.parametrize(
    ("status", "outcome"),
    [(ResultStatus.CANCELLED, "cancelled"), (ResultStatus.ERROR, "failed: bash was stopped")],
)
def test_what_a_call_had_printed_when_it_was_stopped_stays(
    status: ResultStatus, outcome: str
) -> None:
    text = "bash was stopped after 2.0 s; side effects are possible. It had printed:\n"
    stopped = finished(text + "\n".join(f"line {n}" for n in range(6)), status)
    _, said, *below = render.tool_lines(stopped, "Run make", PLAIN)
    assert said.startswith(f"  └ {outcome}")
    assert below == ["    … 1 earlier line", *(f"    line {n}" for n in range(1, 6))]
    nothing = finished("It had not started: nothing was done.", status)
    assert len(render.tool_lines(nothing, "Run make", PLAIN)) == 2


@pytest.mark.spec("UI-2", "CAN-6")
def test_a_sub_agent_that_was_stopped_shows_its_steps_and_not_its_id() -> None:
    text = "Cancelled by user\nIt was stopped after 2.0 s. It had printed:\n"
    text += "session 01a2075f-3415-725c-af63-50b87898fd82\nRead a.py\n"
    stopped = finished(text, ResultStatus.CANCELLED, name="task")
    shown = ["  └ cancelled · 2.0 s", "    Read a.py"]
    assert render.tool_lines(stopped, "Task: Review", PLAIN)[1:] == shown


@pytest.mark.spec("UI-2")
def test_a_plan_that_was_answered_is_read_as_markdown_and_what_is_hidden_in_it_is_shown() -> None:
    plan = (
        "## Steps\n\n1. **Fix** `a.py`\u202e\n\n| file | why |\n|---|---|\n| a.py | it is wrong |\n"
    )
    done = finished("x", summary="approved", display=plan, name="present_plan")
    assert render.tool_lines(done, "Present plan", PLAIN, 30)[2:] == [
        "    Steps",
        "    ",
        "    1. Fix a.py<U+202E>",
        "    ",
        "    file │ why",
        "    ─────┼────────────",
        "    a.py │ it is wrong",
    ]


@pytest.mark.spec("UI-2")
def test_the_lines_that_the_model_was_not_given_are_counted_among_the_earlier_ones() -> None:
    short, _ = bounded("\n".join(str(n) for n in range(1, 100_001)), "c")
    shown = render.tool_lines(finished(f"{short}\n[exit code 0, 2.0 s]"), "Run seq", PLAIN)
    assert shown[2:] == [
        "    … 99,995 earlier lines",
        *(f"    {n}" for n in range(99_996, 100_001)),
    ]


@pytest.mark.spec("UI-2")
def test_a_sub_agent_that_failed_says_why_once() -> None:
    text = "It broke.\nIts last words were: so far\n[transcript: agent sessions show s1]"
    failed = finished(text, ResultStatus.ERROR, summary="It broke.", name="task")
    assert render.tool_lines(failed, "Task: Review", PLAIN)[1:] == [
        "  └ failed: It broke. · 2.0 s",
        "    Its last words were: so far",
    ]


@pytest.mark.spec("UI-2")
@pytest.mark.parametrize("theme", [PLAIN, COLOR])
def test_the_answer_of_a_sub_agent_shows_how_it_begins_and_no_markers(theme: Theme) -> None:
    text = (
        "# Report\n\nTwo *real* problems in **four** modules:\n\n1. `a.py`\n2. b\n3. c\n\n> note\n"
    )
    place = "\n[transcript: agent sessions show 01a2075f-3415-725c-af63-50b87898fd82]"
    done = finished(text + place, summary="done in 3 steps", name="task")
    assert [plain(line) for line in render.tool_lines(done, "Task: Review", theme)] == [
        "● Task: Review",
        "  └ done in 3 steps · 2.0 s",
        "    Report",
        "    Two real problems in four modules:",
        "    1. a.py",
        "    2. b",
        "    3. c",
        "    … 1 more line (Ctrl-O shows all)",
    ]


@pytest.mark.spec("UI-2")
@pytest.mark.parametrize("text", ["", "(no output)\n[exit code 1, 0.0 s]"])
def test_a_call_that_failed_without_a_word_has_its_line_too(text: str) -> None:
    event = finished(text, ResultStatus.ERROR, summary="exit 1 · 2.0 s")
    assert render.tool_lines(event, "Run false", PLAIN) == [
        "✗ Run false",
        "  └ failed: exit 1 · 2.0 s",
    ]


@pytest.mark.spec("UI-2")
def test_a_file_that_was_read_is_not_printed() -> None:
    event = finished("1 secret\n2 text", summary="2 lines", name="read_file")
    assert render.tool_lines(event, "Read a.py", PLAIN) == ["● Read a.py", "  └ 2 lines · 2.0 s"]


@pytest.mark.spec("UI-2")
def test_a_diff_has_signs_line_numbers_and_colour() -> None:
    assert is_diff(DIFF)
    assert diff_lines(DIFF, PLAIN) == [
        "x.py",
        "    9   same",
        "   10 - old",
        "   10 + new",
        "   11   same",
    ]
    painted = diff_lines(DIFF, COLOR)
    assert "\x1b[31m- \x1b[0m" in painted[2]
    assert "\x1b[32m+ \x1b[0m" in painted[3]


@pytest.mark.spec("UI-2")
def test_a_diff_of_several_files_and_hunks_keeps_its_numbers() -> None:
    text = DIFF + "@@ -40 +40 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1,2 @@\n c\n+--- d\n"
    lines = diff_lines(text, PLAIN)
    assert "   40 - a" in lines
    assert "y" in lines
    assert lines[-1] == "    2 + --- d"


@pytest.mark.spec("UI-2")
def test_a_long_diff_is_cut_and_says_so() -> None:
    body = "".join(f"+line {n}\n" for n in range(200))
    lines = render.preview(
        finished("ok", display=f"--- a/x\n+++ b/x\n@@ -0,0 +1,200 @@\n{body}"), PLAIN
    )
    assert len(lines) == render.DIFF_LINES + 1
    assert lines[-1] == "  200 + line 199"
    assert lines[-render.DIFF_TAIL - 1] == "… 161 more lines (Ctrl-O shows all)"


@pytest.mark.spec("UI-10")
@pytest.mark.parametrize(
    ("status", "sign", "word"),
    [
        (ResultStatus.OK, "●", "done"),
        (ResultStatus.ERROR, "✗", "failed"),
        (ResultStatus.REFUSED, "✗", "refused"),
        (ResultStatus.CANCELLED, "■", "cancelled"),
        (ResultStatus.INTERRUPTED, "■", "interrupted"),
    ],
)
def test_how_a_call_ended_is_said_by_sign_and_word(
    status: ResultStatus, sign: str, word: str
) -> None:
    lines = render.tool_lines(finished("because", status), "Run x", PLAIN)
    assert lines[0].startswith(sign)
    assert lines[1].startswith(f"  └ {word}")


@pytest.mark.spec("UI-13", "UI-2")
def test_what_is_meant_for_the_model_is_not_what_the_user_reads() -> None:
    told = "No such file: x.py. Use list_directory to see what there is.\nMore advice."
    lines = render.tool_lines(finished(told, ResultStatus.ERROR), "Read x.py", PLAIN)
    assert lines == ["✗ Read x.py", "  └ failed: No such file: x.py. · 2.0 s"]
    refused = finished("bash was not run: do not try it again", ResultStatus.REFUSED)
    assert render.tool_lines(refused, "Run `rm x`", PLAIN)[1:] == ["  └ refused · 2.0 s"]


@pytest.mark.spec("UI-13")
def test_the_users_message_is_on_a_tint_over_the_full_width_and_wrapped_between_words() -> None:
    soft = Theme(color=True, attributes=True, live=True, soft="dark")
    rows = render.prompt_lines("find out why the total is wrong\n\nand fix it", soft, 20)
    assert [plain(row).rstrip() for row in rows] == [
        "> find out why the", "  total is wrong", "", "  and fix it",
    ]  # fmt: skip
    assert all(row.endswith("\x1b[K\x1b[0m") or columns_of(plain(row)) == 20 for row in rows)
    assert render.prompt_lines("one", PLAIN, 20) == ["> one"]
    unmarked = render.prompt_lines("one", soft, 20, fills=False)
    assert "\x1b[K" not in unmarked[0]


@pytest.mark.spec("UI-2")
def test_a_command_is_highlighted_and_stays_what_it_is() -> None:
    line = render.call_line("Run `for x in a; do echo $x; done` outside the sandbox", COLOR)
    assert plain(line) == "● Run `for x in a; do echo $x; done` outside the sandbox"
    assert line.count("\x1b[") > 6


@pytest.mark.spec("SEC-10")
def test_what_tools_and_models_say_cannot_steer_the_terminal() -> None:
    evil = "\x1b]52;c;eA==\x07\x1b[2Jx\rfake"
    event = finished(evil, ResultStatus.ERROR, summary=evil, display=evil)
    lines = render.tool_lines(event, evil, PLAIN)
    lines += render.failed_lines(
        Failed(TurnSummary(Outcome.ERROR), AgentError(evil, evil), evil), PLAIN
    )
    lines += [render.notice_line(Notice(evil), PLAIN)]
    lines += [render.retry_line(RetryWait(AgentError(evil), 1, 2, 1), PLAIN)]
    lines += diff_lines(f"--- {evil}\n+++ b/{evil}\n@@ -1 +1 @@\n-{evil}\n+{evil}\n", PLAIN)
    assert not any(set(line) & set("\x1b\r\x07\n") for line in lines)


@pytest.mark.spec("STR-2")
def test_a_retry_says_how_long_which_attempt_why_and_how_to_stop() -> None:
    event = RetryWait(ProviderError("overloaded", kind=ErrorKind.OVERLOADED), 2, 3, 4.2)
    assert render.retry_line(event, PLAIN) == "Retrying in 4 s (2/3) · overloaded · Ctrl-C to stop"


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(
    "kind", ["rate_limit", "overloaded", "server", "network", "stalled", "empty"]
)
def test_how_to_stop_a_wait_is_seen_however_long_the_error_is(kind: str) -> None:
    long = "anthropic at gateway.internal.example.com is overloaded (529): " + "words " * 40
    event = RetryWait(ProviderError(long, kind=ErrorKind(kind)), 2, 3, 4.0)
    line = render.retry_line(event, PLAIN)
    assert line.startswith("Retrying in 4 s (2/3) · ") and line.endswith(" · Ctrl-C to stop")
    assert len(line) <= 70 and "gateway" not in line
    unknown = render.retry_line(RetryWait(AgentError(long), 2, 3, 4.0), PLAIN)
    assert len(unknown) <= 79 and unknown.endswith("… · Ctrl-C to stop")


@pytest.mark.spec("STR-2")
def test_a_wait_of_less_than_a_second_is_not_told_as_none() -> None:
    event = RetryWait(ProviderError("busy", kind=ErrorKind.EMPTY), 1, 2, 0.25)
    assert render.retry_line(event, PLAIN).startswith("Retrying in 0.2 s (1/2)")


@pytest.mark.spec("STR-9", "FAIL-1")
def test_a_failure_shows_advice_and_what_could_not_be_saved() -> None:
    event = Failed(TurnSummary(Outcome.ERROR), AgentError("disk full", "free some"), "my prompt")
    assert render.failed_lines(event, PLAIN) == [
        "✗ disk full",
        "  free some",
        "  This could not be saved anywhere:",
        "my prompt",
    ]


def test_the_other_lines() -> None:
    assert render.cancelled_line(
        Cancelled(TurnSummary(Outcome.CANCELLED), "user"), PLAIN
    ).startswith("■ Cancelled.")
    assert render.notice_line(Notice("n", is_warning=False), PLAIN) == "n"
    assert render.notice_line(Notice("warning: look"), PLAIN) == "! look"
    summary = TurnSummary(Outcome.DONE, 2, Usage(1200, 5), 65, 1, "", 0.004)
    assert render.turn_line(summary, PLAIN) == "1 min 5 s · 1.2k in, 5 out · $0.0040"
    unasked = TurnSummary(Outcome.DONE, 2, Usage(0, 0), 0.04, 1, "", 0.0)
    assert render.turn_line(unasked, PLAIN) == ""
    free = replace(summary, cost_usd=0.0)
    assert render.turn_line(free, PLAIN) == "1 min 5 s · 1.2k in, 5 out"
    assert render.limit_line(summary, PLAIN) is None
    assert "continue" in (render.limit_line(TurnSummary(Outcome.MAX_STEPS), PLAIN) or "")


@pytest.mark.spec("UI-2")
@pytest.mark.parametrize(("seconds", "shown"), [(0.04, ""), (0.1, " · 0.1 s")])
def test_what_took_no_time_has_no_duration(seconds: float, shown: str) -> None:
    event = replace(finished("text", summary="9 lines", name="read_file"), duration_s=seconds)
    assert render.outcome_lines(event, "Read a", PLAIN)[0] == f"  └ 9 lines{shown}"
    event = replace(finished("text", summary="exit 0 · 0.0 s"), duration_s=seconds)
    assert render.outcome_lines(event, "Run a", PLAIN)[0] == "  └ exit 0"
