"""What comes into a new worktree beside its commit, and what is in one that is nowhere else."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from agentcli.app.files.safe_git import SafeGit
from agentcli.app.worktrees.repository import Repository, Worktree, by_directory, commit_of
from agentcli.domain.clean import one_line
from agentcli.domain.errors import AgentError, UsageError
from agentcli.domain.files import read_start, small_file
from agentcli.domain.values import frozen
from agentcli.domain.worktrees import common_of_worktree

INCLUDE_FILE = ".worktreeinclude"
GIT_TIMEOUT_S = 600.0
MAX_COPIED_FILES = 10_000
MAX_COPIED_BYTES = 500_000_000
_MAX_INCLUDE_BYTES = 100_000
_MAX_OUTPUT = 20_000_000
_MAX_NAMED_CHARS = 200
MAX_COMMITS = 1_000
# what git leaves in a worktree's own directory while it is in the middle of something
_UNFINISHED = {
    "MERGE_HEAD": "a merge", "CHERRY_PICK_HEAD": "a cherry-pick", "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase", "rebase-apply": "a rebase", "BISECT_LOG": "a bisection",
}  # fmt: skip


@frozen
class TreeState:
    """What is in a worktree that is nowhere else.

    ``problem``: it cannot be told, so it is treated as work. ``head``: what leads to its commits, a
    branch or the id of a commit.
    """

    changed: int = 0
    untracked: int = 0
    commits: int = 0
    unfinished: str = ""
    problem: str = ""
    in_use: bool = False
    head: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether nothing would be lost with it."""
        found = self.changed or self.untracked or self.commits or self.unfinished or self.problem
        return not found

    def text(self) -> str:
        """In a few words."""
        parts = [
            _counted(self.changed, "changed file"),
            _counted(self.untracked, "untracked file"),
            _counted(self.commits, "commit"),
            f"{self.unfinished} under way" if self.unfinished else "",
            self.problem,
        ]
        return ", ".join(filter(None, parts)) or "clean"


def _counted(number: int, what: str) -> str:
    if not number:
        return ""
    most = "+" if number >= MAX_COMMITS else ""
    return f"{number}{most} {what}{'' if number == 1 else 's'}"


def look(git: SafeGit, tree: Worktree) -> TreeState:
    """What is in ``tree`` that is nowhere else."""
    if pipe := _pipe_in(tree.path) or _pipe_in(tree.repository):
        return TreeState(problem=f"git would wait for the named pipe {one_line(pipe)}")
    common = by_directory(git, tree.repository)
    tip = commit_of(common, f"refs/heads/{tree.branch}") if tree.made_branch else ""
    if not tree.path.is_dir():
        return TreeState(commits=commits_only_there(common, tree, (tip,)))
    admin = tree.admin
    if admin is None or not is_linked(tree):
        return TreeState(problem="it is no worktree of its repository any more")
    own = by_directory(git, admin, tree.path)
    listed = None
    with contextlib.suppress(UsageError), own.without_filters(tree.path) as plain:
        listed = plain.output(
            *("status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames"),
            "--ignore-submodules=dirty",
            limit=_MAX_OUTPUT,
            timeout_s=GIT_TIMEOUT_S,
        )
    if listed is None or len(listed) >= _MAX_OUTPUT:
        return TreeState(problem="git cannot say what is in it")
    entries = [entry for entry in listed.split(b"\0") if entry]
    untracked = sum(entry.startswith(b"??") for entry in entries)
    unfinished = next((what for name, what in _UNFINISHED.items() if (admin / name).exists()), "")
    head = commit_of(own, "HEAD")
    branch = own.output("symbolic-ref", "--quiet", "--short", "HEAD", limit=10_000)
    return TreeState(
        changed=len(entries) - untracked,
        untracked=untracked,
        commits=commits_only_there(common, tree, (head, tip)),
        unfinished=unfinished,
        problem="a submodule is checked out in it" if (admin / "modules").exists() else "",
        head=os.fsdecode(branch or b"").strip() or head[:12],
    )


def _pipe_in(path: Path) -> str:
    """A pipe in the place of what git reads, which would wait for a writer."""
    waiting = [str(path)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_symlink() or entry.is_file():
                    continue
                elif stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode):
                    name = Path(entry.path).relative_to(path.parent)
                    if any(".git" in part for part in name.parts):
                        return str(name)
    return ""


def commits_only_there(git: SafeGit, tree: Worktree, tips: Sequence[str]) -> int:
    """How many commits only the worktree's branch, or its HEAD, leads to; at most a thousand."""
    wanted = [tip for tip in dict.fromkeys(tips) if tip]
    if not wanted:
        return 0
    out = [f"--exclude=refs/heads/{tree.branch}"] if tree.made_branch else []
    found = git.output(
        *("rev-list", "--single-worktree", "--count", f"--max-count={MAX_COMMITS}", *wanted),
        *("--not", *out, "--exclude=refs/stash", "--all"),
        limit=1000,
        timeout_s=GIT_TIMEOUT_S,
    )
    return int(found) if found is not None else MAX_COMMITS


