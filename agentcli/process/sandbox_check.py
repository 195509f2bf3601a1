"""What sandbox a directory would get, for ``agent doctor``: found out and taken down again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from agentcli.domain.sandbox import SandboxKind, SandboxState
from agentcli.domain.tools import Workspace
from agentcli.process.sandbox import SessionSandbox
from agentcli.process.sandbox_places import OwnPlaces


def look_for_sandbox(root: Path, wanted: str) -> SandboxState:
    """What works in ``root``; never raises. May be called while an event loop is running."""
    found: list[SandboxState] = []

    async def look() -> None:
        sandbox = SessionSandbox(Workspace(root, root), OwnPlaces(), wanted)
        try:
            found.append(await sandbox.begin())
        finally:
            await sandbox.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(look()))
    thread.start()
    thread.join()
    return found[0] if found else SandboxState(SandboxKind.OFF, wanted, "it cannot be told")
