"""AGENTS.md: which files, in which order, how much of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.engine.context.project_docs import MAX_BYTES, ProjectDoc, find_docs, project_root


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "a" / "b").mkdir(parents=True)
    (root / ".git").mkdir()
    return root


def texts(docs: tuple[ProjectDoc, ...]) -> list[str]:
    return [doc.text for doc in docs]


@pytest.mark.spec("CTX-1")
def test_the_users_file_comes_first_and_the_nearest_last(repo: Path, tmp_path: Path) -> None:
    user = tmp_path / "config"
    user.mkdir()
    for directory, text in (
        (user, "user"),
        (repo, "root"),
        (repo / "a", "mid"),
        (repo / "a/b", "near"),
    ):
        (directory / "AGENTS.md").write_text(text)
    (tmp_path / "AGENTS.md").write_text("above the root")
    assert texts(find_docs(repo / "a/b", user)) == ["user", "root", "mid", "near"]
    assert texts(find_docs(repo / "a", None)) == ["root", "mid"]


@pytest.mark.spec("CTX-1")
def test_claude_md_stands_in_where_there_is_no_agents_md(repo: Path) -> None:
    (repo / "CLAUDE.md").write_text("root claude")
    (repo / "a/CLAUDE.md").write_text("not this")
    (repo / "a/AGENTS.md").write_text("mid agents")
    assert texts(find_docs(repo / "a", None)) == ["root claude", "mid agents"]


@pytest.mark.spec("CTX-1")
def test_outside_of_a_repository_only_the_directory_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/AGENTS.md").write_text("here")
    assert project_root(tmp_path / "d") == tmp_path / "d"
    assert texts(find_docs(tmp_path / "d", None)) == ["here"]


@pytest.mark.spec("CTX-1")
def test_a_worktrees_git_file_is_a_root_too(tmp_path: Path) -> None:
    (tmp_path / "w/x").mkdir(parents=True)
    (tmp_path / "w/.git").write_text("gitdir: elsewhere")
    assert project_root(tmp_path / "w/x") == tmp_path / "w"


@pytest.mark.spec("CTX-1")
def test_within_the_budget_the_nearest_are_kept_whole(repo: Path) -> None:
    (repo / "AGENTS.md").write_text("r" * MAX_BYTES)
    (repo / "a/AGENTS.md").write_text("m" * 20_000)
    (repo / "a/b/AGENTS.md").write_text("n" * 10_000)
    root, mid, near = find_docs(repo / "a/b", None)
    assert (near.text, near.cut) == ("n" * 10_000, False)
    assert (mid.text, mid.cut) == ("m" * 20_000, False)
    assert (root.text, root.cut) == ("r" * (MAX_BYTES - 30_000), True)
    (repo / "a/b/AGENTS.md").write_text("n" * (MAX_BYTES + 5))
    assert find_docs(repo / "a/b", None) == (
        ProjectDoc(repo / "a/b/AGENTS.md", "n" * MAX_BYTES, cut=True),
    )


@pytest.mark.spec("CTX-1")
def test_a_cut_never_splits_a_character(repo: Path) -> None:
    (repo / "AGENTS.md").write_text("x" + "é" * MAX_BYTES)
    (doc,) = find_docs(repo, None)
    assert doc.cut
    assert set(doc.text) == {"x", "é"}
    assert len(doc.text.encode()) in {MAX_BYTES - 1, MAX_BYTES}


@pytest.mark.spec("CTX-1")
def test_odd_bytes_and_empty_files_do_no_harm(repo: Path) -> None:
    (repo / "AGENTS.md").write_bytes(b"\xef\xbb\xbf  ok \xff\n")
    (repo / "a/AGENTS.md").write_bytes(b" \n")
    assert texts(find_docs(repo / "a", None)) == ["ok \ufffd"]


@pytest.mark.spec("CTX-1", "SEC-13")
def test_what_is_no_readable_file_is_passed_over_at_once(repo: Path) -> None:
    os.mkfifo(repo / "AGENTS.md")
    (repo / "CLAUDE.md").write_text("instead")
    (repo / "a/AGENTS.md").mkdir()
    (repo / "a/b/AGENTS.md").symlink_to("AGENTS.md")
    assert texts(find_docs(repo / "a/b", None)) == ["instead"]
    (repo / "a/b/AGENTS.md").unlink()
    (repo / "a/b/AGENTS.md").symlink_to("/dev/zero")
    assert texts(find_docs(repo / "a/b", None)) == ["instead"]
    if os.geteuid() != 0:
        (repo / "CLAUDE.md").chmod(0)
        assert find_docs(repo, None) == ()


@pytest.mark.spec("CTX-1", "SEC-13")
def test_a_sparse_giant_is_read_to_the_bound_only(repo: Path) -> None:
    with (repo / "AGENTS.md").open("wb") as file:
        file.write(b"start")
        file.truncate(10 * 1024**3)
    (doc,) = find_docs(repo, None)
    assert doc.cut
    assert doc.text.startswith("start")


@pytest.mark.spec("SEC-1")
def test_a_link_out_of_the_project_is_not_read(repo: Path, tmp_path: Path) -> None:
    secret = tmp_path / "credentials"
    secret.write_text("key=secret")
    (repo / "AGENTS.md").symlink_to(secret)
    assert find_docs(repo, None) == ()
    (repo / "a/real.md").write_text("fine")
    (repo / "a/AGENTS.md").symlink_to("real.md")
    assert texts(find_docs(repo / "a", None)) == ["fine"]
    user = tmp_path / "config"
    user.mkdir()
    (user / "AGENTS.md").symlink_to(secret)
    assert texts(find_docs(repo, user)) == ["key=secret"]
