"""How long a hook may take."""

from __future__ import annotations

import pytest

from agentcli.domain.extensions.hooks import DEFAULT_TIMEOUT_S, END_TIMEOUT_S, HookConfig, HookEvent


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
