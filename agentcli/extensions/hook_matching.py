"""Which hooks an event is for. Pure.

Law: an empty matcher and ``*`` match everything; a matcher of plain names matches exactly one of
them, in our spelling or in that of other agents; anything else is a regular expression that may
match anywhere in the name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentcli.domain.hooks import HookConfig, HookEvent

_NAMES = re.compile(r"[\w ,|-]+")
_SEPARATOR = re.compile(r"[|,]")
# what hooks that were written for other agents call our tools
_ALIASES = {
    "bash": ("Bash", "Shell", "shell"),
    "read_file": ("Read", "ReadFile"),
    "write_file": ("Write", "WriteFile"),
    "edit_file": ("Edit", "MultiEdit", "StrReplaceFile"),
    "apply_patch": ("Edit", "Write", "MultiEdit"),
    "glob_files": ("Glob",),
    "grep_files": ("Grep",),
    "list_directory": ("LS",),
    "web_fetch": ("WebFetch", "FetchURL"),
    "write_todos": ("TodoWrite",),
    "ask_user": ("AskUserQuestion",),
    "task": ("Task", "Agent"),
}
# events whose hooks are all called, whatever their matcher says
_UNMATCHED = frozenset({HookEvent.USER_PROMPT_SUBMIT, HookEvent.STOP})


def matching(configs: Sequence[HookConfig], event: HookEvent, subject: str) -> list[HookConfig]:
    """The hooks for ``event`` about ``subject``, in their order; the same command only once."""
    found = [
        config
        for config in configs
        if config.event is event
        and (event in _UNMATCHED or matches(config.matcher, subject, event))
    ]
    first: dict[str, HookConfig] = {}
    for config in found:
        first.setdefault(config.command, config)
    return list(first.values())


def matches(matcher: str, subject: str, event: HookEvent = HookEvent.PRE_TOOL_USE) -> bool:
    """Whether ``matcher`` is for ``subject``: a tool's name, or what the event is about."""
    if matcher.strip() in {"", "*"}:
        return True
    is_tool = event in {HookEvent.PRE_TOOL_USE, HookEvent.POST_TOOL_USE}
    names = (subject, *(_ALIASES.get(subject, ()) if is_tool else ()))
    if _NAMES.fullmatch(matcher):
        return not {part.strip() for part in _SEPARATOR.split(matcher)}.isdisjoint(names)
    try:
        return any(re.search(matcher, name) for name in names)
    except re.error:  # refused when the settings are read
        return False
