"""``/context`` and the report of a compaction, as lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentcli.domain.events import Compacted, CompactionTrigger
from agentcli.domain.messages import Usage
from agentcli.domain.reports import ContextPart, ContextReport, HeavyResult
from agentcli.engine.context.report import (
    ASSISTANT,
    DOCUMENTS,
    RESULTS,
    SUMMARY,
    SYSTEM,
    TOOLS,
    USER,
)
from agentcli.ui.session_lines import compacted_lines, context_lines
from agentcli.ui.theme import PLAIN, SPOKEN, Theme

REPORT = ContextReport(
    model="anthropic/m",
    window=200_000,
    used=50_000,
    compacts_at=160_000,
    is_measured=True,
    parts=(
        ContextPart("system prompt", 1_000, 1),
        ContextPart("tool results", 49_000, 12),
        ContextPart("summary", 0, 0),
    ),
    heaviest=(HeavyResult("c", "bash", "pytest -q\x1b[2J", 20_000, 0.006, left_out=False),),
)


@pytest.mark.spec("CMP-5")
def test_each_part_has_a_bar_its_tokens_and_its_share_and_the_rest_is_free() -> None:
    lines = context_lines(REPORT, PLAIN)
    assert lines[0] == "anthropic/m  50.0k of 200.0k tokens (25 %, measured)"
    rows = {line[:21].strip(): line for line in lines}
    assert "1.0k   0.5%" in rows["system prompt"]
    assert "49.0k  24.5%  (12)" in rows["tool results"]
    assert "150.0k  75.0%" in rows["free"]
    assert rows["free"].count("●") == 18 and rows["system prompt"].count("●") == 1
    assert "summary" not in rows
    assert "Old messages are summarised after 110.0k more tokens; /compact does it now." in lines


@pytest.mark.spec("CMP-5", "UI-1")
@pytest.mark.parametrize("columns", [40, 60, 79])
def test_rows_fit_a_narrow_window(columns: int) -> None:
    rows = [line for line in context_lines(REPORT, PLAIN, columns) if "%" in line or "bash" in line]
    assert all(len(row) < columns for row in rows[1:])
    assert next(row for row in rows if row.startswith("free")).count("●") >= 3


@pytest.mark.spec("UI-1")
def test_every_part_stands_apart_from_its_bar() -> None:
    names = (SYSTEM, DOCUMENTS, TOOLS, SUMMARY, USER, ASSISTANT, RESULTS)
    parts = tuple(ContextPart(name, 1_000, 1) for name in names)
    rows = context_lines(replace(REPORT, parts=parts), PLAIN, 40)
    assert all(any(row.startswith(f"{name} ") for row in rows) for name in names)


@pytest.mark.spec("UI-10")
def test_what_is_read_aloud_has_no_bars() -> None:
    spoken = Theme(color=False, attributes=False, live=False, symbols=SPOKEN)
    text = "\n".join(context_lines(REPORT, spoken))
    assert "Tool:" not in text and "--" not in text and "150.0k" in text


@pytest.mark.spec("COST-1")
def test_the_largest_results_say_what_they_cost_each_time_and_are_safe_to_print() -> None:
    line = context_lines(REPORT, PLAIN)[-1]
    assert "bash pytest -q" in line and "20.0k" in line and "$0.0060 each time" in line
    assert "\x1b" not in line


def test_an_unknown_price_says_nothing_and_a_full_window_says_what_comes() -> None:
    heavy = HeavyResult("c", "bash", "x", 20_000, None, left_out=True)
    full = ContextReport("m", 1_000, 1_200, 800, False, (), (heavy,), left_out=3)
    text = "\n".join(context_lines(full, PLAIN))
    assert "(120 %, estimated)" in text and "$" not in text and "(left out)" in text
    assert "with the next step" in text and "3 old tool results left out" in text


@pytest.mark.spec("CMP-2", "CMP-3")
def test_a_compaction_says_what_it_kept_and_folded_and_the_way_back() -> None:
    event = Compacted(
        CompactionTrigger.MANUAL, 40, 6, 90_000, 9_000, "the last 2 turns", "34 messages",
        Usage(8_000, 700),
    )  # fmt: skip
    text = "\n".join(compacted_lines(event, PLAIN))
    assert "Kept:   the last 2 turns" in text and "Folded: 34 messages" in text
    assert "8.0k in, 700 out" in text and "/compact undo" in text
