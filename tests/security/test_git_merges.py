"""What goes on with a rebase or a cherry-pick runs no merge program of a command's (SEC-17)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.repositories import git, make_repository
from tests.support.sandboxes import BOTH, told

pytestmark = pytest.mark.sampled

# git runs "git-merge-STRATEGY", from the working tree where that holds a slash
PLANT = """
import os, sys
os.mkdir("git-merge-..")
with open("git-merge-../evil", "w") as program:
    program.write("#!/bin/sh\\ntouch pwned\\n")
os.chmod("git-merge-../evil", 0o755)
with open(sys.argv[1], "w") as state:
    state.write(sys.argv[2])
with open("a.txt", "w") as file:
    file.write("solved\\n")
"""


def _conflict(work: Path, *how: str) -> None:
    """The user is in the middle of ``how``, with another commit to go."""
    make_repository(work)
    git(work, "checkout", "-qb", "side")
    for name in ("a.txt", "new"):
        (work / name).write_text("side\n")
        git(work, "add", name)
        git(work, "commit", "-qm", name)
    git(work, "checkout", "-q", "main")
    (work / "a.txt").write_text("main\n")
    git(work, "commit", "-qam", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(work, *how)


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("how", "file", "text"),
    [
        (("rebase", "main", "side"), "rebase-merge/strategy", "../evil"),
        (("cherry-pick", "side~1", "side"), "sequencer/opts", "[options]\n\tstrategy = ../evil"),
    ],
    ids=["rebase", "cherry-pick"],
)
def test_what_goes_on_runs_no_program_that_a_command_has_named(
    tmp_path: Path, kind: str, how: tuple[str, ...], file: str, text: str
) -> None:
    work = tmp_path / "work"
    _conflict(work, *how)
    (work / "x.py").write_text(PLANT)
    (said,) = told(work, f"python3 x.py .git/{file} '{text}'; git add a.txt", kind=kind)
    assert "exit code 0" in said
    env = {**os.environ, "GIT_EDITOR": "true"}
    subprocess.run(["git", how[0], "--continue"], cwd=work, env=env, capture_output=True)
    assert not (work / "pwned").exists()
    assert git(work, "show", "HEAD~1:a.txt") == "solved\n"
    assert git(work, "show", "HEAD:new") == "side\n"


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("name", "leads"),
    [("/git-rebase-todo", "../../x"), ("/strategy", "ort"), ("", "../x")],
    ids=["steps", "strategy", "directory"],
)
def test_a_link_in_the_place_of_what_goes_on_is_set_aside(
    tmp_path: Path, kind: str, name: str, leads: str
) -> None:
    work = tmp_path / "work"
    _conflict(work, "rebase", "main", "side")
    state = work / f".git/rebase-merge{name}"
    link = f"cd {state.parent}; mv {state} {leads}; ln -s {leads} {state}"
    (said,) = told(work, f"touch {state}; {link}; echo 'exec touch pwned' >> {leads}", kind=kind)
    assert f"{state} would take effect" in said
    assert not state.is_symlink()
    env = {**os.environ, "GIT_EDITOR": "true"}
    subprocess.run(["git", "rebase", "--continue"], cwd=work, env=env, capture_output=True)
    assert not (work / "pwned").exists()


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_patches_that_are_applied_write_no_file_that_a_command_has_named(
    tmp_path: Path, kind: str
) -> None:
    work, file = tmp_path / "work", tmp_path / "written"
    _conflict(work, "rebase", "--apply", "main", "side")
    options = f"printf %s \" '--build-fake-ancestor={file}'\" > .git/rebase-apply/apply-opt"
    told(work, f"echo solved > a.txt; git add a.txt; {options}", kind=kind)
    subprocess.run(["git", "rebase", "--continue"], cwd=work, capture_output=True)
    assert not file.exists()


@pytest.mark.spec("SEC-17")
def test_a_cherry_pick_of_the_sandbox_keeps_its_state(tmp_path: Path) -> None:
    work = tmp_path / "work"
    _conflict(work, "cherry-pick", "side~1", "side")
    git(work, "cherry-pick", "--abort")
    how = "git -c user.name=t -c user.email=t@t cherry-pick --strategy=resolve side~1 side; true"
    (said,) = told(work, how)
    assert "set-aside" not in said
    assert "resolve" in (work / ".git/sequencer/opts").read_text()


KEY, SETTINGS = "1" * 40, "2" * 40
RESOLUTIONS = f"""
mkdir -p .git/rr-cache/{KEY} .git/rr-cache/{SETTINGS} && cd .git/rr-cache
touch {KEY}/preimage; cp ../config {SETTINGS}/preimage; cp ../config {SETTINGS}/postimage
printf '[core]\\n\\tfsmonitor = touch pwned; false\\n' >> {SETTINGS}/postimage
cd ../..; printf '{KEY}\\t%s\\0{SETTINGS}.-1\\t.git/config\\0' "$(cat where)" > $(git rev-parse --git-path MERGE_RR)
"""


@pytest.mark.spec("SEC-17", "SEC-5")
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("in_worktree", [False, True])
def test_no_resolution_of_a_conflict_is_read_or_written_where_a_command_has_said(
    tmp_path: Path, kind: str, in_worktree: bool
) -> None:
    """``git commit`` copies the files that MERGE_RR names, and merges into them (git-rerere(1))."""
    work, key = make_repository(tmp_path / "work"), tmp_path / "key"
    key.write_text("SECRET")
    tree = work / "tree" if in_worktree else work
    if in_worktree:
        git(work, "worktree", "add", "-q", "tree")
    (work / "where").write_text(str(key))
    cd = "cp where tree; cd tree; " if in_worktree else ""
    plant = RESOLUTIONS.replace(".git/rr-cache", "../.git/rr-cache") if in_worktree else RESOLUTIONS
    plant = plant.replace("cd ../..", "cd ../../tree") if in_worktree else plant
    (said,) = told(work, cd + plant, kind=kind)
    assert "MERGE_RR would take effect outside" in said and "exit code 0" in said
    git(tree, "commit", "-q", "--allow-empty", "-m", "more")
    subprocess.run(["git", "status"], check=False, cwd=work, capture_output=True)
    assert not any("SECRET" in each.read_text() for each in work.rglob("postimage"))
    assert "fsmonitor" not in (work / ".git/config").read_text()


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_who_lets_git_record_resolutions_may_have_a_command_merge(
    tmp_path: Path, kind: str
) -> None:
    work = tmp_path / "work"
    _conflict(work, "-c", "rerere.enabled=true", "merge", "side")
    assert b"a.txt" in (work / ".git/MERGE_RR").read_bytes()
    solve = "echo solved > a.txt; git add a.txt; git commit -qm merged"
    again = (
        "git checkout -qb other HEAD^1; echo b > new; git add new; git commit -qm b; git merge side"
    )
    for said in told(work, solve, again, kind=kind):
        assert "set-aside" not in said
    assert "solved" in git(work, "show", "main:a.txt")


@pytest.mark.spec("SEC-17", "SEC-5")
@pytest.mark.parametrize("kind", BOTH)
def test_git_takes_no_resolution_through_a_link(tmp_path: Path, kind: str) -> None:
    work, key = tmp_path / "work", tmp_path / "key"
    key.write_text("SECRET")
    _conflict(work, "-c", "rerere.enabled=true", "merge", "side")
    (said,) = told(work, f"git add a.txt; ln -sf {key} a.txt", kind=kind)
    assert "a.txt would take effect outside" in said
    git(work, "commit", "-qm", "merged")
    assert not any("SECRET" in each.read_text() for each in work.rglob("postimage"))


STASH = """
blob=$(echo evil | git hash-object -w --stdin); export GIT_INDEX_FILE=$TMPDIR/index; git read-tree HEAD
git update-index --add --cacheinfo 100644,$blob,.vscode/tasks.json; tree=$(git write-tree)
git commit-tree -p HEAD -p $(git commit-tree -p HEAD -m index HEAD^{tree}) -m wip $tree > .git/MERGE_AUTOSTASH
"""


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_the_next_commit_applies_no_stash_of_a_command(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    (said,) = told(work, STASH, kind=kind)
    assert "MERGE_AUTOSTASH would take effect outside" in said and "exit code 0" in said
    git(work, "commit", "-q", "--allow-empty", "-m", "more")
    assert not (work / ".vscode").exists()
