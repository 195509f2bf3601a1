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

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentcli.config.toml_file import locate
from agentcli.domain.hooks import HookConfig, HookEvent

MAX_TIMEOUT_S = 3600.0
_FIELDS = frozenset(
    {"event", "matcher", "command", "timeout_s", "timeout", "type", "hooks", "statusMessage"}
)
Refuse = Callable[[tuple[str, ...], str], None]
Found = tuple[list[HookConfig], list[str]]


def read_hooks(text: str, value: object, where: Path, refuse: Refuse) -> Found:
    """The hooks in ``value``, the key ``hooks`` of the file ``where``; and warnings.

    ``refuse`` is told the path and the problem of each that is left out.
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
    return hooks, warnings


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
