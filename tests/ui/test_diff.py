"""Diffs for people: numbers, signs, the words that changed, bounded cost."""

from __future__ import annotations

import difflib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui.diff import (
    MAX_COMPARED,
    MAX_TOKENS,
    LinePiece,
    compare,
    compare_lines,
    diff_lines,
    is_diff,
)
from agentcli.ui.theme import PLAIN, Theme

COLOR = Theme(color=True, attributes=True, live=True)
MONO = Theme(color=False, attributes=True, live=True)


def marked(line: str) -> str:
    """Changed words between braces, other styles left out."""
    line = re.sub(r"\x1b\[[\d;]*\b4[\d;]*m(.*?)\x1b\[0m", r"{\1}", line)
    return re.sub(r"\x1b\[[\d;]*m", "", line).replace("}{", "")


def plain(line: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", line)


TEXT = """\
diff --git a/src/app.py b/src/app.py
index 1111111..2222222 100644
--- a/src/app.py
+++ b/src/app.py
@@ -8,7 +8,7 @@ def main():
 import os
\x20
 def greet(name):
-    print("Hello", name)
-    return True
+    print("Hello", name.title(), flush=True)
+    # nothing like it was here
+    return False
\x20
 greet("you")
@@ -40,2 +40,2 @@
-last = 1
\\ No newline at end of file
+last = 2
\\ No newline at end of file
"""


@pytest.mark.spec("UI-2", "UI-10")
def test_a_diff_as_it_is_seen_without_and_with_attributes() -> None:
    assert is_diff(TEXT)
    assert diff_lines(TEXT, PLAIN) == [
        "src/app.py",
        "    8   import os",
        "    9   ",
        "   10   def greet(name):",
        '   11 -     print("Hello", name)',
        "   12 -     return True",
        '   11 +     print("Hello", name.title(), flush=True)',
        "   12 +     # nothing like it was here",
        "   13 +     return False",
        "   14   ",
        '   15   greet("you")',
        "    …",
        "   40 - last = 1",
        "      \\ No newline at end of file",
        "   40 + last = 2",
        "      \\ No newline at end of file",
    ]
    for theme in (COLOR, MONO):
        shown = [marked(line) for line in diff_lines(TEXT, theme)]
        assert shown[4:9] == [
            '   11 -     print("Hello", name)',
            "   12 -     return {True}",
            '   11 +     print("Hello", name{.title(), flush=True)}',
            "   12 +     # nothing like it was here",
            "   13 +     return {False}",
        ]
    assert [plain(line) for line in diff_lines(TEXT, COLOR)] == diff_lines(TEXT, PLAIN)


@pytest.mark.spec("UI-2")
@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("a = 1", "a = 2", ("a = {1}", "a = {2}")),
        ("x", "y", None),
        ("same", "same", None),
        ("f(a, b)", "f(a)", ("f(a{, b})", "f(a)")),
        ("trailing", "trailing  ", ("trailing", "trailing{  }")),
        ("wholly other text", "nothing in common", None),
        ("the old red fox", "the new blue fox", ("the {old red} fox", "the {new blue} fox")),
        ("naïve 日本 x", "naïve 中国 x", ("naïve {日本} x", "naïve {中国} x")),
    ],
)
def test_the_words_that_changed(old: str, new: str, seen: tuple[str, str] | None) -> None:
    found = compare_lines(old, new)

    def text(pieces: list[LinePiece]) -> str:
        return "".join(f"{{{piece.text}}}" if piece.changed else piece.text for piece in pieces)

    assert (found and tuple(map(text, found))) == seen


@pytest.mark.spec("UI-2")
def test_a_header_inside_a_hunk_is_a_line_when_the_hunk_says_so() -> None:
    text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n c\n@@ -9 +9 @@\n-a\n+b\n"
    assert diff_lines(text, PLAIN) == [
        "x",
        "    1 - -- old",
        "    1 + ++ new",
        "    2   c",
        "    …",
        "    9 - a",
        "    9 + b",
    ]


@pytest.mark.spec("SEC-6", "SEC-10")
def test_control_characters_are_taken_out_or_spelt_out() -> None:
    text = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\x1b[2J\n+a\u202e\n"
    assert diff_lines(text, PLAIN)[1:] == ["    1 - a", "    1 + a"]
    assert diff_lines(text, PLAIN, exact=True)[1:] == ["    1 - a<U+001B>[2J", "    1 + a<U+202E>"]


@pytest.mark.slow
@pytest.mark.spec("UI-2", "SEC-13")
def test_huge_lines_and_huge_diffs_are_no_work_and_lose_nothing() -> None:
    long = "word " * (MAX_TOKENS * 1000)
    found = compare_lines(f"{long}old{long}", f"{long}new{long}")
    assert found is not None
    assert [piece.text for piece in found[0] if piece.changed] == ["old"]
    group = "".join(f"-x{n} = {n}\n" for n in range(5_000))
    group += "".join(f"+x{n} = {n + 1}\n" for n in range(5_001))
    text = f"--- a/x\n+++ b/x\n@@ -1,5000 +1,5001 @@\n{group}"
    lines = diff_lines(text, COLOR)
    assert len(lines) == 10_002
    assert len(lines) > MAX_COMPARED
    assert [plain(line) for line in lines] == diff_lines(text, PLAIN)


WORDS = st.lists(st.sampled_from(["a", "b", " ", "foo", "(", "=", "\t", "日"]), max_size=8)
LINES = st.lists(WORDS.map("".join), max_size=8)


@pytest.mark.slow
@given(LINES, LINES)
@settings(max_examples=200, deadline=None)
def test_pieces_joined_are_the_lines_and_a_diff_shows_every_line(
    old: list[str], new: list[str]
) -> None:
    left, right = compare(old, new)
    assert ["".join(piece.text for piece in pieces) for pieces in left] == old
    assert ["".join(piece.text for piece in pieces) for pieces in right] == new
    text = "\n".join(difflib.unified_diff(old, new, "a/f", "b/f", lineterm=""))
    if text:
        shown = [plain(line) for line in diff_lines(text, COLOR)]
        assert shown == diff_lines(text, PLAIN)
        body = [line for line in text.split("\n")[2:] if not line.startswith("@@")]
        expected = [f"{line[0]} {line[1:]}" for line in body]
        assert [line[6:] for line in shown[1:] if line.strip() != "…"] == expected
