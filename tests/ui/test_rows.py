"""What a user sees as one character."""

from __future__ import annotations

import pytest

from agentcli.ui.rows import cluster_before


@pytest.mark.spec("UI-3")
@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 0), ("a", 1), ("ab", 1), ("e\u0301", 2), ("\u0301", 1), ("x\U0001f44d\U0001f3fd", 2),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", 7), ("1\ufe0f\u20e3", 3),
        ("\U0001f1e9\U0001f1ea", 2), ("\U0001f1e9\U0001f1ea\U0001f1eb", 1), ("\u65e5\u672c", 1),
    ],
)  # fmt: skip
def test_the_last_character_is_what_a_user_sees_as_one(text: str, length: int) -> None:
    assert cluster_before(text) == length
