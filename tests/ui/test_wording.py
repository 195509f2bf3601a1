"""Numbers in words; what is not known is called unknown."""

from __future__ import annotations

import re

import pytest

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.domain.events import (
    AgentEvent,
    Compacted,
    CompactionStarted,
    CompactionTrigger,
    ContextTransformed,
    GateList,
    ModelFellBack,
    OutputCapRaised,
    RetryWait,
    StepStart,
    ToolGateConflictResolved,
    WrappingUp,
)
from agentcli.domain.messages import Usage
from agentcli.ui import wording
from agentcli.ui.rows import columns_of, fit


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60, "1 min 0 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "just now"), (90, "1 min ago"), (7200, "2 h ago"), (200_000, "2 d ago")],
)
def test_ages(seconds: float, text: str) -> None:
    assert wording.age(seconds) == text


@pytest.mark.spec("LOOP-6", "COST-1", "UI-13")
def test_unknown_is_not_nought() -> None:
    assert wording.cost(None) == "unknown"
    assert [wording.cost(0.0), wording.cost_said(0.0)] == ["free", "free"]
    assert [wording.cost(0.00003), wording.cost_said(0.5)] == ["<$0.0001", "cost $0.50"]
    assert wording.count(None) == "unknown"
    assert wording.tokens(Usage()) == "tokens unknown"
    assert wording.tokens(Usage(None, 5)) == "unknown in, 5 out"
    assert wording.tokens(Usage(1000, 1_500_000, 400)) == "1.4k in (400 cached), 1.5M out"


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("short", 10, "short"),
        ("too long here", 8, "too lon…"),
        ("日本語", 5, "日本…"),
        ("ab", 0, ""),
        ("日本", 1, "…"),
    ],
)
def test_text_is_cut_to_columns(text: str, columns: int, shown: str) -> None:
    assert fit(text, columns) == shown
    assert columns_of(shown) <= max(columns, 0)


LIMITED = ProviderError("rate limited", kind=ErrorKind.RATE_LIMIT)
BUSY = ProviderError("overloaded", kind=ErrorKind.OVERLOADED)


@pytest.mark.spec("STR-2", "STR-9")
def test_a_wait_counts_down_and_a_long_one_says_until_when() -> None:
    assert wording.retry(RetryWait(BUSY, 2, 3, 4.0)) == "Retrying in 4 s (2/3) · overloaded"
    assert wording.retry(RetryWait(BUSY, 2, 3, 4.0), 1.2) == "Retrying in 1 s (2/3) · overloaded"
    assert wording.retry(RetryWait(BUSY, 2, 3, 4.0), -1).startswith("Retrying in 0 s")
    long = wording.retry(RetryWait(LIMITED, 1, 3, 3600.0))
    assert re.fullmatch(r"Waiting until \d\d:\d\d for the rate limit \(1/3\) · rate limited", long)


@pytest.mark.parametrize(
    ("event", "part"),
    [
        (OutputCapRaised(8192, 32_768), "cut at 8.2k tokens; asking again with 32.8k"),
        (ModelFellBack("a/b", "c/d", BUSY), "c/d answers from now on"),
        (CompactionStarted(CompactionTrigger.OVERFLOW), "the context is full"),
        (
            Compacted(CompactionTrigger.WINDOW, 40, 6, 160_000, 9000, "", ""),
            "40 messages became 6, about 160.0k tokens became 9.0k",
        ),
        (WrappingUp("steps"), "asked to finish"),
        (
            ToolGateConflictResolved(
                1,
                "plan",
                (GateList("plan", 2, True, ("a",)), GateList("user", 1, False, ("b",))),
                (),
            ),
            "all of plan, user; plan decides",
        ),
    ],
)
def test_what_the_engine_does_by_itself_is_told(event: AgentEvent, part: str) -> None:
    assert part in (wording.news(event) or "")


def test_what_is_no_news_is_not_told() -> None:
    assert wording.news(StepStart(1)) is None
    assert wording.news(ContextTransformed("prune", 1, 1, 2, 1)) is None


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0 s"), (9.9, "9 s"), (61, "1 min 1 s")])
def test_what_runs_is_told_in_whole_seconds(seconds: float, text: str) -> None:
    assert wording.elapsed(seconds) == text
