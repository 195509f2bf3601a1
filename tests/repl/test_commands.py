"""Slash commands are found by themselves; what is none is a message."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentcli.repl.slash
from agentcli.repl import commands as registry

FILES = {path.stem for path in Path(agentcli.repl.slash.__path__[0]).glob("[a-z]*.py")}


@pytest.mark.spec("UI-5")
def test_each_file_is_a_command_with_help() -> None:
    registry.use_custom(())
    commands = {command.name: command for command in registry.all_commands()}
    assert set(commands) == FILES
    assert all(command.help for command in commands.values())
    names = [name for c in commands.values() for name in (c.name, *c.aliases)]
    assert len(names) == len(set(names))
    expected = "help new clear resume sessions model cost status export rename exit quit todos"
    assert set(expected.split()) <= set(names)


@pytest.mark.spec("UI-5")
@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("/help", ("help", "")),
        ("  /Model  a/b ", ("model", "a/b")),
        ("/rename two words\nmore", ("rename", "two words\nmore")),
        ("/etc/hosts", None),
        ("/usr is a directory", ("usr", "is a directory")),
        ("/ x", None),
        ("//", None),
        ("/1", None),
        ("help", None),
    ],
)
def test_what_reads_as_a_command(text: str, parsed: tuple[str, str] | None) -> None:
    assert registry.parse(text) == parsed


@pytest.mark.spec("UI-5")
def test_near_names() -> None:
    assert registry.near("sess")[0] == "sessions"
    assert "model" in registry.near("modle")
    assert registry.near("zzzz") == []
