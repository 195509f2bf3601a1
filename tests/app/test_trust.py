"""What the question about a directory shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.app.trust import change_trust, find_project, project_lines, trusted_project
from agentcli.app.worktrees.book import Worktrees
from agentcli.app.worktrees.repository import repository_at
from agentcli.config.paths import Paths
from tests.extensions.places import skill, write
from tests.support.repositories import git, make_repository


@pytest.mark.spec("SEC-1", "SEC-6", "SEC-17")
def test_all_that_a_repository_brings_is_shown(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    made = skill(tmp_path / ".claude", "pdf", "Reads PDFs", more="allowed-tools: Bash(pdf *)\n")
    write(made.parent, "scripts/run.sh", "x")
    write(tmp_path, ".claude/commands/pdf.md", "hides it from you, not from the model")
    hidden = skill(tmp_path / ".claude", "aside", "Quiet", more="user-invocable: false\n")
    write(hidden.parent, "scripts/aside.sh", "x")
    write(tmp_path, ".agents/commands/ship.md", "Ship it: !`git push --force`\n```!\nmake\n```\n")
    write(tmp_path, ".claude/commands/b/c.md", "x")
    write(tmp_path, ".agents/agents/a.md", "---\ndescription: Helps\ntools: bash\n---\nx")
    for number in range(20):
        write(tmp_path, f".agents/commands/n{number}.md", "x")
    project = find_project(tmp_path, os.environ, ())
    assert project is not None
    shown = "\n".join(project_lines(project))
    for part in (
        "skill pdf: Reads PDFs", "has allowed while it is followed: Bash(pdf *)",
        "files: scripts/run.sh", "command /ship: Ship it", "called: git push --force",
        "called: make", "command /b:c", "agent a: Helps (tools: bash)", "n19", "pdf (.claude)",
        "skill aside: Quiet", "files: scripts/aside.sh",
    ):  # fmt: skip
        assert part in shown


@pytest.mark.spec("SCALE-1", "SEC-1")
def test_a_worktree_is_trusted_as_its_repository_is_while_it_brings_the_same(
    tmp_path: Path,
) -> None:
    root, paths = make_repository(tmp_path / "project"), Paths.from_env(os.environ)
    hook = '[[hooks.SessionStart]]\ncommand = "./check.sh"\n'
    write(root, ".agents/config.toml", f'permission_mode = "accept-edits"\n{hook}')
    write(root, "check.sh", "exit 0")
    write(root, ".claude/settings.json", '{"permissions": {"allow": ["Bash(ls *)"]}}')
    write(root, ".mcp.json", '{"mcpServers": {"a": {"command": "./check.sh"}}}')
    write(root, "sub/.agents/commands/ship.md", "Ship it")
    git(root, "add", ".")
    git(root, "commit", "-qm", "setup")
    stay = Worktrees(paths).enter(repository_at(root / "sub"), "fix")
    tree, hostile = stay.directory, tmp_path / "hostile"
    git(root, "worktree", "add", "-q", "--detach", str(hostile))
    (hostile / ".git").write_text((tree.parent / ".git").read_text())

    def is_trusted(place: Path) -> bool:
        return trusted_project(paths, find_project(place, os.environ, ()))[0] is not None

    assert not is_trusted(tree)
    change_trust(paths, find_project(root / "sub", os.environ, ()), trusted=True)
    assert is_trusted(tree) and not is_trusted(hostile / "sub")
    write(tree.parent, "check.sh", "exit 1")
    assert not is_trusted(tree) and is_trusted(root / "sub")
    write(tree.parent, "check.sh", "exit 0")
    assert is_trusted(tree)
    change_trust(paths, find_project(tree, os.environ, ()), trusted=False)
    assert not is_trusted(tree) and is_trusted(root / "sub")
