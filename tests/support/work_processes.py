"""Which processes work where: to see that a tool runs, and that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.support.processes import wait_until


def commands_below(work: Path) -> dict[int, str]:
    """pid -> command line of every process that works in ``work``."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cwd").resolve().is_relative_to(work.resolve()):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = line.decode(errors="replace").strip()
    return found


def pids_of(command: str, work: Path) -> list[int]:
    """Processes below ``work`` with exactly this command line."""
    return [pid for pid, line in commands_below(work).items() if line == command]


def wait_for_process(command: str, agent: int) -> None:
    """Wait until a tool of the process ``agent`` runs ``command``."""
    work = Path(os.readlink(f"/proc/{agent}/cwd"))
    wait_until(lambda: bool(pids_of(command, work)), f"{command} never ran")
