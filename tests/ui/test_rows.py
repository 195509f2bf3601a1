"""Painted lines in rows that end between words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui.rows import Wrap, columns_of, plain, wrap, wrap_line

TEXTS = st.lists(
    st.sampled_from(["word ", "longerword ", "  ", "é", "日本語", "、", "（", "e\u0301 ", "👍🏽", "x" * 30])
    | st.text("ab ", max_size=8)
).map("".join)  # fmt: skip


@pytest.mark.spec("UI-1")
@settings(max_examples=200)
@given(TEXTS, st.lists(st.integers(0, 200), max_size=8), st.sampled_from([9, 20, 40]))
def test_rows_depend_on_the_text_and_not_on_its_pieces(
    text: str, cuts: list[int], columns: int
) -> None:
    whole = wrap(text, columns, "  ")
    pieces = Wrap(columns, "", "  ")
    at = 0
    for cut in sorted(cut % (len(text) + 1) for cut in cuts):
        pieces.feed(text[at:cut])
        at = cut
    pieces.feed(text[at:])
    pieces.end_line()
    assert pieces.rows == whole
    assert all(columns_of(row) <= columns for row in whole)
    assert re.sub(r"\s", "", "".join(whole)) == re.sub(r"\s", "", text)


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("! a warning that is long", ["! a warning that", "  is long"]),
        ("  └ failed: no such file", ["  └ failed: no", "    such file"]),
        ("   12 + code of a line", ["   12 + code of", "      ↪ a line"]),
        ("1. first of all things", ["1. first of all", "   things"]),
        ("1) first of all things", ["1) first of all", "   things"]),
        ("  [>] first of all", ["  [>] first of", "      all"]),
        ("  [ ] first of all", ["  [ ] first of", "      all"]),
        ("  1 y  yes, run it", ["  1 y  yes, run", "       it"]),
        ("title   all that it says", ["title   all that", "        it says"]),
        ("id      123456789012", ["id", "  123456789012"]),
        ("1. a fact of it all  today", ["1. a fact of it", "   all  today"]),
        ("short", ["short"]),
    ],
)
def test_further_rows_stand_below_the_words_and_code_behind_a_mark(
    line: str, rows: list[str]
) -> None:
    assert wrap_line(line, 16, "↪") == rows
    painted = f"\x1b[1m{line}\x1b[0m"
    assert [plain(row) for row in wrap_line(painted, 16, "↪")] == rows
    assert all(row.endswith("\x1b[0m") for row in wrap_line(painted, 16, "↪"))
