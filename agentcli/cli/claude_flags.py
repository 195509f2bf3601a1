"""Flags as the fingers, scripts and libraries of Claude Code users spell them.

They are rewritten before anything is parsed, so that one set of options is declared, documented
and completed. Law: a flag is dropped only where doing without it changes nothing that this
program does; what is unknown here stays as it is and is refused by the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# takes a value, and nothing of ours depends on it: repository settings are never read (SEC-1)
_DROPPED_WITH_VALUE = frozenset({"--setting-sources"})
_DROPPED = frozenset({"--strict-mcp-config"})
_RENAMED = {"--fork-session": "--fork"}
_RULES = {
    "--allowedTools": "--allow-tool",
    "--allowed-tools": "--allow-tool",
    "--disallowedTools": "--deny-tool",
    "--disallowed-tools": "--deny-tool",
}
WITH_VALUE = _DROPPED_WITH_VALUE | frozenset(_RULES)
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
_RULE = re.compile(r"[^\s,()]+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?")


def translated(arguments: list[str]) -> list[str]:
    """``arguments`` in this program's spelling; what follows ``--`` is a prompt."""
    return list(_translated(arguments))


def _translated(arguments: list[str]) -> Iterator[str]:
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
        elif item not in _DROPPED:
            yield _RENAMED.get(item, item)


def _rule(text: str) -> str:
    """``Bash(git diff:*)`` -> ``bash(git diff *)``."""
    tool, parenthesis, pattern = text.partition("(")
    return _TOOLS.get(tool, tool) + parenthesis + pattern.replace(":*)", " *)")
