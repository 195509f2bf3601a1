"""What Markdown looks like, example by example, however it was cut; and that nothing is lost.

The examples are written for this project; what CommonMark makes of a text is asked of
markdown-it-py, which rich brings along.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.theme import PLAIN, Theme
from tests.ui.markdown_texts import FRAGMENTS

COLOR = Theme(color=True, attributes=True, live=True)
RULE = "─" * 40


def render(text: str, size: int = 0, theme: Theme = PLAIN) -> str:
    """``text`` in chunks of ``size`` characters; 0: whole."""
    stream = MarkdownStream(theme, lambda: 60)
    chunks = [text[at : at + size] for at in range(0, len(text), size)] if size else [text]
    return "\n".join(row for rows in [*map(stream.feed, chunks), stream.finish()] for row in rows)


EXAMPLES = {
    # headings
    "Title\n=====\ntext": "Title\n\ntext",
    "Sub\n---\ntext": "Sub\n\ntext",
    "= not\n==": "= not",
    "====\ntext": "====\ntext",
    "a\n\n===": "a\n\n===",
    "### *x* y\n#no": "x y\n\n#no",
    "text\n# Head\ntext": "text\n\nHead\n\ntext",
    # rules
    "* * *\n- - -\n___": f"{RULE}\n\n{RULE}\n\n{RULE}",
    "- ***\n- x": f"• {RULE}\n• x",
    # paragraphs and line breaks
    "a **bold\ntext** b": "a bold\ntext b",
    "see [the\ndocs](http://x.y) now": "see the\ndocs (http://x.y) now",
    "`code\nspan` x": "code span x",
    "hard\\\nbreak": "hard\nbreak",
    "end\\": "end\\",
    "one<br>two<br/>three": "one\ntwo\nthree",
    "*open\n\nx*": "*open\n\nx*",
    "a\n\n\n\nb\n": "a\n\nb",
    "  indented *text*": "indented text",
    # lists
    "- a\n- b": "• a\n• b",
    "* a\n    * b\n        * c": "• a\n    • b\n        • c",
    "1. a\n   - b\n     1. c\n        text\n\n        more": (
        "1. a\n   • b\n     1. c\n        text\n\n        more"
    ),
    "- - nested\n  - deep": "• • nested\n  • deep",
    "1. - x": "1. • x",
    "- a\n\n  para *y*\n\nend": "• a\n\n  para y\n\nend",
    "- a\n\n      code *x*": "• a\n\n  ▎ code *x*",
    "-     code *x*": "• ▎ code *x*",
    "-\n- x": "• \n• x",
    "-   wide\n    *on*": "• wide\n  on",
    "- [ ] todo\n- [x] done": "☐ todo\n☑ done",
    "- **a\n  b** c": "• a\n  b c",
    "The year\n1984. was\n\n1984. list": "The year\n1984. was\n\n1984. list",
    "10) ten\n12345678901. no": "10) ten\n    12345678901. no",
    "- # Head\n- text": "• Head\n• text",
    "+ a\n+ b\n\npara": "• a\n• b\n\npara",
    "1. a\n2. b\n   - c\n3. d": "1. a\n2. b\n   • c\n3. d",
    "- a\n---": f"• a\n\n{RULE}",
    # quotes
    "> q **b**\n>> deep": "│ q b\n│ │ deep",
    "> a\n>\n> b": "│ a\n│ \n│ b",
    "> *a\n> b* c": "│ a\n│ b c",
    "> - a\n>   - b": "│ • a\n│   • b",
    "- > quote\n  > more\n- x": "• │ quote\n  │ more\n• x",
    "> # Head\ntext": "│ Head\n\ntext",
    # code
    "```\na *b*\n```\nout": "▎ a *b*\n\nout",
    "```\na\n    ```\n```\nout": "▎ a\n▎     ```\n\nout",
    "````\n```\n````": "▎ ```",
    "~~~ruby x=3\nx\n~~~": "▎ ruby x=3\n▎ x",
    "- ```py\n  x = 1\n    y\n  ```\n- b": "• ▎ py\n  ▎ x = 1\n  ▎   y\n• b",
    "1. a\n\n   ```sh\n   ls\n   ```\n2. b": "1. a\n\n   ▎ sh\n   ▎ ls\n2. b",
    "> ```\n> a > b\n> > c\n> ```\nout": "│ ▎ a > b\n│ ▎ > c\n\nout",
    "> ```\n> code\nout": "│ ▎ code\n\nout",
    "    code *x*\n\n    more": "▎ code *x*\n\n▎ more",
    "\tcode *x*": "▎ code *x*",
    "x\n    not code *y*": "x\nnot code y",
    "```\nopen": "▎ open",
    "`` a`b `` ``` ` ```": "a`b `",
    # tables
    "| a | b |\n|:--|--:|\n| x | 10 |": "a │  b\n──┼───\nx │ 10",
    "> | a |\n> |---|\n> | 1 |\nout": "│ a\n│ ─\n│ 1\n\nout",
    "| a | b |\n|---|\n": "| a | b |\n|---|",
    "| a |\n|---|\n| 1 | 2 |": "a\n─────\n1 | 2",
    "| a | b |\n|--|--|\n| \\| |": "a │ b\n──┼──\n| │ ",
    "| e | f |\n|-|-|\n| 日本 | x |\n| é | שלום |": "e    │ f\n─────┼─────\n日本 │ x\né    │ שלום",
    # inline
    "**a *b* c** ~~d~~ ***e***": "a b c d e",
    "a*b*c snake_case_x 2 * 3 * 4": "abc snake_case_x 2 * 3 * 4",
    "[t](http://e.x 'T') ![i](p.png)": "t (http://e.x) i (p.png)",
    "[t](<a b>) <http://u.v>": "t (a b) http://u.v",
    "[ref][1]\n\n[1]: http://a.b": "[ref][1]\n\n[1]: http://a.b",
    "\\*no\\* \\# 1\\. &lt;b&gt; &copy;": "*no* # 1. <b> ©",
    "<div>\n**x** <b>y</b>\n</div>": "<div>\nx <b>y</b>\n</div>",
    "👩\u200d👩\u200d👧 **❤️** é*ü*": "👩\u200d👩\u200d👧 ❤️ éü",
    "שלום *עולם* abc": "שלום עולם abc",
}  # fmt: skip


@pytest.mark.spec("UI-1", "SEC-10")
@pytest.mark.parametrize(("text", "shown"), EXAMPLES.items())
def test_an_example_however_it_is_cut(text: str, shown: str) -> None:
    seen = render(text)
    assert seen == shown
    painted = render(text, theme=COLOR)
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == seen
    for size in (1, 2, 3, 5):
        assert render(text, size) == seen
        assert render(text, size, COLOR) == painted


MARKS = (
    "===\n", "- ```py\n", "  ```\n", "- > q\n", "- # h\n", "  - - a\n", "> | a | b |\n",
    "> |--|--|\n", "**\n", "*\n", "[l\n", "](u)\n", "      deep\n", "1. ", "2. ", "- ", ">", "| x ",
)  # fmt: skip
# an entity is a letter or five, an open backquote decides what a table or a fence is, a fence what
# a link with a title is
PLAIN_FRAGMENTS = [
    f for f in (*FRAGMENTS, *MARKS) if "&" not in f and f != "`open" and '"t"' not in f
]
TEXTS = st.lists(st.sampled_from(PLAIN_FRAGMENTS), max_size=14).map("".join)


def letters_of(text: str) -> str:
    """The letters and figures that CommonMark shows, tags and code included."""
    found: list[str] = []

    def walk(tokens: list[Token]) -> None:
        for token in tokens:
            if token.children:
                walk(token.children)
            elif token.type != "inline":
                found.append(token.content)

    walk(MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text))
    return re.sub(r"(?i)<br\s*/?>|[\W_]", "", "".join(found))


@pytest.mark.spec("UI-1")
@given(TEXTS)
@settings(max_examples=125, deadline=None)
def test_nothing_that_commonmark_shows_is_lost(text: str) -> None:
    shown = iter(re.sub(r"[\W_]", "", render(text)))
    assert all(letter in shown for letter in letters_of(text)), render(text)


@pytest.mark.spec("UI-1")
@given(TEXTS, st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_nested_texts_in_any_pieces(text: str, size: int) -> None:
    assert render(text, size, COLOR) == render(text, theme=COLOR)
