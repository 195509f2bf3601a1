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
