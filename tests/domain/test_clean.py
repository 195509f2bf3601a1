"""Texts, names, ids and JSON values as every provider takes them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.clean import (
    MAX_ARGUMENT_BYTES,
    MAX_DEPTH,
    MAX_TEXT_BYTES,
    as_list,
    as_object,
    as_text,
    clean_arguments,
    clean_id,
    clean_text,
    clean_value,
    cut_text,
    plain_text,
    plural,
)
from tests.support.poisons import TEXTS

anything = st.text(st.one_of(st.characters(), st.sampled_from("\0\ud83d\ude00\ud800")))


@pytest.mark.spec("HIS-8")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_poisoned_text_can_be_sent_and_made_plain(text: str) -> None:
    clean = clean_text(text)
    clean.encode()
    assert "\0" not in clean
    plain = plain_text(clean)
    assert plain == plain_text(plain)
    assert not re.search(r"[\x01-\x08\x1b\x7f-\x9f\ufeff\uffff]|<\|", plain)


def test_ordinary_text_is_plain_already() -> None:
    text = "def f():\n\treturn 'Grüße, 世界 😀'\r\n| a | b |\n<|"
    assert plain_text(text) == text


@pytest.mark.spec("HIS-8")
@settings(max_examples=100)
@given(anything, st.integers(0, 3_000))
def test_a_cut_text_fits_and_says_what_was_cut(text: str, limit: int) -> None:
    text = clean_text(text) * 40
    cut = cut_text(text, limit)
    if len(text.encode()) <= limit:
        assert cut == text
        return
    assert len(cut.encode()) <= max(limit, 100)
    said = re.search(r"\[([\d,]+) of ([\d,]+) characters are left out here\]", cut)
    assert said is not None
    left_out, whole = (int(number.replace(",", "")) for number in said.groups())
    assert whole == len(text)
    head, tail = cut[: said.start() - 1], cut[said.end() + 1 :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert left_out == len(text) - len(head) - len(tail)
    assert cut_text(cut, max(limit, 100)) == cut


@pytest.mark.spec("HIS-8")
def test_six_megabytes_keep_their_head_and_their_tail() -> None:
    text = "first line\n" + "é" * 3_000_000 + "\nlast line"
    cut = cut_text(text)
    assert len(cut.encode()) <= MAX_TEXT_BYTES
    assert cut.startswith("first line")
    assert cut.endswith("last line")


@pytest.mark.spec("HIS-1")
@pytest.mark.parametrize(
    "call_id", ["", "a b", "x" * 65, "functions.bash:0", "fc_1|call_2", "\ud800"]
)
def test_an_odd_id_becomes_a_good_one_always_the_same(call_id: str) -> None:
    good = clean_id(call_id)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", good)
    assert good == clean_id(call_id) == clean_id(good)
    assert good != clean_id(call_id + "?")


def nested(depth: int, leaf: Any) -> Any:
    value = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@pytest.mark.spec("HIS-5", "HIS-8")
@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 100, 900])
def test_deep_arguments_are_cut_where_no_provider_follows(depth: int) -> None:
    value = {"a": nested(depth - 1, "leaf"), "b": 1}
    clean = clean_value(value)
    assert depth_of(clean) <= MAX_DEPTH
    assert (clean is value) is (depth <= MAX_DEPTH)
    assert clean["b"] == 1


def repr_of(number: float) -> str:
    return f"{number:.0f}" if -(2**70) < number < 2**70 else "odd"


@pytest.mark.spec("HIS-5", "HIS-8")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -(2**64), 1 << 20_000], ids=repr_of)
def test_odd_numbers_become_texts(number: float) -> None:
    clean = clean_value({"n": [number]})
    assert isinstance(clean["n"][0], str)
    json.dumps(clean, allow_nan=False)


def test_usual_numbers_stay() -> None:
    value = {"n": [0, -1, 2**53, 1.5, True, None]}
    assert clean_value(value) is value


@pytest.mark.spec("HIS-5", "HIS-8")
def test_huge_arguments_are_cut_and_stay_an_object() -> None:
    one = clean_arguments({"path": "x", "content": "y" * 6_000_000})
    assert one["path"] == "x"
    assert len(one["content"]) <= MAX_ARGUMENT_BYTES
    assert "left out" in one["content"]
    many = clean_arguments({str(number): "y" * 100_000 for number in range(100)})
    assert set(many) == {"left_out"}
    small = {"path": "x", "keys\0": None}
    assert clean_arguments(small) == {"path": "x", "keys\ufffd": None}


def test_what_is_of_another_kind_counts_as_empty() -> None:
    assert [as_object({"a": 1}), as_list([1]), as_text("a")] == [{"a": 1}, [1], "a"]
    for value in (None, 1, b"", ()):
        assert [as_object(value), as_list(value), as_text(value)] == [{}, [], ""]


def test_only_one_is_none_of_many() -> None:
    assert [plural(n, "line") for n in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]
