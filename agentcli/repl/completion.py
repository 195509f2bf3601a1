"""Completion in the prompt: ``/command`` at its start, ``@path`` anywhere.

Law: completing runs none of the repository's code (SEC-2): git is found outside the workspace,
its file-system monitor and hooks are off, its answer is bounded in time and size; without git
the directories are listed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document

from agentcli.domain.tools import real_path
from agentcli.ui.sanitize import reveal

MAX_SHOWN = 50
MAX_FILES = 100_000
CACHE_S = 5.0
GIT_TIMEOUT_S = 2.0

_AT_PATH = re.compile(r"(?:^|(?<=[\s(]))@([^\s@]*)$")
_COMMAND = re.compile(r"^/([a-z-]*)$")
_SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})


class ChatCompleter(Completer):
    """Chooses between commands and paths; looks for files in a thread."""

    def __init__(self, commands: Callable[[], Mapping[str, str]], cwd: Path) -> None:
        self._commands = commands
        self._paths = ThreadedCompleter(PathCompleter(cwd))

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Completions of what stands before the cursor."""
        if found := _COMMAND.match(document.text_before_cursor):
            yield from self._command_completions(found[1])
        elif _AT_PATH.search(document.text_before_cursor):
            yield from self._paths.get_completions(document, complete_event)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The same without blocking the loop."""
        if _AT_PATH.search(document.text_before_cursor):
            async for completion in self._paths.get_completions_async(document, complete_event):
                yield completion
        else:
            for completion in self.get_completions(document, complete_event):
                yield completion

    def _command_completions(self, typed: str) -> Iterable[Completion]:
        for name, help_text in self._commands().items():
            if name.startswith(typed):
                yield Completion(f"/{name}", -len(typed) - 1, display_meta=help_text)


class PathCompleter(Completer):
    """Files of the project whose path holds what was typed after ``@``, letters in order."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._files: list[str] = []
        self._listed_at = float("-inf")

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Completions of the path before the cursor."""
        del complete_event
        found = _AT_PATH.search(document.text_before_cursor)
        if found is None:
            return
        for path in best_matches(found[1], self._listing()):
            yield Completion(path, -len(found[1]), display=reveal(path))

    def _listing(self) -> list[str]:
        now = time.monotonic()
        if now - self._listed_at > CACHE_S:
            self._files = project_files(self._cwd)
            self._listed_at = time.monotonic()
        return self._files


def best_matches(typed: str, paths: Iterable[str]) -> list[str]:
    """At most ``MAX_SHOWN`` of ``paths`` that match, best first.

    The typed letters stand in the path in this order; a match in the file's name counts more
    than one in its directories, a start more than a middle, a short path more than a long one.
    """
    wanted = typed.lower()
    letters = re.compile(".*?".join(map(re.escape, wanted)), re.DOTALL) if wanted else None
    ranked: list[tuple[int, int, str]] = []
    for path in paths:
        lowered = path.lower()
        name = lowered.rstrip("/").rpartition("/")[2]
        if lowered.startswith(wanted):
            rank = 0
        elif name.startswith(wanted):
            rank = 1
        elif wanted in name:
            rank = 2
        elif wanted in lowered:
            rank = 3
        elif letters is not None and letters.search(lowered):
            rank = 4
        else:
            continue
        ranked.append((rank, len(path), path))
    ranked.sort()
    return [path for _, _, path in ranked[:MAX_SHOWN]]


def project_files(cwd: Path) -> list[str]:
    """Paths below ``cwd``, relative, with ``/``: those that git would add, else all (bounded)."""
    listed = _git_files(cwd)
    files = listed if listed is not None else list(_walk(cwd))
    directories = {f"{path.rpartition('/')[0]}/" for path in files if "/" in path}
    return [*sorted(directories), *files]


def _git_files(cwd: Path) -> list[str] | None:
    git = _outside(cwd, "git")
    if git is None:
        return None
    command = [git, "--no-optional-locks", "-c", "core.fsmonitor=false"]
    command += ["-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false"]
    command += ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    keep = ("PATH", "HOME", "LANG", "LC_ALL")
    env = {name: os.environ[name] for name in keep if name in os.environ}
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments, a program outside the workspace
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    names = done.stdout.decode("utf-8", "replace").split("\0")
    return list(dict.fromkeys(name for name in names[:MAX_FILES] if name))


def _outside(cwd: Path, program: str) -> str | None:
    """The program on PATH, unless it lies in the workspace."""
    places = [
        place
        for place in os.environ.get("PATH", "").split(os.pathsep)
        if Path(place).is_absolute() and not real_path(Path(place)).is_relative_to(real_path(cwd))
    ]
    return shutil.which(program, path=os.pathsep.join(places))


def _walk(cwd: Path) -> Iterator[str]:
    """Files below ``cwd``, nearest first, without following links."""
    waiting = [""]
    seen = 0
    deadline = time.monotonic() + GIT_TIMEOUT_S
    while waiting and seen < MAX_FILES and time.monotonic() < deadline:
        here = waiting.pop(0)
        try:
            entries = sorted(os.scandir(cwd / here), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            seen += 1
            path = f"{here}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED:
                    waiting.append(f"{path}/")
            else:
                yield path
