"""Calls as hooks of Claude Code know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.extensions.claude_calls import as_claude, from_claude, meets
from agentcli.domain.messages import ToolCall

CWD = Path("/work")


def known(name: str, **arguments: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in as_claude(ToolCall("1", name, arguments), CWD)]


@pytest.mark.spec("EXT-9")
def test_tools_and_fields_have_their_names() -> None:
    assert known("bash", command="ls", timeout_s=2) == [
        ("Bash", {"command": "ls", "timeout": 2000})
    ]
    assert known("read_file", path="a/../b.py", limit=3) == [
        ("Read", {"file_path": "/work/b.py", "limit": 3})
    ]
    assert known("edit_file", path="/x", old_string="a", new_string="b") == [
        ("Edit", {"file_path": "/x", "old_string": "a", "new_string": "b"})
    ]
    assert known("grep_files", pattern="x", ignore_case=True) == [
        ("Grep", {"pattern": "x", "-i": True})
    ]
    assert known("mcp__gh__list", path="x") == [("mcp__gh__list", {"path": "/work/x"})]


@pytest.mark.spec("EXT-9")
def test_a_patch_is_a_call_for_each_of_its_files() -> None:
    patch = "*** Begin Patch\n*** Add File: a.py\n+one\n*** Update File: b.py\n*** Move to: c.py\n@@\n-x\n+y\n*** End Patch"
    found = known("apply_patch", patch=patch)
    assert [(name, fields["file_path"]) for name, fields in found] == [
        ("Write", "/work/a.py"),
        ("Edit", "/work/b.py"),
        ("Edit", "/work/c.py"),
    ]
    assert found[0][1]["content"] == "one"
    unified = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/y.py\n@@ -0,0 +1 @@\n+n\n"
    assert [fields["file_path"] for _, fields in known("apply_patch", patch=unified)] == [
        "/work/x.py",
        "/work/y.py",
    ]
    assert len(known("apply_patch", patch="nonsense")) == 1


@pytest.mark.spec("EXT-9")
def test_changed_arguments_come_back_with_our_names() -> None:
    call = ToolCall("1", "bash", {"command": "ls"})
    assert from_claude(call, {"command": "ls -l", "timeout": 3000, "run_in_background": False}) == {
        "command": "ls -l",
        "timeout_s": 3,
    }
    read = ToolCall("1", "read_file", {"path": "a"})
    assert from_claude(read, {"file_path": "/b"}) == {"path": "/b"}
    assert from_claude(ToolCall("1", "apply_patch", {}), {}) is None


@pytest.mark.parametrize(
    ("condition", "command", "is_met"),
    [
        ("Bash(git *)", "git push", True),
        ("Bash(git *)", "cd x && git push", True),
        ("Bash(git push:*)", "git push", True),
        ("Bash(git *)", "ls", False),
        ("Bash(git *)", "eval $(cat x)", True),
        ("Bash", "ls", True),
        ("Read(*.py)", "ls", False),
        ("no condition(", "ls", True),
    ],
)
@pytest.mark.spec("EXT-9")
def test_a_condition_names_calls(condition: str, command: str, *, is_met: bool) -> None:
    assert meets(condition, ToolCall("1", "Bash", {"command": command})) is is_met
    edit = ToolCall("1", "Edit", {"file_path": "/work/src/a.ts"})
    assert meets("Edit(src/*.ts)", edit) and meets("Write(*.ts)", edit)
    assert not meets("Edit(*.py)", edit)
