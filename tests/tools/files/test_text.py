"""Encodings and line ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.tools.files.text import (
    adopt_ends,
    decode,
    detect_head,
    join_lines,
    readable,
    split_lines,
)


@pytest.mark.slow
@pytest.mark.spec("TOOL-8")
@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60), st.text(max_size=30).map(lambda t: t.encode("utf-8", "replace"))
    )
)
def test_what_is_decoded_is_encoded_to_the_same_bytes(data: bytes) -> None:
    text = decode(data)
    if text is not None:
        assert text.encoding.encode(text.text) == data
        readable(text.text).encode()


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("a\r\n\x0b\u2028"), max_size=20))
def test_lines_join_to_the_text_they_were_split_from(text: str) -> None:
    assert join_lines(split_lines(text)) == text


@pytest.mark.parametrize(
    ("data", "codec"),
    [
        (b"plain", "utf-8"),
        ("\u00e4".encode("latin-1") + b" word", "latin-1"),
        ("\u201cquoted\u201d".encode("cp1252"), "cp1252"),
        ("hello there\n".encode("utf-16-le"), "utf-16-le"),
        ("hello there\n".encode("utf-16-be"), "utf-16-be"),
        (b"\x00\x01\x02\xff", None),
        (bytes(range(1, 255)), None),
        (b"a\x00b", None),
        (b"", "utf-8"),
    ],
)
def test_the_encoding_is_told_from_the_bytes(data: bytes, codec: str | None) -> None:
    text = decode(data)
    assert (text.encoding.codec if text else None) == codec


@pytest.mark.parametrize("cut", range(5))
def test_a_character_cut_at_the_end_of_the_head_is_no_fault(cut: int) -> None:
    head = ("ascii " * 10 + "\U0001f600").encode()
    found = detect_head(head[: len(head) - cut])
    assert found is not None
    assert found.codec == "utf-8"
    assert found.errors == "strict"


def test_new_lines_take_the_ends_of_those_they_stand_for() -> None:
    joined = adopt_ends(["a", "b", "c"], ["\r\n", "\n"], ["a", "x", "y", "c"], "\n")
    assert joined == "a\r\nx\ny\nc"


@pytest.mark.spec("TOOL-8", "SEC-13")
@pytest.mark.parametrize("pairs", [2_000, 20_000])
def test_many_equal_lines_take_no_cubic_time(pairs: int) -> None:
    """A cubic comparison runs into the time limit of the tests."""
    ends = ["\r\n", "\n"] * pairs
    joined = adopt_ends(["a", "b"] * pairs, ends, [*["c", "b"] * pairs, ""], "\n")
    assert joined == "c\r\nb\n" * pairs
