"""What is told of a call that nobody has made."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.app.permissions import explain, read_call
from agentcli.domain.errors import UsageError
from agentcli.domain.ports import PermissionMode
from agentcli.domain.tools import Workspace
from agentcli.policy.decision import Policy
from agentcli.tools.common.registry import Registry
from tests.policy.asking import policy_of

BOX = Registry.builtin(None, ())


@pytest.mark.spec("SEC-3")
def test_a_decision_is_told_with_its_rule_and_what_an_approval_would_offer(tmp_path: Path) -> None:
    policy = policy_of(PermissionMode.DEFAULT, ["bash(make *)"], [], source="here")
    workspace = Workspace(tmp_path, tmp_path)
    told = explain(BOX, workspace, policy, "bash", {"command": "make x"})
    assert (told.answer, told.rule, told.source) == ("allow", "bash(make *)", "here")
    told = explain(BOX, workspace, policy, "bash", {"command": "npm test"})
    rules = [(offer.rule, offer.always) for offer in told.offers]
    assert (told.answer, rules) == ("ask", [("bash(npm test)", True), ("bash(npm test *)", True)])


@pytest.mark.spec("SEC-3", "SEC-7")
def test_it_is_told_where_each_mode_would_run_what_the_sandbox_protects(tmp_path: Path) -> None:
    policy = Policy(PermissionMode.AUTO, contained=True)
    workspace = Workspace(tmp_path, tmp_path)
    told = explain(BOX, workspace, policy, "bash", {"command": "git config user.name X"})
    assert (told.answer, told.where, told.offers) == ("ask", "outside the sandbox", ())
    modes = {each.mode: (each.answer, each.where) for each in told.modes}
    assert modes["default"] == modes["accept-edits"] == ("ask", "outside the sandbox")
    assert modes["plan"] == ("deny", "")


@pytest.mark.spec("SEC-3")
def test_what_is_no_call_of_a_tool_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path)
    with pytest.raises(UsageError, match="there is no tool"):
        explain(BOX, workspace, Policy(), "red_file", {})
    with pytest.raises(UsageError, match="does not take this"):
        explain(BOX, workspace, Policy(), "read_file", {})


def test_words_are_read_as_a_call_where_they_name_a_tool_and_its_arguments() -> None:
    assert read_call(BOX, "read_file path=a.py limit=3") == (
        "read_file", {"path": "a.py", "limit": "3"},
    )  # fmt: skip
    for command in ("read_file", "git push", "env a=b", "read_file x", "X=1 make"):
        assert read_call(BOX, command) == ("bash", {"command": command})
