"""The book of worktrees: made, entered, listed, left and removed.

Laws. A worktree lies in our state directory, on the branch ``agent/NAME``. What is going to be done
is written down before the first step and taken back after the last one: so whatever a kill leaves
is found by ``prune``. Nobody changes or removes a worktree without its lock, which git holds too as
long as it works, and the kernel releases. Nothing is removed that git has not said to be clean,
unless it was asked for by ``force``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath

from agentcli.app.files.safe_git import GitBusy, find_git
from agentcli.app.worktrees.contents import (
    GIT_TIMEOUT_S,
    MAX_COMMITS,
    TreeState,
    about_filters,
    commits_only_there,
    copy_included,
    first_bytes,
    is_linked,
    look,
    same_directory,
)
from agentcli.app.worktrees.repository import (
    BRANCHES,
    READY,
    REMOVING,
    Repository,
    Worktree,
    by_directory,
    checked_name,
    clear_left_locks,
    commit_of,
    common_directory,
    entries,
    folder_of,
    key_of,
    repository_at,
)
from agentcli.config.paths import Paths, ensure_dir
from agentcli.domain.errors import ConfigError, UsageError
from agentcli.domain.values import mutable
from agentcli.domain.worktrees import named_by
from agentcli.engine.context.system_prompt import project_root

if sys.platform != "win32":  # there, worktrees are not locked
    import fcntl

_MAX_RECORD_BYTES = 100_000
_REPOSITORY_LOCK = ".repository.lock"
_BY_WHICH_KNOWN = "locked gitdir"
_PATIENCE_S = 2.0  # for what takes moments: another start, the end of a killed one
_ERASE_S = 600.0
Stopped = Callable[[], bool]
_ADJECTIVES = (
    "amber", "bold", "brave", "brisk", "calm", "clever", "cosy", "eager", "fair", "fresh", "gentle",
    "glad", "keen", "kind", "lively", "lucky", "mellow", "merry", "neat", "noble", "proud", "quick",
    "quiet", "ready", "sharp", "sunny", "swift", "tidy", "warm", "wise",
)  # fmt: skip
_NOUNS = (
    "acorn", "badger", "beaver", "birch", "cedar", "comet", "crane", "daisy", "falcon", "fern",
    "finch", "fox", "harbor", "hazel", "heron", "lark", "lynx", "maple", "meadow", "otter", "owl",
    "panda", "pine", "raven", "river", "robin", "sparrow", "spruce", "willow", "wren",
)  # fmt: skip


class _TreeLock:
    """One worktree's lock: alone while it is made or removed, shared while it is worked in."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.handle = handle

    @classmethod
    def take(
        cls, path: Path, *, shared: bool = False, make: bool = True, patience_s: float = 0.0
    ) -> _TreeLock | None:
        """The lock; ``None`` while another has it. Raises ``OSError``."""
        until = time.monotonic() + patience_s
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
            lock = cls(path, handle)
            if lock.become(shared=shared):
                if lock._is_current():
                    return lock
            elif time.monotonic() >= until:
                os.close(handle)
                return None
            os.close(handle)
            time.sleep(0.01)

    def become(self, *, shared: bool) -> bool:
        """Alone, or one of many; whether that was possible at once."""
        if sys.platform == "win32":
            return True
        try:
            fcntl.flock(self.handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _is_current(self) -> bool:
        """False for the file of a lock that was removed meanwhile."""
        try:
            there, ours = os.stat(self.path), os.fstat(self.handle)  # noqa: PTH116 - as its twin
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self, *, remove: bool = False) -> None:
        """Give it back. May be called again. ``remove``: held alone, and nothing is left to lock"""
        if self.handle >= 0:
            if remove:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            os.close(self.handle)
            self.handle = -1


@mutable
class Stay:
    """An agent's time in a worktree: from ``Worktrees.enter`` to ``Worktrees.leave``.

    ``directory`` is where it works, ``notices`` are lines for the user.
    """

    tree: Worktree
    directory: Path
    lock: _TreeLock
    notices: tuple[str, ...] = ()


class TreeInUse(UsageError):
    """Another agent works in the worktree."""


