"""The files of a directory that is in no git repository, for completing their names.

Law: nearest first; what ignore files name, what no person edits and ``.git`` are left out; links
are listed and not followed; it ends when ``stopped`` says so.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

from agentcli.tools.search.ignore import Directory

_SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"}
)


def walk_project(root: str, stopped: Callable[[], bool]) -> Iterator[str]:
    """Paths below ``root``, relative to it; directories end in a slash."""
    root = os.path.realpath(root)
    skip = len(root.rstrip("/")) + 1
    waiting = deque([Directory.chain(root)])
    while waiting and not stopped():
        here = waiting.popleft()
        for path, is_directory in _entries(here):
            if stopped():
                return
            if is_directory:
                waiting.append(Directory(path, here))
            yield f"{path[skip:]}/" if is_directory else path[skip:]


def _entries(here: Directory) -> list[tuple[str, bool]]:
    """What is in a directory, by name."""
    try:
        with os.scandir(here.prefix) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:
        return []
    found: list[tuple[str, bool]] = []
    for entry in entries:
        try:
            is_directory = entry.is_dir(follow_symlinks=False)
        except OSError:
            continue
        path = here.prefix + entry.name
        if entry.name not in _SKIPPED and not here.ignores(path, is_dir=is_directory):
            found.append((path, is_directory))
    return found
