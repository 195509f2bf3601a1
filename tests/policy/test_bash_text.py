"""What is looked at before a bash text is parsed."""

from __future__ import annotations

import pytest

from agentcli.policy.bash_text import joined, rough_commands, skeleton, why_unreadable


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a \\\n b", "a  b"), ("'a\\\nb' c\\\nd", "'a\\\nb' cd"), ('"a\\\nb"', '"ab"'),
        ("# a \\\nb", "# a \\\nb"), ("a\\\\\nb", "a\\\\\nb"), ("a <<E\\\nb", "a <<E\\\nb"),
    ],
)  # fmt: skip
def test_line_continuations_are_removed_as_bash_does(text: str, result: str) -> None:
    assert joined(text) == result


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "char", ["\0", "\r", "\x1b", "\xa0", "\u200b", "\u202e", "\u2028", "\ud800"]
)
def test_invisible_characters_are_named(char: str) -> None:
    assert f"U+{ord(char):04X}" in why_unreadable(f"ls {char}")
    assert not why_unreadable("echo 'grün ☃'\n\tls")


@pytest.mark.spec("SEC-4")
def test_a_skeleton_keeps_the_syntax_and_empties_the_texts() -> None:
    text = "echo 'long text' # c\ncat <<'E' >f\nbody )\nE\nls \"$x y\""
    assert skeleton(text) == "echo 'x' \ncat <<'E' >f\nx\nE\nls \"$x y\""


@pytest.mark.spec("SEC-4")
def test_a_rough_reading_finds_commands_behind_keywords_and_assignments() -> None:
    found = set(rough_commands("if A=b 'r'm -rf x; then ( y; fi"))
    assert {("rm", "-rf", "x"), ("y",)} <= found
