"""Hooks as they are written in ``config.toml``.

Three spellings mean the same, so that hooks of other agents can be pasted::

    [[hooks.PreToolUse]]          [[hooks.PreToolUse]]            [[hooks]]
    matcher = "bash"              matcher = "bash"                event = "PreToolUse"
    command = "check"             [[hooks.PreToolUse.hooks]]      matcher = "bash"
    timeout_s = 10                type = "command"                command = "check"
                                  command = "check"
                                  timeout = 10

Law: a value that is wrong is refused (a guard that is silently not there is worse than none); an
event that does not exist here is a warning.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentcli.config.toml_file import locate
from agentcli.domain.hooks import HookConfig, HookEvent

MAX_TIMEOUT_S = 3600.0
_PROJECT_DIRECTORY = re.compile(
    r"\$(?:\{(?:CLAUDE|AGENTCLI)_PROJECT_DIR\}|(?:CLAUDE|AGENTCLI)_PROJECT_DIR\b|\{?PWD\b\}?)"
)
_PATH = re.compile(r"/|\.\w{1,5}$")
_MARKS = frozenset(" \t\n;&|()")
_ASSIGNMENT = re.compile(r"\w+=")
# what runs the next word, or the script that it names
_RUNNERS = re.compile(
    r"(?:ba|da|z|k|fi)?sh|python[\d.]*|pypy\d*|node|deno|bun|ruby|perl|php|lua|pwsh|Rscript|tsx"
    r"|npx|uvx?|run|exec|env|nice|nohup|time|timeout|stdbuf|setsid|sudo|doas|command|source|\.|if"
    r"|then|else|do|while|until|not|!"
)
_FIELDS = frozenset(
    {"event", "matcher", "command", "timeout_s", "timeout", "type", "hooks", "statusMessage"}
)
Refuse = Callable[[tuple[str, ...], str], None]
Found = tuple[list[HookConfig], list[str]]


def read_hooks(
    text: str, value: object, where: Path, refuse: Refuse, *, is_project: bool = False
) -> Found:
    """The hooks in ``value``, the key ``hooks`` of the file ``where``; and warnings.

    Those of a project run in the sandbox. ``refuse`` is told the path and the problem of each that
    is left out.
    """
    hooks: list[HookConfig] = []
    warnings: list[str] = []
    for path, table in _tables(value, refuse):
        name = table.get("event") if path == ("hooks",) else path[1]
        line, column = locate(text, path)
        event = next((event for event in HookEvent if str(event) == name), None)
        if event is None:
            known = ", ".join(HookEvent)
            warnings.append(f"{where}:{line}:{column}: no hook event {name!r} - there are: {known}")
            continue
        source = f"{where}:{line}"
        for one in _commands(path, table, refuse):
            if problem := _problem_of(one):
                refuse(path, f"{'.'.join(path)}: {problem}")
            else:
                hooks.append(_hook(event, one, source))
    return [replace(hook, contained=is_project) for hook in hooks], warnings


def scripts_of(hooks: Iterable[HookConfig], root: Path, cwd: Path) -> tuple[Path, ...]:
    """The files below ``root``, there or not, that the commands run: real paths, in order.

    A program that is named with a slash, and the script that an interpreter is given.
    """
    found: dict[Path, None] = {}
    top = os.path.realpath(root)
    for hook in hooks:
        for word in _programs(_PROJECT_DIRECTORY.sub(lambda _: top, hook.command)):
            for base in (top, str(cwd)):
                place = os.path.realpath(os.path.join(base, word))  # noqa: PTH118 - never raises
                is_inside = place.startswith(top.rstrip("/") + "/")
                is_there = os.path.isfile(place)  # noqa: PTH113 - never raises
                may_come = bool(_PATH.search(word)) and not os.path.lexists(place)
                if is_inside and (is_there or may_come):
                    found[Path(place)] = None
    return tuple(found)


def _programs(command: str, depth: int = 3) -> Iterator[str]:
    """What a command line runs by a path, and what its interpreters are given; near enough."""
    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        words = command.split()
    is_next, is_given, is_target = True, False, False
    for word in words:
        if depth and any(mark in word for mark in _MARKS):
            yield from _programs(word, depth - 1)
        if not word.strip("();&|<>"):
            is_target = word[-1] in "<>"
            if not is_target:
                is_next, is_given = True, False
        elif is_target:
            is_target = False
        elif not is_next or word.startswith("-") or _ASSIGNMENT.match(word) or word.isdigit():
            continue
        elif _RUNNERS.fullmatch(word.rpartition("/")[2]):
            is_given = True
        else:
            is_next = False
            if (is_given or "/" in word) and not any(mark in word for mark in ";&|()"):
                yield word


def as_line(hook: HookConfig) -> str:
    """How a hook reads in a list of settings."""
    matcher = f"{hook.matcher}: " if hook.matcher else ""
    return f"{matcher}{hook.command} ({hook.limit_s:g} s)"


def _tables(value: object, refuse: Refuse) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        for event, listed in value.items():
            path = ("hooks", str(event))
            for table in _list_of_tables(path, listed, refuse):
                yield path, table
    else:
        for table in _list_of_tables(("hooks",), value, refuse):
            yield ("hooks",), table


def _list_of_tables(
    path: tuple[str, ...], value: object, refuse: Refuse
) -> Sequence[Mapping[str, Any]]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    tables = [item for item in listed if isinstance(item, Mapping)]
    if len(tables) < len(listed):
        name = ".".join(path)
        refuse(path, f"{name}: expected tables: [[{name}]] with a command")
    return tables


def _commands(
    path: tuple[str, ...], table: Mapping[str, Any], refuse: Refuse
) -> Iterator[Mapping[str, Any]]:
    """The hooks of a table: itself, or those that it groups below one matcher."""
    if "hooks" not in table:
        yield table
        return
    for inner in _list_of_tables((*path, "hooks"), table["hooks"], refuse):
        yield {"matcher": table.get("matcher", ""), **inner}


def _problem_of(table: Mapping[str, Any]) -> str:
    """Why ``table`` is no hook; empty when it is one."""
    unknown = sorted(set(table) - _FIELDS)
    command, matcher = table.get("command"), table.get("matcher", "")
    timeout_s = table.get("timeout_s", table.get("timeout"))
    problem = ""
    if unknown:
        problem = f"unknown field {unknown[0]}: a hook has matcher, command, timeout_s"
    elif table.get("type", "command") != "command":
        problem = f"the type {table['type']!r} is not supported: only command is"
    elif not isinstance(command, str) or not command.strip() or "\0" in command:
        problem = "a hook needs a command, as a text"
    elif not isinstance(matcher, str) or not _compiles(matcher):
        problem = "the matcher is no tool name and no regular expression"
    elif timeout_s is not None and not _is_timeout(timeout_s):
        problem = f"timeout_s is a number of seconds, at most {MAX_TIMEOUT_S:g}"
    return problem


def _hook(event: HookEvent, table: Mapping[str, Any], source: str) -> HookConfig:
    """The hook of a table without a problem."""
    timeout_s = table.get("timeout_s", table.get("timeout"))
    limit_s = None if timeout_s is None else float(timeout_s)
    return HookConfig(event, table["command"], table.get("matcher", ""), limit_s, source)


def _compiles(matcher: str) -> bool:
    if matcher.strip() in {"", "*"}:
        return True
    try:
        re.compile(matcher)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _is_timeout(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < float(value) <= MAX_TIMEOUT_S  # type: ignore[arg-type]  # a number, as just seen
