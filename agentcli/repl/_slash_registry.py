"""Finds the slash commands: one file each in ``repl/slash``, exporting ``COMMAND``.

Law: adding a command is adding a file. A message that only begins with a slash, such as a path,
is no command.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module

from agentcli.repl import slash
from agentcli.repl.commands import SlashCommand

_LINE = re.compile(r"/([a-z][a-z0-9:-]*)(?:\s+(.*))?\Z", re.DOTALL | re.IGNORECASE)
_custom: dict[str, SlashCommand] = {}


def all_commands() -> tuple[SlashCommand, ...]:
    """Every command, by name; then the person's own."""
    return (*_own_commands(), *_custom.values())


def use_custom(commands: Iterable[SlashCommand]) -> None:
    """Have these as well, in place of those before; a name that is taken stays as it is."""
    _custom.clear()
    taken = _own_names()
    _custom.update({c.name: c for c in commands if c.name not in taken})


@cache
def _own_commands() -> tuple[SlashCommand, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(slash.__path__))
    found: list[SlashCommand] = []
    for name in names:
        command = import_module(f"{slash.__name__}.{name}").COMMAND
        found.append(command)
    return tuple(sorted(found, key=lambda command: command.name))


@cache
def _own_names() -> Mapping[str, SlashCommand]:
    return {
        name: command for command in _own_commands() for name in (command.name, *command.aliases)
    }


def _by_name() -> Mapping[str, SlashCommand]:
    return {**_own_names(), **_custom}


def helps() -> dict[str, str]:
    """Name and help of each command and alias, for completion."""
    return {name: command.help for name, command in _by_name().items()}


def parse(text: str) -> tuple[str, str] | None:
    """The command's name and arguments when ``text`` reads as one, else ``None``."""
    found = _LINE.match(text.strip())
    return (found[1].lower(), (found[2] or "").strip()) if found else None


def find(name: str) -> SlashCommand | None:
    """The command or alias of that name."""
    return _by_name().get(name)


def near(name: str) -> list[str]:
    """Names like ``name``, best first."""
    starts = [known for known in _by_name() if known.startswith(name)]
    return list(dict.fromkeys([*starts, *get_close_matches(name, _by_name(), 3, 0.6)]))[:3]


def unknown(name: str) -> tuple[str, str]:
    """What to tell of a name that is no command, and what may have been meant."""
    like = " or ".join(f"/{other}" for other in near(name))
    advice = f"Did you mean {like}?" if like else "/help lists the commands."
    return f"There is no command /{name}.", advice
