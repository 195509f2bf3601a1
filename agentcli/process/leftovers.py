"""Where a killed app cannot take its commands with it, the next start does (REC-8).

On Linux the guard of a command always can, so nothing is recorded there. Elsewhere a guard
finds only the command's process group and its known children; so the guard's pid and start time
are stored with the session while its command runs, and what is found alive later is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentcli.domain.tool_ports import SessionState


STATE_KEY = "processes"
OnStart = Callable[[int], Awaitable[None]]

# pid -> start time of what runs now, by the identity of the session's state
_running: dict[int, dict[int, str]] = {}


@contextlib.asynccontextmanager
async def recorded(state: SessionState) -> AsyncIterator[OnStart]:
    """Gives the function to call with the pid of the command's process group."""
    mine = _running.setdefault(id(state), {})
    started: list[int] = []

    async def on_start(group: int) -> None:
        mine[group] = await asyncio.to_thread(start_time, group)
        started.append(group)
        await _store(state, mine)

    try:
        yield on_start
    finally:
        for group in started:
            mine.pop(group, None)
        if started:
            await _store(state, mine)
        if not mine:
            _running.pop(id(state), None)


async def kill_leftovers(state: SessionState) -> list[str]:
    """Kill what an earlier, killed app left running; one line for the user about each."""
    recorded_before = await state.get(STATE_KEY)
    if not isinstance(recorded_before, list) or not recorded_before:
        return []
    lines = []
    for item in recorded_before:
        group, started = _parse(item)
        if await asyncio.to_thread(end_group, group, started):
            lines.append(f"Killed process {group}, which an earlier run of this session had left.")
    await state.set(STATE_KEY, [])
    return lines


def end_group(group: int, started: str) -> bool:
    """Kill the process group whose leader started then; false when there is none. Blocks."""
    if group <= 1 or not started or started != start_time(group):
        return False
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        return False
    return True


def start_time(pid: int) -> str:
    """When the process started, as a text that no later process of that pid has; "" if gone."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        with contextlib.suppress(OSError, IndexError):
            return stat.read_text(errors="replace").rpartition(")")[2].split()[19]
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        listing = subprocess.run(  # noqa: S603 - a fixed program and a number
            ["/bin/ps", "-o", "lstart=", "-p", str(pid)],
            capture_output=True,
            check=False,
            timeout=5,
        )
        return listing.stdout.decode("utf-8", "replace").strip()
    return ""


def work_below(pids: Iterable[int]) -> frozenset[str]:
    """What each thread below ``pids`` has done so far; equal only if none did anything between.

    A thread that waits, and has not begun to wait since, has done nothing; what runs is never equal
    (proc_pid_status(5): "voluntary_ctxt_switches"). Blocks.
    """
    from agentcli.process.guard import descendants

    found = set()
    for pid in {each for ancestor in pids for each in descendants(ancestor)}:
        for file in Path("/proc", str(pid)).glob("task/*/status"):
            with contextlib.suppress(OSError):  # it has ended, and stands in the set no more
                text = file.read_text("utf-8", "replace")
                is_waiting = "\nState:\tS" in text and "ctxt_switches" in text
                counted = text[text.rfind("\nvoluntary_ctxt_switches") :]
                found.add(f"{file} {counted if is_waiting else time.monotonic_ns()}")
    return frozenset(found)


def remove_tree(place: Path, within_s: float = 2.0) -> None:
    """Remove a directory in which nobody works any more, however deep it is; blocks, never raises.

    Each directory is brought to the top and emptied there, so that neither depth nor the length of
    a path matters. What takes longer than ``within_s`` seconds stays, for the next program.
    """
    give_up = time.monotonic() + within_s
    with contextlib.suppress(OSError), _opened(str(place)) as top:
        waiting = list(_directories(top, give_up))
        while waiting and time.monotonic() < give_up:
            name = waiting.pop()
            with contextlib.suppress(OSError), _opened(name, top) as directory:
                for inner in _directories(directory, give_up):
                    with contextlib.suppress(OSError), _opened(inner, directory):
                        new = secrets.token_hex(16)
                        os.rename(inner, new, src_dir_fd=directory, dst_dir_fd=top)
                        waiting.append(new)
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=top)
    with contextlib.suppress(OSError):
        place.rmdir()


def _directories(directory: int, give_up: float) -> Iterator[str]:
    """Those in it; the files are removed."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield entry.name
                continue
            if time.monotonic() > give_up:
                return
            with contextlib.suppress(OSError):
                os.unlink(entry.name, dir_fd=directory)


@contextlib.contextmanager
def _opened(name: str, parent: int | None = None) -> Iterator[int]:
    """The directory, also one that is shut; no link is followed."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(name, flags | getattr(os, "O_PATH", 0), dir_fd=parent)
    try:
        with contextlib.suppress(OSError):  # chmod(2) follows links, but not this one
            os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101 - a text
        directory = os.open(".", flags, dir_fd=place)
    finally:
        os.close(place)
    try:
        yield directory
    finally:
        os.close(directory)


def _parse(item: Any) -> tuple[int, str]:
    try:
        return int(item["group"]), str(item["started"])
    except (TypeError, KeyError, ValueError):
        return 0, ""


async def _store(state: SessionState, running: dict[int, str]) -> None:
    rows = [{"group": group, "started": started} for group, started in running.items()]
    await state.set(STATE_KEY, rows)
