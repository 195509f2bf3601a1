"""A chat at a PTY that is read as fast as it writes; nothing is emulated, so nothing is slowed."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

AGENT = [sys.executable, "-m", "agentcli"]
PROMPT = b"Ask or tell it what to do"
HOLD_OFF_S = 0.3


class FastTerminal:
    """``argv`` at a PTY of 24 x 80 since ``began`` (``time.perf_counter``)."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.seen = bytearray()
        self.received = 0  # bytes, since the beginning
        self.began = time.perf_counter()
        self.pid, self._handle = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(argv[0], list(argv), dict(env))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._handle)

    def wait(self, wanted: bytes, timeout_s: float = 120) -> float:
        """Read until ``wanted`` has come since the last wait; the time of its arrival."""
        deadline = time.perf_counter() + timeout_s
        while wanted not in self.seen:
            left = deadline - time.perf_counter()
            if left <= 0 or not select.select([self._handle], [], [], left)[0]:
                raise AssertionError(f"{wanted!r} did not come: {bytes(self.seen[-400:])!r}")
            self.seen += self._read()
        now = time.perf_counter()
        del self.seen[: self.seen.rindex(wanted) + len(wanted)]
        return now

    def drain(self, timeout_s: float) -> None:
        """Read what has come, or comes in that time first."""
        if select.select([self._handle], [], [], timeout_s)[0]:
            self.seen += self._read()

    def settle(self, quiet_s: float = HOLD_OFF_S) -> None:
        """Read until nothing has come for a while, and forget it."""
        while select.select([self._handle], [], [], quiet_s)[0]:
            self._read()
        self.seen.clear()

    def still(self, quiet_s: float = HOLD_OFF_S) -> float:
        """Read until nothing has come for a while; when the last of it came."""
        last = time.perf_counter()
        while select.select([self._handle], [], [], quiet_s)[0]:
            self.seen += self._read()
            last = time.perf_counter()
        return last

    def _read(self) -> bytes:
        data = os.read(self._handle, 1 << 16)
        self.received += len(data)
        return data

    def send(self, keys: bytes) -> float:
        """Press keys; when that was."""
        at = time.perf_counter()
        os.write(self._handle, keys)
        return at
