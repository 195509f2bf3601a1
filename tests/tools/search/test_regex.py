r"""A pattern either means the same to both engines or is refused with advice."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.tools.search.regex import BadPattern, normalized


@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize(
    ("pattern", "matching", "not_matching"),
    [
        ("func() {", None, None),
        ("interface{}", "interface{}", "interface"),
        ("x{2}", "xx", "x"),
        ("x{,2}y", "xxy", "x"),
        ("a{b,c}", "a{b,c}", "ab"),
        (r"\"quoted\" \/ \<div\> \: \_ \ ", '"quoted" / <div> : _  ', "<div>"),
        ("(?<name>ab)+", "abab", "a"),
        ("(?P<name>ab)|c", "c", "d"),
        ("(?i)foo", "FOO", "bar"),
        ("(?i:f)oo", "Foo", "FOO"),
        ("[]a]", "]", "b"),
        ("[^]a]", "b", "]"),
        ("[[]", "[", "a"),
        ("[a-]", "-", "b"),
        ("[a&&b]", "&", "c"),
        ("[a--b]", "-", "c"),
        ("[[:upper:]_]", "A", "a"),
        (r"[\d\-x]", "-", "a"),
        (r"\x41\u0042\x{43}", "ABC", "abc"),
        (r"\Aab\z", "ab", "xab"),
        (r"\bfoo\b", "a foo b", "food"),
        ("a*?b", "aab", "c"),
        ("}", "}", "{"),
        ("^$", "", "a"),
        (r"[\]\[]", "[", "x"),
        ("é+", "éé", "e"),
    ],
)
def test_common_ways_of_writing_are_understood(
    pattern: str, matching: str | None, not_matching: str | None
) -> None:
    if pattern == "[a--b]":
        with pytest.raises(BadPattern, match="range"):
            normalized(pattern)
        return
    regex = re.compile(normalized(pattern))
    if matching is not None and not_matching is not None:
        assert regex.search(matching)
        assert not regex.search(not_matching)


@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "[",
        "[a",
        "*a",
        "a**",
        "a++",
        "|*",
        "^*",
        "(?=a)",
        "(?<!a)",
        "(?>a)",
        "(?#c)",
        r"(a)\1",
        r"\p{L}",
        r"\Q",
        "a\\",
        r"a\nb",
        "a\nb",
        "a(?i)b",
        "(?x)a",
        "(?-i)a",
        "[z-a]",
        r"[\b]",
        "x{3,1}",
        "x{5000}",
        r"\xZZ",
        r"\x{110000}",
        r"\x0a",
        "[[:nope:]]",
        "\0",
        "\udc80",
        "a" * 20_000,
    ],
)
def test_what_the_engines_do_not_share_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(BadPattern) as caught:
        normalized(pattern)
    assert 5 < len(str(caught.value)) < 300


@pytest.mark.spec("SEC-13")
@settings(max_examples=200)
@given(st.text("ab\\()[]{}?*+^$|.-&~:<=!Pid0,1", max_size=12))
def test_whatever_comes_is_compiled_without_a_warning_or_refused(pattern: str) -> None:
    try:
        result = normalized(pattern)
    except BadPattern:
        return
    re.compile(result)
