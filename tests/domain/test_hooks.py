"""How long a hook may take."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from agentcli.domain.extensions.hooks import (
    DEFAULT_TIMEOUT_S,
    END_TIMEOUT_S,
    HookConfig,
    HookEvent,
    inside_with_files,
)


@pytest.mark.parametrize(
    ("event", "wanted_s", "limit_s"),
    [
        (HookEvent.STOP, None, DEFAULT_TIMEOUT_S),
        (HookEvent.STOP, 600.0, 600.0),
        (HookEvent.SESSION_END, None, END_TIMEOUT_S),
        (HookEvent.SESSION_END, 600.0, END_TIMEOUT_S),
        (HookEvent.SESSION_END, 0.5, 0.5),
    ],
)
def test_nobody_waits_long_for_a_hook_of_the_end(
    event: HookEvent, wanted_s: float | None, limit_s: float
) -> None:
    assert HookConfig(event, "true", timeout_s=wanted_s).limit_s == limit_s


@pytest.mark.spec("SEC-5")
@pytest.mark.parametrize(
    ("about", "names"),
    [
        ({"file_path": "a.txt", "content": "x"}, ["a.txt"]),
        (
            {"patch": "*** Begin Patch\n*** Update File: a/b.py\n*** Move to: c.py\n"},
            ["a/b.py", "c.py"],
        ),
        ({"patch": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"}, ["x.py", "x.py"]),
        ({"patch": "in no form that is known"}, []),
    ],
)
def test_hooks_are_told_of_a_file_outside_only_where_its_name_leads_to_it(
    about: dict[str, str], names: list[str]
) -> None:
    asked: list[list[str]] = []

    def are_steady(found: Iterable[str]) -> bool:
        asked.append([*found])
        return len(asked) > 1

    hooks = [HookConfig(HookEvent.POST_TOOL_USE, "fmt", may_allow=True)]
    inside, why = inside_with_files(hooks, HookEvent.POST_TOOL_USE, about, are_steady)
    assert inside[0].contained and not inside[0].may_allow and "sandbox" in why
    assert inside_with_files(hooks, HookEvent.POST_TOOL_USE, about, are_steady) == (hooks, "")
    assert asked == [names, names]
