"""The tools of a session, by name and by capability group (TOOL-4, TOOL-5).

A module of ``agentcli.tools`` has a ``TOOL``, or ``TOOLS``.
Law: nothing a start needs is imported to list the built-in tools: their definitions come from
``definitions.json``, which ``build_definitions`` writes from the tools themselves and a test
proves current. A tool's module is imported when the tool is first got.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentcli.domain.errors import UsageError
from agentcli.domain.tools import PREFIX, Asks, Tool, ToolDefinition, ToolHints

if TYPE_CHECKING:
    from agentcli.tools.common.base import BaseTool

_TOOLS = Path(__file__).parents[1]
DEFINITIONS_FILE = Path(__file__).with_name("definitions.json")

# the order in which the model sees them; part of the cached prefix, so: append, do not sort
_ORDER = (
    "read_file",
    "edit_file",
    "edit_notebook",
    "write_file",
    "apply_patch",
    "bash",
    "grep_files",
    "glob_files",
    "list_directory",
    "stat_file",
    "delete_file",
    "write_todos",
    "ask_user",
    "report_progress",
    "get_current_time",
    "task",
    "web_fetch",
    "web_search",
    "spawn_background",
    "task_output",
    "task_cancel",
    "list_tasks",
    "kv_get",
    "kv_set",
    "kv_delete",
    "kv_list",
    "present_plan",
    "tool_search",
    "mcp_call",
    "symbols",
    "references",
    "memory",
)
_NEAR = 3
# seldom used: named where they are needed (a notebook that is read names its tool), and there when
# they are called, but part of the prompt only where they were asked for by name (TOOL-14)
_DEFERRED = frozenset(
    {"edit_notebook", "web_search", "kv_delete", "kv_list"}
    | {"tool_search", "mcp_call", "symbols", "references"}
)
_WAYS = frozenset({"tool_search", "mcp_call"})  # to the others, not such themselves
# what other programs call the same thing
_ALIASES = {
    "read": "read_file",
    "view": "read_file",
    "cat": "read_file",
    "open_file": "read_file",
    "edit": "edit_file",
    "str_replace": "edit_file",
    "str_replace_editor": "edit_file",
    "replace": "edit_file",
    "write": "write_file",
    "create_file": "write_file",
    "patch": "apply_patch",
    "shell": "bash",
    "exec": "bash",
    "run_command": "bash",
    "run_shell_command": "bash",
    "execute_command": "bash",
    "terminal": "bash",
    "grep": "grep_files",
    "search": "grep_files",
    "rg": "grep_files",
    "glob": "glob_files",
    "find": "glob_files",
    "find_files": "glob_files",
    "find_symbol": "symbols",
    "go_to_definition": "symbols",
    "find_references": "references",
    "ls": "list_directory",
    "list_dir": "list_directory",
    "list_files": "list_directory",
    "remove": "delete_file",
    "rm": "delete_file",
    "todo_write": "write_todos",
    "todowrite": "write_todos",
    "fetch": "web_fetch",
    "agent": "task",
    "subagent": "task",
    "spawn_agent": "task",
    "bash_output": "task_output",
    "kill_bash": "task_cancel",
    "kill_shell": "task_cancel",
    # as Claude Code writes them: https://code.claude.com/docs/en/tools-reference
    "bashoutput": "task_output",
    "killshell": "task_cancel",
    "multiedit": "edit_file",
    "notebookread": "read_file",
    "notebookedit": "edit_notebook",
    "webfetch": "web_fetch",
    "websearch": "web_search",
    "askuserquestion": "ask_user",
    "exitplanmode": "present_plan",
}


class ServedTools(Protocol):
    """The tools of MCP servers, which come and go."""

    def get(self, name: str) -> Tool | None:
        """The tool of that whole name, if the session may use it."""

    def names(self) -> tuple[str, ...]:
        """The whole names that are known by now."""


class Registry:
    """The tools at hand; implements ``domain.tools.ToolBox``."""

    def __init__(self) -> None:
        self._definitions: dict[str, ToolDefinition] = {}
        self._loaded: dict[str, Tool] = {}
        self._built_in: dict[str, tuple[ToolDefinition, str]] = {}  # each with its module
        self.served: ServedTools | None = None

    @classmethod
    def builtin(
        cls, enabled: Iterable[str] | None = None, disabled: Collection[str] = ()
    ) -> Registry:
        """The built-in tools: all, or those named by tool or group, less ``disabled``.

        Raises ``UsageError`` for a name that is neither a tool nor a group.
        """
        registry = cls()
        built_in = _read_definitions()
        wanted = None if enabled is None else set(enabled)
        _refuse_unknown(wanted or (), built_in)
        _refuse_unknown(disabled, built_in, "tools.off: ")
        for definition, module in built_in:
            names = {definition.name, definition.group}
            if (wanted is None or names & wanted) and not names & set(disabled):
                registry._built_in[definition.name] = definition, module
                if definition.name not in _DEFERRED - (wanted or set()):
                    registry._definitions[definition.name] = definition
        return registry

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """In the order in which they are shown to the model."""
        return tuple(self._definitions.values())

    def list(self) -> tuple[str, ...]:
        """The names, in the same order."""
        return tuple(self._definitions)

    def groups(self) -> dict[str, tuple[ToolDefinition, ...]]:
        """The definitions by capability group (TOOL-5)."""
        found: dict[str, tuple[ToolDefinition, ...]] = {}
        for definition in self._definitions.values():
            found[definition.group] = (*found.get(definition.group, ()), definition)
        return found

    def group(self, name: str) -> tuple[ToolDefinition, ...]:
        """The definitions of one capability group; none when there is no such group."""
        return self.groups().get(name, ())

    def register(self, tool: Tool) -> None:
        """Add ``tool``, last. Raises ``ValueError`` when its name is taken."""
        name = tool.definition.name
        if name in self._definitions or name in self._built_in:
            raise ValueError(f"there is already a tool named {name}")
        self._definitions[name] = tool.definition
        self._loaded[name] = tool

    def describe(self, name: str, more: str) -> None:
        """Add ``more`` to a tool's description; nothing happens when it is not there."""
        if known := self._definitions.get(name):
            self._definitions[name] = replace(known, description=f"{known.description}\n{more}")

    def offer(self, name: str) -> None:
        """Make a tool that is deferred a part of the prompt, where it is there at all."""
        if name in self._built_in and name not in self._definitions:
            offered = {**self._definitions, name: self._built_in[name][0]}
            order = {each: number for number, each in enumerate(_ORDER)}
            names = sorted(offered, key=lambda each: order.get(each, len(order)))
            self._definitions = {each: offered[each] for each in names}

    def unregister(self, name: str) -> None:
        """Take a tool out; nothing happens when it is not there."""
        self._definitions.pop(name, None)
        self._loaded.pop(name, None)
        self._built_in.pop(name, None)

    def get(self, name: str) -> Tool | None:
        """The tool, its module imported if need be; ``None`` for an unknown name."""
        if name in self._built_in and name not in self._loaded:
            definition, module = self._built_in[name]
            for tool in _tools_of(module):
                if tool.name == name:
                    tool.definition = definition  # the same; to make it takes as long as the import
                    self._loaded[name] = tool
        found = self._loaded.get(name)
        if found is None and self.served is not None:
            return self.served.get(name)
        return found

    @property
    def deferred(self) -> tuple[ToolDefinition, ...]:
        """The built-in tools that are not part of the prompt (TOOL-14)."""
        hidden = (each for each, _ in self._built_in.values() if each.name not in _WAYS)
        return tuple(each for each in hidden if each.name not in self._definitions)

    def near(self, name: str) -> tuple[str, ...]:
        """Names like ``name``, best first (TOOL-4)."""
        wanted = name.casefold().replace("-", "_")
        alias = _ALIASES.get(wanted)
        served = () if self.served is None else self.served.names()
        there = dict.fromkeys((*self._definitions, *self._built_in, *served))
        found = [alias] if alias in there and alias is not None else []
        found += [
            known
            for known in there
            if wanted and (wanted in known.casefold() or known.casefold() in wanted)
        ]
        import difflib

        found += difflib.get_close_matches(wanted, list(there), n=_NEAR, cutoff=0.5)
        return tuple(dict.fromkeys(found))[:_NEAR]


