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
    r"\$(?:\{(?:CLAUDE|AGENTCLI)_PROJECT_DIR\}|(?:CLAUDE|AGENTCLI)_PROJECT_DIR\b)"
)
_WORKING_DIRECTORY = re.compile(r"\$(?:\{PWD\}|PWD\b)|\$\(pwd\)|`pwd`")
_HOME = re.compile(r"\$(?:\{HOME\}|HOME\b)")
_PATH = re.compile(r"/|\.\w{1,5}$")
_SCRIPT = re.compile(
    r"\.(?:sh|bash|zsh|ksh|fish|py|pyw|[cm]?[jt]s|rb|pl|php|lua|r|ps1|awk|sed|tcl|exs)$",
    re.IGNORECASE,
)
_NAMED_IN_SCRIPT = re.compile(
    r"[\w./-]+\.(?:sh|bash|zsh|fish|py|[cm]?[jt]s|rb|pl|php|lua)\b|/[\w.-]+/[\w./-]+"
)
_MAX_SCRIPT_BYTES = 200_000
_MAX_NAMED = 200
# what runs the orders that it finds in the directory
_RUN_THE_DIRECTORY = re.compile(
    r"g?make|just|task|rake|npm|npx|yarn|pnpm|bun|deno|cargo|go|tox|nox|pytest|py\.test|mvn|gradle"
    r"|ant|bazel|cmake|ninja|meson|composer|bundle|mix|direnv|pre-commit|husky|lefthook"
)
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
    """The files of ``root``, there or not, that the commands may run, in order (SEC-17).

    Rather one too many: what is named as a program by a path or given to an interpreter, and
    every other word that names a script; scripts that those name count, too. A link is named by
    its own place, whatever it leads to, and by the file behind it if that is in ``root`` as well.
    """
    found: dict[Path, None] = {}
    top = os.path.realpath(root)
    for hook in hooks:
        words = list(_words(_expanded(hook.command, top, str(cwd))))
        bases = [top, os.path.realpath(cwd)]
        bases += [place for word, _ in words for place in _places(word, bases, top, os.path.isdir)]
        for word, is_run in words:
            for place in _places(word, bases, top, lambda _: True):
                is_there = os.path.isfile(place)  # noqa: PTH113 - never raises
                may_come = not (_MARKS & set(word) or os.path.lexists(place)) and (
                    bool(_SCRIPT.search(word)) or (is_run and bool(_PATH.search(word)))
                )
                if may_come or (is_there and (is_run or _is_script(place))):
                    found[Path(place)] = None
    for script in list(found):
        _add_named(script, top, found)
    return tuple(found)


def may_run_from(command: str, root: Path, cwd: Path) -> bool:
    """Whether a command may run what ``root`` holds: a doubt is a yes (SEC-17).

    It names something there, finds its program out only when it runs, or runs a program that
    takes its orders from the directory.
    """
    top = os.path.realpath(root)
    bases = [top, os.path.realpath(cwd)]
    for word, is_run in _words(_expanded(command, top, str(cwd))):
        if any(True for _ in _places(word, bases, top, os.path.lexists)):
            return True
        if "$(" in word or "`" in word or (is_run and "$" in word):
            return True
        if is_run and (_RUN_THE_DIRECTORY.fullmatch(word) or ("/" in word and word[0] not in "/~")):
            return True
    return False


def _expanded(command: str, top: str, cwd: str) -> str:
    """``command`` with the variables that are known before it runs."""
    command = _PROJECT_DIRECTORY.sub(lambda _: top, command)
    command = _WORKING_DIRECTORY.sub(lambda _: cwd, command)
    home = os.path.expanduser("~")  # noqa: PTH111 - never raises
    return _HOME.sub(lambda _: home, command)


def _places(
    word: str, bases: Sequence[str], top: str, is_wanted: Callable[[str], bool]
) -> Iterator[str]:
    """Where ``word`` may lead below ``top``: links are places of their own."""
    for base in dict.fromkeys(bases):
        named = os.path.normpath(os.path.join(base, word))  # noqa: PTH118 - never raises
        for place in dict.fromkeys((named, os.path.realpath(named))):
            if _is_below(place, top) and is_wanted(place):
                yield place


def _is_below(place: str, top: str) -> bool:
    return place.startswith(top.rstrip("/") + "/")


def _is_script(place: str) -> bool:
    return bool(_SCRIPT.search(place)) or os.access(place, os.X_OK)


def _add_named(script: Path, top: str, found: dict[Path, None], depth: int = 3) -> None:
    """What a script names that is a script, too: sourced and called files, within bounds."""
    try:
        if not script.is_file():
            return
        with script.open("rb") as file:
            text = os.fsdecode(file.read(_MAX_SCRIPT_BYTES))
    except OSError:
        return
    for word in dict.fromkeys(_NAMED_IN_SCRIPT.findall(text)[:_MAX_NAMED]):
        for place in _places(word.lstrip("/"), (str(script.parent), top), top, os.path.isfile):
            if Path(place) not in found and len(found) < _MAX_NAMED:
                found[Path(place)] = None
                if depth:
                    _add_named(Path(place), top, found, depth - 1)


def _split(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return command.split()


def _words(command: str, depth: int = 3) -> Iterator[tuple[str, bool]]:
    """The words of a command line, and whether each is run, or given to what runs it."""
    words = _split(command)
    is_next, is_given, is_target, runs_module = True, False, False, False
    for word in words:
        if depth and any(mark in word for mark in _MARKS):
            yield from _words(word, depth - 1)
        if not word.strip("();&|<>"):
            is_target = word[-1] == ">"
            if not word.endswith(("<", ">")):
                is_next, is_given = True, False
            continue
        if is_target:
            is_target = False
            continue
        if runs_module:
            path = word.replace(".", "/")
            yield from ((place, False) for place in (f"{path}.py", f"{path}/__main__.py"))
            is_next = runs_module = False
            continue
        runs_module = is_next and is_given and word == "-m"
        _, is_value, value = word.partition("=")
        if is_value:
            yield value, False
        if word.startswith("-") or (is_next and (_ASSIGNMENT.match(word) or word.isdigit())):
            continue
        if is_next and _RUNNERS.fullmatch(word.rpartition("/")[2]):
            is_given = True
            yield word, "/" in word
        else:
            is_run = is_next and not any(mark in word for mark in ";&|()")
            yield word, is_run and (is_given or "/" in word or _is_found_out(word))
            is_next = False


def _is_found_out(word: str) -> bool:
    """Whether a program without a path is known only when it runs, or runs the directory."""
    return "$" in word or bool(_RUN_THE_DIRECTORY.fullmatch(word))


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
