"""From ``sys.argv`` to a command and its arguments, before any parser is imported (CLI-2).

``agent`` takes a prompt where other programs take a command, options on both sides of it, and
two options whose value may be missing. So the line is sorted first:

- the first word that is no option is the command if it is the name of one; else it is a prompt
- ``-p`` makes it one shot: what follows is a prompt, whatever it is called
- ``--`` ends options: all that follows is the prompt
- ``-r`` and ``--resume`` without a value become ``--resume=`` (the picker), ``-w`` and
  ``--worktree`` become ``--worktree=`` (a new one)
- ``--input-format`` makes it one shot too: a program speaks, which cannot be a chat
- flags as Claude Code's users, scripts and libraries spell them are rewritten, so that one set of
  options is declared, documented and completed; one is dropped only where doing without it changes
  nothing that this program does, and what is unknown is left to the parser, which refuses it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import frozen

PROMPT_COMMANDS = frozenset({"acp", "chat", "run", "resume"})
# name -> one line of help; cli.main knows where each one lives
COMMANDS: dict[str, str] = {
    "run": "Answer one prompt and exit",
    "resume": "Resume an earlier session",
    "review": "Review what has changed in a git repository",
    "sessions": "List, show, search, import, export and repair sessions",
    "replay": "Play a session again, without asking a model or running a tool",
    "stats": "Show tokens and cost by day, model, tool and session",
    "worktrees": "List and remove the worktrees of agents",
    "tasks": "List, follow and stop background runs",
    "batch": "Run many tasks, each in a session of its own",
    "pipeline": "Run steps that use what earlier ones found",
    "map": "Show a project's files, what they define and who uses it",
    "models": "List the models, their limits and prices",
    "auth": "Store or remove the API keys of providers",
    "config": "Show and change settings",
    "mcp": "List, add, test and log in to MCP servers",
    "plugin": "Add, list, update and remove plugins",
    "permissions": "Explain what runs without asking, and why",
    "acp": "Serve an editor over the Agent Client Protocol",
    "doctor": "Check the installation and say how to fix it",
    "help": "Read the documentation",
    "completions": "Print or install shell completion",
}
_ONE_SHOT = frozenset({"-p", "--print"})
_INPUT_FORMAT = "--input-format"
_WITH_RESULT = frozenset({"json", "stream-json"})
_OPTIONAL_VALUE = {
    "-r": "--resume",
    "--resume": "--resume",
    "-w": "--worktree",
    "--worktree": "--worktree",
}
# flags of Claude Code; repository settings, which the first names, are never read (SEC-1)
_DROPPED_WITH_VALUE = frozenset({"--setting-sources"})
_RENAMED = {"--fork-session": "--fork"}
_RULES = {
    "--allowedTools": "--allow-tool",
    "--allowed-tools": "--allow-tool",
    "--disallowedTools": "--deny-tool",
    "--disallowed-tools": "--deny-tool",
}
_OTHER_WITH_VALUE = _DROPPED_WITH_VALUE | frozenset(_RULES)
_TOOLS = {
    "Bash": "bash",
    "Edit": "edit_file",
    "Glob": "glob_files",
    "Grep": "grep_files",
    "LS": "list_directory",
    "MultiEdit": "edit_file",
    "Read": "read_file",
    "TodoWrite": "write_todos",
    "WebFetch": "web_fetch",
    "Write": "write_file",
}
# a rule ends at a comma or a space that stands outside of its parentheses
_RULE = LazyPattern(r"[^\s,()]+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?")


@frozen
class Invocation:
    """What to run. ``front`` are the options before a command that takes no prompt."""

    command: str
    args: list[str]
    front: list[str]


def sort_arguments(argv: list[str]) -> Invocation:
    """The command in ``argv`` and its arguments; ``chat`` when none is named."""
    position, one_shot = _find_command(argv)
    if position is not None and argv[position] in COMMANDS and not one_shot:
        command = argv[position]
        front, rest = argv[:position], argv[position + 1 :]
        if command not in PROMPT_COMMANDS:
            return Invocation(command, rest, front)
        args = [*_normalised(front, command=command), *_normalised(rest, command=command)]
        return Invocation(command, list(translated(args)), [])
    command = "run" if one_shot else "chat"
    return Invocation(command, list(translated(_normalised(argv, command=command))), [])


def first_word(argv: list[str]) -> str | None:
    """The first word that is no option and no option's value."""
    position, _ = _find_command(argv)
    return None if position is None else argv[position]


def wants_result(argv: Sequence[str]) -> bool:
    """Whether ``argv`` asks for a run whose output ends with a result object."""
    invocation = sort_arguments(list(argv))
    return invocation.command == "run" and output_format(invocation.args) in _WITH_RESULT


