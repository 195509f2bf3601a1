"""JSON from outside, read so that it can be stored and sent again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.clean import MAX_JSON_DEPTH, loads


@pytest.mark.spec("HIS-5", "HIS-8", "SEC-13")
@pytest.mark.parametrize(
    "text",
    [
        "NaN", "[-Infinity]", "1e999", "9" * 5_000, "[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1),
        "[" * 100_000, "[" * 100_000 + "]" * 100_000, "", "tru", '"a\nb"',
    ],
)  # fmt: skip
def test_what_could_not_be_sent_again_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)


def test_raw_line_ends_stand_in_strings_where_they_may() -> None:
    assert loads('"a\n\t\x01b"', raw_controls=True) == "a\n\t\x01b"
    assert loads("[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH) is not None


@given(st.text(max_size=40) | st.sampled_from(['{"a": [1.5, -2e3, true, null]}', "[1e400]"]))
@settings(max_examples=60)
def test_what_is_read_can_be_written(text: str) -> None:
    try:
        value: Any = loads(text)
    except ValueError:
        return
    assert json.loads(json.dumps(value, allow_nan=False)) == value
