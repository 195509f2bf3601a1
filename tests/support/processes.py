"""Helpers for tests with real processes: wait for a condition, find what carries a mark."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

BOUND_S = 15.0


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in {"Z", "X"}


def wait_until(condition: Callable[[], bool], what: str, bound_s: float = BOUND_S) -> None:
    """Poll until ``condition`` holds; fails after a generous bound."""
    end = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < end, f"waited {bound_s} s in vain: {what}"
        time.sleep(0.01)


async def until(condition: Callable[[], bool], what: str) -> None:
    """``wait_until`` on an event loop."""
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, f"waited {BOUND_S} s in vain: {what}"
        await asyncio.sleep(0.01)


def pids_in(directory: Path) -> list[int]:
    """The process ids that commands wrote to files called ``*.pid``."""
    found = []
    for path in directory.glob("*.pid"):
        text = path.read_text().strip()
        if text:
            found.append(int(text))
    return found
