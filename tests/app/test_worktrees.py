"""Worktrees: made, entered, left and removed whole, whatever is in them or was killed (SCALE-1)."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcli.app.files.safe_git import GitBusy
from agentcli.app.worktrees.book import Stay, TreeInUse, Worktrees
from agentcli.app.worktrees.repository import clear_left_locks, common_directory, repository_at
from agentcli.config.paths import Paths
from agentcli.domain.errors import AgentError, ConfigError, UsageError
from tests.support.repositories import git, make_repository, traces


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def state(home: Path) -> Path:
    return home / "agentcli"


@pytest.fixture
def trees(state: Path) -> Worktrees:
    del state
    return Worktrees(Paths.from_env(os.environ))


def enter(trees: Worktrees, cwd: Path, name: str | None = None) -> Stay:
    return trees.enter(repository_at(cwd), name)


@pytest.mark.spec("SCALE-1")
def test_a_clean_worktree_vanishes_with_its_branch(
    trees: Worktrees, root: Path, state: Path
) -> None:
    stay = enter(trees, root)
    tree = stay.tree
    assert stay.directory == tree.path and tree.path.is_relative_to(state / "worktrees")
    assert git(tree.path, "branch", "--show-current").strip() == f"agent/{tree.name}"
    assert (tree.path / "a.txt").read_text() == "one\n"
    assert "locked" in git(root, "worktree", "list", "--porcelain")
    (tree.path / "out").mkdir()
    (tree.path / "out/x.o").write_text("what git ignores is no work")
    assert trees.leave(stay) is None
    assert traces(root, state) == {}
    assert git(root, "worktree", "list").count("\n") == 1


def _change(path: Path) -> None:
    (path / "a.txt").write_text("changed\n")


def _stage(path: Path) -> None:
    (path / "a.txt").write_text("changed\n")
    git(path, "add", "a.txt")


def _delete(path: Path) -> None:
    (path / "a.txt").unlink()


def _untracked(path: Path) -> None:
    (path / "new.txt").write_text("new\n")


def _commit(path: Path) -> None:
    _stage(path)
    git(path, "commit", "-qm", "work")


def _detached(path: Path) -> None:
    git(path, "checkout", "-q", "--detach")
    _commit(path)


def _stash(path: Path) -> None:
    _commit(path)
    (path / "a.txt").write_text("more\n")
    git(path, "stash", "-q")


def _nested(path: Path) -> None:
    make_repository(path / "inner")


def _rebase(path: Path) -> None:
    """Stopped in the middle, with a clean working tree."""
    editor = "sed -i s/^pick/edit/"
    git(path, "-c", f"sequence.editor={editor}", "rebase", "-q", "-i", "--root")


def _foreign_link(path: Path) -> None:
    """It says that it is the worktree of another repository, which would be found clean."""
    other = make_repository(Path.home() / "other")
    _untracked(path)
    (path / ".git").write_text(f"gitdir: {other}/.git\n")


def _broken_index(path: Path) -> None:
    own = Path(git(path, "rev-parse", "--absolute-git-dir").strip())
    (own / "index").write_bytes(b"nonsense")


WORK = [_change, _stage, _delete, _untracked, _commit, _detached, _stash, _nested, _rebase]
WORK += [_foreign_link, _broken_index]


@pytest.mark.spec("SCALE-1", "SEC-13")
@pytest.mark.parametrize(
    "name", [".gitignore", "new/.gitattributes", "new/.git/HEAD", "{root}/.git/refs/heads/x"]
)
def test_a_pipe_that_git_would_wait_for_holds_nothing_up(
    trees: Worktrees, root: Path, state: Path, name: str
) -> None:
    stay = trees.enter(repository_at(root), "one")
    pipe = stay.directory / name.format(root=root)
    for other in ("objects", "refs"):
        (pipe.parent / other).mkdir(parents=True, exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    found = trees.leave(stay)
    assert found is not None and name.removeprefix("{root}/") in found.text()
    assert stay.directory.exists()


@pytest.mark.sampled
@pytest.mark.spec("SCALE-1")
@pytest.mark.parametrize("work", WORK, ids=lambda each: each.__name__.strip("_"))
def test_work_is_kept_and_removed_only_by_force(
    trees: Worktrees, root: Path, state: Path, work: Callable[[Path], None]
) -> None:
    stay = enter(trees, root, "fix")
    work(stay.tree.path)
    kept = trees.leave(stay)
    assert kept is not None and not kept.is_clean and kept.text() != "clean"
    assert [state for _, state in trees.prune(None)] == [kept]
    with pytest.raises(UsageError, match="which would be lost"):
        trees.remove(trees.named("fix", None), force=False)
    assert stay.tree.path.is_dir()
    trees.remove(trees.named("agent/fix", None), force=True)
    assert traces(root, state) == {}


def test_commits_that_another_branch_has_are_no_reason_to_stay(
    trees: Worktrees, root: Path, state: Path
) -> None:
    stay = enter(trees, root, "fix")
    _commit(stay.tree.path)
    git(root, "merge", "-q", "--ff-only", "agent/fix")
    assert trees.leave(stay) is None
    assert traces(root, state) == {}


def test_a_branch_that_was_there_before_stays(trees: Worktrees, root: Path, state: Path) -> None:
    git(root, "branch", "agent/fix")
    git(root, "commit", "-q", "--allow-empty", "-m", "second")
    stay = enter(trees, root, "fix")
    assert stay.tree.base == git(root, "rev-parse", "agent/fix").strip()
    assert trees.leave(stay) is None
    assert traces(root, state) == {"branches": ["agent/fix"]}


def test_a_kept_one_is_entered_again_and_one_whose_directory_was_removed_comes_back(
    trees: Worktrees, root: Path, state: Path
) -> None:
    first = enter(trees, root, "feature/x")
    _commit(first.tree.path)
    assert trees.leave(first) is not None
    again = enter(trees, root / "sub", "feature/x")
    assert again.directory == first.tree.path / "sub" and again.tree == first.tree
    trees.leave(again)
    subprocess.run(["rm", "-rf", first.tree.path], check=True)
    back = enter(trees, root, "feature/x")
    assert (back.tree.path / "a.txt").read_text() == "changed\n"
    assert back.tree.made_branch
    git(root, "merge", "-q", "--ff-only", "agent/feature/x")
    assert trees.leave(back) is None
    assert traces(root, state) == {}


@pytest.mark.spec("SCALE-1")
def test_one_agent_at_a_time(trees: Worktrees, root: Path, state: Path) -> None:
    stay = enter(trees, root, "fix")
    with pytest.raises(TreeInUse, match="in use by another agent"):
        enter(trees, root, "fix")
    assert [state.in_use for _, state in trees.prune(None) if state] == [True]
    with pytest.raises(TreeInUse):
        trees.remove(stay.tree, force=True)
    release = trees.hold(stay.directory / "sub")  # a session that was begun in it
    state_left = trees.leave(stay)
    assert state_left is not None and state_left.in_use
    assert [state.in_use for _, state in trees.prune(None) if state] == [True]
    release()
    assert [state for _, state in trees.prune(None)] == [None]
    assert traces(root, state) == {}
    trees.hold(root)()  # in none


def test_a_name_that_git_does_not_take(trees: Worktrees, root: Path, state: Path) -> None:
    wrong = ["", " ", "a..b", "-x", "a b", "x.lock", "a~b", "/a", "a//b", "@{", "x" * 101, "a\nb"]
    wrong += ["@", "\U0001f600" * 100]  # git loses the first; the second is too long for a file
    repository = repository_at(root)
    for name in wrong:
        with pytest.raises(UsageError, match="no name for a worktree"):
            trees.enter(repository, name)
    assert traces(root, state) == {}


def test_where_no_worktree_can_be_made(trees: Worktrees, tmp_path: Path, state: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="in no git repository"):
        enter(trees, empty)
    git(empty, "init", "-q")
    with pytest.raises(UsageError, match="has no commit"):
        enter(trees, empty)
    with pytest.raises(UsageError, match="inside a git directory"):
        enter(trees, empty / ".git")
    make_repository(empty / "full")
    git(empty / "full", "checkout", "-q", "-b", "agent/taken")
    with pytest.raises(ConfigError, match=r"checked out|used by worktree"):
        enter(trees, empty / "full", "taken")
    git(empty / "full", "checkout", "-q", "-b", "agent-x")
    git(empty / "full", "branch", "-D", "agent/taken")
    git(empty / "full", "branch", "agent")
    with pytest.raises(UsageError, match="in the way"):
        enter(trees, empty / "full", "other")
    assert list((state / "worktrees").glob("*/*")) == []
    assert list((state / "worktree-records").iterdir()) == []


@pytest.mark.slow
def test_a_bare_repository_a_detached_head_a_submodule_and_a_worktree_have_worktrees(
    trees: Worktrees, root: Path, tmp_path: Path, state: Path
) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(root), "bare.git")
    git(root, "checkout", "-q", "--detach")
    git(
        *(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add"),
        *(str(tmp_path / "bare.git"), "module"),
    )
    git(root, "commit", "-qm", "module")
    for place in (tmp_path / "bare.git", root, root / "module"):
        stay = enter(trees, place)
        assert (stay.directory / "a.txt").exists()
        assert common_directory(stay.directory) == stay.tree.repository == common_directory(place)
        inner = enter(trees, stay.directory)
        assert inner.tree.repository == stay.tree.repository
        assert trees.leave(stay) is None  # from which the other was made
        assert trees.leave(inner) is None
        if place == root:
            assert any("submodules are empty" in line for line in stay.notices)
        assert list((state / "worktrees").glob("*/*")) == []


def test_the_same_directory_inside_also_where_git_does_not_know_it(
    trees: Worktrees, root: Path, tmp_path: Path
) -> None:
    (root / "unknown/deep").mkdir(parents=True)
    stay = enter(trees, root / "unknown/deep")
    assert stay.directory == stay.tree.path / "unknown/deep" and stay.directory.is_dir()
    assert trees.leave(stay) is None
    (root / "away").symlink_to(tmp_path)
    git(root, "add", "away")
    git(root, "commit", "-qm", "link")
    (root / "away").unlink()
    (root / "away/in").mkdir(parents=True)
    stay = enter(trees, root / "away/in")
    assert stay.directory == stay.tree.path and "no directory" in stay.notices[0]
    assert trees.leave(stay) is None


@pytest.mark.spec("SCALE-1")
def test_ignored_files_that_are_named_are_copied_and_nothing_else(
    trees: Worktrees, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("outside")
    (root / ".worktreeinclude").write_text("# comment\n.env\nout/*\n!out/no\nuntracked\na.txt\n")
    (root / ".env").write_text("KEY=1\n")
    (root / ".env").chmod(0o600)
    (root / "sub/.env").write_text("KEY=2\n")
    (root / "untracked").write_text("not ignored")
    (root / "out").mkdir()
    for name in ("yes", "no"):
        (root / "out" / name).write_text(name)
    (root / "out/link").symlink_to(tmp_path / "secret")
    os.mkfifo(root / "out/pipe")
    stay = enter(trees, root)
    found = {str(each.relative_to(stay.directory)) for each in stay.directory.rglob("*")}
    assert {".env", "sub/.env", "out/yes"} <= found
    assert not {"out/no", "out/link", "out/pipe", "untracked"} & found
    assert (stay.directory / ".env").stat().st_mode & 0o777 == 0o600
    assert "of .worktreeinclude" in stay.notices[0]
    assert trees.leave(stay) is None


def test_the_list_is_a_file_and_no_directory_in_the_worktree_leads_away(
    trees: Worktrees, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "list").write_text(".env\n")
    (root / ".env").write_text("KEY=1\n")
    (root / ".worktreeinclude").symlink_to(tmp_path / "list")
    stay = enter(trees, root)
    assert not (stay.directory / ".env").exists()
    assert trees.leave(stay) is None
    (root / ".worktreeinclude").unlink()
    (root / ".worktreeinclude").write_text(".env\n")
    (root / "away").symlink_to(tmp_path)
    git(root, "add", "away")
    git(root, "commit", "-qm", "link")
    (root / "away").unlink()
    (root / "away").mkdir()
    (root / "away/.env").write_text("KEY=2\n")
    stay = enter(trees, root)
    assert (stay.directory / ".env").exists() and not (tmp_path / ".env").exists()
    assert trees.leave(stay) is None


def test_nothing_of_the_repository_runs(trees: Worktrees, root: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    hook = root / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {witness}\n")
    hook.chmod(0o755)
    (root / ".gitattributes").write_text("*.txt filter=evil\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "attributes")
    for key in ("filter.evil.smudge", "filter.evil.clean", "core.fsmonitor"):
        git(root, "config", key, f"touch {witness}; cat")
    stay = enter(trees, root)
    assert any("filter evil" in notice for notice in stay.notices)
    assert trees.leave(stay) is None
    assert not witness.exists()


@pytest.mark.spec("SEC-2")
@pytest.mark.parametrize("condition", ["gitdir:**/worktrees/**", "onbranch:agent/**"])
def test_nor_what_it_names_for_worktrees_alone(
    trees: Worktrees, root: Path, tmp_path: Path, condition: str
) -> None:
    witness = tmp_path / "witness"
    (root / ".gitattributes").write_text("*.txt filter=evil\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "attributes")
    run = f"command = touch {witness}\n"
    text = f'[filter "evil"]\nsmudge = touch {witness}; cat\nclean = touch {witness}; cat\n'
    for event in ("post-checkout", "post-index-change", "reference-transaction"):
        text += f'[hook "of {event}"]\nevent = {event}\n{run}'  # Git 2.54
    (root / ".git/more").write_text(text)
    git(root, "config", f"includeIf.{condition}.path", "more")
    stay = enter(trees, root)
    assert trees.leave(stay) is None
    assert not witness.exists()


@pytest.mark.spec("SEC-2")
def test_nor_a_hook_that_its_configuration_names(
    trees: Worktrees, root: Path, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    for event in ("post-checkout", "post-index-change", "reference-transaction"):
        git(root, "config", f"hook.of {event}.event", event)  # Git 2.54
        git(root, "config", f"hook.of {event}.command", f"touch {witness}")
    witness.unlink(missing_ok=True)
    assert trees.leave(enter(trees, root)) is None
    assert not witness.exists()


def test_what_may_not_be_written_can_be_removed(trees: Worktrees, root: Path) -> None:
    stay = enter(trees, root)
    locked = stay.directory / "out/locked"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    (locked / "file").chmod(0)
    locked.chmod(0o500)
    assert trees.leave(stay) is None and not stay.directory.exists()


# --- kills -----------------------------------------------------------------------------------

_KILLED_GIT = """#!/bin/sh
case " $* " in
*" branch -D "*)
    echo old > "{common}/packed-refs.lock"
    mkdir -p "{common}/refs/heads/agent"
    echo old > "{common}/refs/heads/agent/fix.lock"
    kill -9 $PPID
    exit 1 ;;
