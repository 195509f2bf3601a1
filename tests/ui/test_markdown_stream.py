"""Streaming Markdown: the same result for every cut, at linear cost, never taking back."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui.markdown_stream import MarkdownStream, Table
from agentcli.ui.rows import columns_of
from agentcli.ui.theme import PLAIN, Theme
from tests.ui.markdown_texts import CUTS, MARKDOWN, pieces

COLOR = Theme(color=True, attributes=True, live=True)


def render(chunks: Sequence[str], theme: Theme = PLAIN, columns: int = 60) -> list[str]:
    stream = MarkdownStream(theme, lambda: columns)
    rows = [row for chunk in chunks for row in stream.feed(chunk)]
    return rows + stream.finish()


def words_of(rows: Sequence[str]) -> list[str]:
    return re.sub(r"[│▎•]|\x1b\[[\d;]*m", " ", " ".join(rows)).split()


@pytest.mark.slow
@pytest.mark.spec("UI-1")
@settings(max_examples=200)
@given(st.lists(MARKDOWN, max_size=4).map("".join), CUTS, st.sampled_from([12, 40, 80]))
def test_every_cut_gives_what_the_whole_gives(text: str, cuts: list[int], columns: int) -> None:
    whole = render([text], COLOR, columns)
    stream = MarkdownStream(COLOR, lambda: columns)
    rows = []
    for piece in pieces(text, cuts):
        rows += stream.feed(piece)
        end = stream.tail()
        assert stream.tail() == end
    is_in_table = isinstance(stream._block, Table)  # whose rows come whole
    assert not text or is_in_table or rows + end == whole
    assert rows + stream.finish() == whole
    assert render(list(text), COLOR, columns) == whole


@pytest.mark.spec("UI-1")
@settings(max_examples=100)
@given(MARKDOWN)
def test_each_row_is_plain_at_its_end_and_without_attributes_all_of_it_is(text: str) -> None:
    for row in render([text], COLOR):
        codes = re.findall(r"\x1b\[([\d;]*)m", row)
        assert not codes or codes[-1] == "0"
    assert "\x1b" not in "".join(render([text]))


WORDS = st.lists(st.text("abcdefghé", min_size=1, max_size=12), min_size=1, max_size=120)
LEADS = ("", "- ", "1. ", "10. ", "> ", "# ", "> - ", "- > ", "- [ ] ", "- - ")


@pytest.mark.spec("UI-1")
@settings(max_examples=100)
@given(WORDS, st.sampled_from(LEADS), st.sampled_from([24, 40, 80, 120]))
def test_no_word_that_fits_is_split_and_no_row_is_too_wide(
    words: list[str], lead: str, columns: int
) -> None:
    rows = render([lead + " ".join(words)], columns=columns)
    assert all(columns_of(row) <= columns for row in rows)
    first = words_of([rows[0]])
    marks = len(first) - len([word for word in first if word in words])
    assert words_of(rows)[marks:] == words
    indent = len(rows[0]) - len(rows[0].lstrip(" │•☐10.2"))
    bars = rows[0].count("│")
    for row in rows[1:]:
        assert row.count("│") == bars
        assert len(row) - len(row.lstrip(" │")) == indent


@pytest.mark.spec("UI-1")
def test_what_may_change_is_the_tail_and_late_emphasis_changes_no_row_that_is_out() -> None:
    stream = MarkdownStream(PLAIN, lambda: 20)
    assert stream.feed("Hello wor") == []
    assert stream.tail() == ["Hello wor"]
    assert stream.feed("ld and **bo") == []
    assert stream.tail() == ["Hello world and **bo"]
    assert stream.feed("ld** it is\n") == []
    assert stream.tail() == ["Hello world and bold", "it is"]
    assert stream.feed("\n") == ["Hello world and bold", "it is"]
    opened = "**never closed " + "word " * 300
    rows = stream.feed(opened)
    assert len(rows) > 10
    assert "**never closed word" in rows[:3]
    assert " ".join(stream.feed("end** more\n\nx")).endswith("end** more")


@pytest.mark.spec("UI-1")
def test_code_appears_line_by_line_behind_a_bar_and_whole() -> None:
    stream = MarkdownStream(COLOR, lambda: 80)
    stream.feed("```python\n")
    (first,) = stream.feed("def f(x):\n    return '*a*'")
    assert re.sub(r"\x1b\[[\d;]*m", "", first) == "▎ def f(x):"
    assert "\x1b[" in first.removeprefix("\x1b[2m▎ ")
    code = "wide " * 30
    rows = render(["```\n" + code + "\nend\n```\n"], columns=40)
    assert rows[0].startswith("▎ wide")
    assert all(row.startswith("▎ ↪ wide") for row in rows[1:-1])
    assert words_of(rows).count("wide") == 30
    assert rows[-1] == "▎ end"


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize("columns", [24, 40, 80, 120])
def test_wide_signs_break_where_a_reader_expects_it(columns: int) -> None:
    text = "日本語の文章は、どこでも改行できます。しかし（括弧）は例外です。" * 5
    rows = render([text], columns=columns)
    assert "".join(rows) == text
    assert all(columns - 6 < columns_of(row) <= columns for row in rows[:-1])
    assert not [row for row in rows if row[0] in "、。）" or row.endswith("（")]
    family = "👩‍👩‍👧 "
    assert "".join(render([family * 40], columns=columns)).count(family.strip()) == 40


@pytest.mark.spec("UI-1")
def test_a_table_is_aligned_where_it_fits_and_told_in_lines_where_it_does_not() -> None:
    text = "| Name | Count |\n|---|---:|\n| 日本 | 7 |\n| long name | 12345 |\n"
    assert render([text], columns=40) == [
        "Name      │ Count",
        "──────────┼──────",
        "日本      │     7",
        "long name │ 12345",
    ]
    narrow = render([text], columns=9)
    assert "Name:" in narrow
    assert words_of(narrow)[-2:] == ["Count:", "12345"]


@pytest.mark.slow
@pytest.mark.spec("UI-1")
@settings(max_examples=100)
@given(st.lists(st.lists(WORDS.map(" ".join), min_size=3, max_size=3), max_size=16))
def test_a_tables_rows_come_as_they_are_and_every_word_stays_whole(table: list[list[str]]) -> None:
    source = "".join(f"| {' | '.join(row)} |\n" for row in [["k", "v", "w"], ["-"] * 3, *table])
    stream = MarkdownStream(PLAIN, lambda: 60)
    rows = stream.feed(source)
    assert bool(rows) == (len(table) >= 12)
    rows += stream.finish()
    assert all(columns_of(row) <= 60 for row in rows)
    shown = words_of(rows)
    for row in table:
        for cell in row:
            assert not [word for word in cell.split() if word not in shown]


@pytest.mark.spec("UI-1", "SEC-13")
def test_many_spaces_in_a_heading_or_a_table_are_read_at_once() -> None:
    spaces = " " * 30_000
    assert render([f"# a{spaces}x\n"])[0].startswith("a")
    assert "a" in render([f"| a |\n|-{spaces}x\n"])[0]


@pytest.mark.slow
@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    "unit",
    [
        "word ", "**b** `c` ", "*a ", "[x", "`", "- item\n", "> q\n", "|", "-", " ", "```\nx\n", "&",
        "<a", "#", "日本", "| a | b |\n", "\n", "x|",
    ],
)  # fmt: skip
def test_a_long_text_of_anything_in_tiny_chunks_comes_through(unit: str) -> None:
    """Quadratic cost would pass the test's time limit by far."""
    text = unit * (200_000 // len(unit))
    render([text[at : at + 4] for at in range(0, len(text), 4)], COLOR)
