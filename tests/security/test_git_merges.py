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
