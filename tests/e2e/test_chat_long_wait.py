"""The chat and a rate limit that lasts: it asks, waits, and can be stopped (STR-2)."""

from __future__ import annotations

import re

import pytest

from tests.e2e.chat import IDLE, Chat, leave
from tests.support.model_server import ModelServer
from tests.support.replies import rate_limited


@pytest.mark.spec("STR-2", "CAN-9", "UI-1")
def test_the_wait_is_offered_shown_and_ended_by_a_key(
    model_server: ModelServer, chat: Chat
) -> None:
    model_server.add(rate_limited("7200"), "Here again.")
    terminal = chat()
    terminal.line("first")
    terminal.wait_for("in 2 h")
    terminal.wait_for("Enter answers")  # from now on it does
    terminal.line("1")
    terminal.wait_for(re.compile(r"Waiting until \d\d:\d\d"))
    terminal.key("ctrl-c")
    terminal.wait_for(re.compile("cancelled", re.IGNORECASE))
    terminal.wait_for(IDLE)
    assert len(model_server.requests) == 1
    terminal.line("second")
    terminal.wait_for("Here again.")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("STR-2", "STR-9")
def test_a_no_ends_the_turn_with_the_error(model_server: ModelServer, chat: Chat) -> None:
    model_server.add(rate_limited("7200"), "Here again.")
    terminal = chat()
    terminal.line("first")
    terminal.wait_for("in 2 h")
    terminal.wait_for("Enter answers")  # from now on it does
    terminal.line("2")
    terminal.wait_for(re.compile("retry after"))
    terminal.wait_for(IDLE)
    terminal.line("second")
    terminal.wait_for("Here again.")
    leave(terminal)
