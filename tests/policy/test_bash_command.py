"""The value of one bash word, compared with what bash itself makes of it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.policy.bash_command import unquote

BASH = shutil.which("bash")


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("a", "a"), ("'a b'", "a b"), ('"a b"', "a b"), ("a\\ b", "a b"), ("''", ""), ("'a'\"b\"c", "abc"),
        ('"\\$x\\a"', "$x\\a"), ("a~b", "a~b"), ("HEAD^", "HEAD^"), ("s@{0}", "s@{0}"), ("{}", "{}"),
        ("[", "["), ("$x", None), ('"$x"', None), ("`a`", None), ("*", None), ("a?", None), ("[a]", None),
        ("~", None), ("a=~", None), ("{a,b}", None), ("{1..2}", None), ("@{u}..", "@{u}.."),
        ("x{a}..{b}", None), ("a,b{c}", "a,b{c}"), ("'a", None), ('"a', None),
        ("a\\", None), ("$'a'", "a"), ("$'\\x65nv'", "env"), ("a$'\\u0062\\'\\143'", "ab'c"),
        ("$'\\0a'", None), ("$'\\xe9'", None), ("$'\\x{65}nv'", None),
        ("$'\\q'", None), ("$'\\xg'", None), ("$'\\cA'", "\x01"), ("$'\\c\\\\'", None), ("$'a", None), ('$"a"', None), ("a(b", None), ("a\\\nb", None), ("!a", None),
    ],
)  # fmt: skip
def test_a_word_is_its_text_or_not_known(source: str, value: str | None) -> None:
    assert unquote(source) == value


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.spec("SEC-4")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text(st.sampled_from("ab'\"\\$xu6 ~#!{},.=:^@[]-"), min_size=1, max_size=8), min_size=8
    )
)
def test_bash_sees_the_same_value(sources: list[str]) -> None:
    known = [(each, value) for each in sources if (value := unquote(each)) is not None]
    assert BASH is not None
    for source, value in known:
        if source.strip() != source or " " in source.replace("\\ ", "").strip("'\""):
            continue
        text = f"printf '%s\\0' x {source}"
        seen = subprocess.run([BASH, "-c", text], capture_output=True, check=True).stdout
        assert seen.decode().split("\0")[:-1] == ["x", value]
