"""Small git repositories for tests, and what git says of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")


def git(cwd: Path, *arguments: str) -> str:
    """What git prints there; fails where it fails."""
    done = subprocess.run(
        ["git", *_IDENTITY, *arguments], cwd=cwd, check=True, capture_output=True, text=True
    )
    return done.stdout


def make_repository(root: Path) -> Path:
    """A repository with one commit: ``a.txt``, ``sub/b.txt``, and ``.env`` and ``out`` ignored."""
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("one\n")
    (root / "sub/b.txt").write_text("two\n")
    (root / ".gitignore").write_text(".env\nout/\n")
    git(root, "init", "-q")
    git(root, "config", "user.name", "t")
    git(root, "config", "user.email", "t@t")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def traces(root: Path, state: Path) -> dict[str, list[str]]:
    """What there is of worktrees: branches and directories of git's, files and trees of ours."""
    common = Path(git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
    kept = common / "worktrees"
    found = {
        "branches": git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads/agent"),
        "admin": "\n".join(os.listdir(kept) if kept.is_dir() else ()),
        "records": "\n".join(map(str, (state / "worktree-records").glob("*/*"))),
        "trees": "\n".join(map(str, (state / "worktrees").glob("*/*"))),
    }
    return {name: text.split() for name, text in found.items() if text.split()}
