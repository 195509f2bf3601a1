"""Titles, bells and notifications."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from agentcli.repl.open_session import Attention, branch_of
from agentcli.ui.screen import Screen, Size
from agentcli.ui.theme import PLAIN, Theme

LIVE = Theme(color=True, attributes=True, live=True)


def said(how: str, theme: Theme = LIVE) -> tuple[Attention, io.StringIO]:
    stream = io.StringIO()
    return Attention(Screen(stream, theme, lambda: Size(80, 24)), how), stream


@pytest.mark.spec("UI-6", "SEC-10")
def test_the_title_is_sanitized_set_once_and_given_back() -> None:
    attention, stream = said("off")
    attention.title("my \x1b]2;evil\x07work\n")
    attention.title("my work")
    attention.give_title_back()
    attention.give_title_back()
    assert stream.getvalue() == "\x1b[22;2t\x1b]2;my work\x07\x1b[23;2t"


@pytest.mark.spec("UI-6", "SEC-10")
@pytest.mark.parametrize(
    ("how", "wanted"),
    [("bell", "\x07"), ("desktop", "\x1b]9;agentcli: Run x\x07"), ("off", "")],
)
def test_the_person_is_called_as_they_like(how: str, wanted: str) -> None:
    attention, stream = said(how)
    attention.call("Run\x07 x")
    assert stream.getvalue() == wanted


@pytest.mark.spec("UI-10")
def test_a_dumb_terminal_gets_no_sequences() -> None:
    attention, stream = said("desktop", PLAIN)
    attention.title("x")
    attention.call("x")
    attention.give_title_back()
    assert stream.getvalue() == ""


@pytest.mark.spec("UI-6")
def test_the_branch_is_that_of_the_repository_or_worktree_around_the_directory(
    tmp_path: Path,
) -> None:
    assert branch_of(tmp_path) == ""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/fix/words\n")
    (tmp_path / "src").mkdir()
    assert branch_of(tmp_path / "src") == "fix/words"
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text("gitdir: ../kept\n")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "HEAD").write_text("0123456789abcdef\n")
    assert branch_of(tree) == "0123456789"


@pytest.mark.spec("SEC-13")
def test_a_repository_that_is_no_repository_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    for name, target in (("zero", "/dev/zero"), ("pipe", str(tmp_path / ".git" / "HEAD"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".git").symlink_to(target)
        assert branch_of(tmp_path / name) == ""
