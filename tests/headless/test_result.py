"""Which failure ends with which code, what the result calls it, and the lines on stderr."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO

import pytest

from agentcli.domain import errors
from agentcli.domain.errors import AgentError, ErrorKind, ProviderError
from agentcli.domain.events import (
    AgentEvent,
    Cancelled,
    Done,
    Failed,
    Notice,
    Outcome,
    RetryWait,
    StepStart,
    ToolAnnounced,
    ToolFinished,
    ToolRefused,
    ToolStarted,
    TurnSummary,
)
from agentcli.domain.messages import ResultStatus, TextPart, ToolCall, ToolResult
from agentcli.headless.errors import MEANINGS, ExitCode, exit_code_for
from agentcli.headless.result import Progress, RunEnd, ended_by, failed, signalled, timed_out


@pytest.mark.spec("CLI-6")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.SessionNotFound("x"), 2),
        (errors.CannotContinue("x"), 2),
        (errors.ConfigError("x"), 78),
        (errors.PersistenceError("x"), 74),
        (errors.SessionLocked("x"), 74),
        (errors.SessionDamaged("x"), 74),
        (errors.SessionTooNew("x"), 74),
        (errors.HistoryViolation("x"), 1),
        (AgentError("x"), 1),
        *((ProviderError("x", kind=kind), 75) for kind in ErrorKind if kind.retryable),
        (ProviderError("x", kind=ErrorKind.AUTH), 78),
        (ProviderError("x", kind=ErrorKind.BAD_REQUEST), 1),
        (ProviderError("x", kind=ErrorKind.CONTEXT_OVERFLOW), 1),
        (ProviderError("x", kind=ErrorKind.RATE_LIMIT, retryable=False), 1),
        (ValueError("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_error_has_its_code(error: Exception, code: int) -> None:
    assert exit_code_for(error) == code


@pytest.mark.spec("CLI-6")
def test_the_codes_are_those_of_the_contract() -> None:
    assert {int(code) for code in MEANINGS} == {0, 1, 2, 3, 4, 74, 75, 78, 129, 130, 143}
    assert set(MEANINGS) == set(ExitCode)


def summary(outcome: Outcome, limit: str = "") -> TurnSummary:
    return TurnSummary(outcome, limit=limit)


@pytest.mark.spec("CLI-5", "CLI-6")
@pytest.mark.parametrize(
    ("ending", "subtype", "code", "is_error"),
    [
        (ended_by(Done(summary(Outcome.DONE)), unattended=0), "success", 0, False),
        (ended_by(Done(summary(Outcome.WRAPPED_UP)), unattended=0), "success", 0, False),
        (ended_by(Done(summary(Outcome.DONE)), unattended=1), "error_approval_needed", 4, True),
        (ended_by(Done(summary(Outcome.MAX_TOKENS)), unattended=0), "error_max_tokens", 3, True),
        (
            ended_by(Done(summary(Outcome.MAX_STEPS, "steps")), unattended=1),
            "error_max_turns",
            3,
            True,
        ),
        (
            ended_by(Done(summary(Outcome.MAX_STEPS, "budget")), unattended=0),
            "error_max_budget_usd",
            3,
            True,
        ),
        (timed_out(summary(Outcome.CANCELLED), 5), "error_timeout", 3, True),
        (signalled(summary(Outcome.CANCELLED), ExitCode.SIGTERM), "cancelled", 143, True),
        (
            ended_by(Cancelled(summary(Outcome.CANCELLED), "outer"), unattended=0),
            "cancelled",
            1,
            True,
        ),
        (
            ended_by(Failed(summary(Outcome.ERROR), errors.PersistenceError("x")), unattended=0),
            "error_during_execution",
            74,
            True,
        ),
        (failed(errors.ConfigError("x")), "error_during_execution", 78, True),
    ],
)
def test_each_ending_has_its_subtype_and_code(
    ending: RunEnd, subtype: str, code: int, *, is_error: bool
) -> None:
    assert (ending.subtype, ending.code, ending.is_error) == (subtype, code, is_error)


def test_the_reason_is_a_word_for_programs() -> None:
    assert failed(errors.SessionLocked("x")).terminal_reason == "session_locked"
    assert failed(ProviderError("x", kind=ErrorKind.SERVER)).terminal_reason == "server"


# --- the lines that ``agent run`` writes to stderr ---

CALL = ToolCall("c", "bash", {})


def lines(*events: AgentEvent) -> list[str]:
    progress = Progress(lambda text: text, tools=True, quiet=False)
    with redirect_stderr(StringIO()) as out:
        for event in events:
            progress.on_event(event)
    return out.getvalue().splitlines()


def result(status: ResultStatus = ResultStatus.OK) -> ToolResult:
    return ToolResult("c", "bash", (TextPart("two\nlines"),), status)


@pytest.mark.spec("CLI-5")
def test_calls_and_waits_are_one_line_each() -> None:
    assert lines(
        StepStart(1),
        ToolAnnounced(CALL, "Run ls"),
        ToolStarted(CALL, "Run ls"),
        ToolFinished(CALL, result(), "exit 0", 1.0),
        RetryWait(AgentError("overloaded"), 1, 3, 2.0),
        Notice("careful"),
        Notice("by the way", is_warning=False),
    ) == [
        "* Run ls",
        "  exit 0 (1.0 s)",
        "Retrying in 2 s (1/3) · overloaded",
        "! careful",
        "by the way",
    ]


@pytest.mark.spec("CLI-5")
def test_an_outcome_names_its_call_where_it_does_not_stand_under_it() -> None:
    other, unknown = ToolCall("d", "bash", {}), ToolCall("e", "nosuch", {})
    assert lines(
        ToolStarted(CALL, "Run ls"),
        ToolStarted(other, "Run pwd"),
        ToolFinished(CALL, result(), "exit 0", 1.0),
        ToolFinished(other, result(), "exit 0", 1.0),
        ToolAnnounced(unknown, "nosuch"),
        ToolFinished(unknown, result(ResultStatus.ERROR), "", 0.0),
    ) == [
        "* Run ls",
        "* Run pwd",
        "  Run ls: exit 0 (1.0 s)",
        "  Run pwd: exit 0 (1.0 s)",
        "  nosuch: failed: two",
    ]


@pytest.mark.spec("CLI-7")
def test_a_refusal_is_told_once_with_its_reason() -> None:
    assert lines(
        ToolAnnounced(CALL, "Run rm"),
        ToolRefused(CALL, "use --allow-tool", unattended=True),
        ToolFinished(CALL, result(ResultStatus.REFUSED), "", 0.0),
    ) == ["! Run rm: nobody could be asked: use --allow-tool"]


@pytest.mark.spec("SEC-10")
def test_nothing_steers_the_terminal() -> None:
    evil = "\x1b[2Jx\ry"
    out = lines(
        ToolStarted(CALL, evil),
        ToolFinished(CALL, result(ResultStatus.ERROR), evil, 0),
        Notice(evil),
    )
    assert not any(set(line) & set("\x1b\r") for line in out)
