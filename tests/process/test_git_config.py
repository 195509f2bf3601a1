"""Which files of a repository the user's own git would run or obey; with real repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agentcli.process.git_config import run_by_git

pytestmark = pytest.mark.spec("SEC-3", "SEC-17")
SETUP = """
git init -q main && cd main && mkdir scripts sub
git config core.hooksPath .githooks
git config core.fsmonitor ./scripts/monitor
git config alias.x '!./scripts/alias.sh one'
git config include.path ../more.cfg
printf '[diff "x"]\\n\\ttextconv = scripts/convert\\n' > more.cfg
ln -s ../../scripts/linked.sh .git/hooks/pre-push
touch scripts/lint.sh README.md scripts/run && chmod +x scripts/run
echo 'sh "$PWD/scripts/lint.sh" README.md && scripts/run # x/../../../elsewhere.py' > .git/hooks/pre-commit
echo 'exec lefthook run commit-msg' > .git/hooks/commit-msg
git -c user.name=a -c user.email=a commit -q --allow-empty -m one
git worktree add -q ../tree
"""


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    subprocess.run(["sh", "-ec", SETUP], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("main/.githooks/pre-commit", "run by git"),
        ("main/scripts/monitor", "run by git"),
        ("main/sub/../scripts/alias.sh", "run by git"),
        ("main/more.cfg", "git's configuration"),
        ("main/scripts/convert", "run by git"),
        ("main/scripts/linked.sh", "a hook of git's"),
        ("tree/.githooks/pre-commit", "run by git"),
        ("tree/scripts/monitor", "run by git"),
        ("main/scripts/lint.sh", "run by a hook of git's"),
        ("main/scripts/run", "run by a hook of git's"),
        ("main/.lefthook-local.yml", "run by a hook of git's"),
        ("main/.config/lefthook-local.jsonc", "run by a hook of git's"),
        ("main/README.md", ""),
        ("main/.pre-commit-config.yaml", ""),
        ("main/scripts/other.sh", ""),
        ("main/one", ""),
        ("tree/x.py", ""),
        ("elsewhere.py", ""),
    ],
)
def test_what_git_would_do_with_a_file(repositories: Path, file: str, why: str) -> None:
    assert run_by_git(repositories / file) == why


def test_hooks_at_the_top_are_all_that_lies_there(repositories: Path) -> None:
    subprocess.run(
        ["git", "-C", repositories / "main", "config", "core.hooksPath", "."], check=True
    )
    assert run_by_git(repositories / "main/pre-commit")
    assert not run_by_git(repositories / "main/sub/pre-commit")
