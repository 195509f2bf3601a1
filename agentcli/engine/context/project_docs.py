"""AGENTS.md: what a project and its user want the agent to know (CTX-1).

The user's own file first, then from the project's root (where ``.git`` is) down to the
working directory, nearest last; CLAUDE.md where a directory has no AGENTS.md; 32 KiB in all.
It is text for the model only and changes nothing else, and no link in a project makes a file from
outside of it a part of that text (SEC-1).
"""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path

from agentcli.domain.values import frozen

MAX_BYTES = 32 * 1024
_NAMES = ("AGENTS.md", "CLAUDE.md")


@frozen
class ProjectDoc:
    """One file's text; ``cut`` when the budget ended within it."""

    path: Path
    text: str
    cut: bool = False


def find_docs(cwd: Path, user_directory: Path | None) -> tuple[ProjectDoc, ...]:
    """The documents, in the order in which the model reads them.

    When they exceed the budget the nearest are kept whole and the farthest are cut.
    """
    found: list[tuple[Path, bytes]] = []
    root = project_root(cwd)
    for directory in ([user_directory] if user_directory else []) + _down_to(cwd, root):
        for name in _NAMES:
            data = _read(directory / name, None if directory == user_directory else root)
            if data is not None:
                found.append((directory / name, data))
                break
    docs: list[ProjectDoc] = []
    left = MAX_BYTES
    for path, data in reversed(found):
        if left <= 0:
            break
        kept = data[:left]
        left -= len(kept)
        cut = len(kept) < len(data)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(kept, final=not cut).removeprefix("\ufeff").strip()
        if text:
            docs.append(ProjectDoc(path, text, cut))
    return tuple(reversed(docs))


def project_root(cwd: Path) -> Path:
    """The nearest directory at or above ``cwd`` that holds ``.git``, else ``cwd``."""
    for directory in (cwd, *cwd.parents):
        if (directory / ".git").exists():
            return directory
    return cwd


def _down_to(cwd: Path, root: Path) -> list[Path]:
    between = [cwd, *cwd.parents]
    return list(reversed(between[: between.index(root) + 1]))


def _read(path: Path, root: Path | None) -> bytes | None:
    """A regular file's first bytes; ``None`` for what is missing, unreadable, outside, no file."""
    try:
        if root is not None and not path.resolve().is_relative_to(root.resolve()):
            return None
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return os.read(handle, MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(handle)
