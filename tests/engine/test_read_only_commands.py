"""Which shell commands certainly change nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.tools import Workspace
from agentcli.engine.read_only_commands import is_read_only

SUITE = Path(__file__).resolve().parents[2].parent / "shared/suites/bash"
needs_suite = pytest.mark.skipif(not SUITE.is_dir(), reason="../shared/suites is not there")


def rows(name: str) -> list[Any]:
    path = SUITE / name
    return json.loads(path.read_text()) if path.is_file() else []


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("a")
    (root / "out").symlink_to("/etc")
    (root / "passwd").symlink_to("/etc/passwd")
    return Workspace(root, root)


@needs_suite
@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize("row", rows("codex_safe_command.json"), ids=lambda row: row["command"])
def test_no_row_that_may_not_run_unasked_is_read_only(row: Any, workspace: Workspace) -> None:
    if not row["auto_approve"]:
        assert not is_read_only(row["command"], workspace)


@needs_suite
@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("row", rows("codex_dangerous.json"), ids=lambda row: row["command"])
def test_no_dangerous_row_is_read_only(row: Any, workspace: Workspace) -> None:
    assert not is_read_only(row["command"], workspace)


@pytest.mark.spec("LOOP-4", "SEC-3")
@pytest.mark.parametrize(
    "command",
    [
        "ls", "ls -la", "ls -l sub", "cat a.txt", "cat ./sub/../a.txt", "head -n 5 a.txt", "pwd",
        "tail -20 a.txt", "wc -l a.txt", "echo hello world", "stat a.txt", " ls ", "ls\n",
        "cat missing.txt", "uname -a", "whoami",
    ],
)  # fmt: skip
def test_plain_looks_are_read_only(command: str, workspace: Workspace) -> None:
    assert is_read_only(command, workspace)


@pytest.mark.spec("SEC-3", "SEC-4", "SEC-5")
@pytest.mark.parametrize(
    "command",
    [
        "", " ", "\n", "cat /etc/passwd", "cat ../x", "cat out/passwd", "cat passwd", "ls out",
        "ls /", "cat ~/.ssh/id_rsa", "cat ~root/x", "cat sub/../../x", "cat -- a.txt", "cat -",
        "ls --color", "ls -Z", "tail -f a.txt", "tail --follow=a.txt", "head --bytes=1 a.txt",
        "ls -l;rm x", "ls\nrm x", "ls&", "ls>x", "ls<x", "ls|sh", "echo $(x)", "echo `x`",
        "echo $HOME", "echo *", "echo {a,b}", "echo 'x'", 'echo "x"', "echo \\x", "echo !x",
        "echo #x", "ls\tx", "A=b ls", "PATH=. ls", "/bin/ls", "./ls", "sudo ls", "env ls",
        "git status", "find .", "rg x", "sed -n 1p a.txt", "sort -o a.txt a.txt", "tee a.txt",
        "rm a.txt", "cd sub", "\xa0ls", "ls\x0b", "ls\x1c", "ls \x85", "ls \u2028rm", "LS", "ls\0",
        "ls -la\r\nrm x", "time ls", ". a.txt", "source a.txt", "exec ls", "\x1cls",
    ],
)  # fmt: skip
def test_whatever_is_not_certain_is_not_read_only(command: str, workspace: Workspace) -> None:
    assert not is_read_only(command, workspace)


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("command", ["ls", "pwd", "cat a.txt", "cat hosts", "wc"])
def test_nothing_is_read_only_where_the_shell_has_left_the_workspace(
    command: str, workspace: Workspace
) -> None:
    assert not is_read_only(command, Workspace(workspace.root, Path("/etc")))
    assert not is_read_only(command, Workspace(workspace.root, workspace.root / "out"))


@pytest.mark.spec("SEC-5")
def test_a_shell_directory_that_is_gone_is_no_ground_to_judge_from(workspace: Workspace) -> None:
    gone = workspace.root / "sub" / "gone"
    assert not is_read_only("cat ../../a.txt", Workspace(workspace.root, gone))


@pytest.mark.spec("SEC-5")
def test_paths_count_from_the_shells_directory_and_extra_directories_are_free(
    workspace: Workspace, tmp_path: Path
) -> None:
    below = Workspace(workspace.root, workspace.root / "sub")
    assert is_read_only("cat ../a.txt", below)
    assert not is_read_only("cat ../../x", below)
    extra = tmp_path / "extra"
    extra.mkdir()
    assert is_read_only(f"cat {extra}/x", Workspace(workspace.root, workspace.root, (extra,)))


@settings(max_examples=150)
@given(st.text(st.characters(max_codepoint=0x2100), min_size=1, max_size=12))
def test_a_read_only_command_is_words_of_harmless_characters(text: str) -> None:
    root = Path(os.path.realpath("."))
    if is_read_only(f"ls {text}", Workspace(root, root)):
        assert all(c.isascii() and (c.isalnum() or c in "_@%+=:,./ -\n\t") for c in text)
        assert "\n" not in text.strip(" \t\n")


@pytest.mark.spec("SEC-2")
def test_a_program_of_the_repository_is_never_taken_for_the_systems(workspace: Workspace) -> None:
    fake = workspace.root / "bin"
    fake.mkdir()
    (fake / "ls").write_text("#!/bin/sh\ntouch canary\n")
    (fake / "ls").chmod(0o755)
    assert is_read_only("ls", workspace, "/usr/bin:/bin")
    assert not is_read_only("ls", workspace, f"{fake}:/usr/bin:/bin")
    assert not is_read_only("ls", workspace, "")
    assert is_read_only("pwd", workspace, f"{fake}:/usr/bin:/bin")
