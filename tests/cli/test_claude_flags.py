"""Flags of Claude Code in this program's spelling."""

from __future__ import annotations

import pytest

from agentcli.cli.argv import sort_arguments
from agentcli.cli.claude_flags import translated


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--allowedTools", "Bash(git diff:*),Read"], ["--allow-tool=bash(git diff *)", "--allow-tool=read_file"]),
        (["--allowed-tools=Bash(npm run test:*) Edit"], ["--allow-tool=bash(npm run test *)", "--allow-tool=edit_file"]),
        (["--disallowedTools", "mcp__github__*, WebFetch"], ["--deny-tool=mcp__github__*", "--deny-tool=web_fetch"]),
        (["--allowedTools", "Bash(f(x), y)"], ["--allow-tool=bash(f(x), y)"]),
        (["--permission-mode", "bypassPermissions"], ["--permission-mode=yolo"]),
        (["--permission-mode=acceptEdits"], ["--permission-mode=accept-edits"]),
        (["--permission-mode", "plan"], ["--permission-mode=plan"]),
        (["--setting-sources=", "x"], ["x"]),
        (["--setting-sources", "user,project", "x"], ["x"]),
        (["--fork-session", "--strict-mcp-config"], ["--fork"]),
        (["--", "--fork-session", "--allowedTools", "x"], ["--", "--fork-session", "--allowedTools", "x"]),
        (["--resume=x", "--model", "m", "prompt"], ["--resume=x", "--model", "m", "prompt"]),
    ],
)  # fmt: skip
def test_a_flag_is_rewritten(given: list[str], meant: list[str]) -> None:
    assert translated(given) == meant


@pytest.mark.spec("CLI-2", "CLI-4")
@pytest.mark.parametrize(
    ("argv", "command", "args"),
    [
        (["--output-format", "stream-json", "--input-format", "stream-json"], "run", None),
        (["--input-format=stream-json"], "run", None),
        (["--allowedTools", "Read", "sessions"], "sessions", []),
        (["-p", "--allowedTools", "Read", "sessions"], "run", ["--allow-tool=read_file", "sessions"]),
    ],
)  # fmt: skip
def test_the_line_is_sorted_with_them(
    argv: list[str], command: str, args: list[str] | None
) -> None:
    invocation = sort_arguments(argv)
    assert invocation.command == command
    assert args is None or invocation.args == args
