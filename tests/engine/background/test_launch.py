"""A call that has another tool run: hooks are asked about both, and both have to agree."""

from __future__ import annotations

import pytest

from agentcli.domain.hooks import SILENT, HookVerdict, Permission
from agentcli.domain.messages import ToolCall
from agentcli.engine.background.launch import both

CALL = ToolCall("c", "spawn_background", {"tool": "bash", "args": {"command": "changed"}})
ALLOW = HookVerdict(permission=Permission.ALLOW, reason="fine")
ASK = HookVerdict(permission=Permission.ASK, reason="look")


@pytest.mark.spec("SEC-3", "BG-1")
@pytest.mark.parametrize(
    ("inner", "outer", "permission"),
    [
        (SILENT, SILENT, None),
        (ALLOW, SILENT, Permission.ALLOW),
        (SILENT, ALLOW, None),  # it does not know what will run
        (ALLOW, ASK, Permission.ASK),
        (ASK, ALLOW, Permission.ASK),
    ],
)
def test_only_a_hook_that_knows_what_runs_allows_it(
    inner: HookVerdict, outer: HookVerdict, permission: Permission | None
) -> None:
    assert both(inner, outer, CALL).permission is permission


def test_what_both_say_is_heard_and_what_the_first_changed_stays_changed() -> None:
    inner = HookVerdict(context=("a",), notices=("n",), updated_input={"command": "changed"})
    outer = HookVerdict(context=("b",), blocked="no")
    said = both(inner, outer, CALL)
    assert (said.context, said.notices, said.blocked) == (("a", "b"), ("n",), "no")
    assert said.updated_input == CALL.arguments
    assert both(SILENT, SILENT, CALL).updated_input is None
