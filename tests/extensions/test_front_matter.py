"""The head of a file that users bring: YAML, and what people write for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.extensions.front_matter import MAX_HEAD_CHARS, Unusable, parse_document


def head(text: str) -> str:
    return f"---\n{text}\n---\nbody"


@pytest.mark.spec("EXT-2")
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("d: plain", "plain"),
        ('d: "in quotes: yes"', "in quotes: yes"),
        ("d: 'it''s'", "it's"),
        ("d: >\n  folded\n  lines", "folded lines"),
        ("d: |-\n  kept\n  lines", "kept lines"),
        ("d: plain\n  goes on", "plain goes on"),
        # what YAML would take for something else stays a text
        ("d: yes", "yes"),
        ("d: 2026-01-02", "2026-01-02"),
        ("d: 1.0", "1.0"),
        # what is no YAML, and is written all the same
        ("d: review: it's for bugs", "review: it's for bugs"),
        ("d: @file and `code`", "@file and `code`"),
        ("d: [a] [b]", "[a] [b]"),
        ("d: *", "*"),
        ('d: "a" and "b"', '"a" and "b"'),
        ("d: [FILE]", "[FILE]"),
        ("D: a small letter", "a small letter"),
        ("d: red \x1b[31m", "red [31m"),
        ("d:", ""),
        ("other: x", ""),
        ("d: {a: b}", ""),
    ],
)
def test_a_value_is_the_text_that_was_written(line: str, value: str) -> None:
    document = parse_document(head(f"{line}\nunknown: [1, {{x: y}}]"))
    assert document.text("d") == value
    assert document.body == "body"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("t: a, 'b'", ("a", "b")),
        ("t: [a, 'b']", ("a", "b")),
        ("t:\n  - a\n  - b\n  - a", ("a", "b")),
        ('t: "a", b', ("a", "b")),
        ("t:", ()),
        ("u: a", None),
    ],
)
def test_a_list_may_have_any_of_the_usual_shapes(line: str, names: tuple[str, ...] | None) -> None:
    assert parse_document(head(line)).names("t") == names


def test_a_file_without_a_head_is_all_text() -> None:
    document = parse_document("\ufeffHello\r\n---\r\nyou\r\n")
    assert (document.fields, document.body) == (None, "Hello\n---\nyou")
    assert parse_document("---\n---\nbody").fields == {}


@pytest.mark.spec("EXT-2", "SEC-13")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\nname: x\nbody", "no end"),
        (head("name: x\n\t- : ["), r"no YAML: .*line \d"),
        (head("just words"), "no fields"),
        (head("- a\n- b"), "no fields"),
        (head("a:\n  " + "[" * 5_000), "nested too deeply"),
        (head("- " * 5_000), "nested too deeply"),
        (head("? [a]\n: b"), "no YAML"),
        (head("a: " + "x" * MAX_HEAD_CHARS), "longer than"),
    ],
)
def test_a_head_that_makes_no_sense_says_why(text: str, reason: str) -> None:
    with pytest.raises(Unusable, match=reason):
        parse_document(text)


@pytest.mark.spec("SEC-13")
def test_repeated_references_stay_small() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60)]
    document = parse_document(head("\n".join(lines)))
    assert document.text("a0") == "[x, x]"
    assert document.text("a59") == "[]"


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail_in_another_way(text: str) -> None:
    for candidate in (text, head(text), head(f"d: {text}")):
        try:
            document = parse_document(candidate)
        except Unusable:
            continue
        document.text("d")
        document.names("d")


@pytest.mark.spec("EXT-2")
def test_empty_lines_before_a_head_are_no_text() -> None:
    document = parse_document("\n\r\n---\ndescription: d\n---\nx\n")
    assert (document.text("description"), document.body) == ("d", "x")
