"""Where a repository is, and what is checked out there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.domain.worktrees import branch_of


@pytest.mark.spec("UI-6")
def test_the_branch_is_that_of_the_repository_or_worktree_around_the_directory(
    tmp_path: Path,
) -> None:
    assert branch_of(tmp_path) == ""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/fix/words\n")
    (tmp_path / "src").mkdir()
    assert branch_of(tmp_path / "src") == "fix/words"
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text("gitdir: ../kept\n")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "HEAD").write_text("0123456789abcdef\n")
    assert branch_of(tree) == "0123456789"


@pytest.mark.spec("SEC-13")
def test_a_repository_that_is_no_repository_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    for name, target in (("zero", "/dev/zero"), ("pipe", str(tmp_path / ".git" / "HEAD"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".git").symlink_to(target)
        assert branch_of(tmp_path / name) == ""