esac
exec {git} "$@"
"""


def _kill_in_git(trees: Worktrees, root: Path, tmp_path: Path) -> None:
    """Leave the worktree ``fix`` in a process that is killed with its git, whose locks stay."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(_KILLED_GIT.format(common=root / ".git", git=shutil.which("git")))
    (tools / "git").chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, "99999", str(root)],
        check=False,
        capture_output=True,
        env=os.environ | {"PATH": path},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert (root / ".git/packed-refs.lock").exists()


@pytest.mark.slow
@pytest.mark.spec("SCALE-1")
def test_locks_of_a_git_that_was_killed_are_in_nobodys_way(
    trees: Worktrees, root: Path, state: Path, tmp_path: Path
) -> None:
    git(root, "branch", "packed")
    git(root, "pack-refs", "--all")
    _kill_in_git(trees, root, tmp_path)
    other = enter(trees, root, "other")
    assert trees.leave(other) is None
    assert trees.leave(enter(trees, root, "fix")) is None
    assert list((root / ".git").rglob("*.lock")) == []
    assert traces(root, state) == {}


@pytest.mark.slow
def test_only_locks_of_that_time_and_place_are_taken_away(root: Path, tmp_path: Path) -> None:
    common, now = root / ".git", time.time()
    older, theirs = common / "packed-refs.lock", tmp_path / "heads"
    older.touch()
    os.utime(older, (now - 100, now - 100))
    theirs.mkdir()
    (theirs / "fix.lock").touch()
    (common / "refs/heads/agent").symlink_to(theirs)
    (common / "config.lock").touch()
    clear_left_locks(common, "agent/fix", now)
    assert older.exists() and (theirs / "fix.lock").exists()
    assert not (common / "config.lock").exists()


