"""The names of a project's files, for completing them: made in the background, searched at once.

Law: the event loop never waits for it, and nothing is watched: what is searched may be some
seconds old, and asking renews it. Making it runs none of the repository's code (see
``safe_git``) and is bounded in time and size; without git the directories are walked.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from agentcli.app.safe_git import find_git, read_bounded
from agentcli.repl.fuzzy import PathList

MAX_FILES = 200_000
MAX_BYTES = 24_000_000
FRESH_S = 3.0
WALK_TIMEOUT_S = 5.0
WAIT_S = 0.03  # a small project's new index is worth waiting for
_PATIENCE = 20  # an index is renewed only after this many times what making it takes
_KEPT_USED = 100
_GONE = "R "
_LIST = ("ls-files", "-z", "-t", "--cached", "--others", "--deleted", "--exclude-standard")


class FileIndex:
    """The files below ``cwd``. Use it from one event loop; ``close`` ends what runs."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._list: PathList | None = None
        self._made_at = float("-inf")
        self._making: asyncio.Future[None] | None = None
        self._stop = threading.Event()
        self._took_s = 0.0
        self._used: dict[str, int] = {}

    def warm(self) -> None:
        """Begin to make the index unless it is fresh; returns at once."""
        if self._making is not None or self._stop.is_set():
            return
        fresh_s = max(FRESH_S, self._took_s * _PATIENCE)
        if self._list is not None and time.monotonic() - self._made_at < fresh_s:
            return
        loop = asyncio.get_running_loop()
        self._making = loop.create_future()
        worker = threading.Thread(target=self._make_for, args=(loop, self._making), daemon=True)
        worker.start()

    async def search(self, typed: str, limit: int) -> list[str]:
        """At most ``limit`` paths that match ``typed``, best first; see ``fuzzy``."""
        self.warm()
        if self._making is not None:
            await asyncio.wait({self._making}, timeout=None if self._list is None else WAIT_S)
        found = self._list
        if found is None:
            return []
        return await asyncio.to_thread(found.search, typed, limit, dict(self._used))

    def use(self, path: str) -> None:
        """``path`` was used: it comes before others that match as well."""
        self._used.pop(path, None)
        self._used[path] = max(self._used.values(), default=0) + 1
        while len(self._used) > _KEPT_USED:
            del self._used[next(iter(self._used))]

    def close(self) -> None:
        """End what runs; nothing is found afterwards that was not found before."""
        self._stop.set()

    def _make_for(self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
        started = time.monotonic()
        try:
            made = make(self._cwd, self._stop)
        except OSError:
            made = PathList(())

        def finish() -> None:
            self._list = made
            self._made_at = time.monotonic()
            self._took_s = self._made_at - started
            self._making = None
            if not done.done():
                done.set_result(None)

        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(finish)


def make(cwd: Path, stop: threading.Event) -> PathList:
    """The index of what is below ``cwd``; takes a while."""
    return PathList(_with_directories(project_files(cwd, stop)))


def project_files(cwd: Path, stop: threading.Event) -> list[str]:
    """Paths below ``cwd``, relative, with ``/``: those that git would add, else all (bounded)."""
    listed = _git_files(cwd, stop)
    return _typable(_walked(cwd, stop) if listed is None else listed)


def _walked(cwd: Path, stop: threading.Event) -> Iterator[str]:
    from agentcli.app.compose import project_files as walk

    end = time.monotonic() + WALK_TIMEOUT_S
    return walk(cwd, lambda: stop.is_set() or time.monotonic() > end)


def _typable(paths: Iterable[str]) -> list[str]:
    """Those that can be typed: no control characters, valid UTF-8; as many as are kept."""
    found: list[str] = []
    size = 0
    for path in paths:
        size += len(path)
        if len(found) >= MAX_FILES or size > MAX_BYTES:
            break
        if path and (path.isprintable() or _has_text_only(path)):
            found.append(path)
    return found


def _has_text_only(path: str) -> bool:
    return all(char >= " " and char != "\x7f" and not "\ud800" <= char <= "\udfff" for char in path)


def _with_directories(paths: list[str]) -> Iterator[str]:
    """``paths`` with all directories above them."""
    seen: set[str] = set()
    for path in paths:
        above = path
        while (cut := above.rfind("/", 0, len(above) - 1)) > 0:
            above = above[: cut + 1]
            if above in seen:
                break
            seen.add(above)
            yield above
        yield path


def _git_files(cwd: Path, stop: threading.Event) -> list[str] | None:
    """What git knows or would add; ``None`` without git or a repository."""
    git = find_git(cwd)
    try:
        process = git.start(*_LIST) if git is not None else None
    except OSError:
        return None
    if process is None:
        return None
    with process:
        data = read_bounded(process, MAX_BYTES, stop)
        data = data[: data.rfind(b"\0") + 1]
    if process.returncode > 0 or (process.returncode and not data):
        return None
    return _parsed(data)


def _parsed(data: bytes) -> list[str]:
    """Paths of ``ls-files -z -t``, without those that are deleted."""
    lines = os.fsdecode(data).split("\0")
    gone = {line[2:] for line in lines if line.startswith(_GONE)}
    paths = dict.fromkeys(line[2:] for line in lines if line)
    return [path for path in paths if path not in gone]
