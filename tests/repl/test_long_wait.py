"""Only a clear yes lets the chat wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from agentcli.domain.errors import ErrorKind, ProviderError
from agentcli.repl.approve import STOP, WAIT, Questions


class Answered(Questions):
    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def ask(self, question: str, options: Sequence[str]) -> str:
        self.asked.append((question, tuple(options)))
        return self.text


@pytest.mark.spec("STR-2")
@pytest.mark.parametrize(
    ("said", "waits"),
    [(WAIT, True), ("y", True), ("Yes ", True), ("wait", True), ("", False), (STOP, False),
     ("no", False), ("n", False), ("3", False), ("why?", False)],
)  # fmt: skip
def test_only_a_clear_yes_waits(said: str, waits: bool) -> None:
    user = Answered(said)
    error = ProviderError(
        "p at h limits the rate of requests (429)", "retry after 14:05, in 42 min",
        kind=ErrorKind.RATE_LIMIT,
    )  # fmt: skip
    assert asyncio.run(user.offer(error, 2520.0)) is waits
    ((question, options),) = user.asked
    assert "p at h" in question and "14:05, in 42 min" in question
    assert options == (WAIT, STOP)
