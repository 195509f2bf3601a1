"""Numbers in words; what is not known is called unknown."""

from __future__ import annotations

import pytest

from agentcli.domain.messages import Usage
from agentcli.ui import wording
from agentcli.ui.width import columns_of, fit


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


@pytest.mark.spec("LOOP-6", "COST-1")
def test_unknown_is_not_nought() -> None:
    assert wording.cost(None) == "unknown"
    assert wording.cost(0.0) == "$0.00"
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
