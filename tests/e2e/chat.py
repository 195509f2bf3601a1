"""What the tests of the chat share."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.support.pty_driver import Terminal

IDLE = re.compile(r"^> Ask or tell", re.MULTILINE)
Chat = Callable[..., Terminal]


def leave(terminal: Terminal) -> None:
    """Ctrl-D, and everything is as it was."""
    terminal.wait_for(IDLE)
    terminal.key("ctrl-d")
    assert terminal.wait_exit() == 0
    assert terminal.restored
    assert "Traceback" not in terminal.text()
