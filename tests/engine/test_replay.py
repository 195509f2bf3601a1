"""What a user sees of a step that was asked again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.engine.replay import Replay, Shown

WORDS = st.lists(
    st.sampled_from(["ant ", "bee ", "cat.\n", "do", "eel", "日本", "\u0301"]), max_size=8
)
CUTS = st.lists(st.integers(0, 9), max_size=12)


def screens(*replies: str, cuts: list[int] | None = None) -> tuple[str, int]:
    """The screen after these replies to one step, and how often a reply turned off."""
    shown, turns = Shown(), 0
    for number, reply in enumerate(replies):
        if not number:
            shown.text.add(reply, reply)
            continue
        replay = Replay(shown)
        for piece in pieces(reply, cuts or [3]):
            turns += replay.text(piece).turns_off
        shown.text.add(reply, replay.new_text)
    return shown.text.screen, turns


def pieces(text: str, cuts: list[int]) -> list[str]:
    found, at, number = [], 0, 0
    while at < len(text):
        size = cuts[number % len(cuts)] or 1
        found.append(text[at : at + size])
        at, number = at + size, number + 1
    return found


@pytest.mark.spec("STR-7")
@pytest.mark.parametrize(
    ("replies", "screen"),
    [
        (("The quick bro", "The quick brown fox"), "The quick brown fox"),
        (("same", "same"), "same"),
        (("longer text", "longer"), "longer text"),
        (("", "new"), "new"),
        (("one two", "one ten"), "one two\nten"),
        (("one two", "another"), "one two\nanother"),
        (("one two", "three"), "one two\nthree"),
        (("alpha beta", "alpha. Then"), "alpha beta\n. Then"),
        (("a b c", "a x y", "a b c d"), "a b c\nx y\n d"),
        (("a b c", "a b", "a b c d"), "a b c d"),
        (("a b c", "", "a b c d"), "a b c d"),
        (("日本語です", "日本人"), "日本語です\n人"),
        (("x" * 40 + "1", "x" * 40 + "2"), "x" * 40 + "1\n2"),
    ],
)
def test_only_what_is_new_is_shown(replies: tuple[str, ...], screen: str) -> None:
    for size in (1, 2, 3, 100):
        assert screens(*replies, cuts=[size])[0] == screen


@pytest.mark.spec("STR-7")
@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60), CUTS)
def test_a_longer_reply_goes_on_without_a_seam(begun: str, more: str, cuts: list[int]) -> None:
    assert screens(begun, begun + more, cuts=cuts) == (begun + more, 0)


@pytest.mark.spec("STR-7")
@settings(max_examples=150, deadline=None)
@given(WORDS, WORDS, WORDS, CUTS)
def test_how_the_text_is_cut_into_pieces_makes_no_difference(
    first: list[str], second: list[str], third: list[str], cuts: list[int]
) -> None:
    replies = ("".join(first), "".join(second), "".join(third))
    assert screens(*replies, cuts=cuts) == screens(*replies, cuts=[1])


@pytest.mark.slow
@pytest.mark.spec("STR-7")
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), CUTS)
def test_no_word_of_a_common_beginning_is_shown_twice(
    first: int, common: int, rest: int, third: int, cuts: list[int]
) -> None:
    """Replies of unique words: w0 w1 ... and, after ``common`` of them, others."""
    one = "".join(f"w{n} " for n in range(first))
    two = "".join(f"w{n} " for n in range(min(common, first))) + "".join(
        f"v{n} " for n in range(rest)
    )
    three = (two if third % 2 else one) + "".join(f"u{n} " for n in range(third))
    screen, _ = screens(one, two, three, cuts=cuts)
    words = screen.split()
    assert len(words) == len(set(words))


@pytest.mark.spec("STR-6")
def test_thinking_has_a_lane_of_its_own_and_calls_are_announced_once() -> None:
    shown = Shown(calls=["look"])
    shown.thinking.add("hm", "hm")
    shown.text.add("", "")
    replay = Replay(shown)
    assert replay.thinking("hmm ").text == "m "
    assert replay.text("hm").text == "hm"
    assert not replay.is_new_call("look")
    assert replay.is_new_call("change")
    again = Replay(shown)
    assert [again.is_new_call(name) for name in ("look", "change", "look")] == [False, False, True]
    other = Replay(shown)
    assert [other.is_new_call(name) for name in ("change", "change")] == [True, True]


def test_the_cost_is_linear_in_the_text() -> None:
    old = "word " * 200_000
    shown = Shown()
    shown.text.add(old, old)
    replay = Replay(shown)
    assert not any(replay.text(piece).text for piece in pieces(old, [5]))
    assert replay.text("more").text == "more"
