"""What is writable, read-only, hidden or must not come into being: as the disk has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agentcli.process.sandbox_places import OwnPlaces, Places, find_places, set_aside_births


def git(*args: str, cwd: Path) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *args], check=True, cwd=cwd, capture_output=True)


def repository(path: Path) -> Path:
    path.mkdir(parents=True)
    git("init", "-q", ".", cwd=path)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=path)
    return path


def places(*roots: Path, home: Path, own: OwnPlaces | None = None) -> Places:
    return find_places(roots, home, own or OwnPlaces())


@pytest.mark.spec("SEC-7")
def test_hooks_and_configuration_are_read_only_also_in_repositories_below(
    tmp_path: Path, home: Path
) -> None:
    top = repository(tmp_path / "top")
    below = repository(top / "libs" / "one")
    found = places(top, home=home)
    for root in (top, below):
        assert root / ".git" in found.pinned
        assert {root / ".git" / "hooks", root / ".git" / "config"} <= set(found.read_only)
        assert root / ".git" / "commondir" in found.unborn


@pytest.mark.spec("SEC-7")
def test_hooks_that_are_not_there_stay_away(tmp_path: Path, home: Path) -> None:
    top = repository(tmp_path / "top")
    for path in (top / ".git" / "hooks").iterdir():
        path.unlink()
    (top / ".git" / "hooks").rmdir()
    assert places(top, home=home).empty == (top / ".git" / "hooks",)


@pytest.mark.spec("SEC-7")
def test_a_repository_without_its_head_is_still_protected(tmp_path: Path, home: Path) -> None:
    top = repository(tmp_path / "top")
    (top / ".git" / "HEAD").unlink()
    assert top / ".git" / "hooks" in places(top, home=home).read_only


@pytest.mark.spec("SEC-7")
def test_a_linked_working_tree_can_be_committed_in_but_its_hooks_stay(
    tmp_path: Path, home: Path
) -> None:
    main = repository(tmp_path / "main")
    git("worktree", "add", "-q", str(tmp_path / "tree"), cwd=main)
    found = places(tmp_path / "tree", home=home)
    assert found.writable == (tmp_path / "tree", main / ".git")
    assert {main / ".git" / "hooks", main / ".git" / "config"} <= set(found.read_only)
    assert tmp_path / "tree" / ".git" in found.read_only


@pytest.mark.spec("SEC-7")
def test_a_git_file_opens_no_directory_that_does_not_know_of_it(tmp_path: Path, home: Path) -> None:
    victim = repository(tmp_path / "victim")
    git("worktree", "add", "-q", str(tmp_path / "tree"), cwd=victim)
    mine = tmp_path / "mine"
    mine.mkdir()
    for target in (victim / ".git", victim / ".git" / "worktrees" / "tree", home):
        (mine / ".git").write_text(f"gitdir: {target}\n")
        assert places(mine, home=home).writable == (mine,)


@pytest.mark.spec("SEC-7")
def test_secrets_are_hidden_unless_the_workspace_is_in_them(tmp_path: Path, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".netrc").touch()
    assert {home / ".ssh", home / ".netrc"} <= set(places(home, home=home).hidden)
    elsewhere = places(tmp_path / "elsewhere", home=home)
    assert home in elsewhere.homes
    assert not {home / ".ssh", home / ".netrc"} & {*elsewhere.seen, *elsewhere.hidden}
    (home / ".ssh" / "work").mkdir()
    assert home / ".ssh" not in places(home / ".ssh" / "work", home=home).hidden


@pytest.mark.spec("SEC-7")
def test_a_link_is_hidden_where_it_leads(tmp_path: Path, home: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (home / ".ssh").symlink_to(keys)
    (tmp_path / "work").mkdir()
    assert keys in places(tmp_path / "work", home=home).hidden


@pytest.mark.spec("SEC-7")
def test_in_a_home_directory_start_up_files_are_read_only_and_none_is_born(home: Path) -> None:
    (home / ".bashrc").touch()
    found = places(home, home=home)
    assert home / ".bashrc" in found.read_only
    assert {home / ".profile", home / ".ssh", home / ".agents"} <= set(found.unborn)


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
