"""The repository that a worktree is made of, and what is written down of a worktree."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from agentcli.app.files.safe_git import SafeGit, find_git, refuse_references_elsewhere
from agentcli.domain.clean import one_line
from agentcli.domain.errors import UsageError
from agentcli.domain.values import frozen
from agentcli.domain.worktrees import common_of_worktree, named_by

BRANCHES = "agent/"
MAX_NAME = 100
_MAX_NAME_BYTES = 200  # a file's name has at most 255, and some go before and after it
MAKING, READY, REMOVING = "making", "ready", "removing"
_MAX_OUTPUT = 100_000
_STANDS_S = 2.0  # what a working git writes seldom stands still that long
_PATIENCE_S = 30.0


@frozen
class Worktree:
    """What is written down of one; paths are real ones.

    ``repository`` is the git directory that all of its worktrees share, ``root`` the working tree
    from which this one was made, ``admin`` the directory that git keeps for it. ``made_branch``:
    the branch was not there before. ``base`` is the commit that it began with.
    """

    name: str
    path: Path
    repository: Path
    root: Path
    branch: str
    base: str
    made_branch: bool
    created_at: float
    admin: Path | None = None
    step: str = MAKING


@frozen
class Repository:
    """Where a worktree is made of: ``top`` is the working tree, or the bare repository itself.

    ``below``: the directory inside of it in which the user is.
    """

    git: SafeGit
    common: Path
    top: Path
    below: PurePosixPath
    head: str
    notices: tuple[str, ...] = ()


def repository_at(cwd: Path) -> Repository:
    """The repository that ``cwd`` is in. Raises ``UsageError`` where no worktree can be made."""
    git = find_git(cwd)
    if git is None:
        raise UsageError("git was not found", "install it")
    found = git.output(
        *("rev-parse", "--path-format=absolute", "--git-common-dir", "--is-bare-repository"),
        "--is-inside-work-tree",
        limit=_MAX_OUTPUT,
    )
    if found is None:
        raise UsageError(
            f"{cwd} is in no git repository that git can read",
            "make one with git init and a first commit, or leave -w out",
        )
    common, is_bare, is_inside = os.fsdecode(found).rstrip("\n").rsplit("\n", 2)
    if "\n" in common:
        raise UsageError(f"the path of {cwd} has a line break in it", "rename the directory")
    if is_inside != "true" and is_bare != "true":
        raise UsageError(f"{cwd} is inside a git directory", "change to the working tree")
    refuse_references_elsewhere(git)
    top, below = Path(common), ""
    if is_inside == "true":
        place = git.output("rev-parse", "--show-toplevel", limit=_MAX_OUTPUT) or b""
        prefix = git.output("rev-parse", "--show-prefix", limit=_MAX_OUTPUT) or b""
        top, below = Path(os.fsdecode(place).rstrip("\n")), os.fsdecode(prefix).rstrip("\n")
    notices = []
    if git.output("rev-parse", "--show-superproject-working-tree", limit=_MAX_OUTPUT):
        notices.append(f"the worktree is one of the submodule {top}, not of the project around it")
    elif (top / ".gitmodules").is_file():
        notices.append("submodules are empty in the worktree: git submodule update --init")
    at_top = replace(git, cwd=top)
    real, head = Path(os.path.realpath(common)), git.commit("HEAD")
    return Repository(at_top, real, top, PurePosixPath(below), head, tuple(notices))


def common_directory(cwd: Path) -> Path | None:
    """The git directory that the worktrees of ``cwd``'s repository share, without asking git.

    ``None`` outside of a repository, and where a ``.git`` file names one that does not know of it.
    """
    for directory in (cwd, *cwd.parents):
        entry = directory / ".git"
        if entry.is_dir():
            return Path(os.path.realpath(entry))
        if entry.is_file():
            own = named_by(entry)
            if own is None:
                return None
            return common_of_worktree(entry, own) or (own if (own / "objects").is_dir() else None)
        if (directory / "HEAD").is_file() and (directory / "objects").is_dir():
            return Path(os.path.realpath(directory))
    return None


def checked_name(git: SafeGit, name: str) -> str:
    """``name`` as the end of a branch. Raises ``UsageError`` where git would not take it."""
    plain = name.strip().removeprefix(BRANCHES)
    is_fine = 0 < len(plain) <= MAX_NAME and not plain.startswith("-") and "\0" not in plain
    # git worktree add cannot find again what it has made for a directory that is called @
    is_fine = is_fine and len(os.fsencode(plain)) <= _MAX_NAME_BYTES and plain != "@"
    full = f"refs/heads/{BRANCHES}{plain}"
    if is_fine:
        is_fine = git.output("check-ref-format", full, limit=100) is not None
    if not is_fine:
        raise UsageError(
            f"{one_line(name, 60)!r} is no name for a worktree: git takes no such branch",
            "use letters, digits, dots and dashes; a prompt goes first, or after --",
        )
    return plain


def by_directory(git: SafeGit, directory: Path, tree: Path | None = None) -> SafeGit:
    """Git for the git directory ``directory``, whatever a ``.git`` file says."""
    options = (*git.options, f"--git-dir={directory}")
    if tree is not None:
        options += (f"--work-tree={tree}",)
    return replace(git, cwd=tree or directory, options=options)


def commit_of(git: SafeGit, name: str) -> str:
    """The id of the commit ``name``; empty when there is none."""
    found = git.output("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", limit=1000)
    return os.fsdecode(found or b"").strip()


def clear_left_locks(repository: Path, branch: str, since: float) -> bool:
    """Take away the locks of a git that was killed at work on ``branch``, begun at ``since``.

    Every other git would wait for them in vain. A lock stays that changes, or that a git may hold
    which was at work there when the lock was first seen, and still is: whether none stayed.
    """
    names = ("packed-refs.new", "packed-refs.lock", "config.lock", f"refs/heads/{branch}.lock")
    until = time.monotonic() + _PATIENCE_S
    left: dict[Path, tuple[float, int]] | None = None
    holders, stands_since = frozenset[str](), 0.0
    while left != {}:
        now = {file: made for name in names if (made := _made(file := repository / name, since))}
        if now != left:
            holders = _gits_in(repository) if now else holders
            left, stands_since = now, time.monotonic()
        elif time.monotonic() - stands_since >= _STANDS_S and not (
            holders and holders & _gits_in(repository)
        ):
            for file in left:
                with suppress(OSError):
                    file.unlink()
            return True
        if left and time.monotonic() >= until:
            return False
        time.sleep(0.05)
    return True


def _gits_in(repository: Path) -> frozenset[str]:
    """The processes of git at work there, stopped ones too, where the system tells of them."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_git = (place / "comm").read_bytes().startswith(b"git")
            if is_git and common_directory((place / "cwd").readlink()) == repository:
                found.add(place.name)
    return frozenset(found)


def _made(file: Path, since: float) -> tuple[float, int] | None:
    """When it was written, and which it is; ``None`` for an older one or where a link leads."""
    try:
        found = file.lstat()
        is_there = stat.S_ISREG(found.st_mode) and file.parent.resolve(strict=True) == file.parent
    except OSError:
        return None
    return (found.st_mtime, found.st_ino) if is_there and found.st_mtime >= since - 1 else None


def key_of(repository: Path) -> str:
    """The folder of a repository: readable, and of no other."""
    name = repository.parent.name if repository.name == ".git" else repository.name
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:40]
    mark = hashlib.sha256(os.fsencode(repository)).hexdigest()[:12]
    return f"{plain or 'repository'}-{mark}"


def folder_of(name: str) -> str:
    """The name of the directory of the worktree ``name``."""
    return name.replace("/", "~")  # which is in no name of a branch


def entries(folder: Path) -> list[Path]:
    """What is in ``folder``, in order; nothing where it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
