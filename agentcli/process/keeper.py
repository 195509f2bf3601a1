"""Who owns the commands of a session until nothing of them is left (CAN-10, REC-8)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time

from agentcli.process import guard as _guard
from agentcli.process.guarded import GuardedProcess


class ProcessKeeper:
    """Owns every guard of this process. Call ``close`` before the app exits."""

    def __init__(self) -> None:
        self._live: set[GuardedProcess] = set()

    def adopt(self, process: GuardedProcess) -> None:
        """Own ``process`` until nothing of it is left."""
        self._live.add(process)
        process.gone.add_done_callback(lambda _: self._live.discard(process))

    @property
    def running(self) -> int:
        """How many commands have not ended or have left something in the background."""
        return len(self._live)

    async def close(self, grace_s: float = 0.5) -> None:
        """Kill all that is left; SIGKILL comes ``grace_s`` after SIGTERM. Bounded."""
        live = tuple(self._live)
        if not live:
            return
        for process in live:
            process.kill(grace_s)
        give_up = time.monotonic() + grace_s + _guard.GIVE_UP_S + 1.0
        await asyncio.to_thread(_join, [process.guard for process in live], give_up)
        for process in live:
            if process.guard.returncode is not None:
                process.finish()
        self._live.difference_update(live)


_keepers: dict[str, ProcessKeeper] = {}


def keeper_of(owner: str) -> ProcessKeeper:
    """The keeper of one session's processes; two sessions share none (CAN-11)."""
    return _keepers.setdefault(owner, ProcessKeeper())


KEEPER = keeper_of("")
"""Owns what belongs to no session."""


def _join(guards: list[subprocess.Popen[bytes]], give_up: float) -> None:
    for guard in guards:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(max(0.0, give_up - time.monotonic()))
