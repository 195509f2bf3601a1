"""What a session lends to its calls: one value, the same for all turns of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import field
from typing import TYPE_CHECKING

from agentcli.domain.ports import Approver
from agentcli.domain.tools import (
    Asker,
    Effect,
    FileLedger,
    RawOutputs,
    SessionState,
    ToolBox,
    Workspace,
)
from agentcli.domain.values import mutable
from agentcli.engine.race import Reaper
from agentcli.policy.decision import Policy

if TYPE_CHECKING:
    from agentcli.domain.background import Background
    from agentcli.domain.hooks import Hooks
    from agentcli.domain.sandbox import Sandbox
    from agentcli.domain.subagents import SubAgentsFor
    from agentcli.domain.tools import FileKeeper
    from agentcli.engine.background.moving import Moves


@mutable
class Toolkit:
    """What a session lends to its calls; the same for all turns of the session.

    ``sandbox`` limits what commands can do (SEC-7); ``background`` runs what outlives a turn
    (BG-1); ``keeper`` remembers files before they are changed (TT-1); ``moves`` are the running
    calls of a chat that can go on there (UI-3).
    """

    toolbox: ToolBox
    policy: Policy
    approver: Approver
    workspace: Workspace
    state: SessionState
    outputs: RawOutputs
    files: FileLedger = field(default_factory=FileLedger)
    ask: Asker | None = None
    session_id: str = ""
    hooks: Hooks | None = None
    agents: SubAgentsFor | None = None
    sandbox: Sandbox | None = None
    background: Background | None = None
    keeper: FileKeeper | None = None
    moves: Moves | None = None
    reaper: Reaper = field(default_factory=Reaper)
    approval_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def begin_sandbox(self, names: Collection[str]) -> str:
        """Know what limits commands before a call of ``names`` is judged; a line for the person.

        Does nothing where none of the tools of that name runs commands.
        """
        exec_tools = (tool.name for tool in self.toolbox.definitions if tool.effect is Effect.EXEC)
        if self.sandbox is None or not any(name in names for name in exec_tools):
            return ""
        self.policy.contained = (await self.sandbox.begin()).is_on
        return self.sandbox.take_notice()
