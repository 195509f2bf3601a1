"""What the tests of the playing chat share."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.pty_driver import Terminal

Start = Callable[..., Terminal]


def at_prompt(terminal: Terminal) -> None:
    """Wait for an empty prompt that waits: the cursor is in it, below it only the status line."""
    terminal.wait_until(
        lambda: terminal.screen()[terminal.cursor[0]].startswith("> Ask or tell"),
        what="the prompt",
    )
