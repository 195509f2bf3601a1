"""Where a repository is, and which one a working tree belongs to, when both sides say so.

And what others decide by what they put into a directory: which program is found, and which runs.

https://git-scm.com/docs/gitrepository-layout
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from agentcli.domain.files import small_file
from agentcli.domain.tools import real_path

GITDIR = b"gitdir: "
_WORKTREE = re.compile(
    rb'^[ \t]*worktree[ \t]*=[ \t]*([^"\\\n;#]+?)[ \t\r]*$', re.IGNORECASE | re.MULTILINE
)
_VERSION_MANAGER = re.compile(
    r"(?:.*/)?(?:rustup|mise|rtx|asdf|proto-shim|\.?(?:asdf|mise|proto)/shims/[^/]+)"
)


def link_in(data: bytes, key: bytes = b"") -> str:
    """What ``data`` of a ``.git`` file (``key``: ``GITDIR``) or ``commondir`` names; may be empty.

    Git takes all of it but ends of lines at its end: a name may hold spaces, quotes and lines
    (``read_gitfile_gently`` and ``get_common_dir_noenv`` of its setup.c).
    """
    name = data.rstrip(b"\r\n")
    return os.fsdecode(name.removeprefix(key)) if name.startswith(key) and b"\0" not in name else ""


def named_by(entry: Path) -> Path | None:
    """The directory that a ``.git`` file names."""
    name = link_in(small_file(entry), GITDIR)
    return real_path(entry.parent / name) if name else None


def working_tree_of(directory: Path) -> Path | None:
    """The working tree that git's own ``directory`` for it names."""
    back = link_in(small_file(directory / "gitdir"))
    return real_path(directory / back).parent if back else None


def common_of_worktree(entry: Path, directory: Path) -> Path | None:
    """The repository of a linked working tree; ``None`` unless it knows of that tree.

    A ``.git`` file is the workspace's word alone; what it names must name it in return, which no
    command inside can bring about.
    """
    back = link_in(small_file(directory / "gitdir"))
    if not back or real_path(directory / back) != real_path(entry):
        return None
    common = real_path(directory / link_in(small_file(directory / "commondir")))
    is_repository = all(os.path.exists(common / name) for name in ("HEAD", "objects"))  # noqa: PTH110 - never raises
    return common if is_repository and directory.parent == common / "worktrees" else None


def is_of_submodule(entry: Path, directory: Path) -> bool:
    """Whether ``directory``, which the ``.git`` file names, is that of the submodule it lies in.

    As with a linked working tree it must name that in return: git writes it, in plain words
    (https://git-scm.com/docs/git-config, "core.worktree").
    """
    said = (
        each.decode("utf-8", "surrogateescape")
        for name in ("config", "config.worktree")
        for each in _WORKTREE.findall(small_file(directory / name))
    )
    names = any(real_path(directory / tree) == real_path(entry.parent) for tree in said)
    return names and all(os.path.exists(directory / name) for name in ("HEAD", "objects"))  # noqa: PTH110 - never raises


def is_git_directory(path: Path, born: Collection[str] = ()) -> bool:
    """Whether ``path`` looks like a repository's own directory, whatever it is called.

    ``born`` are plain names in it that are about to be made. Git takes a dangling link for a
    ``HEAD``, and what ``commondir`` names for the rest (gitrepository-layout(5)).
    """

    def has(name: str) -> bool:
        return name.casefold() in born or os.path.lexists(path / name)

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


def git_directories_for(directory: Path) -> tuple[Path, ...]:
    """Git's own directory for ``directory``, and the one that it shares with others; or nothing."""
    real = real_path(directory)
    for place in (real, *real.parents):
        entry = place / ".git"
        for own in (entry if os.path.isdir(entry) else named_by(entry), place):  # noqa: PTH112 - never raises
            if own is not None and is_git_directory(own):
                return own, own / link_in(small_file(own / "commondir"))
    return ()


_READ_BY_GIT = ("", "info", "objects/info", "rebase-apply", "rebase-merge", "sequencer")


def leads_git_elsewhere(git_directory: Path) -> bool:
    """Whether git may read another file by a link in its own directory: what is wrong it quotes."""
    for name in _READ_BY_GIT:
        with contextlib.suppress(OSError), os.scandir(git_directory / name) as entries:
            if any(each.is_symlink() and not each.is_dir() for each in entries):
                return True
    return False


def branch_of(directory: Path) -> str:
    """The branch that is checked out where ``directory`` is; empty outside of a repository."""
    for place in (directory, *directory.parents):
        entry = place / ".git"
        if named := link_in(small_file(entry), GITDIR):
            entry = place / named
        head = small_file(entry / "HEAD").decode("utf-8", "replace").strip()
        if head:
            return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:10]
    return ""


def filled_by_others(directory: Path) -> tuple[Path, ...]:
    """``directory`` and the repository that it lies in; of a linked working tree its own, too.

    A repository around the user's home is theirs.
    """
    here, home = real_path(directory), real_path(Path(os.environ.get("HOME") or "/"))
    marked = (each for each in (here, *here.parents) if os.path.lexists(each / ".git"))
    top = next(marked, here)
    own = named_by(top / ".git")
    common = own and common_of_worktree(top / ".git", own)
    found = (top, common.parent) if common else (top,)
    return (here, *(each for each in found if not home.is_relative_to(each)))


def lies_in(path: Path, directories: Iterable[Path]) -> bool:
    """Whether ``path``, or what it leads to, is in one of ``directories``, which are real paths."""
    names = (path, real_path(path), real_path(path.parent))
    return any(name.is_relative_to(each) for each in directories for name in names)


# --- programs that a directory chooses -----------------------------------------------------


def is_chosen_there(program: str) -> bool:
    """Whether the directory that ``program``, a path, starts in says which program that is.

    A version manager stands in its place, which obeys a file there that may name any directory:
    https://rust-lang.github.io/rustup/overrides.html#path, https://mise.jdx.dev/dev-tools/,
    https://asdf-vm.com/manage/configuration.html#tool-versions
    """
    real = os.path.realpath(program)
    return any(map(_VERSION_MANAGER.fullmatch, (program, real)))


def may_be_chosen_there(program: str) -> bool:
    """``is_chosen_there``, also by a version manager that is not known here."""
    return os.path.basename(os.path.dirname(program)) == "shims" or is_chosen_there(program)  # noqa: PTH119, PTH120 - texts
