"""Checks after edits as they are written in ``config.toml`` (EXT-6).

::

    [[checks]]
    glob = "*.py"                        # or a list of globs
    format = "ruff format {files}"       # one of the two, or both
    check = "ruff check --output-format concise {files}"
    timeout_s = 10

A formatter whose last word is ``-`` reads the file from standard input and prints the new one.

Law: a value that is wrong is refused: a check that is silently not there is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.config.toml_file import locate
from agentcli.domain.extensions.checks import DEFAULT_TIMEOUT_S, CheckConfig

if TYPE_CHECKING:
    from agentcli.config.hooks import Refuse

MAX_TIMEOUT_S = 600.0
_FIELDS = ("glob", "format", "check", "timeout_s", "add_files")
_PATH = ("checks",)


def read_checks(text: str, value: object, where: Path, refuse: Refuse) -> list[CheckConfig]:
    """The checks in ``value``, the key ``checks`` of the file ``where``.

    ``refuse`` is told the path and the problem of each that is left out.
    """
    listed: list[Any] = value if isinstance(value, list) else [value]
    line, _ = locate(text, _PATH)
    found = []
    for table in listed:
        if not isinstance(table, Mapping):
            refuse(_PATH, 'checks: expected "auto", "off", or tables: [[checks]] with a glob')
        elif problem := _problem_of(table):
            refuse(_PATH, f"checks: {problem}")
        else:
            found.append(_check(table, f"{where}:{line}"))
    return found


def as_line(check: CheckConfig) -> str:
    """How a check reads in a list of settings: its whole command lines (SEC-6)."""
    kinds = (("format", check.format), ("check", check.check))
    commands = "; ".join(f"{kind}: {command}" for kind, command in kinds if command)
    return f"{', '.join(check.globs)}: {commands} ({check.timeout_s:g} s)"


def _problem_of(table: Mapping[str, Any]) -> str:
    """Why ``table`` is no check; empty when it is one."""
    unknown = [name for name in table if name not in _FIELDS]
    commands = [table.get(name) for name in ("format", "check") if name in table]
    timeout_s = table.get("timeout_s", DEFAULT_TIMEOUT_S)
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    problem = ""
    if unknown:
        problem = f"unknown field {unknown[0]}: a check has {', '.join(_FIELDS)}"
    elif not _globs(table):
        problem = 'a check needs a glob such as "*.py", or a list of them'
    elif not commands:
        problem = "a check needs a format or a check command"
    elif not all(isinstance(each, str) and each.strip() and "\0" not in each for each in commands):
        problem = "format and check are command lines, as texts"
    elif not is_number or not 0 < float(timeout_s) <= MAX_TIMEOUT_S:
        problem = f"timeout_s is a number of seconds, at most {MAX_TIMEOUT_S:g}"
    elif not isinstance(table.get("add_files", True), bool):
        problem = "add_files is true or false"
    return problem


def _globs(table: Mapping[str, Any]) -> tuple[str, ...]:
    value = table.get("glob")
    listed: Sequence[object] = value if isinstance(value, list) else [value]
    globs = tuple(each for each in listed if isinstance(each, str) and each.strip())
    return globs if len(globs) == len(listed) else ()


def _check(table: Mapping[str, Any], source: str) -> CheckConfig:
    """The check of a table without a problem."""
    formatter = table.get("format", "").strip()
    return CheckConfig(
        _globs(table),
        formatter,
        table.get("check", "").strip(),
        float(table.get("timeout_s", DEFAULT_TIMEOUT_S)),
        adds_files=table.get("add_files", True),
        is_filter=formatter.split()[-1:] == ["-"] and "{files}" not in formatter,
        source=source,
    )
