"""What is known of a terminal before anything is written to it."""

from __future__ import annotations

import pytest

from agentcli.repl.terminal import reflows


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize(
    ("env", "answer"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7600"}, True),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, True),
        ({"TERM": "xterm-kitty", "SSH_TTY": "/dev/pts/1"}, True),
        ({"TERM": "tmux-256color"}, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/t,1,0"}, True),
        ({"TERM": "screen-256color", "STY": "1.host", "VTE_VERSION": "7600"}, False),
        ({"TERM": "xterm", "XTERM_VERSION": "XTerm(390)"}, False),
        ({}, False),
    ],
)
def test_lines_are_taken_to_be_broken_anew_where_that_is_known(
    env: dict[str, str], answer: bool
) -> None:
    assert reflows(env) is answer
