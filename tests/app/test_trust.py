"""What the question about a directory shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.app.trust import find_project, project_lines
from tests.extensions.places import skill, write


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
