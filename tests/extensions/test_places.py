"""Which directories skills, commands and agents are read from, in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.config.project import read_project
from agentcli.extensions.places import extension_places, repository_directories


def made(*paths: Path) -> None:
    for path in paths:
        path.mkdir(parents=True)


@pytest.mark.spec("SEC-1")
def test_places_from_the_working_directory_up_to_the_root_then_the_users(tmp_path: Path) -> None:
    root, home, config = tmp_path / "repo", tmp_path / "home", tmp_path / "config"
    cwd = root / "a" / "b"
    made(cwd / ".claude", root / ".agents", root / ".claude", tmp_path / ".agents")
    made(home / ".agents", home / ".claude", config, tmp_path / "plug")
    (root / "a" / ".agents").symlink_to(root / ".agents")  # the same one, nearer
    (root / "a" / ".claude").write_text("no directory")
    trusted = repository_directories(cwd, root, str(home))
    assert trusted == (cwd / ".claude", root / "a" / ".agents", root / ".claude")
    places = extension_places(trusted, str(home), config, [("p", tmp_path / "plug")])
    assert [place.path for place in places] == [
        *trusted, home / ".agents", home / ".claude", config, tmp_path / "plug",
    ]  # fmt: skip
    assert [place.in_repository for place in places] == [True] * 3 + [False] * 4
    assert [place.origin for place in places][3:] == ["user", "user", "user", "plugin p"]


@pytest.mark.spec("SEC-1")
def test_what_is_the_users_own_is_of_no_repository(tmp_path: Path) -> None:
    home = tmp_path / "home"
    made(home / ".agents", home / "work" / ".agents")
    (home / "work" / ".claude").symlink_to(home / ".agents")
    assert repository_directories(home / "work", home, str(home)) == (home / "work" / ".agents",)
    assert repository_directories(home, home, str(home)) == ()
    assert extension_places((), "", tmp_path / "none") == ()


@pytest.mark.spec("SEC-1", "SEC-17")
def test_a_directory_below_the_root_is_trusted_for_itself(tmp_path: Path) -> None:
    skill = tmp_path / ".claude" / "skills" / "pdf" / "SKILL.md"
    below = tmp_path / "sub" / ".agents" / "commands" / "ship.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("x")
    directories = [tmp_path / "sub" / ".agents", tmp_path / ".claude"]
    at_root = read_project(tmp_path, "")
    assert read_project(tmp_path, "", directories=directories) == at_root
    below.parent.mkdir(parents=True)
    below.write_text("x")
    project = read_project(tmp_path, "", directories=directories)
    assert at_root is not None and project is not None
    assert (project.place, at_root.place) == (tmp_path / "sub", tmp_path)
    assert project.outer == at_root
    assert project.directories == tuple(directories)
    assert dict(project.names) == {
        "commands": ("ship (sub/.agents)",), "skills": ("pdf (.claude)",), "agents": (),
    }  # fmt: skip
    skill.write_text("y")
    changed = read_project(tmp_path, "", directories=directories)
    assert changed is not None and changed.outer is not None
    assert changed.fingerprint != project.fingerprint
    assert changed.outer.fingerprint != at_root.fingerprint
