"""What is told of projects: to a session at its start, to a search; who hears the user (MEM-1).

Law: where nothing is known nothing is imported: the rest is ``project_memory``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agentcli.domain.clean import one_line
from agentcli.domain.events import PromptRecorded
from agentcli.domain.tools import real_path
from agentcli.engine.parts import Lazy

if TYPE_CHECKING:
    from pathlib import Path

    from agentcli.app.listeners import Listeners
    from agentcli.config.settings import Settings
    from agentcli.domain.events import AgentEvent
    from agentcli.domain.messages import UserMessage
    from agentcli.domain.tool_ports import ProjectMemory
    from agentcli.domain.tools import FileKeeper, Workspace
    from agentcli.policy.decision import Policy
    from agentcli.store.sqlite import SqliteStore
    from agentcli.tools.common.registry import Registry

MEMORY_KEY = "project_memory"
_KNOWN = "Project memory: what the user has told earlier sessions of this project"
_CLAIMED = (
    ": the directory has that remote but no commit that its memory knows, so that is not used"
    " - if it is your clone: /memory join"
)


async def project_memory(
    settings: Settings,
    store: SqliteStore,
    place: tuple[Workspace, Policy, Registry],
    hearing: tuple[Listeners, Callable[[], bool]],
    keeper: Callable[[], FileKeeper | None],
    *,
    resumed: bool,
) -> tuple[str, Lazy[ProjectMemory] | None, tuple[str, ...]]:
    """What the prompt says of it, the port of the tool, notices; nothing where it is switched off.

    A session goes on with what it has read at its start: its prefix stays the same. ``hearing`` is
    where its events go, and what tells whether a prompt is a file's text.
    """
    listeners, quotes = hearing
    workspace, policy, toolbox = place
    if not settings.memory:
        toolbox.unregister("memory")
        return "", None, ()
    said: list[UserMessage] = []
    base = settings.paths.memory_dir

    def hear(event: AgentEvent) -> None:
        if isinstance(event, PromptRecorded) and not quotes():
            said.append(event.message)

    def make() -> ProjectMemory:
        from agentcli.app.project_memory import SessionMemory

        secrets = partial(getattr, settings, "secrets")
        return SessionMemory(base, workspace.cwd, listeners.session_id, secrets, keeper, said)

    listeners.add(hear)
    notices: tuple[str, ...] = ()
    known = await store.get(MEMORY_KEY) if resumed else ""
    if base.is_dir() and (known or not resumed):
        from agentcli.store.memory import MemoryFiles

        files = await asyncio.to_thread(MemoryFiles, base, workspace.cwd)
        policy.free_to_read += (real_path(files.directory),)
        if files.claimed:
            notices = (f"{one_line(files.remote)}{_CLAIMED}",)
        if not resumed and (known := await asyncio.to_thread(files.prompt)):
            await store.set(MEMORY_KEY, known)
    text = f"{_KNOWN}\n{known}" if known and isinstance(known, str) else ""
    return text, Lazy(make), notices


def find_in_memory(base: Path, text: str, limit: int) -> Sequence[tuple[str, str, bool]]:
    """Facts of all projects below ``base`` that hold every word of ``text``. Blocks.

    Each with its project, and whether it is confirmed.
    """
    if not base.is_dir():
        return ()
    from agentcli.store.memory import search_memory

    return search_memory(base, text, limit)
