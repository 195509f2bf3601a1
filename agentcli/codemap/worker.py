"""A pass over the project in a process of its own, which can be killed (MEM-3).

Law: nothing is imported from the working directory (SEC-2), and nothing but the map is written. The
names of the files come on standard input, separated by NUL.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path

from agentcli.codemap.grammars import LANGUAGES, queries_of
from agentcli.codemap.index import Changes, MapIndex, discard, is_damage
from agentcli.codemap.ranking import rank
from agentcli.domain.errors import AgentError

_MEMORY_BYTES = 768 * 1024 * 1024
NICE = 10
"""What a map yields to everything else, the listing of the files too."""
_FILE_S = 15.0
"""A file that takes longer ends the process, which goes on without it; see ``MapIndex``."""
_MAX_NAMES_BYTES = 64 * 1024 * 1024
_BUSY_MS = 10_000
_KEPT_S = 30 * 86_400.0


def command_of(path: Path, root: Path, *, is_early: bool = False) -> tuple[str, ...]:
    """What starts the pass over ``root`` into the map ``path``; ``is_early``: nobody waits."""
    place = str(Path(__file__).resolve().parents[2])
    code = (
        f"import sys; sys.path.append({place!r}); from agentcli.codemap.worker import main; main()"
    )
    return (
        sys.executable,
        "-I",
        "-X",
        "utf8",
        "-c",
        code,
        str(path),
        str(root),
        *["early"] * is_early,
    )


def lock_of(path: Path) -> Path:
    """The file that a pass into the map ``path`` holds locked: the next one waits, and finds it."""
    return path.with_suffix(".lock")


def main() -> None:
    """Do it."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    os.nice(NICE)
    if sys.argv[3:]:  # a session of processes is nice among others by that file alone
        with suppress(OSError):  # https://man7.org/linux/man-pages/man7/sched.7.html
            Path("/proc/self/autogroup").write_text(str(NICE), encoding="ascii")
    names = sys.stdin.buffer.read(_MAX_NAMES_BYTES).split(b"\0")
    path = Path(sys.argv[1])
    alone = os.open(lock_of(path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(alone, fcntl.LOCK_EX)  # until this process ends
    for is_last in (False, True):
        try:
            _make(path, [os.fsdecode(name) for name in names if name])
        except (sqlite3.Error, OSError, AgentError, ValueError) as error:
            if is_last or not is_damage(error):
                raise SystemExit(str(error)) from error
            discard(path)
        else:
            break
    _drop_old(path.parent)


def _make(path: Path, listed: list[str]) -> None:
    index = MapIndex(path, Path(sys.argv[2]))
    index.db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    index.before_file = lambda: signal.setitimer(signal.ITIMER_REAL, _FILE_S)
    try:
        _take_up_grammars(index)
        index.update(Changes(), listed)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if index.needs_ranks:
            rank(index)
    finally:
        index.close()


def _drop_old(directory: Path) -> None:
    """Maps that nobody has asked for long: of worktrees and clones that are gone."""
    for path in directory.glob("*.db"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _KEPT_S:
                discard(path)
                lock_of(path).unlink(missing_ok=True)


def _take_up_grammars(index: MapIndex) -> None:
    """What was read as text is read again where its grammar has been installed since."""
    for language in LANGUAGES:
        if queries_of(language) is not None:
            index.db.execute(
                "UPDATE file SET stamp = '', hash = x'' WHERE language = ? AND note = ?",
                (language.name, "read as text"),
            )
