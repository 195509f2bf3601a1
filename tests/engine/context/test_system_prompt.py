"""The system prompt: short, complete, and the same every time."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.domain.extensions.instructions import ProjectDoc
from agentcli.engine.context.system_prompt import PromptParts, build_system_prompt, project_root

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


@pytest.mark.spec("CTX-1")
def test_a_worktrees_git_file_is_a_root_too(tmp_path: Path) -> None:
    (tmp_path / "w/x").mkdir(parents=True)
    (tmp_path / "w/.git").write_text("gitdir: elsewhere")
    assert project_root(tmp_path / "w/x") == tmp_path / "w"
    (tmp_path / "d").mkdir()
    assert project_root(tmp_path / "d") == tmp_path / "d"
