"""The second reading: what it reads, and that it reads nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.policy.bash_plain import read_plain
from agentcli.policy.bash_syntax import parse_bash


@pytest.mark.spec("SEC-4")
def test_lists_pipes_and_redirections_are_read_as_written() -> None:
    found = read_plain("ls 'a b' 2>&1 | wc -l >/dev/null; pwd && echo x#y # no\n")
    assert found is not None
    assert [each.words for each in found] == [
        ("ls", "'a b'"), ("wc", "-l"), ("pwd",), ("echo", "x#y"),
    ]  # fmt: skip
    assert [each.redirections for each in found] == [
        ((("2>&"), "1"),),
        ((">", "/dev/null"),),
        (),
        (),
    ]


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text",
    [
        "a &", "a & b", "(a)", "a `b`", "a $b", 'a "$b"', "a &&", "&& a", "a || | b", "a ; ; b", "a >",
        ">a b", "a <<b", "a >&3", "a 'b", "a \\", "a |& b", "a;;b",
    ],
)  # fmt: skip
def test_anything_else_is_not_plain(text: str) -> None:
    assert read_plain(text) is None


@pytest.mark.spec("SEC-4")
@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab '\"&|;\n#>2\\-"), max_size=16))
def test_a_text_that_both_readings_take_gives_the_same_words(text: str) -> None:
    parsed, plain = parse_bash(text), read_plain(text)
    if parsed.understood and parsed.plain and plain and "\\\n" not in text:
        own = [each for each in parsed.commands if not each.wrappers]
        assert [each.words for each in plain] == [each.sources for each in own]
