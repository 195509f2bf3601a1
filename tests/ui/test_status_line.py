"""The line at the bottom."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.messages import Usage
from agentcli.ui.rows import plain
from agentcli.ui.status_line import StatusLine, context_of, painted_lines, status_row, title_of
from agentcli.ui.theme import PLAIN, Theme

FULL = StatusLine(
    model="anthropic/claude-sonnet-4-5",
    mode="plan",
    context_used=84_000,
    context_size=200_000,
    tokens=312_400,
    cost_usd=0.1234,
    turns=3,
    title="mend\nthe parser",
    background=2,
)


@pytest.mark.spec("UI-6")
def test_before_there_is_a_session_it_is_empty() -> None:
    assert not plain(status_row(StatusLine(), 80, PLAIN).text).strip()


@pytest.mark.spec("UI-6")
def test_it_tells_all_there_is_and_leaves_out_the_least_first() -> None:
    assert plain(status_row(FULL, 130, PLAIN).text) == (
        "anthropic/claude-sonnet-4-5 · plan mode · 42% of 200.0k context · 312.4k tokens · $0.12"
        " · 2 in the background · mend the parser"
    )
    assert "tokens" not in status_row(FULL, 100, PLAIN).text
    assert plain(status_row(FULL, 80, PLAIN).text) == (
        "claude-sonnet-4-5 · plan mode · 42% of 200.0k context · 2 in the background"
    )
    assert "plan mode · 2 in the background" in plain(status_row(FULL, 72, PLAIN).text)
    quiet = replace(FULL, background=0)
    assert plain(status_row(quiet, 72, PLAIN).text).endswith("context · $0.12")
    assert plain(status_row(FULL, 40, PLAIN).text) == "anthropic/claude-sonnet-4-5 · plan mode"
    assert plain(status_row(FULL, 32, PLAIN).text) == "claude-sonnet-4-5 · plan mode"


@pytest.mark.spec("UI-13", "COST-1")
@pytest.mark.parametrize(
    ("usd", "turns", "said"),
    [(0.0, 1, "free"), (None, 1, "cost unknown"), (0.00001, 1, "<$0.0001"), (0.0, 0, "")],
)
def test_what_costs_nothing_or_nobody_knows_what_is_said_so(
    usd: float | None, turns: int, said: str
) -> None:
    shown = plain(status_row(StatusLine("m", cost_usd=usd, turns=turns), 80, PLAIN).text)
    assert said in shown and "$0.00 " not in shown and ("cost" in shown) is (usd is None)


@pytest.mark.spec("UI-6", "UI-10")
def test_a_mode_that_asks_less_is_told_before_all_else() -> None:
    assert plain(status_row(FULL, 20, PLAIN).text) == "plan mode"
    assert plain(status_row(replace(FULL, mode="default"), 20, PLAIN).text) == "claude-sonnet-4-5"


@pytest.mark.spec("UI-6")
def test_the_title_tells_the_same_of_the_session() -> None:
    assert title_of(FULL, "shop", PLAIN) == (
        "agentcli: mend the parser · anthropic/claude-sonnet-4-5 · plan mode"
        " · 42% of 200.0k context · $0.12 · 2 in the background"
    )
    assert title_of(StatusLine("m", "default"), "shop", PLAIN) == "agentcli: shop · m · default"


@pytest.mark.spec("UI-6", "COST-1")
def test_the_unknown_is_not_nought() -> None:
    assert "context" not in status_row(StatusLine("m", "default"), 80, PLAIN).text
    assert "unknown" in status_row(StatusLine("m", cost_usd=None, turns=1), 80, PLAIN).text
    assert context_of(Usage()) is None
    assert context_of(Usage(10, 5, 100, 20)) == 135


@pytest.mark.spec("SEC-10", "CLI-12")
@settings(max_examples=50)
@given(st.text(max_size=40), st.integers(1, 200))
def test_it_is_one_row_whatever_the_title_and_the_width(title: str, columns: int) -> None:
    row = status_row(StatusLine("m/日本", "yolo", 1, 2, 3, None, 1, title), columns, PLAIN)
    assert row.width <= columns
    assert "\n" not in row.text
    assert "\x1b" not in row.text


@pytest.mark.spec("EXT-10", "SEC-10")
def test_of_a_program_of_the_users_only_colours_and_text_are_shown() -> None:
    coloured = Theme(color=True, attributes=True, live=True)
    said = "\x1b[1;31mred\x1b[m \x1b]8;;http://x\x07link\x1b]8;;\x07\x1b[2J\u202e\x9b31m\n\n\x1b[0m \nb\r\nc\nd"
    assert painted_lines(said, coloured) == ["\x1b[1;31mred\x1b[m link\x1b[0m", "b", "c"]
    plain = Theme(color=False, attributes=False, live=True)
    assert painted_lines(said, plain) == ["red link", "b", "c"]
    assert painted_lines("", plain) == []