@pytest.mark.slow
def test_the_lock_of_a_git_that_stands_still_and_lives_stays(
    trees: Worktrees, root: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self/comm").exists():
        pytest.skip("the system does not tell of processes")
    monkeypatch.setattr("agentcli.app.worktrees.repository._STANDS_S", 0.0)
    monkeypatch.setattr("agentcli.app.worktrees.repository._PATIENCE_S", 0.0)
    place, lock = trees.path_of(repository_at(root).common, "fix"), root / ".git/packed-refs.lock"
    marker = state / "worktree-records" / place.parent.name / ".repository.lock"
    marker.parent.mkdir(parents=True)
    marker.write_text("agent/old")
    waits = ("git", "-C", str(root), "cat-file", "--batch")
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"HEAD\n")
        process.stdin.flush()
        assert b"commit" in process.stdout.readline()
        lock.touch()
        for _ in range(2):
            with pytest.raises(GitBusy, match="a git at work in"):
                enter(trees, root, "fix")
        assert lock.exists() and marker.read_text() == "agent/old"
        process.stdin.close()
        process.stdout.read()
    monkeypatch.undo()
    assert trees.leave(enter(trees, root, "fix")) is None and not lock.exists()


def test_odd_names_of_directories_are_no_obstacle(
    trees: Worktrees, state: Path, tmp_path: Path
) -> None:
    root = make_repository(tmp_path / "odd\u2028pla\x0bce")
    assert trees.leave(enter(trees, root, "fix")) is None
    assert traces(root, state) == {}
    with pytest.raises(UsageError, match="a line break"):
        enter(trees, make_repository(tmp_path / "two\nlines"))


