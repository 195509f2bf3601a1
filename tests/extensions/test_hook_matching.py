"""Which hooks an event is for."""

from __future__ import annotations

import pytest

from agentcli.domain.hooks import HookConfig, HookEvent
from agentcli.extensions.hook_matching import matches, matching


@pytest.mark.parametrize(
    ("matcher", "name", "expected"),
    [
        ("", "bash", True),
        ("*", "bash", True),
        ("bash", "bash", True),
        ("bash|edit_file", "edit_file", True),
        ("bash, edit_file", "edit_file", True),
        ("edit", "edit_file", False),
        ("bash", "mcp__x__bash", False),
        ("mcp__.*", "mcp__x__bash", True),
        ("^edit", "edit_file", True),
        (".*_file$", "edit_file", True),
        ("mcp__x__.*", "bash", False),
        ("mcp__my-server__bash", "mcp__my-server__bash", True),
        # hooks that were written for another agent
        ("Bash", "bash", True),
        ("^Bash$", "bash", True),
        ("Edit|Write", "write_file", True),
        ("Edit|Write", "edit_file", True),
        ("Edit|Write", "apply_patch", True),
        ("Edit|Write", "read_file", False),
        ("BASH", "bash", False),
    ],
)
def test_a_matcher_is_a_name_names_or_a_regular_expression(
    matcher: str, name: str, expected: bool
) -> None:
    assert matches(matcher, name) is expected


def hook(command: str, event: HookEvent = HookEvent.PRE_TOOL_USE, matcher: str = "") -> HookConfig:
    return HookConfig(event, command, matcher)


def test_hooks_are_called_in_their_order_and_the_same_command_once() -> None:
    configs = [hook("b"), hook("a", matcher="bash"), hook("b", matcher="bash"), hook("c")]
    found = matching(configs, HookEvent.PRE_TOOL_USE, "bash")
    assert [config.command for config in found] == ["b", "a", "c"]


def test_hooks_of_other_events_are_not_called() -> None:
    configs = [hook("a", HookEvent.STOP), hook("b", HookEvent.SESSION_START, "resume")]
    assert matching(configs, HookEvent.PRE_TOOL_USE, "bash") == []
    assert matching(configs, HookEvent.SESSION_START, "startup") == []
    assert [c.command for c in matching(configs, HookEvent.SESSION_START, "resume")] == ["b"]


@pytest.mark.parametrize("event", [HookEvent.STOP, HookEvent.USER_PROMPT_SUBMIT])
def test_events_without_a_subject_ignore_the_matcher(event: HookEvent) -> None:
    assert matching([hook("a", event, "anything")], event, "") != []
