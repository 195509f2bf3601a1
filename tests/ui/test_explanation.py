"""The policy's answer in lines."""

from __future__ import annotations

import pytest

from agentcli.domain.permissions import Explanation
from agentcli.ui.explanation import explanation_lines
from agentcli.ui.theme import PLAIN


@pytest.mark.spec("SEC-3", "SEC-6")
def test_it_says_what_why_by_which_rule_and_hides_nothing() -> None:
    told = Explanation(
        "bash", "ask", "asked for by the rule bash(x *)", "x \u202eb", "bash(x *)", "f:1", "exec",
        "default", "bash(x b)", "",
    )  # fmt: skip
    assert explanation_lines(told, PLAIN) == [
        "It asks: asked for by the rule bash(x *)",
        "  because of  x <U+202E>b",
        "  rule        bash(x *)  (f:1)",
        "  mode        default; it counts as running a command",
        "  session     bash(x b)",
    ]


def test_an_answer_without_a_rule_is_short() -> None:
    told = Explanation("read_file", "allow", "reads are free", "", "", "", "read", "plan", "", "")
    assert explanation_lines(told, PLAIN) == [
        "It runs without asking: reads are free",
        "  mode        plan; it counts as reading",
    ]
