"""Tool calls as Claude Code's hooks know them, and back (EXT-9).

Law: a hook that guards a file or a command sees each file and the whole command, whichever tool of
ours would touch it: a patch is one ``Edit`` or ``Write`` for each of its files. Names and fields:
https://code.claude.com/docs/en/hooks#pretooluse-input.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from agentcli.domain.messages import ToolCall

# what hooks that were written for other agents call our tools; Claude Code's own name first
ALIASES = {
    "bash": ("Bash", "Shell", "shell"),
    "read_file": ("Read", "ReadFile"),
    "write_file": ("Write", "WriteFile"),
    "edit_file": ("Edit", "MultiEdit", "StrReplaceFile"),
    "apply_patch": ("Edit", "Write", "MultiEdit"),
    "edit_notebook": ("NotebookEdit",),
    "glob_files": ("Glob",),
    "grep_files": ("Grep",),
    "list_directory": ("LS",),
    "web_fetch": ("WebFetch", "FetchURL"),
    "web_search": ("WebSearch",),
    "write_todos": ("TodoWrite",),
    "ask_user": ("AskUserQuestion",),
    "task": ("Task", "Agent"),
}
# our field -> theirs
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "bash": {"timeout_s": "timeout"},
    "read_file": {"path": "file_path"},
    "write_file": {"path": "file_path"},
    "edit_file": {"path": "file_path"},
    "delete_file": {"path": "file_path"},
    "edit_notebook": {"path": "notebook_path", "mode": "edit_mode"},
    "grep_files": {"ignore_case": "-i", "context": "-C", "limit": "head_limit"},
    "task": {"agent": "subagent_type"},
}
PATHS = frozenset({"file_path", "notebook_path", "path"})
"""The fields of a call that are paths."""
_FILE = re.compile(r"^(?:\*\*\* (Add|Update|Delete|Move)(?: File| to): ?|(?:---|\+\+\+) )(.+)$")
_SEPARATOR = re.compile(r"&&|\|\||[;|&\n]")
_MORE = re.compile(r"[;&|<>`$(){}\r\n]")  # what may make it several commands, or write
_CONDITION = re.compile(r"([A-Za-z_]\w*)(?:\((.*)\))?", re.DOTALL)


def as_claude(call: ToolCall, cwd: Path) -> Iterator[ToolCall]:
    """``call`` as Claude Code would make it; a patch of several files is several calls."""
    if call.name == "apply_patch":
        yield from _of_patch(call, cwd)
        return
    renamed = _FIELDS.get(call.name, {})
    fields = {renamed.get(name, name): value for name, value in call.arguments.items()}
    for name in PATHS & fields.keys():
        fields[name] = _absolute(fields[name], cwd)
    if call.name == "bash" and isinstance(seconds := fields.get("timeout"), int | float):
        fields["timeout"] = int(seconds * 1000)
    if call.name == "ask_user":
        choices = [{"label": str(each)} for each in call.arguments.get("options") or ()]
        question = {"question": call.arguments.get("question", ""), "options": choices}
        fields = {"questions": [question]}
    yield replace(call, name=ALIASES.get(call.name, (call.name,))[0], arguments=fields)


def from_claude(call: ToolCall, updated: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments for ``call`` as a hook has changed them; ``None``: they cannot be ours."""
    if call.name in {"apply_patch", "ask_user"}:
        return None
    back = {theirs: ours for ours, theirs in _FIELDS.get(call.name, {}).items()}
    fields = {back.get(name, name): value for name, value in updated.items()}
    if call.name == "bash":
        fields.pop("run_in_background", None)
        if isinstance(fields.get("timeout_s"), int | float):
            fields["timeout_s"] = fields["timeout_s"] / 1000
    return fields


def response_of(call: ToolCall, response: Mapping[str, Any]) -> dict[str, Any]:
    """What came of ``call``, one of Claude Code's, with the fields that its hooks look at."""
    text = response.get("content", "")
    more: dict[str, Any] = {}
    if call.name == "Bash":
        more = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    elif path := call.arguments.get("file_path"):
        more = {"filePath": path, "success": not response.get("is_error")}
    return {**response, **more}


def meets(condition: str, call: ToolCall) -> bool:
    """Whether ``call``, one of Claude Code's, is what ``if`` names: "Bash(git *)".

    A command meets it with any of its parts. A doubt is a yes: rather a hook too many.
    """
    found = _CONDITION.fullmatch(condition.strip())
    if found is None:
        return True
    tool, pattern = found[1], found[2]
    if tool != call.name and {tool, call.name} - {"Edit", "Write", "MultiEdit"}:
        return False
    command = call.arguments.get("command")
    path = call.arguments.get("file_path")
    if pattern is None or not isinstance(command or path, str):
        return True
    if isinstance(command, str):
        begin = _begin(pattern)
        parts = (part.strip() for part in (command, *_SEPARATOR.split(command)))
        is_opaque = any(mark in command for mark in ("$(", "`", "eval "))
        return is_opaque or any(fnmatchcase(part, begin) for part in parts)
    wanted = pattern.removeprefix("./").lstrip("/")
    return fnmatchcase(str(path), f"*/{wanted}") or fnmatchcase(str(path), pattern)


def covers(condition: str, arguments: Mapping[str, Any]) -> bool:
    """Whether ``condition``, which the call met, names all of its command: a doubt is a no."""
    found, command = _CONDITION.fullmatch(condition.strip()), arguments.get("command")
    if not found or found[2] is None or not isinstance(command, str) or command == found[2]:
        return True
    return not _MORE.search(command) and fnmatchcase(command.strip(), _begin(found[2]))


def _begin(pattern: str) -> str:
    return pattern.removesuffix(":*") + "*" if pattern.endswith(":*") else pattern


def _of_patch(call: ToolCall, cwd: Path) -> Iterator[ToolCall]:
    patch = call.arguments.get("patch")
    text = patch if isinstance(patch, str) else ""
    files: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    current: list[str] = []
    for line in text.splitlines():
        if found := _FILE.match(line):
            name = found[2].partition("\t")[0].strip()
            if not found[1] and name.startswith(("a/", "b/")):
                name = name[2:]
            if name == "/dev/null":
                continue
            current = files.setdefault(name, [])
            kinds[name] = found[1] or kinds.get(name, "Update")
        elif line.startswith("+"):
            current.append(line[1:])
    for name, added in (files or {"": []}).items():
        content = "\n".join(added)
        path = _absolute(name, cwd) if name else ""
        if kinds.get(name) == "Add":
            yield replace(call, name="Write", arguments={"file_path": path, "content": content})
        else:
            change = {"file_path": path, "old_string": "", "new_string": content, "patch": text}
            yield replace(call, name="Edit", arguments=change)


def _absolute(path: object, cwd: Path) -> object:
    if not isinstance(path, str) or "://" in path:
        return path
    return os.path.normpath(cwd / os.path.expanduser(path))  # noqa: PTH111 - never raises
