"""The input as rows."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.document import Document

from agentcli.repl.live_region import InputRows, Look, input_rows
from agentcli.ui.rows import plain
from agentcli.ui.theme import PLAIN


def shown(text: str, at: int | None = None, columns: int = 20, most: int = 5) -> InputRows:
    return input_rows(Document(text, at), Look(columns, most, "> ", "say"), PLAIN)


def texts(found: InputRows) -> list[str]:
    return [plain(row.text) for row in found.rows]


@pytest.mark.spec("UI-3")
def test_an_empty_input_shows_what_can_be_said_with_the_cursor_before_it() -> None:
    found = shown("")
    assert texts(found) == ["> say"]
    assert found.cursor == (0, 2)


@pytest.mark.spec("UI-3")
def test_lines_stand_below_each_other_and_long_ones_wrap() -> None:
    found = shown("one\n" + "x" * 20)
    assert texts(found) == ["> one", "  " + "x" * 18, "  xx"]
    assert found.cursor == (2, 4)
    assert shown("x" * 18).cursor == (1, 2)
    assert texts(shown("x" * 18)) == ["> " + "x" * 18, "  "]


@pytest.mark.spec("UI-3")
def test_only_the_rows_around_the_cursor_are_shown() -> None:
    text = "\n".join(f"line {n}" for n in range(100))
    found = shown(text)
    assert texts(found)[-1] == "  line 99"
    assert len(found.rows) == 5
    found = shown(text, 0)
    assert texts(found)[0] == "> line 0"
    assert found.cursor == (0, 2)


@pytest.mark.spec("SEC-6")
def test_what_cannot_be_seen_is_spelt_out() -> None:
    assert texts(shown("a\u202eb\x1b", columns=40)) == ["> a<U+202E>b<U+001B>"]


@pytest.mark.spec("CLI-12", "UI-3")
@settings(max_examples=100)
@given(
    st.text("ab \n日é\t\x00🎉", max_size=80),
    st.integers(0, 80),
    st.integers(1, 30),
    st.integers(1, 6),
)
def test_the_cursor_is_always_in_a_row_that_is_shown(
    text: str, at: int, columns: int, most: int
) -> None:
    found = shown(text, min(at, len(text)), columns, most)
    assert 1 <= len(found.rows) <= most
    assert 0 <= found.cursor.row < len(found.rows)
    assert 0 <= found.cursor.column < columns
    assert all(row.width <= max(columns, 2) for row in found.rows)


def test_a_text_of_a_million_lines_is_laid_out_in_little_time() -> None:
    document = Document("line\n" * 1_000_000, 2_500_000)
    assert document.lines[0] == "line"
    input_rows(document, Look(80, 10), PLAIN)  # the lines are split once and kept
    begun = time.process_time()
    for _ in range(10):
        input_rows(document, Look(80, 10), PLAIN)
    assert time.process_time() - begun < 5
