"""Where the operands of a shell command lead: the directories it starts in, names as they expand.

Law: what can be known without running anything is known (``~``, ``$HOME``, ``$PWD``, ``cd``,
braces, patterns); the rest is ``None``, which nobody may take for harmless.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from agentcli.domain.values import frozen
from agentcli.policy.bash_command import SimpleCommand
from agentcli.policy.command_texts import unquoted
from agentcli.policy.shell_operands import values_of

Words = tuple[str | None, ...]
_MAX_PLACES = 16
_MAX_NAMES = 64
_HOME = re.compile(r"\$(?:HOME(?![A-Za-z0-9_])|\{HOME\})")
_HERE = re.compile(r"\$(?:PWD(?![A-Za-z0-9_])|\{PWD\})")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_PATTERN = re.compile(r"[*?\[\]]")
_PROC_CWD = re.compile(r"^/+proc/[^/]+/cwd(?=/|$)")
_PROC_ROOT = re.compile(r"^/+proc/[^/]+/root(?=/)")
_MOVES = frozenset({"cd", "pushd", "popd"})
# they run another program in the directory that such an option names
_ELSEWHERE = {"env": ("-C", "--chdir"), "sudo": ("-D", "--chdir")}


@frozen
class Starts:
    """Where relative names may start; ``is_sure`` is false when a directory could not be told."""

    directories: tuple[Path, ...]
    is_sure: bool = True


def starts_of(commands: Sequence[SimpleCommand], cwd: Path) -> Starts:
    """Every directory in which one of ``commands`` may be, as ``cd`` leads there."""
    found = [cwd]
    is_sure = True
    for command in commands:
        if not command.words:
            continue
        words = seen_words(command)
        if options := _ELSEWHERE.get((words[0] or "").rpartition("/")[2]):
            for name in values_of(words[1:], *options):
                is_sure = is_sure and name is not None
                found = list(dict.fromkeys((*found, *places_of(name or "", found))))
        if command.words[0] not in _MOVES:
            continue
        targets = [word for word in words[1:] if word is None or not re.match(r"[-+]\w", word)]
        target = targets[0] if targets else "~"
        if command.words[0] == "popd" or target in {None, "-"}:
            is_sure = is_sure and command.words[0] == "popd"
            continue
        found = list(dict.fromkeys((*found, *places_of(target or "", found))))
        if len(found) > _MAX_PLACES:
            return Starts(tuple(found[:_MAX_PLACES]), is_sure=False)
    return Starts(tuple(found), is_sure)


def moves(commands: Sequence[SimpleCommand]) -> bool:
    """Whether one of ``commands`` changes the directory of those after it."""
    return any(command.words and command.words[0] in _MOVES for command in commands)


def seen_words(command: SimpleCommand) -> Words:
    """The words, and where bash would expand one, its source as far as a file can be told of it."""
    if None not in command.words or len(command.sources) != len(command.words):
        return command.words
    return tuple(
        expanded(unquoted(source)) if word is None else word
        for word, source in zip(command.words, command.sources, strict=True)
    )


@lru_cache(maxsize=4096)
def expanded(source: str) -> str | None:
    """``source`` with home and working directory put in; ``None`` when more is expanded."""
    text = _HERE.sub(".", _HOME.sub("~", source))
    return None if re.search(r"[$`]|[<>]\(", text) else text


def places_of(name: str, directories: Sequence[Path]) -> Iterator[Path]:
    """The paths that ``name`` may stand for; patterns in it stay."""
    for each in _without_braces(name):
        path = _from_home(each)
        plain = _PROC_ROOT.sub("", path)
        found = _PROC_CWD.match(plain)
        for directory in directories:
            yield directory / (f"{directory}{plain[found.end() :]}" if found else plain)


def is_pattern(text: str) -> bool:
    """Whether the shell would look for files that fit ``text``."""
    return _PATTERN.search(text) is not None


def _from_home(name: str) -> str:
    if not name.startswith("~"):
        return name
    try:
        return os.path.expanduser(name)  # noqa: PTH111 - a user's home that is not there stays text
    except (RuntimeError, KeyError):
        return name


def _without_braces(name: str) -> list[str]:
    """``a{b,c}`` as ``ab`` and ``ac``; beyond a bound, a pattern that covers them."""
    names = [name]
    while any(_BRACES.search(each) for each in names):
        more: list[str] = []
        for each in names:
            found = _BRACES.search(each)
            if found is None:
                more.append(each)
                continue
            start, end = each[: found.start()], each[found.end() :]
            more += [f"{start}{choice}{end}" for choice in found[1].split(",")]
        names = more
        if len(names) > _MAX_NAMES:
            return [_BRACES.sub("*", name)]
    return names
