"""Helpers for tests with real processes: wait for a condition, find what carries a mark."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from agentcli.process.guard import process_table

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


def started(*argv: str) -> list[int]:
    """The living processes with just these words."""
    wanted, found = b"".join(word.encode() + b"\0" for word in argv), []
    for pid, _, _ in process_table():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == wanted:
                found.append(pid)
    return found


def guard_of(pid: int) -> int:
    """The nearest guard above a process."""
    parents = {each: parent for each, parent, _ in process_table()}
    while Path(f"/proc/{pid}/comm").read_text() != "agent-guard\n":
        pid = parents[pid]
    return pid
