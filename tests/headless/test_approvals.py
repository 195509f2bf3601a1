"""What is said where nobody can be asked."""

from __future__ import annotations

import asyncio
import shlex

import pytest

from agentcli.domain.messages import ToolCall
from agentcli.domain.ports import ApprovalRequest, GrantOffer
from agentcli.headless.approvals import Nobody


@pytest.mark.spec("SEC-6")
def test_the_advice_can_be_pasted_into_a_shell_whatever_the_command_says() -> None:
    rule = "bash(echo ';touch x;')"
    call = ToolCall("c", "bash", {"command": "echo ';touch x;'"})
    request = ApprovalRequest(call, "Run it", "", "it runs", (GrantOffer(rule, session=True),))
    said = asyncio.run(Nobody().approve(request)).reason
    words = shlex.split(said.partition("is started: ")[2].partition(", or --yolo")[0])
    assert words == ["--allow-tool", rule]


@pytest.mark.spec("SEC-13")
def test_the_advice_does_not_repeat_a_command_of_megabytes() -> None:
    offers = tuple(GrantOffer(rule, session=True) for rule in (f"bash({'x' * 600})", "bash(x *)"))
    call = ToolCall("c", "bash", {"command": "x" * 600})
    request = ApprovalRequest(call, "Run it", "", "it runs", offers)
    said = asyncio.run(Nobody().approve(request)).reason
    assert len(said) < 400 and "--allow-tool 'bash(x *)', or --yolo" in said


@pytest.mark.spec("SEC-6", "SEC-10")
def test_the_advice_names_no_rule_that_would_be_another_where_it_is_pasted() -> None:
    offers = tuple(
        GrantOffer(rule, session=True) for rule in ("bash(echo a\x1b[8m)", "bash(echo *)")
    )
    request = ApprovalRequest(
        ToolCall("c", "bash", {"command": "x"}), "Run it", "", "it runs", offers
    )
    said = asyncio.run(Nobody().approve(request)).reason
    assert "is started: --allow-tool 'bash(echo *)', or --yolo" in said
