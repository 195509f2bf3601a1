"""Where users keep what they bring: the one table of directories, nearest first (EXT-1, EXT-3).

In each of them may stand ``skills``, ``commands`` and ``agents``. Laws: nearest wins; a directory
that is reached by two names is one place; what lies in a repository is no place before the user
trusts it (SEC-1); to ask costs one ``stat`` for each candidate and reads nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from agentcli.domain.values import frozen

NAMES = (".agents", ".claude")
"""Ours first: where both have a thing of the same name, it hides the other."""
KINDS = ("skills", "commands", "agents")
"""What may stand in each place."""
INSTRUCTIONS = (
    *("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md"),
    *("CLAUDE.local.md", ".claude/rules"),
)
"""What a directory may hold for ``extensions.instructions``; of the first four one is read."""
MAX_DEPTH = 100


def _is_no_secret(_: Path) -> bool:
    return False


@frozen
class ExtensionPlace:
    """A directory that is there. ``origin`` says in a word whose it is, for the user.

    ``in_repository``: it holds what others may have written, and the user trusts it; ``root`` is
    then the repository's. ``plugin``: the name of the plugin that brought it; empty for the other
    places. ``is_secret`` says whether a path holds credentials.
    """

    path: Path
    origin: str
    in_repository: bool = False
    plugin: str = ""
    root: Path | None = None
    is_secret: Callable[[Path], bool] = _is_no_secret

    def refusal(self, path: Path, real: Path) -> str:
        """Why the file ``path`` of this place, which is ``real``, is not read; empty: it may be.

        A link of a repository's makes nothing that lies elsewhere, or is secret, a part of it.
        """
        if not self.in_repository:
            return ""
        if self.is_secret(path) or self.is_secret(real):
            return "it may hold keys or passwords"
        around = os.path.realpath(self.root or self.path.parent)
        return "" if real.is_relative_to(around) else "it is a link that leads out of the project"


def repository_directories(cwd: Path, root: Path, home: str) -> tuple[Path, ...]:
    """The directories of the repository at ``root``, from ``cwd`` up; the user's own are none."""
    upwards = (cwd, *cwd.parents)[:MAX_DEPTH]
    between = upwards[: upwards.index(root) + 1] if root in upwards else (cwd,)
    candidates: list[Path] = []
    for directory in between:
        candidates += map(directory.joinpath, NAMES)
    homes = tuple(map(Path(home).joinpath, NAMES)) if home.startswith("/") else ()
    return tuple(_there(candidates, homes))


def extension_places(
    trusted: Sequence[Path],
    home: str,
    config_dir: Path,
    plugins: Iterable[tuple[str, Path]] = (),
    repository: ExtensionPlace | None = None,
) -> tuple[ExtensionPlace, ...]:
    """Every place in force, nearest first.

    ``trusted`` are the directories of a repository that the user trusts, each as ``repository`` is;
    ``plugins`` the name and root of each plugin that is switched on.
    """
    candidates: dict[Path, ExtensionPlace] = {}
    if trusted:
        repository = repository or ExtensionPlace(Path(), "project", in_repository=True)
        for path in trusted:
            candidates.setdefault(path, replace(repository, path=path))
    homes = map(Path(home).joinpath, NAMES) if home.startswith("/") else ()
    for path in (*homes, config_dir):
        candidates.setdefault(path, ExtensionPlace(path, "user"))
    for name, path in plugins:
        candidates.setdefault(path, ExtensionPlace(path, f"plugin {name}", plugin=name))
    return tuple(map(candidates.__getitem__, _there(candidates)))


def holds_instructions(directories: Iterable[Path]) -> bool:
    """Whether one of ``directories`` has anything that instructions for agents may stand in."""
    for directory in directories:
        for name in INSTRUCTIONS:
            try:
                os.lstat(directory / name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, ValueError):
                return True  # it is said of what may not be read
            return True
    return False


def _there(candidates: Iterable[Path], others: Sequence[Path] = ()) -> Sequence[Path]:
    """Those that are directories and none of ``others``, each by the name that comes first."""
    seen: set[tuple[int, int]] = set()
    found: list[Path] = []
    for number, path in enumerate((*others, *candidates)):
        try:
            status = os.stat(path)  # noqa: PTH116 - no object for a path that is not there
        except (OSError, ValueError):
            continue
        identity = status.st_dev, status.st_ino
        if stat.S_ISDIR(status.st_mode) and identity not in seen:
            seen.add(identity)
            found += [path] if number >= len(others) else []
    return found