_KILLED = """
import os, signal, sys
from pathlib import Path
from agentcli.app.worktrees.book import Worktrees
from agentcli.app.worktrees.repository import repository_at
from agentcli.config.paths import Paths
import agentcli.app.worktrees.contents, json, tempfile, shutil, subprocess, glob
left = int(sys.argv[1])
trees, repository = Worktrees(Paths.from_env(os.environ)), repository_at(Path(sys.argv[2]))
COUNTED = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "subprocess.Popen", "open",
           "os.chmod", "fcntl.flock"}
def die(event, args):
    global left
    if event in COUNTED and not (event == "open" and args[1] in {"r", "rb"}):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(die)
stay = trees.enter(repository, "fix")
assert trees.leave(stay) is None
"""


def _killed_at(point: int, root: Path) -> bool:
    """Make and leave a worktree, killed at ``point``; false: it ended before."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(point), str(root)], check=False, capture_output=True
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr.decode()
    return done.returncode != 0


def _prune_and_look(trees: Worktrees, root: Path, state: Path, point: int) -> None:
    assert [kept for _, kept in trees.prune(None) if kept] == [], point
    assert traces(root, state) == {}, point
    assert git(root, "worktree", "list").count("\n") == 1, point


@pytest.mark.spec("SCALE-1")
@pytest.mark.parametrize("point", [9, 20])
def test_a_kill_leaves_nothing_that_prune_does_not_find(
    trees: Worktrees, root: Path, state: Path, point: int
) -> None:
    (root / ".worktreeinclude").write_text(".env\n")
    (root / ".env").write_text("KEY=1\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "include")
    assert _killed_at(point, root)
    _prune_and_look(trees, root, state, point)


@pytest.mark.slow
@pytest.mark.timeout(600)  # some 80 programs, one after the other; beyond it the whole worker ends
def test_a_kill_at_every_step_leaves_nothing_that_prune_or_the_next_start_does_not_find(
    trees: Worktrees, root: Path, state: Path
) -> None:
    for point in range(1, 400):
        if not _killed_at(point, root):
            assert point > 20, "the steps are seen"
            break
        if point % 2:
            _prune_and_look(trees, root, state, point)
        else:  # somebody takes the same name first
            for _ in range(200):
                try:
                    stay = enter(trees, root, "fix")
                except TreeInUse:  # git is still at work
                    continue
                break
            assert (stay.directory / "a.txt").exists()
            assert trees.leave(stay) is None
            _prune_and_look(trees, root, state, point)


def test_a_full_disk_is_no_reason_to_keep_a_worktree(
    trees: Worktrees, root: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay = enter(trees, root, "fix")
    (stay.directory / "large.bin").write_text("large")
    stay.lock.release()

    def fail(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(ConfigError, match="No space left"):
        enter(trees, root, "other")
    trees.remove(trees.named("fix", None), force=True)
    assert traces(root, state) == {}


def _begun(common: Path, name: str, files: dict[str, str]) -> None:
    place = common / "worktrees" / name
    place.mkdir(parents=True)
    for file, text in files.items():
        (place / file).write_text(text)


@pytest.mark.parametrize("files", [(), ("locked",), ("locked", "gitdir")], ids=len)
def test_what_git_has_begun_when_it_was_killed_is_found(
    trees: Worktrees, root: Path, state: Path, files: tuple[str, ...]
) -> None:
    """The first steps of ``git worktree add``: the branch, its directory, the lock, the link."""
    stay = enter(trees, root, "fix")
    admin = stay.tree.admin
    assert admin is not None
    texts = {name: (admin / name).read_text() for name in files}
    stay.lock.release()
    record = next((state / "worktree-records").glob("*/fix.json"))
    text = record.read_text().replace('"ready"', '"making"')
    subprocess.run(["rm", "-rf", stay.directory, admin], check=True)
    _begun(root / ".git", "fix", texts)
    _begun(root / ".git", "fix2", {"gitdir": "/elsewhere/.git", "locked": "by the user"})
    record.write_text(text)
    assert [kept for _, kept in trees.prune(None)] == [None]
    assert traces(root, state) == {"admin": ["fix2"]}


def test_a_record_that_cannot_be_read_harms_nothing(
    trees: Worktrees, root: Path, state: Path
) -> None:
    stay = enter(trees, root, "fix")
    stay.lock.release()
    record = next((state / "worktree-records").glob("*/fix.json"))
    record.write_text('{"name": [')
    assert list(trees.all()) == [] and list(trees.prune(None)) == []
    with pytest.raises(AgentError):
        enter(trees, root, "fix")
    assert (stay.directory / "a.txt").exists()


def _all_at_once(root: Path, script: str) -> list[str]:
    """What each of eight processes says when it fails."""
    head = _KILLED.rpartition("stay =")[0]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", head + script, "99999", str(root)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    return [run.communicate()[1] for run in runs]


@pytest.mark.slow
def test_starts_at_once_with_one_name_and_with_many(root: Path, state: Path) -> None:
    said = _all_at_once(root, "trees.leave(trees.enter(repository, 'fix'))")
    assert "" in said
    assert all("TreeInUse" in text for text in said if text)
    assert traces(root, state) == {}
    many = "for _ in range(4):\n    assert trees.leave(trees.enter(repository, None)) is None"
    assert set(_all_at_once(root, many)) == {""}
    assert traces(root, state) == {}


def test_what_a_kill_has_left_half_made_is_in_nobody_elses_way(
    root: Path, trees: Worktrees, state: Path
) -> None:
    half = enter(trees, root, "half")
    record = next((state / "worktree-records").glob("*/half.json"))
    half.lock.release()
    record.write_text(record.read_text().replace('"ready"', '"making"'))
    (common_directory(root) / "worktrees" / "half" / "commondir").write_bytes(b"")
    other = enter(trees, root, "other")
    assert other.directory.is_dir() and not half.directory.exists()
    assert trees.leave(other) is None
    assert traces(root, state) == {}


@pytest.mark.spec("SEC-13", "SCALE-1")
def test_no_link_of_a_repository_holds_a_worktree_up(
    trees: Worktrees, root: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (root / ".gitattributes").symlink_to(tmp_path / "pipe")
    git(root, "add", ".gitattributes")
    git(root, "commit", "-qm", "a link")
    assert trees.leave(enter(trees, root)) is None
