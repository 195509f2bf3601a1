"""The lines that ``agent run`` writes to stderr."""

from __future__ import annotations

import pytest

from agentcli.domain.errors import AgentError
from agentcli.domain.events import (
    AgentEvent,
    Notice,
    RetryWait,
    StepStart,
    ToolAnnounced,
    ToolFinished,
    ToolRefused,
    ToolStarted,
)
from agentcli.domain.messages import ResultStatus, TextPart, ToolCall, ToolResult
from agentcli.headless.output import Progress

CALL = ToolCall("c", "bash", {})


def lines(*events: AgentEvent) -> list[str]:
    out: list[str] = []
    progress = Progress(out.append, tools=True, quiet=False)
    for event in events:
        progress.on_event(event)
    return out


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
