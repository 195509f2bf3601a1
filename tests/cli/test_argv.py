"""Sorting the command line before any parser sees it."""

from __future__ import annotations

import pytest

from agentcli.cli.argv import (
    COMMANDS,
    Invocation,
    sort_arguments,
    translated,
)
from agentcli.cli.completions import all_commands
from agentcli.cli.main import MODULES


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize(
    ("line", "command", "args"),
    [
        ("", "chat", ""),
        ("hello", "chat", "hello"),
        ("run hello", "run", "hello"),
        ("-m a/b run hello", "run", "-m a/b hello"),
        ("run hello -m a/b", "run", "hello -m a/b"),
        ("-m run hello", "chat", "-m run hello"),
        ("--model=x run", "run", "--model=x"),
        ("-- run", "chat", "-- run"),
        ("-p hello", "run", "hello"),
        ("hello -p", "run", "hello"),
        ("-p run", "run", "run"),
        ("-cp hello", "run", "-c hello"),
        ("-pm a/b hello", "run", "-m a/b hello"),
        ("--print -- -x", "run", "-- -x"),
        ("-p -- -p", "run", "-- -p"),
        ("-r", "chat", "--resume="),
        ("-r abc", "chat", "--resume=abc"),
        ("--resume abc go on", "chat", "--resume=abc go on"),
        ("-r -p hello", "run", "--resume= hello"),
        ("-r run x", "run", "--resume= x"),
        ("--resume=abc", "chat", "--resume=abc"),
        ("run --resume abc", "run", "--resume=abc"),
        ("-w", "chat", "--worktree="),
        ("-w fix", "chat", "--worktree=fix"),
        ("-w fix go on", "chat", "--worktree=fix go on"),
        ("run --worktree -c", "run", "--worktree= -c"),
        ("-w -- fix", "chat", "--worktree= -- fix"),
        ("-p -w fix go", "run", "--worktree=fix go"),
        ("resume abc -m x", "resume", "abc -m x"),
        ("--system-prompt run hi", "chat", "--system-prompt run hi"),
        ("--system-prompt -p hi", "chat", "--system-prompt -p hi"),
        ("-", "chat", "-"),
    ],
)
def test_the_first_word_decides(line: str, command: str, args: str) -> None:
    assert sort_arguments(line.split()) == Invocation(command, args.split(), [])


@pytest.mark.spec("CLI-2")
def test_options_before_a_command_without_prompt_are_kept_apart() -> None:
    assert sort_arguments("-C dir sessions list".split()) == Invocation(
        "sessions", ["list"], ["-C", "dir"]
    )


def test_every_option_with_a_value_may_stand_before_a_command() -> None:
    prompted = [c for c in all_commands() if c.words in {(), ("run",), ("resume",)}]
    names = {name for c in prompted for o in c.options if o.takes_value for name in o.names}
    for name in names - {"-r", "--resume", "-w", "--worktree"}:
        assert sort_arguments([name, "sessions", "run", "x"]).command == "run", name
    flags = {name for c in prompted for o in c.options if not o.takes_value for name in o.names}
    for name in flags - {"-h", "--help"}:
        assert sort_arguments([name, "sessions", "list"]).command == "sessions", name


def test_every_command_has_a_module() -> None:
    assert set(MODULES) == {"chat", *COMMANDS}


# --- flags of Claude Code ---


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
        (["--fork-session", "--strict-mcp-config"], ["--fork", "--strict-mcp-config"]),
        (["--", "--fork-session", "--allowedTools", "x"], ["--", "--fork-session", "--allowedTools", "x"]),
        (["--resume=x", "--model", "m", "prompt"], ["--resume=x", "--model", "m", "prompt"]),
    ],
)  # fmt: skip
def test_a_flag_is_rewritten(given: list[str], meant: list[str]) -> None:
    assert list(translated(given)) == meant


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


def test_several_words_in_one_at_the_end_are_the_prompt_and_no_name() -> None:
    assert sort_arguments(["run", "-w", "fix it"]).args == ["--worktree=", "fix it"]
    assert sort_arguments(["run", "-w", "fix it", "now"]).args == ["--worktree=fix it", "now"]
    assert sort_arguments(["-r", "my session"]).args == ["--resume=my session"]
