"""A chat at a terminal, started and at its prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.chat import IDLE, Chat
from tests.support.cli import AGENT, agent_env
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.pty_driver import Terminal


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def chat(model_server: ModelServer, work: Path) -> Iterator[Chat]:
    """Starts a chat and waits for its prompt, or for ``until``."""
    with ExitStack() as stack:

        def start(
            *args: str,
            protocol: str = ANTHROPIC,
            rows: int = 24,
            cols: int = 80,
            until: str | re.Pattern[str] = IDLE,
            **env: str,
        ) -> Terminal:
            environment = agent_env(model_server, protocol, **env)
            terminal = Terminal([*AGENT, *args], environment, work, rows, cols)
            stack.enter_context(terminal)
            terminal.wait_for(until)
            return terminal

        yield start
