"""Which repository a working tree belongs to, when both sides of the link say so.

https://git-scm.com/docs/gitrepository-layout
"""

from __future__ import annotations

import os
from pathlib import Path

from agentcli.domain.tools import real_path


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(4096)).partition("\n")[0].strip()
    except OSError:
        return ""


def named_by(entry: Path) -> Path | None:
    """The directory that a ``.git`` file names."""
    line = _first_line(entry)
    if not line.startswith("gitdir:"):
        return None
    return real_path(entry.parent / line.removeprefix("gitdir:").strip())


def working_tree_of(directory: Path) -> Path | None:
    """The working tree that git's own ``directory`` for it names."""
    back = _first_line(directory / "gitdir")
    return real_path(directory / back).parent if back else None


def common_of_worktree(entry: Path, directory: Path) -> Path | None:
    """The repository of a linked working tree; ``None`` unless it knows of that tree.

    A ``.git`` file is the workspace's word alone; what it names must name it in return, which no
    command inside can bring about.
    """
    back = _first_line(directory / "gitdir")
    if not back or real_path(directory / back) != real_path(entry):
        return None
    common = real_path(directory / _first_line(directory / "commondir"))
    is_repository = all(os.path.exists(common / name) for name in ("HEAD", "objects"))  # noqa: PTH110 - never raises
    return common if is_repository and directory.parent == common / "worktrees" else None
