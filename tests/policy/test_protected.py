"""Protected places, by every name that leads to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.policy.protected import is_git_directory, plain_name, protected_place

PROTECTED = [
    ".git", ".git/config", ".git/hooks/pre-commit", "sub/.git", ".GIT/config", ".Git./config",
    ".git /config", ".g\u200cit/config", "GIT~1/config", ".gitmodules", ".bashrc", ".ZSHRC",
    ".profile", ".envrc", ".env", ".env.local", ".ssh/config", ".aws/credentials", ".netrc",
    ".config/fish/x", ".config/git/config", ".cargo/credentials.toml", ".agents/commands/x.md",
    ".agentcli/config.toml", "deep/.ssh/id_ed25519", "x/../.git/config", "authorized_keys",
]  # fmt: skip
FREE = [
    "src/a.py", ".gitignore", ".github/workflows/x.yml", "git/config", "profile", "env",
    ".env.example", ".env.sample", "config/fish.py", "head", "objects/x", "ssh/x",
]  # fmt: skip


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("name", PROTECTED)
def test_a_protected_place_is_known_by_any_form_of_its_name(name: str, tmp_path: Path) -> None:
    assert protected_place((tmp_path / name,), ())
    assert protected_place((tmp_path / "src/ok.py", tmp_path / name), ())
    assert protected_place((Path(f"/proc/self/root{tmp_path / name}"),), ())
    assert protected_place((Path(f"/proc/1/root{tmp_path / name}"),), ())


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("name", FREE)
def test_its_neighbours_are_not(name: str, tmp_path: Path) -> None:
    assert protected_place((tmp_path / name,), ()) is None


@pytest.mark.spec("SEC-3", "SEC-5")
def test_links_are_followed_and_a_protected_name_that_is_a_link_counts(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "alias").symlink_to(".git")
    (tmp_path / "plain").write_text("")
    (tmp_path / ".bashrc").symlink_to("plain")
    assert protected_place((tmp_path / "alias/config",), ())
    assert protected_place((tmp_path / ".bashrc",), ())
    assert protected_place((tmp_path / "plain",), ()) is None


@pytest.mark.spec("SEC-3")
def test_our_own_directories_are_protected_whatever_the_case(tmp_path: Path) -> None:
    own = (tmp_path / "Mine",)
    assert protected_place((tmp_path / "mine/settings.toml",), own) == "agentcli's own directory"
    assert protected_place((tmp_path / "Mine",), own)
    assert protected_place((tmp_path / "Mine2/x",), own) is None


@pytest.mark.spec("SEC-3")
def test_a_repository_s_own_directory_is_known_whatever_its_name(tmp_path: Path) -> None:
    bare = tmp_path / "store"
    for name in ("objects", "refs", "hooks"):
        (bare / name).mkdir(parents=True)
    assert not is_git_directory(bare)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    assert is_git_directory(bare)
    assert protected_place((bare / "hooks/post-receive",), ())
    assert protected_place((tmp_path / "other",), ()) is None


@pytest.mark.spec("SEC-5")
def test_what_cannot_be_looked_at_is_still_judged(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert protected_place((tmp_path / "loop/x",), ()) is None
    assert protected_place((tmp_path / ("a" * 300) / "x",), ()) is None
    assert protected_place((Path(os.sep),), ()) is None
    assert plain_name("...") == "..."
