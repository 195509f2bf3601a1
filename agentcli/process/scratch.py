"""The private directory in which a command and its shell's state pass from one to the other.

Law: it is 0700 with an unpredictable name; whoever makes one removes it. What a killed app left
behind (it may hold exported variables) is removed by the next command of that user (SEC-9).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from agentcli.domain.cancel import uninterruptible

PREFIX = "agentcli-"
"""Begins the name of every temporary directory of ours; our pid follows."""
_NAME = re.compile(rf"{PREFIX}(?P<pid>\d+)-\w+")
_swept: set[Path] = set()


async def new_scratch(command: str, parent: Path | None = None) -> Path:
    """A directory with the command, in ``parent``; a cancelled caller leaves none behind."""
    made: list[Path] = []
    try:
        await uninterruptible(asyncio.to_thread(lambda: made.append(_make(command, parent))))
    except asyncio.CancelledError:
        for scratch in made:
            await remove_scratch(scratch)
        raise
    return made[0]


async def remove_scratch(scratch: Path) -> None:
    """Remove it, whatever happens to the caller."""
    await uninterruptible(asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True))


def _make(command: str, parent: Path | None) -> Path:
    sweep_once(Path(tempfile.gettempdir()))
    scratch = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    try:
        for name, data in (("command", command.encode("utf-8", "surrogateescape")), ("state", b"")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(scratch / name, flags, 0o600), "wb") as file:
                file.write(data)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return scratch


def sweep_once(parent: Path) -> None:
    """Remove what dead processes of this user left in ``parent``; once per process."""
    if parent in _swept:
        return
    _swept.add(parent)
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            match = _NAME.fullmatch(entry.name)
            if match and not _is_alive(int(match["pid"])) and _is_own_directory(entry):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_own_directory(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