class Worktrees:
    """The user's worktrees, as they are written down below ``paths``."""

    def __init__(self, paths: Paths) -> None:
        self._trees = Path(os.path.realpath(paths.worktrees_dir))
        self._records = paths.worktree_records_dir
        self._maps = paths.maps_dir

    def all(self, repository: Path | None = None) -> Sequence[Worktree]:
        """Those of the git directory ``repository``, or all; the oldest first."""
        folders = [self._records / key_of(repository)] if repository else entries(self._records)
        files = (file for folder in folders for file in entries(folder) if _is_record(file))
        found = [tree for tree in map(_read_record, files) if tree is not None]
        return sorted(found, key=lambda tree: (tree.created_at, tree.name))

    def named(self, name: str, repository: Path | None) -> Worktree:
        """The worktree ``name``. Raises ``UsageError`` when there is none, or several."""
        plain = name.removeprefix(BRANCHES)
        found = [tree for tree in self.all(repository) if tree.name == plain]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(
                f"several repositories have a worktree {plain}", "run it in the one that you mean"
            )
        raise UsageError(f"there is no worktree {plain!r}", "see: agent worktrees list")

    def path_of(self, repository: Path, name: str) -> Path:
        """Where the worktree ``name`` is, whether it is there or not."""
        return self._trees / key_of(repository) / folder_of(name)

    def holding(self, directory: Path) -> Worktree | None:
        """The worktree that ``directory`` is in, or was."""
        real = Path(os.path.realpath(directory))
        if not real.is_relative_to(self._trees):
            return None
        parts = real.relative_to(self._trees).parts
        known = len(parts) > 1 and _read_record(self._records / parts[0] / f"{parts[1]}.json")
        return known or None

    def places_of(self, cwd: Path) -> Callable[[str], bool]:
        """Tells of a directory whether it is ``cwd``, or that in a worktree of its repository."""
        real = Path(os.path.realpath(cwd))
        names, common = {str(cwd), str(real)}, common_directory(real)
        if common is None or self.holding(real) is not None:
            return names.__contains__
        below = real.relative_to(project_root(real)).parts
        folder = (*self._trees.parts, key_of(common))

        def fits(place: str) -> bool:
            parts = Path(place).parts
            is_worktree = parts[: len(folder)] == folder and len(parts) > len(folder)
            return place in names or (is_worktree and parts[len(folder) + 1 :] == below)

        return fits

    def enter_again(self, directory: Path, cwd: Path) -> Stay | None:
        """The worktree that a session worked in, at ``directory``; made again where it is gone.

        ``None``: it was in none. ``cwd`` tells which repository it is of. Raises as ``enter`` does.
        """
        place = Path(os.path.realpath(directory))
        if not place.is_relative_to(self._trees) or len(place.relative_to(self._trees).parts) < 2:  # noqa: PLR2004 - repository and name
            return None
        folder, own, *below = place.relative_to(self._trees).parts
        name, tree = own.replace("~", "/"), self.holding(place)
        common = tree.repository if tree else common_directory(cwd)
        if common is None or key_of(common) != folder:
            raise UsageError(
                f"the worktree {name} of this session was removed",
                "change to its repository to have it made again, or go on here with -C .",
            )
        repository = repository_at(tree.root if tree and tree.root.is_dir() else cwd)
        stay = self.enter(replace(repository, below=PurePosixPath(*below)), name)
        if tree is None or stay.tree.created_at != tree.created_at:
            begins = stay.tree.branch if not stay.tree.made_branch else "HEAD"
            again = f"the worktree {name} was removed: it is made again from {begins}"
            stay.notices = (again, *stay.notices)
        return stay

    def hold(self, directory: Path) -> Callable[[], None]:
        """Keep the worktree that ``directory`` is in from being removed until this is called."""
        tree = self.holding(directory)
        lock = None
        with contextlib.suppress(OSError):
            lock = tree and _TreeLock.take(self._lock_of(tree.path), shared=True, make=False)
        return lock.release if lock else lambda: None

    def _record_of(self, tree: Worktree) -> Path:
        return self._records / tree.path.parent.name / f"{tree.path.name}.json"

    def _lock_of(self, path: Path) -> Path:
        return self._records / path.parent.name / f"{path.name}.lock"

    def _write(self, tree: Worktree) -> None:
        values = {name: _plain(value) for name, value in asdict(tree).items()}
        file = self._record_of(tree)
        text = json.dumps(values, indent=1, sort_keys=True) + "\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(_unfinished(file), flags, 0o600), "wb") as opened:
                opened.write(text.encode("utf-8", "surrogateescape"))
                opened.flush()
                os.fsync(opened.fileno())
            _unfinished(file).replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                _unfinished(file).unlink()
            reason = error.strerror or str(error)
            raise ConfigError(f"cannot write {file}: {reason}", "nothing was changed") from error

    # --- begin -----------------------------------------------------------------------------

    def enter(
        self, repository: Repository, name: str | None, stopped: Stopped | None = None
    ) -> Stay:
        """The worktree ``name``, made if need be; without a name a new one.

        Raises ``UsageError`` or ``ConfigError``, and leaves nothing then; also soon after
        ``stopped`` says that nobody wants it any more.
        """
        if name is None:
            return self._enter_new(repository, stopped)
        name = checked_name(repository.git, name)
        lock = self._locked(self.path_of(repository.common, name), name)
        try:
            tree, notices = self._there(repository, name, lock, stopped)
            directory, more = same_directory(tree.path, repository.below)
            lock.become(shared=True)
        except BaseException:
            path = self.path_of(repository.common, name)
            lock.release(remove=not lock.path.with_suffix(".json").exists())
            for folder in (lock.path.parent, path.parent):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise
        return Stay(tree, directory, lock, (*notices, *more))

    def _enter_new(self, repository: Repository, stopped: Stopped | None) -> Stay:
        for attempt in range(100):
            name = f"{secrets.choice(_ADJECTIVES)}-{secrets.choice(_NOUNS)}"
            if attempt > 50:  # noqa: PLR2004 - half of the attempts
                name += f"-{secrets.randbelow(10_000)}"
            if self._is_free(repository, name):
                with contextlib.suppress(TreeInUse):
                    return self.enter(repository, name, stopped)
        raise ConfigError("no name for a new worktree was free", "give one: -w NAME")

    def _is_free(self, repository: Repository, name: str) -> bool:
        path = self.path_of(repository.common, name)
        if os.path.lexists(path) or os.path.lexists(self._lock_of(path)):
            return False
        return not commit_of(repository.git, f"refs/heads/{BRANCHES}{name}")

    def _locked(self, path: Path, name: str, patience_s: float = 0.0) -> _TreeLock:
        """The lock of the tree at ``path``, alone. Raises ``UsageError`` while it is in use."""
        file = self._lock_of(path)
        ensure_dir(file.parent)
        try:
            try:
                lock = _TreeLock.take(file, patience_s=patience_s)
            except FileNotFoundError:  # the folder went with the last one in it
                lock = _TreeLock.take(ensure_dir(file.parent) / file.name, patience_s=patience_s)
        except OSError as error:
            raise ConfigError(f"cannot lock {file}: {error.strerror}", "see the file") from error
        if lock is None:
            raise TreeInUse(
                f"the worktree {name} is in use by another agent",
                f"take another name, or work beside it: agent -C {path}",
            )
        return lock

    def _there(
        self, repository: Repository, name: str, lock: _TreeLock, stopped: Stopped | None
    ) -> tuple[Worktree, tuple[str, ...]]:
        """The tree: entered again, or made; lines for the user."""
        path = self.path_of(repository.common, name)
        tree = _read_record(self._records / path.parent.name / f"{path.name}.json")
        if tree is not None and tree.step == READY and tree.path.is_dir():
            if not is_linked(tree):
                raise ConfigError(
                    f"{tree.path} is no worktree of {tree.repository} any more",
                    f"save what you need, then: agent worktrees remove {name} --force",
                )
            return tree, ()
        made_branch = False
        if tree is not None:
            was_lost = tree.step == READY  # its directory is gone, its commits are not
            self._discard(tree, keep_branch=was_lost)
            made_branch = was_lost and tree.made_branch
        return self._make(repository, name, (lock, stopped), made_branch=made_branch)

    def _make(
        self,
        repository: Repository,
        name: str,
        while_: tuple[_TreeLock, Stopped | None],
        *,
        made_branch: bool,
    ) -> tuple[Worktree, tuple[str, ...]]:
        git, branch = repository.git, f"{BRANCHES}{name}"
        lock, stopped = while_
        earlier = git.commit(f"refs/heads/{branch}")
        base = earlier or repository.head
        if not base:
            raise UsageError(
                f"{repository.top} has no commit that a worktree could begin with",
                'make one first: git commit --allow-empty -m "first"',
            )
        if not earlier and commit_of(git, f"refs/heads/{BRANCHES.rstrip('/')}"):
            raise UsageError(
                f"the branch {BRANCHES.rstrip('/')} is in the way of {branch}",
                f"rename it: git branch -m {BRANCHES.rstrip('/')} NEW-NAME",
            )
        path = self.path_of(repository.common, name)
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} is there, but nothing is written down of it", "move it elsewhere first"
            )
        tree = Worktree(
            name=name,
            path=path,
            repository=repository.common,
            root=repository.top,
            branch=branch,
            base=base,
            made_branch=made_branch or not earlier,
            created_at=round(time.time(), 3),
        )
        self._write(tree)
        try:
            ensure_dir(path.parent)
            start = ("-b", branch, str(path), base) if not earlier else (str(path), branch)
            add = ("worktree", "add", "--quiet", "--no-checkout", "--lock")
            self._clear_half_made(tree)
            with self._alone(tree) as handle:
                git.without_hooks().change(
                    *(*add, "--reason", _reason(tree), *start),
                    keep_open=(lock.handle, handle),
                    timeout_s=GIT_TIMEOUT_S,
                )
            tree = replace(tree, admin=named_by(path / ".git"))
            admin = tree.admin or repository.common
            own = by_directory(git, admin, path)
            own = replace(own, env={**own.env, "GIT_INDEX_FILE": f"{admin}/index"})
            with own.without_filters(path) as plain:
                plain.change(
                    *("reset", "--quiet", "--hard", "--no-recurse-submodules"),
                    timeout_s=GIT_TIMEOUT_S,
                    keep_open=(lock.handle,),
                    stopped=stopped,
                )
            copied = copy_included(repository, path)
            _go_on(stopped)
            tree = replace(tree, step=READY)
            self._write(tree)
        except BaseException:
            self._discard(tree)
            raise
        return tree, (*repository.notices, *about_filters(path), *copied)

    # --- end -------------------------------------------------------------------------------

    def leave(self, stay: Stay) -> TreeState | None:
        """Remove the worktree if it is clean; ``None``: it is gone. Else what is kept in it.

        It is kept as well while another works in it.
        """
        try:
            if not stay.lock.become(shared=False):
                return replace(self.state(stay.tree, is_ours=True), in_use=True)
            state = self.state(stay.tree, is_ours=True)
            if state.problem or state.commits >= MAX_COMMITS:  # another may have been in git's way
                with self._alone(stay.tree):
                    state = self.state(stay.tree, is_ours=True)
            if not state.is_clean:
                return state
            self._discard(stay.tree)
            stay.lock.release(remove=True)
            self._tidy(stay.tree)
            return None
        finally:
            stay.lock.release()

    def state(self, tree: Worktree, *, is_ours: bool = False) -> TreeState:
        """What is in it; ``in_use`` is not looked at where the lock ``is_ours``."""
        in_use = not is_ours and self._in_use(tree)
        git = find_git(tree.root)
        if git is None or not tree.repository.is_dir():
            why = "git was not found" if git is None else "its repository is gone"
            return TreeState(problem=why, in_use=in_use)
        return replace(look(git, tree), in_use=in_use)

    def _in_use(self, tree: Worktree) -> bool:
        try:
            lock = _TreeLock.take(self._lock_of(tree.path), make=False)
        except OSError:
            return False
        if lock is None:
            return True
        lock.release()
        return False

    def remove(self, tree: Worktree, *, force: bool) -> TreeState:
        """Remove it; what was lost with it. Raises ``UsageError`` where that needs ``force``."""
        patience_s = 0.0 if tree.step == READY else _PATIENCE_S
        lock = self._locked(tree.path, tree.name, patience_s)
        try:
            tree = _read_record(self._record_of(tree)) or tree
            state = self.state(tree, is_ours=True)
            is_work = tree.step == READY and not state.is_clean
            if is_work and not force:
                raise UsageError(
                    f"the worktree {tree.name} holds work ({state.text()}), which would be lost:"
                    f" {tree.path}",
                    f"look at it, or: agent worktrees remove {tree.name} --force",
                )
            self._discard(tree, with_commits=force)
            lock.release(remove=True)
            self._tidy(tree)
        finally:
            lock.release()
        return state if is_work else TreeState()

    def prune(self, repository: Path | None) -> Iterator[tuple[Worktree, TreeState | None]]:
        """Remove the clean ones that nobody works in, and what a kill has left.

        Each with what it keeps; ``None``: it is gone.
        """
        for seen in self.all(repository):
            patience_s = 0.0 if seen.step == READY else _PATIENCE_S
            try:
                lock = self._locked(seen.path, seen.name, patience_s)
            except TreeInUse:
                yield seen, replace(self.state(seen, is_ours=True), in_use=True)
                continue
            try:
                tree = _read_record(self._record_of(seen))
                if tree is None:  # its own agent was faster
                    lock.release(remove=True)
                    continue
                state = self.state(tree, is_ours=True)
                if tree.step == READY and not state.is_clean:
                    yield tree, state
                    continue
                self._discard(tree)
                lock.release(remove=True)
                yield tree, None
            finally:
                lock.release()
                self._tidy(seen)
        self._tidy_folders(repository)

    def _discard(
        self, tree: Worktree, *, with_commits: bool = False, keep_branch: bool = False
    ) -> None:
        """Take back all that was made, under its lock; can be begun again after a kill.

        The branch stays where it has commits that nothing else has, unless ``with_commits``.
        """
        with contextlib.suppress(ConfigError):  # a full disk: this is what makes room
            self._write(replace(tree, step=REMOVING))
        _erase(tree.path)
        if self._maps.is_dir():
            from agentcli.codemap.index import map_file

            file = map_file(self._maps, tree.path)
            for end in ("", "-wal", "-shm"):
                file.with_name(file.name + end).unlink(missing_ok=True)
            file.with_suffix(".lock").unlink(missing_ok=True)
        with self._alone(tree) as handle:
            self._unlink(tree, handle, with_commits=with_commits, keep_branch=keep_branch)
        for file in (_unfinished(self._record_of(tree)), self._record_of(tree)):
            file.unlink(missing_ok=True)

    def _unlink(
        self, tree: Worktree, handle: int, *, with_commits: bool, keep_branch: bool
    ) -> None:
        git = find_git(tree.root)
        for admin in _admin_directories(tree):
            for each in sorted(entries(admin), key=lambda path: _BY_WHICH_KNOWN.find(path.name)):
                _erase(each)  # what it is known by last
            _erase(admin)
        with contextlib.suppress(OSError):
            (tree.repository / "worktrees").rmdir()
        if git is not None and tree.made_branch and not keep_branch and tree.repository.is_dir():
            ours = by_directory(git, tree.repository)
            tip = commit_of(ours, f"refs/heads/{tree.branch}")
            if tip and (with_commits or not commits_only_there(ours, tree, (tip,))):
                ours.without_hooks().change(
                    "branch", "-D", "--quiet", "--", tree.branch, keep_open=(handle,)
                )

    def _clear_half_made(self, beside: Worktree) -> None:
        """Take back what others in the repository had begun to make or remove when they died.

        Git would make no other worktree as long as one lacks some of its files.
        """
        for seen in self.all(beside.repository):
            if seen.step == READY or seen.path == beside.path:
                continue
            with contextlib.suppress(OSError):
                lock = _TreeLock.take(self._lock_of(seen.path), make=False)
                if lock is None:
                    continue
                try:
                    tree = _read_record(self._record_of(seen))
                    if tree is not None and tree.step != READY:
                        self._discard(tree)
                        lock.release(remove=True)
                finally:
                    lock.release()

    @contextlib.contextmanager
    def _alone(self, tree: Worktree) -> Iterator[int]:
        """Nobody else of us changes which worktrees the repository of ``tree`` has.

        Git cannot bear that: it fails where it finds a worktree that another has begun to make.
        The file of the lock names the branch until that has gone well: a git that was killed in
        it may have left locks of its own. Raises ``ConfigError``.
        """
        file = self._records / tree.path.parent.name / _REPOSITORY_LOCK
        try:
            lock = _TreeLock.take(file, patience_s=GIT_TIMEOUT_S)
        except OSError as error:
            raise ConfigError(f"cannot lock {file}: {error.strerror}", "see the file") from error
        if lock is None:
            raise GitBusy(f"{file} was locked for too long", "is git waiting for something?")
        try:
            if left := os.read(lock.handle, _MAX_RECORD_BYTES):
                begun_at = os.fstat(lock.handle).st_mtime
                if not clear_left_locks(tree.repository, os.fsdecode(left), begun_at):
                    what = f"a git at work in {tree.repository} seems to lock it"
                    raise GitBusy(what, "wait for it, or end it if it hangs")
            os.ftruncate(lock.handle, 0)
            os.lseek(lock.handle, 0, os.SEEK_SET)
            os.write(lock.handle, os.fsencode(tree.branch))
            yield lock.handle
            lock.release(remove=True)
        finally:
            lock.release()

    def _tidy(self, tree: Worktree) -> None:
        for folder in (self._record_of(tree).parent, tree.path.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _tidy_folders(self, repository: Path | None) -> None:
        """Locks without a worktree: of one that was killed before it wrote anything down."""
        folders = [self._records / key_of(repository)] if repository else entries(self._records)
        for folder in folders:
            for file in entries(folder):
                if file.suffix == ".lock" and not file.with_suffix(".json").exists():
                    with contextlib.suppress(OSError):
                        lock = _TreeLock.take(file, make=False)
                        is_left = lock is not None and not file.with_suffix(".json").exists()
                        if is_left:
                            _unfinished(file.with_suffix(".json")).unlink(missing_ok=True)
                        if lock is not None:
                            lock.release(remove=is_left)
            with contextlib.suppress(OSError):
                folder.rmdir()
            with contextlib.suppress(OSError):
                (self._trees / folder.name).rmdir()


def _reason(tree: Worktree) -> str:
    """What git says of why the worktree is locked; names it, as nothing else does at first."""
    return f"an agent of agentcli works in {tree.path} (see: agent worktrees list)"


def _admin_directories(tree: Worktree) -> Iterator[Path]:
    """What git keeps, or has begun to keep, for ``tree``."""
    name = re.compile(re.sub(r"[^\w-]", ".", tree.path.name) + r"\d*")  # as git's own is made of it
    for place in entries(tree.repository / "worktrees"):
        link, reason = first_bytes(place / "gitdir"), first_bytes(place / "locked")
        if link:
            is_ours = os.path.realpath(os.path.join(place, link)) == str(tree.path / ".git")  # noqa: PTH118 - a text
        elif reason:
            is_ours = reason == _reason(tree)
        else:
            is_ours = bool(name.fullmatch(place.name)) and not entries(place)
        if is_ours and not place.is_symlink():
            yield place


def _erase(path: Path) -> None:
    """Remove ``path`` and all below it, also what may not be written. Raises ``ConfigError``."""
    from agentcli.process.leftovers import remove_tree

    try:
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.exists():
            remove_tree(path, _ERASE_S)
            if path.exists():
                path.rmdir()  # says why it cannot be
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"cannot remove {path}: {reason}", "remove it by hand") from error


def _unfinished(record: Path) -> Path:
    """Where ``record`` is written before it takes its place; one writer has the lock."""
    return record.with_name(f".{record.name}.new")


def _go_on(stopped: Stopped | None) -> None:
    """Raise ``ConfigError`` where nobody wants the worktree any more."""
    if stopped is not None and stopped():
        raise ConfigError("the worktree was not wanted any more", "nothing is left of it")


def _is_record(file: Path) -> bool:
    return file.suffix == ".json" and not file.name.startswith(".")


def _plain(value: object) -> object:
    return os.fspath(value) if isinstance(value, Path) else value


def _read_record(file: Path) -> Worktree | None:
    """What is written down; ``None`` where that is nothing that can be used."""
    try:
        with file.open("rb") as opened:
            found = json.loads(opened.read(_MAX_RECORD_BYTES))
        for name in ("path", "repository", "root"):
            found[name] = Path(found[name])
        found["admin"] = Path(found["admin"]) if found["admin"] else None
        return Worktree(**found)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
