"""Python plugins: objects of other distributions that the user's configuration names.

A distribution offers an object in the entry point group ``agentcli.plugins``; what it may have is
``gates`` (``ToolGate``), ``transforms`` (``ContextTransform``), ``tools`` (``Tool``), ``hooks``
(``HookConfig``), ``steering``, ``follow_ups`` (``InputSource``), ``wrap_up`` (``WrapUpSignal``) and
``observers`` (called with every ``AgentEvent``), each a sequence; and one of each of the other
fields of ``Seams``: ``provider``, ``store``, ``messages``, ``reminders``, ``temperature``,
``request_fields``. Laws: nothing is looked for
unless it is named; a plugin that is broken is one line for the user, at the start or the first
time it fails, and the session works without it; only a gate that fails ends the turn (CTRL-4).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from agentcli.domain.events import AgentEvent
from agentcli.domain.extensions.seams import Seams
from agentcli.domain.messages import AssistantMessage, Message, ToolResult, UserMessage
from agentcli.domain.ports import ContextTransform, ReminderTexts, StepFacts
from agentcli.domain.tools import Tool, ToolDefinition, ToolOutput, Workspace

GROUP = "agentcli.plugins"
T = TypeVar("T")
Say = Callable[[str], object]
log = logging.getLogger(__name__)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what providers take
# what a tool may have beside what it must have
_OPTIONAL = ("stands_for", "parse_background", "run_background")
_KINDS = {
    "gates": ("name", "priority", "allow"),
    "transforms": ("name", "apply"),
    "tools": ("definition", "parse", "summary", "paths", "preview", "run"),
    "observers": ("__call__",),
    "hooks": ("event",),
    "steering": ("__call__",),
    "follow_ups": ("__call__",),
    "wrap_up": ("__call__",),
}
# what there can be one of, and what it has to be
_SINGLE: dict[str, Any] = {
    "provider": object,
    "store": object,
    "messages": Sequence,
    "reminders": ReminderTexts,
    "temperature": int | float,
    "request_fields": Mapping,
}


@dataclass(slots=True)
class Plugins:
    """All that the named plugins bring, in their order; ``warnings`` are lines for the user."""

    seams: Seams = field(default_factory=Seams)
    tools: list[Tool] = field(default_factory=list)
    observers: list[Callable[[AgentEvent], None]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    say: Say = log.warning


def load_plugins(names: Sequence[str]) -> Plugins:
    """The plugins called ``names``; their ``say`` tells the user of one that fails later."""
    from importlib.metadata import entry_points

    plugins = Plugins()
    found = {point.name: point for point in entry_points(group=GROUP)}
    for name in dict.fromkeys(names):
        point = found.get(name)
        if point is None:
            there = ", ".join(sorted(found)) or "none is installed"
            plugins.warnings.append(f"warning: there is no plugin {name!r} - there are: {there}")
            continue
        try:
            loaded = point.load()
            _add(plugins, name, loaded() if isinstance(loaded, type) else loaded)
        except (Exception, SystemExit) as error:
            log.exception("the plugin %s was not loaded", name)
            plugins.warnings.append(f"warning: the plugin {name} was not loaded: {_line(error)}")
    return plugins


def _add(plugins: Plugins, name: str, plugin: Any) -> None:
    """All of one plugin or nothing of it. Raises ``TypeError`` for what is no part of one."""
    parts = {kind: _parts(plugin, kind, needed) for kind, needed in _KINDS.items()}
    for gate in parts["gates"]:
        _checked(gate.name, str)
        _checked(gate.priority, int)
    for tool in parts["tools"]:
        if not _TOOL_NAME.fullmatch(tool.definition.name):
            raise TypeError(f"{tool.definition.name!r} is no name for a tool")
        if not isinstance(tool.definition.description, str):
            raise TypeError(f"the description of {tool.definition.name} is no text")
        if not isinstance(tool.definition.parameters, Mapping):
            raise TypeError(f"the parameters of {tool.definition.name} are no JSON schema")
        json.dumps(dict(tool.definition.parameters), allow_nan=False)
    single = {
        kind: _checked(found, needed)
        for kind, needed in _SINGLE.items()
        if (found := getattr(plugin, kind, None)) is not None
    }
    if not any(parts.values()) and not single:
        raise TypeError(f"it has none of {', '.join((*_KINDS, *_SINGLE))}")
    once = _Once(name, plugins)
    plugins.seams = plugins.seams.over(
        Seams(
            gates=tuple(parts["gates"]),  # they fail closed: the engine ends the turn (CTRL-4)
            transforms=tuple(_SafeTransform(item, once) for item in parts["transforms"]),
            hooks=tuple(parts["hooks"]),
            steering=tuple(parts["steering"]),
            follow_ups=tuple(parts["follow_ups"]),
            wrap_up=tuple(parts["wrap_up"]),
            **{**single, "messages": tuple(single.get("messages", ()))},
        )
    )
    plugins.tools += [
        tool if Tool in type(tool).__mro__ else _PlainTool(tool) for tool in parts["tools"]
    ]
    plugins.observers += [_safe_observer(observer, once) for observer in parts["observers"]]


def _parts(plugin: Any, kind: str, needed: Sequence[str]) -> list[Any]:
    parts = list(getattr(plugin, kind, ()))
    for part in parts:
        missing = [attribute for attribute in needed if not hasattr(part, attribute)]
        if missing:
            raise TypeError(f"one of its {kind} has no {missing[0]}")
    return parts


class _PlainTool(Tool):
    """A tool that is no subclass of ``Tool``: what it lacks is as ``Tool`` has it."""

    def __init__(self, tool: Any) -> None:
        self._tool = tool
        self.context = getattr(tool, "context", Tool.context)
        for name in _OPTIONAL:
            if hasattr(tool, name):
                setattr(self, name, getattr(tool, name))

    @property
    def definition(self) -> ToolDefinition:
        return cast("ToolDefinition", self._tool.definition)

    def parse(self, arguments: Mapping[str, Any]) -> Any:
        return self._tool.parse(arguments)

    def summary(self, args: Any) -> str:
        return str(self._tool.summary(args))

    def paths(self, args: Any, workspace: Workspace) -> tuple[Path, ...]:
        return tuple(self._tool.paths(args, workspace))

    async def preview(self, args: Any, ctx: Any) -> str:
        return str(await self._tool.preview(args, ctx))

    async def run(self, args: Any, ctx: Any) -> ToolOutput:
        return cast("ToolOutput", await self._tool.run(args, ctx))


class _Once:
    """Tells the user of a plugin's first failure; all of them go to the log."""

    def __init__(self, name: str, plugins: Plugins) -> None:
        self._name = name
        self._plugins = plugins
        self._said = False

    def failed(self, error: BaseException) -> None:
        log.error("the plugin %s failed", self._name, exc_info=error)
        if not self._said:
            self._said = True
            self._plugins.say(f"the plugin {self._name} failed: {_line(error)} (see the log)")