def output_format(arguments: Sequence[str]) -> str:
    """The value of ``--output-format`` in what may be a wrong command line; maybe empty."""
    found = ""
    rest = iter(arguments)
    for item in rest:
        if item == "--":
            break
        if item in {"-o", "--output-format"}:
            found = next(rest, "")
        elif item.startswith("--output-format="):
            found = item.partition("=")[2]
        elif item.startswith("-o"):
            found = item[2:]
    return found


def _find_command(argv: list[str]) -> tuple[int | None, bool]:
    """Where the first word stands, and whether ``-p`` came before ``--``."""
    word: int | None = None
    one_shot = False
    index = 0
    while index < len(argv):
        item = argv[index]
        if item == "--":
            break
        if not item.startswith("-") or item == "-":
            if word is None:
                word = index
                if item in COMMANDS and not one_shot:
                    return word, False
        else:
            one_shot = (
                one_shot
                or item in _ONE_SHOT
                or item.partition("=")[0] == _INPUT_FORMAT
                or "p" in _cluster(item)
            )
            index += _takes_next(argv, index)
        index += 1
    return word, one_shot


@cache
def _valued() -> set[str]:
    """Every spelling of every option that always takes a value."""
    from agentcli.cli.options import RunOptions, spellings

    return spellings(RunOptions, with_value=True) - _OPTIONAL_VALUE.keys() | _OTHER_WITH_VALUE


def _cluster(item: str) -> str:
    """The short flags in ``-pc``, up to one that takes a value."""
    flags = ""
    if item.startswith("--") or not item.startswith("-"):
        return flags
    for letter in item[1:]:
        if f"-{letter}" in _OPTIONAL_VALUE or f"-{letter}" in _valued():
            break
        flags += letter
    return flags


def _takes_next(argv: list[str], index: int) -> int:
    """1 when the next item is the value of the option at ``index``, else 0."""
    item = argv[index]
    if item.startswith("--"):
        if item in _valued():
            return 1
    elif len(item) == len(_cluster(item)) + 2:
        if f"-{item[-1]}" in _valued():
            return 1
        if f"-{item[-1]}" in _OPTIONAL_VALUE:
            return int(_has_value(argv, index, f"-{item[-1]}"))
    return int(item in _OPTIONAL_VALUE and _has_value(argv, index, item))


def _has_value(argv: list[str], index: int, option: str) -> bool:
    """Whether the next word is the value of ``option``, which may lack one.

    Several words in one at the end of the line are no name of a worktree, but the prompt.
    """
    following = argv[index + 1 : index + 2]
    if not following or following[0].startswith("-") or following[0] in COMMANDS:
        return False
    is_last = index + 2 == len(argv)
    is_prompt = is_last and len(following[0].split()) > 1
    return not (is_prompt and _OPTIONAL_VALUE[option] == "--worktree")


def _normalised(argv: list[str], *, command: str) -> list[str]:
    """``argv`` without ``-p``, and with a value for each option that may lack one."""
    done: list[str] = []
    index = 0
    while index < len(argv):
        item = argv[index]
        if item == "--":
            return done + argv[index:]
        step = 1
        if item in _OPTIONAL_VALUE:
            name = _OPTIONAL_VALUE[item]
            if _has_value(argv, index, item):
                done.append(f"{name}={argv[index + 1]}")
                step = 2
            else:
                done.append(f"{name}=")
        elif item in _ONE_SHOT and command == "run":
            pass
        elif "p" in _cluster(item) and command == "run":
            done.append(item.replace("p", "", 1))
        else:
            done.append(item)
            if item.startswith("-") and item != "-" and _takes_next(argv, index):
                done += argv[index + 1 : index + 2]
                step = 2
        index += step
    return done


def translated(arguments: list[str]) -> Iterator[str]:
    """``arguments`` in this program's spelling; what follows ``--`` is a prompt."""
    rest = iter(arguments)
    for item in rest:
        if item == "--":
            yield item
            yield from rest
            return
        name, given, value = item.partition("=")
        if name in _DROPPED_WITH_VALUE:
            if not given:
                next(rest, None)
        elif name in _RULES:
            text = value if given else next(rest, "")
            for rule in _RULE.findall(text):
                yield f"{_RULES[name]}={_rule(rule)}"
        elif name == "--permission-mode":
            from agentcli.headless.stream_input import permission_mode

            mode = value if given else next(rest, "")
            yield f"{name}={permission_mode(mode)}"
        else:
            yield _RENAMED.get(item, item)


def _rule(text: str) -> str:
    """``Bash(git diff:*)`` -> ``bash(git diff *)``."""
    tool, parenthesis, pattern = text.partition("(")
    return _TOOLS.get(tool, tool) + parenthesis + pattern.replace(":*)", " *)")
