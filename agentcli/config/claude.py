"""What Claude Code's settings files say that holds here as well (EXT-9, EXT-10).

``~/.claude/settings.json`` is the user's own; ``.claude/settings.json`` and ``settings.local.json``
are a project's, and count once it is trusted (SEC-1). Taken over are ``hooks``,
``disableAllHooks``, ``permissions.deny`` and ``permissions.ask``, and of the user's own
``statusLine``. Laws: nothing here allows anything (``permissions.allow`` and modes are what the
user has told another program); what cannot be used is one warning each and blocks nothing; a rule
that has no counterpart is named. The format: https://code.claude.com/docs/en/settings,
https://code.claude.com/docs/en/hooks.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from agentcli.config.hooks import MAX_TIMEOUT_S, is_matcher
from agentcli.domain.extensions.claude_calls import ALIASES
from agentcli.domain.extensions.hooks import HookConfig, HookEvent
from agentcli.domain.files import open_regular
from agentcli.domain.values import frozen, mutable

FILES = ("settings.json", "settings.local.json")
_MAX_BYTES = 500_000
_MAX_HOOKS = 200
_NEVER_HERE = frozenset(
    {
        "Setup", "UserPromptExpansion", "PermissionDenied", "PostToolBatch", "TaskCreated",
        "TaskCompleted", "TeammateIdle", "InstructionsLoaded", "ConfigChange", "CwdChanged",
        "FileChanged", "WorktreeCreate", "WorktreeRemove", "Elicitation", "ElicitationResult",
        "MessageDisplay", "DirectoryAdded", "PreModelSwitch", "PostModelSwitch",
    }
)  # fmt: skip
_RULE = re.compile(r"([A-Za-z0-9_*-]+)(?:\((.+)\))?", re.DOTALL)
# Claude Code's tool -> what a rule for it covers here, where that is more than one of ours
_TOOLS: Mapping[str, tuple[str, ...]] = {
    "Read": ("read_file", "grep_files", "symbols", "references"),
    "Edit": ("edit",),
    "MultiEdit": ("edit",),
    "Write": ("edit",),
    "NotebookEdit": ("edit",),
    **{
        theirs: (ours,)
        for ours, names in ALIASES.items()
        for theirs in names
        if theirs not in {"Read", "Edit", "MultiEdit", "Write", "NotebookEdit"}
    },
}
_OF_FILES = frozenset({"Read", "Edit", "MultiEdit", "Write", "NotebookEdit", "Grep", "Glob", "LS"})


@mutable
class ClaudeSettings:
    """What one file says. ``meaning`` is all of it that counts here, for its fingerprint."""

    path: Path
    hooks: list[HookConfig] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    ask: list[str] = field(default_factory=list)
    status_line: str = ""
    is_without_hooks: bool = False
    warnings: list[str] = field(default_factory=list)
    meaning: dict[str, Any] = field(default_factory=dict)


@frozen
class ClaudeFile:
    """A settings file and its text, read once: what was shown is what takes effect."""

    path: Path
    text: str


def read_file(path: Path) -> ClaudeFile | None:
    """The file, if it is there; of what cannot be read, an empty text, which is no JSON."""
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError:
        return None if not os.path.lexists(path) else ClaudeFile(path, "")
    text = "" if len(data) > _MAX_BYTES else data.decode("utf-8-sig", "replace")
    return ClaudeFile(path, text)


def understood(file: ClaudeFile, *, root: Path | None = None) -> ClaudeSettings:
    """What ``file`` says; ``root`` is that of the project whose file it is. Raises nothing."""
    found = ClaudeSettings(file.path)
    try:
        document = json.loads(file.text)
    except (ValueError, RecursionError) as error:
        where = f": line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        document = None
        problem = f"it is no JSON{where}" if file.text.strip() else "it is empty, or cannot be read"
        found.meaning = {"problem": problem}
    if not isinstance(document, dict):
        problem = found.meaning.setdefault("problem", "it is no JSON object")
        found.warnings.append(f"{file.path}: {problem}; nothing of it is used")
        return found
    reader = _ClaudeReader(root, found)
    reader.read(document)
    return found


class _ClaudeReader:
    """Takes what counts out of one document."""

    def __init__(self, root: Path | None, found: ClaudeSettings) -> None:
        self._path = found.path
        self._root = root
        self._found = found

    def read(self, document: Mapping[str, Any]) -> None:
        """All of it."""
        found = self._found
        if document.get("disableAllHooks") is True:
            found.is_without_hooks = True
            found.meaning["disableAllHooks"] = True
        if hooks := document.get("hooks"):
            found.meaning["hooks"] = hooks
            found.hooks += self._hooks(hooks)
        permissions = document.get("permissions")
        for kind, rules in (("deny", found.deny), ("ask", found.ask)):
            listed = permissions.get(kind) if isinstance(permissions, dict) else None
            if isinstance(listed, list) and listed:
                found.meaning[kind] = listed
                rules.extend(rule for each in listed for rule in self._rules(kind, each))
        status_line = document.get("statusLine")
        if self._root is None and isinstance(status_line, dict):
            command = status_line.get("command")
            if status_line.get("type", "command") == "command" and isinstance(command, str):
                found.status_line = command

    # --- hooks -----------------------------------------------------------------------------

    def _hooks(self, value: object) -> Iterator[HookConfig]:
        if not isinstance(value, dict):
            self._warn("hooks: expected an object with a list for each event")
            return
        count = 0
        for name, groups in value.items():
            event = next((event for event in HookEvent if str(event) == name), None)
            if event is None:
                why = "it never happens here" if name in _NEVER_HERE else "there is no such event"
                self._warn(f"hooks.{name} is not called: {why}")
                continue
            for group in groups if isinstance(groups, list) else [groups]:
                for hook in self._group(event, group):
                    if (count := count + 1) <= _MAX_HOOKS:
                        yield hook
        if count > _MAX_HOOKS:
            self._warn(f"hooks: only the first {_MAX_HOOKS} are called")

    def _group(self, event: HookEvent, group: object) -> Iterator[HookConfig]:
        name = f"hooks.{event}"
        listed = group.get("hooks") if isinstance(group, dict) else None
        if not isinstance(group, dict) or not isinstance(listed, list):
            self._warn(f"{name}: expected a matcher and a list of hooks")
            return
        matcher = group.get("matcher") or ""
        if not isinstance(matcher, str) or not is_matcher(matcher):
            self._warn(f"{name}: the matcher is no tool name and no regular expression")
            return
        for hook in listed:
            kind = hook.get("type", "command") if isinstance(hook, dict) else ""
            command = hook.get("command") if isinstance(hook, dict) else None
            if kind != "command":
                self._warn(f"{name}: a hook of type {str(kind)[:40]!r} is not called: only command")
            elif not isinstance(command, str) or not command.strip() or "\0" in command:
                self._warn(f"{name}: a hook needs a command, as a text")
            else:
                yield self._hook(event, matcher, hook)

    def _hook(self, event: HookEvent, matcher: str, hook: Mapping[str, Any]) -> HookConfig:
        timeout_s, command, condition = hook.get("timeout"), hook["command"], hook.get("if")
        if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool):
            timeout_s = None
        elif not 0 < timeout_s <= MAX_TIMEOUT_S:
            timeout_s = MAX_TIMEOUT_S if timeout_s > 0 else None
        arguments = hook.get("args")
        if isinstance(arguments, list):
            command = shlex.join([command, *map(str, arguments)])
        return HookConfig(
            event,
            command,
            matcher,
            timeout_s,
            str(self._path),
            contained=self._root is not None,
            is_claude=True,
            condition=condition if isinstance(condition, str) else "",
            unawaited=hook.get("async") is True,
        )

    # --- rules -----------------------------------------------------------------------------

    def _rules(self, kind: str, rule: object) -> Sequence[str]:
        """``Bash(npm run test:*)`` as ours; one that has no counterpart is said."""
        match = _RULE.fullmatch(rule.strip()) if isinstance(rule, str) else None
        tool, pattern = (match[1], match[2]) if match else ("", None)
        if tool.startswith("mcp__") and pattern is None:
            return (tool,) if "*" in tool or tool.count("__") > 1 else (tool, f"{tool}__*")
        ours = _TOOLS.get(tool, ())
        patterns = [""] if pattern is None else self._patterns(tool, pattern)
        if not ours or not patterns:
            self._warn(f"permissions.{kind}: {str(rule)[:80]!r} has no counterpart here")
            return ()
        return [f"{name}({each})" if each else name for name in ours for each in patterns]

    def _patterns(self, tool: str, pattern: str) -> list[str]:
        if tool == "Bash":
            begin = pattern.removesuffix(":*").removesuffix(" *")
            return [pattern] if begin == pattern else [begin, f"{begin} *"]
        if tool == "WebFetch":
            host = pattern.removeprefix("domain:")
            return [host] if host != pattern else []
        return self._paths(pattern) if tool in _OF_FILES else []

    def _paths(self, pattern: str) -> list[str]:
        """``//x`` is from the root of the disk, ``/x`` from the project's; all below is meant."""
        bare = pattern.rstrip("/")
        plain = f"{bare.removeprefix('./').removesuffix('/**')}/**"  # as in gitignore(5)
        if pattern.startswith("//"):
            return [plain[1:]]
        if pattern.startswith("/"):
            return [f"{self._root or self._path.parent}{plain}"]
        return [plain] if "/" in bare else [plain, f"**/{plain}"]

    def _warn(self, what: str) -> None:
        line = f"{self._path}: {what}"
        if line not in self._found.warnings:
            self._found.warnings.append(line)