class _SafeTransform:
    """A transform that changes nothing where the plugin's fails."""

    def __init__(self, transform: ContextTransform, once: _Once) -> None:
        self._transform = transform
        self._once = once
        self.name = str(transform.name)

    def apply(self, messages: Sequence[Message], facts: StepFacts) -> Sequence[Message]:
        """What the plugin's transform makes of ``messages``."""
        try:
            made = _checked(self._transform.apply(messages, facts), Sequence)
            return made if made is messages else _sound(made)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code
            self._once.failed(error)
            return messages


def _safe_observer(
    observer: Callable[[AgentEvent], None], once: _Once
) -> Callable[[AgentEvent], None]:
    def observe(event: AgentEvent) -> None:
        try:
            observer(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code
            once.failed(error)

    return observe


def _sound(messages: Sequence[Message]) -> Sequence[Message]:
    """``messages`` when they are a history: calls and results belong together (HIS-1)."""
    calls: set[str] = set()
    results: set[str] = set()
    for message in messages:
        match message:
            case AssistantMessage():
                calls |= {call.id for call in message.tool_calls}
            case ToolResult():
                results.add(message.call_id)
            case UserMessage():
                pass
            case _:
                raise TypeError(f"expected a message, not {type(message).__name__}")
    if not messages or calls != results:
        raise ValueError("what it made is no history: calls and results do not match")
    return messages


def _checked(value: T, kind: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"expected {getattr(kind, '__name__', kind)}, not {type(value).__name__}")
    return value


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
