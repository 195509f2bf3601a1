"""The net below the parser: nothing that bash would run falls through it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.policy.bash_rough import (
    matches_pattern,
    names_command_of,
    parts_of,
    unquoted,
    word_lists,
    written_names,
)


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    "text",
    ["rm x", "ls; rm x", "$(rm x)", "if rm x", "sudo -u a rm x", "r\\m x", "'rm' x", "A=b rm x",
     "/bin/rm x", "(rm x", "`rm x", "ls\nrm x", "xargs rm x", "f() { rm x; }", "2>f rm x"],
)  # fmt: skip
def test_a_command_is_among_the_parts_of_a_text(text: str) -> None:
    assert "rm x" in set(parts_of(text))
    assert ["rm", "x"] in list(word_lists(text))


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("echo x > a", ["a"]), ("echo x >>'a b'", ["a b"]), ("x >| ~/.bashrc; y", ["~/.bashrc"]),
        ("x &> a", ["a"]), ('x >"$HOME"/a', ["$HOME/a"]), ("cat < a", []), ("x <> a", ["a"]),
    ],
)  # fmt: skip
def test_what_is_written_is_named(text: str, names: list[str]) -> None:
    assert list(written_names(text)) == names


def test_patterns_are_matched_with_texts() -> None:
    assert matches_pattern("git diff", "git diff *")
    assert matches_pattern("git diff x", "git diff *")
    assert not matches_pattern("git diffx", "git diff *")
    assert not matches_pattern("ab", "a[b]*")
    assert names_command_of("rm *", "r\\m x")
    assert not names_command_of("rm *", "ls")
    assert unquoted("r\\\nm 'x'") == "rm x"


@given(st.text("rm x;|&$(){}'\"\\\n`<>=", max_size=60))
def test_any_text_falls_apart(text: str) -> None:
    assert next(parts_of(text)) == text
    for words in word_lists(text):
        assert words
