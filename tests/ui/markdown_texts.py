"""Markdown for the tests of the streaming renderer: fragments that meet in nasty ways."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

FRAGMENTS = (
    *(
        "# Title\n",
        "## *x* y\n",
        "####### seven\n",
        "text ",
        "**bold** ",
        "*it* ",
        "_u_ ",
        "__uu__",
    ),
    *("`code`", "``a`b``", "`open", "**open", "[l](http://a.b)", '[l](<u v> "t")', "[open", "]("),
    *(
        "![i](x.png)",
        "<http://x.y>",
        "<br>",
        "<b",
        "&amp;",
        "&#27;",
        "&x",
        "\\*",
        "\\",
        "~~s~~",
        "~",
    ),
    *("- item\n", "* item\n", "  - nested\n", "+ x\n", "1. one\n", "10) ten\n", "12345678901 x\n"),
    *("> quote\n", ">> deep\n", "> - item\n", "> ```\n", "> code\n", "---\n", "***\n", "- - -\n"),
    *("```python\n", "def f():\n    '''doc\n", "more'''\n", "```\n", "~~~\n", "````\n", "   ```\n"),
    *("| a | b |\n", "|---|:-:|\n", "| 1 | 2 |\n", "| long cell text here | x |\n", "|x\n", "|"),
    *(
        "\n",
        "\n\n",
        "    indented\n",
        "\ttab\n",
        "日本語 ",
        "😀",
        " ",
        "word word word ",
        "***x***",
    ),
)
MARKDOWN = st.lists(
    st.sampled_from(FRAGMENTS) | st.text("ab *_`~[]()<>!|#->\n\\&;1.", max_size=6)
).map("".join)
CUTS = st.lists(st.integers(0, 500), max_size=15)


def pieces(text: str, cuts: list[int]) -> list[str]:
    """``text`` cut at those places."""
    places = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    return [text[a:b] for a, b in pairwise(places)]