def _refuse_unknown(
    names: Collection[str], built_in: Iterable[tuple[ToolDefinition, str]], where: str = ""
) -> None:
    if not names:
        return
    known, groups = set[str](), set[str]()
    for definition, _ in built_in:
        known.add(definition.name)
        groups.add(definition.group)
    for name in names:
        if name not in known and name not in groups and not name.startswith(PREFIX):
            import difflib

            near = difflib.get_close_matches(name, sorted(known | groups), n=_NEAR)
            groups_there = ", ".join(sorted(groups))
            hint = f"did you mean {', '.join(near)}?" if near else f"one of {groups_there}"
            raise UsageError(f"{where}there is no tool or tool group {name!r}", hint)


def known_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those of ``names``, or of the tools that they match, that name a tool or a group here."""
    from fnmatch import fnmatchcase

    built_in = [definition for definition, _ in _read_definitions()]
    found: dict[str, None] = {}
    for name in names:
        if name.startswith(PREFIX):
            found[name] = None
        for tool in built_in:
            if fnmatchcase(tool.name, name) or tool.group == name:
                found[tool.name] = None
    return tuple(found)


def standard_name(name: str) -> str:
    """What a tool is called here that other programs call ``name``."""
    wanted = name.strip().casefold().replace("-", "_")
    return _ALIASES.get(wanted, wanted)


def build_definitions() -> str:
    """The content of ``definitions.json``, from the tools."""
    modules = sorted(path.stem for path in _TOOLS.glob("*.py") if path.stem != "__init__")
    rows = [
        {"module": module, **asdict(tool.define())}
        for module in modules
        for tool in _tools_of(module)
    ]
    order = {name: number for number, name in enumerate(_ORDER)}
    rows.sort(key=lambda row: order.get(row["name"], len(order)))
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def _tools_of(module: str) -> tuple[BaseTool[Any], ...]:
    imported = import_module(f"agentcli.tools.{module}")
    return getattr(imported, "TOOLS", None) or (imported.TOOL,)


def _read_definitions() -> list[tuple[ToolDefinition, str]]:
    """Each with the module that its tool is in."""
    rows: list[dict[str, Any]] = json.loads(DEFINITIONS_FILE.read_text(encoding="utf-8"))
    found = []
    for row in rows:
        module = row.pop("module")
        row |= {"asks": Asks(row["asks"]), "hints": ToolHints(**row["hints"])}
        found.append((ToolDefinition(**row), module))
    return found