def is_linked(tree: Worktree) -> bool:
    """Whether git's own directory for ``tree`` is still that of this very tree."""
    if tree.admin is None:
        return False
    return common_of_worktree(tree.path / ".git", tree.admin) == tree.repository


def first_bytes(path: Path) -> str:
    """The beginning of a small file as a text; empty where it cannot be read."""
    return os.fsdecode(small_file(path)).strip()


def about_filters(path: Path) -> tuple[str, ...]:
    """What the files of git's content filters, as of LFS, are like in the worktree at ``path``."""
    text = small_file(path / ".gitattributes", _MAX_INCLUDE_BYTES).decode("utf-8", "replace")
    used = sorted(set(re.findall(r"\sfilter=(\S+)", text)))
    if not used:
        return ()
    how = "; for LFS: git lfs pull" if "lfs" in used else ""
    named = one_line(", ".join(used), _MAX_NAMED_CHARS)
    what = f"files of the filter {named} are as git stores them{how}"
    return (f"filters do not run in a new worktree: {what}",)


def same_directory(path: Path, below: PurePosixPath) -> tuple[Path, tuple[str, ...]]:
    """The directory ``below`` in the worktree at ``path``; made if git does not know it."""
    wanted = path / below
    real = Path(os.path.realpath(wanted))
    if real.is_relative_to(os.path.realpath(path)):
        with contextlib.suppress(OSError):
            wanted.mkdir(parents=True, exist_ok=True)
            return wanted, ()
    return path, (f"{below} is no directory in the worktree: the agent works at its top",)


# --- .worktreeinclude ---------------------------------------------------------------------


def copy_included(repository: Repository, path: Path) -> tuple[str, ...]:
    """Copy the ignored files that ``.worktreeinclude`` names; lines for the user.

    No link is followed, on either side, and nothing is overwritten.
    """
    top = repository.top
    patterns = read_start(top / INCLUDE_FILE, _MAX_INCLUDE_BYTES + 1, os.O_NOFOLLOW)
    if len(patterns) > _MAX_INCLUDE_BYTES:
        return (f"{INCLUDE_FILE} is larger than {_MAX_INCLUDE_BYTES} bytes and was not used",)
    try:
        names = _ignored_and_named(repository.git, patterns)
    except AgentError as error:
        return (f"{INCLUDE_FILE} was not used: {error.message}",)
    left, missed, copied = MAX_COPIED_BYTES, 0, 0
    for name in names[:MAX_COPIED_FILES]:
        size = _copied(top, path, name, left)
        missed += size < 0
        copied += size >= 0
        left -= max(size, 0)
    missed += len(names[MAX_COPIED_FILES:])
    what = f"{_counted(missed, 'file')} of {INCLUDE_FILE} {'was' if missed == 1 else 'were'}"
    return (f"{what} not copied: links, too much, or not readable",) if missed else ()


def _ignored_and_named(git: SafeGit, patterns: bytes) -> Sequence[bytes]:
    """Files that are ignored by git and named by ``patterns``. Raises ``ConfigError``."""
    with tempfile.TemporaryFile() as file:
        file.write(patterns)
        file.flush()
        named = git.change(
            *("ls-files", "-z", "--others", "--ignored", "--exclude-from=/dev/stdin"), given=file
        )
    with tempfile.TemporaryFile() as file:
        file.write(named)
        file.seek(0)
        ignored = git.change("check-ignore", "-z", "--stdin", given=file, ok=(0, 1))
    return [name for name in ignored.split(b"\0") if name and not name.endswith(b"/")]


def _copied(top: Path, path: Path, name: bytes, most: int) -> int:
    """Copy the file ``name``; its size in bytes, or -1 where that is not done."""
    parts = name.split(b"/")
    if not all(parts) or {b".", b"..", b".git"} & {part.lower() for part in parts}:
        return -1
    try:
        with contextlib.ExitStack() as opened:
            there = _walked(opened, top, parts[:-1], make=False)
            source = os.open(
                parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=there
            )
            opened.callback(os.close, source)
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                return -1
            here = _walked(opened, path, parts[:-1], make=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(parts[-1], flags, status.st_mode & 0o777, dir_fd=here)
            with os.fdopen(target, "wb") as out, os.fdopen(os.dup(source), "rb") as file:
                shutil.copyfileobj(file, out)
            return status.st_size
    except OSError:
        return -1


def _walked(
    opened: contextlib.ExitStack, start: Path, parts: Sequence[bytes], *, make: bool
) -> int:
    """The directory that ``parts`` lead to from ``start``, by no link. Raises ``OSError``."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    handle = os.open(start, flags)
    opened.callback(os.close, handle)
    for part in parts:
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=handle)
        handle = os.open(part, flags | os.O_NOFOLLOW, dir_fd=handle)
        opened.callback(os.close, handle)
    return handle
