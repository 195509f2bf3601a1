"""The values of the policy: rules are added, told apart and taken out by their text."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import PermissionMode
from agentcli.policy.decision import Answer, Decision, Rule, parse_rule
from tests.policy.asking import policy_of


@pytest.mark.spec("SEC-3")
def test_rules_know_where_they_were_written_and_are_taken_out_by_their_text() -> None:
    policy = policy_of(PermissionMode.DEFAULT, ["bash(ls *)"], ["write_file"], source="x:1")
    policy.add_rules("ask", ["bash(ls *)"], "y:2")
    assert policy.allow[0].source == "x:1" and policy.ask[0].source == "y:2"
    assert policy.allow[0] == policy.ask[0], "the same rule, wherever it was written"
    assert policy.remove_rule("bash(ls *)")
    assert (policy.allow, policy.ask) == ((), ())
    assert policy.deny == (Rule("write_file"),)
    assert not policy.remove_rule("bash(ls *)")


def test_what_is_no_rule_is_refused_with_an_example() -> None:
    with pytest.raises(UsageError, match="not a permission rule") as refused:
        parse_rule("rm -rf /")
    assert "bash(" in refused.value.advice


def test_a_decision_tells_the_part_that_made_it() -> None:
    assert Decision(Answer.ASK, "it runs a command", part="rm x").why == "it runs a command: rm x"
    assert Decision(Answer.ASK, "it runs a command").why == "it runs a command"


@pytest.mark.spec("SEC-3")
def test_the_judge_is_not_imported_before_there_is_a_call_to_judge() -> None:
    code = (
        "import sys, agentcli.app.compose;"
        "judging = {m for m in sys.modules if m.startswith('agentcli.policy.')};"
        "print(judging - {'agentcli.policy.decision'}, 'tree_sitter' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set() False"
