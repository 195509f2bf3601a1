"""The whole command tree as data, for completion and for the documentation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from agentcli.cli.argv import COMMANDS
from agentcli.cli.main import PROGRAM, load


class OptionInfo(NamedTuple):
    """One option: its spellings, its help, and what its value may be."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    metavar: str


class CommandInfo(NamedTuple):
    """One command: the words that call it, its help, its options and its sub-commands.

    ``values`` are what its argument can be, where that is known.
    """

    words: tuple[str, ...]
    help: str
    options: tuple[OptionInfo, ...]
    commands: tuple[str, ...]
    values: tuple[str, ...]


def all_commands() -> list[CommandInfo]:
    """The program itself, then every command and sub-command."""
    root = _info((), load("chat"))._replace(commands=tuple(COMMANDS))
    found = [root]
    for name in COMMANDS:
        command = load(name)
        found.append(_info((name,), command))
        found += [_info((name, sub), child) for sub, child in _children(command).items()]
    return found


def help_text(words: tuple[str, ...]) -> str:
    """What ``--help`` prints for the command called by ``words``, 80 columns wide."""
    command: Any = load(words[0] if words else "chat")
    label = " ".join((PROGRAM, *words[:1]))
    with _columns("80"), command.make_context(label, [], resilient_parsing=True) as context:
        if len(words) == 1 or not words:
            return str(command.get_help(context))
        child = _children(command)[words[1]]
        with child.make_context(words[1], [], parent=context, resilient_parsing=True) as inner:
            return str(child.get_help(inner))


@contextmanager
def _columns(width: str) -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = width
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _names(spellings: list[str]) -> tuple[str, ...]:
    """As declared; those of ``--help`` come from a set and are put in order."""
    return tuple(sorted(spellings) if "--help" in spellings else spellings)


def _children(command: Any) -> dict[str, Any]:
    children: dict[str, Any] = getattr(command, "commands", {})
    return children


def _info(words: tuple[str, ...], command: Any) -> CommandInfo:
    with command.make_context("agent", [], resilient_parsing=True) as context:
        options = tuple(
            OptionInfo(
                names=_names(param.opts),
                help=(param.help or "").split("  [")[0],
                takes_value=not param.is_flag and not param.count,
                metavar=param.metavar or "",
            )
            for param in command.get_params(context)
            if param.param_type_name == "option"
        )
        values = tuple(
            item.value
            for param in command.get_params(context)
            if param.param_type_name == "argument"
            for item in param.shell_complete(context, "")
        )
    first_line = (command.help or "").split("\n")[0]
    return CommandInfo(words, first_line, options, tuple(_children(command)), values)
