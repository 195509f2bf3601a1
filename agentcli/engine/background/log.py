"""``output.log`` and ``result.json`` of one background run (BG-4).

A session file may come from anybody: where it says that these files lie is not believed.

Laws. The log holds at most ``MAX_LOG_CHARS`` characters of output, then says so; what comes after
that is counted and thrown away, so that a flood costs neither memory nor disk. What is read is what
was written, character for character, and never more than that bound allows. Files are private
(0600 in 0700) and redacted as the session file is; a secret is found also where it comes in two
pieces of a line. A disk that takes nothing is told once and never fails the run (FAIL-2).
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import os
import re
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from agentcli.domain.background import MAX_LOG_CHARS, BackgroundTask
from agentcli.domain.files import make_private_directory, open_regular

TRUNCATED = f"[system] background output truncated at {MAX_LOG_CHARS} characters"
CANCELED = "Canceled by request."
_HELD_CHARS = 4_096  # of a line that has no end yet
_MAX_READ_BYTES = 4 * (MAX_LOG_CHARS + 16_384)  # with the lines of ours
_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600

LOG_NAME, RESULT_NAME = "output.log", "result.json"
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")

Redact = Callable[[str], str]


def with_own_files(task: BackgroundTask, directory: Path) -> BackgroundTask:
    """``task`` with files that are ours, ``directory`` being where its session keeps them.

    What has ended may have left them with the session that this one is a copy of, beside it.
    """
    run_id = task.run_id if _RUN_ID.fullmatch(task.run_id) else "unnamed"
    own = directory / run_id
    log, result = Path(task.log_path), Path(task.result_path)
    if not task.is_active and log == log.parent / LOG_NAME and result == log.with_name(RESULT_NAME):
        real = Path(os.path.realpath(log))
        sessions = Path(os.path.realpath(directory.parent))
        place = (real.parent.parent.suffix, real.parent.name, real.name)
        if place == (directory.suffix, run_id, LOG_NAME) and real.parents[2] == sessions:
            return task
    return replace(task, log_path=str(own / LOG_NAME), result_path=str(own / RESULT_NAME))


class RunLog:
    """Takes output at once; ``flush`` and ``close`` block and belong into a thread.

    ``received`` counts all characters that came; ``problem`` is why nothing more is written.
    """

    def __init__(self, path: Path, redact: Redact) -> None:
        self.path = path
        self.received = 0
        self.problem = ""
        self._redact = redact
        self._waiting: deque[str] = deque()  # filled on the loop, emptied in a thread
        self._accepted = 0
        self._held = ""
        self._written = 0
        self._ends_line = True
        self._truncated = False
        self._file: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether more output is of no use."""
        return self._has_more or bool(self.problem)

    @property
    def _has_more(self) -> bool:
        """Whether more has come than the log may hold."""
        return self._accepted > MAX_LOG_CHARS

    @property
    def is_dirty(self) -> bool:
        """Whether ``flush`` has something to do."""
        return bool(self._waiting) or bool(self._held)

    def add(self, text: str) -> bool:
        """More output; false once nothing more is kept."""
        self.received += len(text)
        if not self.is_full and text:
            room = MAX_LOG_CHARS + _HELD_CHARS - self._accepted  # a secret is cut by nothing
            self._waiting.append(text[:room])
            self._accepted += min(len(text), room)
        return not self.is_full

    def open(self) -> None:
        """Make the directory and the file; goes on with what an earlier attempt has written."""
        try:
            _private_directory(self.path.parent.parent)
            _private_directory(self.path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self.path, flags, _FILE_MODE)
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror or error}"
            return
        before = read_log(self.path)
        self._truncated = TRUNCATED in before[-len(TRUNCATED) - 2 :]
        size = MAX_LOG_CHARS + 1 if self._truncated else len(before)
        self._accepted = self._written = min(size, MAX_LOG_CHARS + 1)
        self._ends_line = not before or before.endswith("\n")

    def flush(self) -> None:
        """Write what has come; the end of a line that has not ended is held back for a while."""
        is_all = self._has_more
        new = self._take()
        text = self._redact(self._held + new)  # before it is cut, which may be in a secret
        cut = text.rfind("\n") + 1
        if is_all or not new:  # nothing comes any more, or since the last time
            cut = len(text)
        elif len(text) - cut > _HELD_CHARS:
            cut = len(text) - _HELD_CHARS // 2
        self._held = text[cut:]
        self._keep(text[:cut], is_all=is_all)

    def close(self, last_line: str = "") -> None:
        """Write the rest, then ``last_line``, which the bound does not touch."""
        is_all = self._has_more
        text, self._held = self._redact(self._held + self._take()), ""
        self._keep(text, is_all=is_all)
        if last_line:
            self._write(last_line if self._ends_line else f"\n{last_line}")
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def discard(self) -> None:
        """There is no run after all: leave nothing behind."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
            self.path.parent.rmdir()

    def _take(self) -> str:
        """What waits. A piece that comes meanwhile is in this or in the next."""
        taken: list[str] = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return "".join(taken)

    def _keep(self, text: str, *, is_all: bool) -> None:
        """With ``is_all`` more was thrown away, also where hidden secrets have made room."""
        room = MAX_LOG_CHARS - self._written
        if text and room > 0:
            self._written += min(len(text), room)
            self._write(text[:room])
        if (is_all or len(text) > room) and not self._truncated:
            self._truncated = True
            self._write(f"{TRUNCATED}\n" if self._ends_line else f"\n{TRUNCATED}\n")

    def _write(self, text: str) -> None:
        if self._file is None or self.problem or not text:
            return
        data = text.encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror or error}"
            return
        self._ends_line = text.endswith("\n")


def write_result(path: Path, result: dict[str, object]) -> str:
    """Write ``result.json`` whole or not at all; what went wrong, empty for nothing. Blocks."""
    temporary = path.with_name(f".{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, _FILE_MODE), "wb") as file:
            text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
            file.write(text.encode("utf-8", "replace"))
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        return f"{path}: {error.strerror or error}"
    return ""


def open_log(path: Path) -> BinaryIO:
    """The log to be read. A run could put something else in its place: raises ``OSError`` then."""
    return open_regular(path, os.O_NOFOLLOW)


def read_log(path: Path) -> str:
    """All of a log as it was written, empty where there is none. Blocks."""
    try:
        with open_log(path) as file:
            data = file.read(_MAX_READ_BYTES)
    except OSError:
        return ""
    # half a character at the end is one that is just being written
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def _private_directory(path: Path) -> None:
    make_private_directory(path)
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if path.stat().st_mode & 0o077:
        path.chmod(_DIRECTORY_MODE)
