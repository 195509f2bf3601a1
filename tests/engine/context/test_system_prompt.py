"""The system prompt: short, complete, and the same every time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.engine.context.system_prompt import (
    MAX_BYTES,
    ProjectDoc,
    PromptParts,
    build_system_prompt,
    find_docs,
    project_root,
)

PARTS = PromptParts(Path("/home/someone/projects/a-project"), "2026-11-20", is_git=True)
CHARS_PER_TOKEN = 4


@pytest.mark.spec("CTX-2")
def test_the_prompt_is_short() -> None:
    assert len(build_system_prompt(PARTS)) / CHARS_PER_TOKEN < 1_200


@pytest.mark.spec("CTX-2")
def test_the_same_parts_give_the_same_bytes() -> None:
    docs = (ProjectDoc(Path("/p/AGENTS.md"), "be kind"),)
    first = build_system_prompt(PromptParts(PARTS.cwd, PARTS.date, is_git=True, docs=docs))
    second = build_system_prompt(PromptParts(PARTS.cwd, PARTS.date, is_git=True, docs=docs))
    assert first.encode() == second.encode()


def test_it_says_where_and_when_it_is() -> None:
    prompt = build_system_prompt(PARTS)
    assert f"{PARTS.cwd} (a git repository)" in prompt
    assert "2026-11-20" in prompt
    elsewhere = PromptParts(PARTS.cwd, PARTS.date, is_git=False)
    assert "not a git repository" in build_system_prompt(elsewhere)


@pytest.mark.spec("CTX-1")
def test_documents_follow_in_order_and_verbatim_and_a_cut_is_stated() -> None:
    docs = (
        ProjectDoc(Path("/u/AGENTS.md"), "first <b>&\n  text"),
        ProjectDoc(Path("/p/AGENTS.md"), "second", cut=True),
    )
    prompt = build_system_prompt(PromptParts(PARTS.cwd, PARTS.date, is_git=True, docs=docs))
    assert prompt.index("first <b>&\n  text") < prompt.index("second")
    assert '"/p/AGENTS.md" cut' in prompt


@pytest.mark.spec("CLI-3")
def test_the_prompt_can_be_replaced_and_added_to() -> None:
    own = PromptParts(PARTS.cwd, PARTS.date, is_git=True, replacement="MINE", appendix="AND THIS")
    prompt = build_system_prompt(own)
    assert prompt.startswith("MINE\n\nEnvironment")
    assert prompt.endswith("AND THIS")
    assert "You are agentcli" not in prompt
    empty = PromptParts(PARTS.cwd, PARTS.date, is_git=True, replacement="")
    assert build_system_prompt(empty).startswith("Environment")


@pytest.mark.spec("CAN-1")
def test_the_model_knows_what_cancelled_by_user_means() -> None:
    assert "Cancelled by user" in build_system_prompt(PARTS)


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
