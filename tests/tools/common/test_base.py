"""The bound on what the model is sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.tools.common.base import MAX_CHARS, MAX_LINE_CHARS, bounded


@pytest.mark.spec("TOOL-6")
def test_short_output_is_left_alone() -> None:
    text = "line\n" * 6000
    assert bounded(text, "c") == (text, None)


@pytest.mark.spec("TOOL-6")
def test_long_output_keeps_head_and_tail_and_states_the_cut() -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    short, raw = bounded(text, "call_7")
    assert raw == text.encode()
    assert len(short) <= MAX_CHARS
    assert short.startswith("line 0\nline 1\n")
    assert short.endswith("line 9999\n")
    head, _, rest = short.partition("[")
    note, _, tail = rest.partition("]\n")
    assert "output://call_7" in note
    assert f"[{len(text) - len(head) - len(tail):,} characters" in short
    assert head.endswith("\n")
    assert text.startswith(head)
    assert text.endswith(tail)


@pytest.mark.spec("TOOL-6")
def test_an_over_long_line_is_cut_with_its_size() -> None:
    text = "a\n" + "x" * (MAX_LINE_CHARS + 5) + "\nb"
    short, raw = bounded(text, "c")
    assert raw == text.encode()
    assert "… [5 more characters in this line]\nb\n[Long lines were cut. " in short


@pytest.mark.spec("TOOL-6")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 400), max_size=60).map(lambda sizes: "\n".join("x" * n for n in sizes)),
    st.integers(400, 2_000),
    st.integers(10, 300),
)
def test_the_bound_always_holds(text: str, max_chars: int, line_chars: int) -> None:
    short, raw = bounded(text, "c", max_chars=max_chars, line_chars=line_chars)
    assert len(short) <= max_chars
    assert (raw is None) == (
        len(text) <= max_chars and max(map(len, text.split("\n"))) <= line_chars
    )
    assert raw is None or raw.decode() == text
    assert raw is not None or short == text


@pytest.mark.spec("SEC-13", "TOOL-6")
def test_of_short_lines_no_step_each_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(str):
        __slots__ = ()
        looked = 0

        def rfind(self, *args: Any) -> int:
            Counted.looked += 1
            return super().rfind(*args)

    bounded(Counted("\n" * 1_000_000), "c")
    assert Counted.looked < 1_000
