"""What an approval shows: all of it."""

from __future__ import annotations

import pytest

from agentcli.domain.messages import ToolCall
from agentcli.domain.ports import ApprovalRequest
from agentcli.repl.approve import approval_lines
from agentcli.ui.theme import PLAIN


def shown(detail: str, command: str = "", rule: str = "") -> str:
    call = ToolCall("c", "bash", {"command": command} if command else {"path": "a\u200b.py"})
    request = ApprovalRequest(call, "Run it", detail, "writes files", rule)
    return "\n".join(approval_lines(request, PLAIN))


@pytest.mark.spec("SEC-6", "UI-7")
def test_the_tail_of_a_long_command_is_not_hidden() -> None:
    command = "echo " + "x" * 5000 + "; rm -rf ~"
    assert command in shown(f"{command}\n\nin /work", command)


@pytest.mark.spec("SEC-6", "UI-7")
def test_the_command_is_shown_even_when_the_preview_leaves_it_out() -> None:
    text = shown("in /work", "rm -rf \u202e~")
    assert "rm -rf <U+202E>~" in text
    assert "in /work" in text


@pytest.mark.spec("SEC-6")
def test_without_a_preview_the_arguments_are_shown() -> None:
    assert '"path": "a<U+200B>.py"' in shown("")


@pytest.mark.spec("SEC-6")
def test_a_diff_shows_invisible_characters_and_no_escapes() -> None:
    text = shown("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\u200b\x1b[8m\n")
    assert "1 + b<U+200B><U+001B>[8m" in text


@pytest.mark.spec("UI-7")
def test_it_says_why_and_what_for_this_session_would_allow() -> None:
    text = shown("x", rule="bash(rm *)")
    assert "Why it asks: writes files" in text
    assert "for this session (bash(rm *))" in text
