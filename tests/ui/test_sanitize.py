"""Nothing that steers a terminal gets through, plain text does, and cutting changes nothing."""

from __future__ import annotations

import re
import tracemalloc
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentcli.ui.sanitize import MAX_STRING, Sanitizer, clean, clean_line, reveal

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
NASTY = st.sampled_from(
    [
        *("\x1b[31m", "\x1b[", "\x1b", "\x1b]52;c;aGk=\x07", "\x1b]8;;http://x\x1b\\", "\x1bP1$r"),
        *("\x9b1m", "\x9d0;t\x9c", "\r", "\r\n", "\n", "\t", "\x07", "\x1b(B", "\x1bc", "\x90"),
        *(
            "\ud83d",
            "\ude00",
            "\u202e",
            "\u2066",
            "plain",
            "é",
            "😀",
            "\x1b[38;5;1",
            "\x1b\\",
            "\x7f",
        ),
    ]
)
TEXTS = st.lists(NASTY | st.text(st.characters(), max_size=5), max_size=20).map("".join)


@pytest.mark.spec("SEC-10")
@settings(max_examples=100)
@given(TEXTS)
@example("\x1b]" + "x" * (MAX_STRING + 10) + "\x07tail")
def test_what_comes_out_holds_no_control_and_no_surrogate(text: str) -> None:
    out = clean(text)
    assert FORBIDDEN.search(out) is None
    assert clean(out) == out
    out.encode()


@pytest.mark.slow
@pytest.mark.spec("SEC-10")
@settings(max_examples=300)
@given(TEXTS, st.lists(st.integers(0, 200), max_size=12))
def test_text_cut_anywhere_comes_out_as_the_whole_does(text: str, cuts: list[int]) -> None:
    sanitizer = Sanitizer()
    places = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert "".join(map(sanitizer.feed, pieces)) + sanitizer.finish() == clean(text)


@pytest.mark.spec("SEC-10")
@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf", "Zl", "Zp"))))
def test_plain_text_is_unchanged(text: str) -> None:
    assert clean(text) == text
    assert clean("a\n\tb" + text) == "a\n\tb" + text


@pytest.mark.spec("SEC-10")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b]52;c;Y29weQ==\x07after", "after"),
        ("\x1bP+q544e\x1b\\after", "after"),
        ("\x9b2Jafter", "after"),
        ("10%\r20%\rdone\r\n", "10%\n20%\ndone\n"),
        ("\ud83d\ude00 \ud83d", "😀 \ufffd"),
        ("a\u202eb\u2066c", "abc"),
        ("\x1b]0;unterminated title", "0;unterminated title"),
    ],
)
def test_sequences_go_and_text_stays(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.spec("SEC-10")
def test_a_string_without_an_end_hides_nothing_that_follows() -> None:
    sanitizer = Sanitizer()
    tail = "x" * (MAX_STRING * 2)
    shown = sanitizer.feed("\x1b]") + "".join(map(sanitizer.feed, tail))
    assert len(shown) > MAX_STRING // 2
    assert shown + sanitizer.finish() == tail


def test_one_line_has_no_line_feeds() -> None:
    assert clean_line(" a\r\n\tb\x1b[0m  c ") == "a b c"


@pytest.mark.spec("SEC-6")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm\u200b -rf\u202e", "rm<U+200B> -rf<U+202E>"),
        ("\x1b[8mhidden", "<U+001B>[8mhidden"),
        ("a\rb", "a<U+000D>b"),
        ("a\u00a0b\u3164c\ufeff", "a<U+00A0>b<U+3164>c<U+FEFF>"),
        ("tags \U000e0041", "tags <U+E0041>"),
        ("héllo 日本\n\tx", "héllo 日本\n\tx"),
    ],
)
def test_an_approval_spells_out_what_cannot_be_seen(text: str, shown: str) -> None:
    assert reveal(text) == shown


@pytest.mark.spec("SEC-6")
@given(st.text(st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp")), min_size=1))
def test_no_invisible_category_survives_revealing(text: str) -> None:
    left = {unicodedata.category(char) for char in reveal(text).replace("\n", "").replace("\t", "")}
    assert not left & {"Cc", "Cs", "Zl", "Zp"}
    assert not FORBIDDEN.search(reveal(text).replace("\n", ""))


@pytest.mark.spec("SEC-13")
def test_a_long_line_of_short_words_is_what_its_words_are_and_takes_little_memory() -> None:
    text = " a\n\n b\u2003\tc \xa0" * 300_000
    tracemalloc.start()
    try:
        line = clean_line(text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert line == " ".join(text.split())
    assert most < 8 * len(text)
