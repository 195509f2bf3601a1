"""The playing chat at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.pty_driver import Terminal

REPOSITORY = Path(__file__).resolve().parents[2]
PLACEHOLDER = "Ask or tell it"
Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the playing chat in an empty directory and waits for its prompt."""
    started: list[Terminal] = []

    def run(*arguments: str, ready: str = PLACEHOLDER, **env: str) -> Terminal:
        size = {"rows": int(env.pop("ROWS", "30")), "cols": int(env.pop("COLS", "100"))}
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(REPOSITORY),
            **env,
        }
        command = [sys.executable, "-m", "tests.repl.chat_program", *arguments]
        terminal = Terminal(command, env=environment, cwd=tmp_path, **size)
        started.append(terminal)
        terminal.wait_for(ready)
        return terminal

    yield run
    for terminal in started:
        terminal.close()
