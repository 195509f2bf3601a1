"""What a command has made and must not have: renamed, never deleted, and told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agentcli.process.sandbox_births import set_aside_births
from agentcli.process.sandbox_places import OwnPlaces, find_places


def born(root: Path, home: Path, *commands: str) -> tuple[str, ...]:
    """What is told after ``commands`` were run in ``root``."""
    before = find_places([root], home, OwnPlaces())
    for command in commands:
        subprocess.run(["sh", "-c", command], check=True, cwd=root)
    return set_aside_births(before, [root])


@pytest.mark.spec("SEC-7")
def test_a_new_repository_without_programs_stays_as_it_is(tmp_path: Path, home: Path) -> None:
    told = born(tmp_path, home, "git init -q .", "git config user.name A", "git remote add o ../x")
    assert told == ()
    assert "name = A" in (tmp_path / ".git" / "config").read_text()


@pytest.mark.spec("SEC-7")
@pytest.mark.parametrize(
    "setting",
    ["core.fsmonitor", "core.hooksPath", "core.sshCommand", "alias.st", "filter.x.clean",
     "include.path", "diff.external", "submodule.x.update", "remote.o.uploadpack"],
)  # fmt: skip
def test_a_new_repository_that_names_a_program_loses_its_configuration(
    tmp_path: Path, home: Path, setting: str
) -> None:
    told = born(tmp_path, home, "git init -q sub", f"git -C sub config {setting} '!touch pwned'")
    assert len(told) == 1
    assert "was renamed to config.set-aside" in told[0]
    assert "pwned" not in (tmp_path / "sub" / ".git" / "config").read_text()
    assert "pwned" in (tmp_path / "sub" / ".git" / "config.set-aside").read_text()
    subprocess.run(["git", "status"], check=True, cwd=tmp_path / "sub", capture_output=True)


@pytest.mark.spec("SEC-7")
def test_hooks_of_a_new_repository_are_set_aside(tmp_path: Path, home: Path) -> None:
    told = born(tmp_path, home, "git init -q .", "echo x > .git/hooks/pre-commit")
    assert "renamed to hooks.set-aside" in told[0]
    assert not (tmp_path / ".git" / "hooks").exists()
    assert (tmp_path / ".git" / "hooks.set-aside" / "pre-commit").read_text() == "x\n"


@pytest.mark.spec("SEC-7")
@pytest.mark.parametrize("made", ["echo 'gitdir: /tmp/x' > .git", "ln -s /tmp/x .git"])
def test_a_git_entry_that_leads_elsewhere_is_set_aside(
    tmp_path: Path, home: Path, made: str
) -> None:
    assert "renamed to .git.set-aside" in born(tmp_path, home, made)[0]


@pytest.mark.spec("SEC-7")
def test_the_project_directory_is_set_aside_as_often_as_it_is_made(
    tmp_path: Path, home: Path
) -> None:
    assert ".agents.set-aside;" in born(tmp_path, home, "mkdir .agents; touch .agents/a")[0]
    assert ".agents.set-aside1;" in born(tmp_path, home, "mkdir .agents")[0]
    assert (tmp_path / ".agents.set-aside" / "a").exists()


@pytest.mark.spec("SEC-7")
def test_what_was_there_before_is_not_touched(tmp_path: Path, home: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".git" / "hooks" / "pre-commit").write_text("mine")
    (tmp_path / ".agents").mkdir()
    assert born(tmp_path, home, "touch .agents/more") == ()
    assert (tmp_path / ".git" / "hooks" / "pre-commit").read_text() == "mine"
