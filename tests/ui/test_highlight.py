"""Colours for code never change the code."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui.highlight import Highlighter
from agentcli.ui.theme import COMMENT, KEYWORD, STRING

LINES = st.lists(
    st.sampled_from(
        ["def f():", "  '''doc", "x'''", "/* c", "*/ int x;", "# c", "", "\t", "a = 'b"]
    )
    | st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=20),
    max_size=12,
)


@pytest.mark.spec("UI-1")
@settings(max_examples=60)
@given(LINES, st.sampled_from(["python", "c", "bash", "json", "html", "no-such-language", ""]))
def test_the_characters_of_each_line_come_back(lines: list[str], language: str) -> None:
    highlighter = Highlighter(language)
    for line in lines:
        assert "".join(text for text, _ in highlighter.line(line)) == line


@pytest.mark.spec("UI-1")
def test_a_string_or_comment_over_several_lines_keeps_its_colour() -> None:
    python = Highlighter("python")
    assert ("def", KEYWORD) in python.line("def f():")
    python.line('    """first')
    assert python.line("    if else") == [("    if else", STRING)]
    python.line('    """')
    assert ("if", KEYWORD) in python.line("    if x:")
    c = Highlighter("c")
    c.line("/* a")
    assert c.line("int b") == [("int b", COMMENT)]
