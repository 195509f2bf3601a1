"""Where ``.git`` files and ``commondir`` lead is read as git reads it (SEC-17, SEC-13)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.repositories import make_repository
from tests.support.sandboxes import BOTH, told

pytestmark = pytest.mark.sampled

both = pytest.mark.parametrize("kind", BOTH)
# no one looks for repositories among git's own objects
PLANT = """
import os, subprocess
def plant(place):
    subprocess.run(["git", "init", "-q", "--bare", place], check=True)
    with open(place + "/config", "w") as config:
        config.write("[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n")
        config.write("\\tfsmonitor = touch " + os.getcwd() + "/pwned; false\\n")
def tree(link):
    os.mkdir("tree")
    with open("tree/.git", "w") as file:
        file.write("gitdir: " + link)
"""
LINKS = {
    "a line more": 'plant(".git/objects/a\\nb"); tree("../.git/objects/a\\nb\\n")',
    "a space at the end": 'plant(".git/objects/a "); tree("../.git/objects/a \\n")',
    "in quotes": (
        'place = chr(34) + "../.git/objects/x" + chr(34); tree(place); plant("tree/" + place)'
    ),
    "a common directory of two lines": (
        'subprocess.run(["git", "worktree", "add", "-q", "tree"], check=True); '
        'plant(".git/worktrees/..\\nb"); '
        'open(".git/worktrees/tree/commondir", "w").write("../..\\nb\\n")'
    ),
}


@both
@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_a_link_leads_nowhere_but_where_git_goes(tmp_path: Path, kind: str, link: str) -> None:
    work = make_repository(tmp_path / "work")
    (work / "x.py").write_text(PLANT + link)
    (text,) = told(work, "python3 x.py", kind=kind)
    assert "exit code 0" in text
    for place in (work, work / "tree"):
        subprocess.run(["git", "status"], check=False, cwd=place, capture_output=True)
    assert not (work / "pwned").exists()


@both
@pytest.mark.spec("SEC-13", "SEC-17")
def test_a_link_that_is_a_pipe_holds_nothing_up(tmp_path: Path, kind: str) -> None:
    work = make_repository(tmp_path / "work")
    make = (
        'import os; os.makedirs(".git/worktrees/x"); os.mkdir("sub/tree"); '
        'os.mkfifo(".git/worktrees/x/gitdir"); os.mkfifo("sub/tree/.git")'
    )
    (work / "x.py").write_text(make)
    texts = told(work, "python3 x.py", "echo next", kind=kind)
    assert "next\n" in texts[1]
