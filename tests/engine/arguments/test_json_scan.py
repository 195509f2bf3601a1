"""A lenient reader of JSON-like text: which pieces it consists of, and whether it was cut."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.engine.arguments.json_scan import Kind, UnreadableText, outline, tokens, unfenced


def values(text: str) -> list[Any]:
    return [token.value for token in tokens(text) if token.kind is not Kind.MARK]


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\n\u00e9\ud83d\ude00"', "a\né😀"), (r"'it\'s'", "it's"), ("'say \"hi\"'", 'say "hi"'),
        (r"'a \"b\" \\'", 'a "b" \\'), ('"it\'s"', "it's"), ('"a\nb"', "a\nb"), ('" \t "', " \t "),
        (r'"\d+\.\d \"x\""', r'\d+\.\d "x"'), (r'"\(a\|b\)"', r"\(a\|b\)"), ('"// # /* x"', "// # /* x"),
        ("-1.50e+2", -150.0), ("0", 0), ("12345678901234567890", 12345678901234567890),
        ("true", True), ("True", True), ("None", None), ("null", None),
    ],
)  # fmt: skip
def test_each_piece_has_the_value_it_stands_for(text: str, value: Any) -> None:
    (found,) = values(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.spec("LOOP-9")
@pytest.mark.parametrize(
    "text",
    [
        r'"C:\new\data"', r'"\d\n"', r'"\\d\s"', r'"it\'s"', r'"\x41"', r'"\u12"', r'"\0"', r'"\e[0m"',
        '"a\\\nb"', '"open', '"open\\', "'open", "/* open", "// to the end", "nul", "ls", "01", "1.", ".5",
        "+1", "1e999", "NaN", "0x10", "12ab", "“a”", "`a`", "a.b", "\x00", "=",
    ],
)  # fmt: skip
def test_what_can_be_read_in_several_ways_is_not_read(text: str) -> None:
    with pytest.raises(UnreadableText):
        list(tokens(text))


def test_a_key_is_what_stands_before_a_colon() -> None:
    found = [(token.kind, token.value) for token in tokens("{a /* x */ : 'a', \"b\": [true,]}")]
    keys = [value for kind, value in found if kind is Kind.KEY]
    assert keys == ["a", "b"]
    assert [value for kind, value in found if kind is Kind.VALUE] == ["a", True]


@pytest.mark.parametrize(
    "text", ["```json\n{}\n```", "```\n{}```\n", "```{}```", "\ufeff {}", "```json\n{}", "\n\t{}"]
)
def test_a_fence_is_taken_off(text: str) -> None:
    assert unfenced(text).strip() == "{}"


@pytest.mark.spec("LOOP-11")
def test_the_outline_of_a_broken_text_tells_its_fields_and_how_long_they_were() -> None:
    cut = '{"path": "a.py", "n": 3, "todos": [{"content": "x"}], "content": "' + "y" * 500
    assert outline(cut) == {"path": "a.py", "n": 3, "todos": list, "content": "y" * 500}
    assert outline('{"a": {"b": 1}, "c": oops, "d": 2}') == {"a": dict, "c": ...}
    assert outline("no JSON") == {}
    assert outline("[1, 2") == {}


@settings(max_examples=60)
@given(st.text(alphabet="{}[]:,\"'\\ ab1tn\n/*#`", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    outline(text)
    ends = []
    with contextlib.suppress(UnreadableText):
        for token in tokens(unfenced(text)):
            ends.append(token.end)
    assert ends == sorted(set(ends))
