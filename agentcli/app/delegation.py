"""How a session comes by its sub-agents; a part of ``compose``.

Laws: what sub-agents need is imported when the first tool is called (the import budget); what the
model is told of them is settled when the session is opened (CTX-2).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.config.settings import Settings
from agentcli.engine.conversation import Conversation

if TYPE_CHECKING:
    from agentcli.app.subagents import Emit, Lent
    from agentcli.domain.subagents import SubAgents
    from agentcli.extensions.agents import AgentDefinition
    from agentcli.store.files import SessionFiles
    from agentcli.store.sqlite import SqliteStore
    from agentcli.tools._registry import Registry

TASK = "task"
MAX_LISTED_CHARS = 4_000
Closers = Callable[["SqliteStore", str], Sequence[Callable[[], Awaitable[None]]]]


def delegate(
    settings: Settings,
    parts: Conversation,
    toolbox: Registry,
    store: SqliteStore,
    files: SessionFiles | None,
    closers: Closers,
) -> tuple[str, ...]:
    """Give the session of ``parts`` its sub-agents, if it has the tool; warnings of their files.

    ``files`` is ``None`` where no session is kept; ``closers`` gives what ends the processes of
    a session.
    """
    if all(each.name != TASK for each in toolbox.definitions):
        return ()
    definitions, warnings = _definitions(settings)
    if definitions:
        toolbox.describe(TASK, listing(definitions))
    made: list[Lent] = []

    def agents(emit: Emit, *, unattended: bool = False) -> SubAgents:
        from agentcli.app.subagents import Lent, Runner

        if not made:
            made.append(Lent(parts, store, definitions, closers, files))
        return Runner(made[0], emit, unattended)

    parts.kit.agents = agents
    return warnings


def _definitions(settings: Settings) -> tuple[Mapping[str, AgentDefinition], tuple[str, ...]]:
    """Those of the person's files and of a trusted project's; nothing is imported without any."""
    directories = [settings.paths.config_dir / "agents"]
    home = settings.env.get("HOME", "")
    if home.startswith("/"):
        directories.append(Path(home) / ".agents" / "agents")
    if settings.project is not None:
        directories.append(settings.project / ".agents" / "agents")
    there = [each for each in directories if os.path.isdir(each)]  # noqa: PTH112 - never raises
    if not there:
        return {}, ()
    from agentcli.extensions.agents import load_agents

    return load_agents(there)


def listing(definitions: Mapping[str, AgentDefinition]) -> str:
    """The agents as the model is told of them, in a bounded text."""
    lines = ["Agents:"]
    left = MAX_LISTED_CHARS
    for definition in definitions.values():
        line = f"- {definition.name}: {definition.description}"
        left -= len(line)
        if left < 0:
            line = f"- {definition.name}"
        lines.append(line)
    return "\n".join(lines)
