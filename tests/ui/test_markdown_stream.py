"""Streaming Markdown: the same result for every cut, at linear cost, never taking back."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui.markdown_stream import MAX_TABLE_LINES, Highlighter, MarkdownStream
from agentcli.ui.theme import COMMENT, KEYWORD, PLAIN, STRING, Theme
from tests.ui.markdown_texts import CUTS, MARKDOWN, pieces

COLOR = Theme(color=True, attributes=True, live=True)


def render(chunks: Sequence[str], theme: Theme = PLAIN, columns: int = 60) -> str:
    stream = MarkdownStream(theme, lambda: columns)
    return "".join([*map(stream.feed, chunks), stream.finish()])


@pytest.mark.spec("UI-1")
@settings(max_examples=400)
@given(MARKDOWN, CUTS)
def test_every_cut_gives_what_the_whole_gives(text: str, cuts: list[int]) -> None:
    whole = render([text], COLOR)
    assert render(pieces(text, cuts), COLOR) == whole
    assert render(list(text), COLOR) == whole


@pytest.mark.spec("UI-1")
@settings(max_examples=150)
@given(MARKDOWN)
def test_the_result_is_plain_again_after_each_line_and_without_attributes_plain(text: str) -> None:
    for line in render([text], COLOR).split("\n"):
        codes = re.findall(r"\x1b\[([\d;]*)m", line)
        assert not codes or codes[-1] == "0"
    assert "\x1b" not in render([text])


@pytest.mark.spec("UI-1")
def test_text_appears_before_its_line_is_complete() -> None:
    stream = MarkdownStream(PLAIN, lambda: 80)
    assert stream.feed("Hello wor") == "Hello wor"
    assert stream.feed("ld and **bo") == "ld and "
    assert stream.feed("ld** it is") == "bold it is"


@pytest.mark.spec("UI-1")
def test_code_appears_line_by_line_and_as_it_is() -> None:
    stream = MarkdownStream(COLOR, lambda: 80)
    stream.feed("```python\n")
    first = stream.feed("def f(x):\n    return '*a*'")
    assert re.sub(r"\x1b\[[\d;]*m", "", first) == "def f(x):\n"
    assert "\x1b[" in first
    code = "x = 1   \n\ttabbed\n" + "wide " * 100 + "\n"
    assert render(["```\n" + code + "```\n"]) == "```\n" + code + "```\n"


@pytest.mark.spec("UI-1")
def test_what_is_copied_is_the_text_itself() -> None:
    paragraph = "word " * 100 + "end"
    assert render([paragraph], columns=20) == paragraph + "\n"
    assert render([f"- {paragraph}\n"], columns=20) == f"• {paragraph}\n"


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Title\ntext", "# Title\ntext\n"),
        ("a\n\n\n\nb\n\n\n", "a\n\nb\n"),
        ("\n\na", "a\n"),
        ("- a\n  - b\n1. c", "• a\n  • b\n1. c\n"),
        ("> q **b**\n>> deep", "│ q b\n│ │ deep\n"),
        ("> ```\n> code\n> ```\nout", "│ ```\n│ code\n│ ```\nout\n"),
        ("1. x\n\n   ```sh\n   ls\n     -l\n   ```", "1. x\n\n```sh\nls\n  -l\n```\n"),
        ("[text](http://evil.example)", "text (http://evil.example)\n"),
        ("[http://a.b](http://a.b)", "http://a.b\n"),
        ("![pic](p.png)", "pic (p.png)\n"),
        ("2 * 3 * 4 snake_case_name", "2 * 3 * 4 snake_case_name\n"),
        ("**a *b* c** ~~d~~ `e*f`", "a b c d e*f\n"),
        ("a &lt;b&gt; &#27;[31m &nosuch;", "a <b> [31m &nosuch;\n"),
        ("\\*no\\* **open", "*no* **open\n"),
        ("    code *x*\n", "    code *x*\n"),
        ("| a |\nplain", "| a |\nplain\n"),
    ],
)
def test_what_each_construct_looks_like(text: str, shown: str) -> None:
    assert render([text]) == shown


@pytest.mark.spec("UI-1")
def test_a_table_is_aligned_where_it_fits_and_told_in_lines_where_it_does_not() -> None:
    text = "| Name | Count |\n|---|---:|\n| 日本 | 7 |\n| long name | 12345 |\n"
    assert render([text], columns=40).split("\n")[:4] == [
        "Name      │ Count",
        "──────────┼──────",
        "日本      │     7",
        "long name │ 12345",
    ]
    narrow = render([text], columns=12)
    assert "Name: long name\nCount: 12345" in narrow


@pytest.mark.spec("UI-1")
def test_a_table_cell_is_wrapped_between_words_and_lost_nowhere() -> None:
    cell = " ".join(f"word{n}" for n in range(30))
    out = render([f"| k | v |\n|---|---|\n| a | {cell} |\n"], columns=40)
    assert all(len(line) <= 40 for line in out.split("\n"))
    assert re.findall(r"word\d+", out) == cell.split()


@pytest.mark.spec("UI-1")
def test_an_endless_table_is_shown_in_parts() -> None:
    stream = MarkdownStream(PLAIN, lambda: 60)
    stream.feed("| a | b |\n|---|---|\n")
    shown = stream.feed("| 1 | 2 |\n" * (MAX_TABLE_LINES + 5))
    assert shown.count("1 │ 2") > MAX_TABLE_LINES / 2


@pytest.mark.slow
@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    "unit",
    [
        "word ",
        "**b** `c` ",
        "*a ",
        "[x",
        "`",
        "- item\n",
        "> q\n",
        "|",
        "-",
        " ",
        "```\nx\n",
        "&",
        "<a",
        "#",
    ],
)
def test_a_long_text_of_anything_in_tiny_chunks_comes_through(unit: str) -> None:
    """Quadratic cost would pass the test's time limit by far."""
    text = unit * (200_000 // len(unit))
    render([text[at : at + 4] for at in range(0, len(text), 4)], COLOR)


# --- Colours for code never change the code


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
