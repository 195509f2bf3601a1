"""Commands in a real sandbox; where this machine has none, the test is skipped with the reason."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from agentcli.app.boundary import look_for_sandbox
from agentcli.domain.sandbox import Access, SandboxState
from agentcli.domain.tools import ToolContext, ToolOutput, Workspace
from agentcli.process.run import end_processes
from agentcli.process.sandbox import SessionSandbox
from agentcli.process.sandbox_places import OwnPlaces
from agentcli.tools.bash import TOOL
from tests.support.tool_context import text_of, tool_context

BOTH = ("bwrap", "landlock")


@functools.cache
def _state(kind: str) -> SandboxState:
    with tempfile.TemporaryDirectory() as directory:
        return look_for_sandbox(Path(os.path.realpath(directory)), kind)


def needs(kind: str) -> None:
    """Skip the test where this kind of sandbox does not work."""
    state = _state(kind)
    if not state.is_on:
        pytest.skip(f"no {kind} here: {state.problem}")


async def bash(ctx: ToolContext, command: str, **more: object) -> ToolOutput:
    """One call of the tool."""
    return await TOOL.run(TOOL.parse({"command": command, **more}), ctx)


class Sandboxed:
    """The calls of one session in ``root``, each inside; for ``async with``."""

    def __init__(
        self,
        root: Path,
        kind: str = "bwrap",
        *,
        own: OwnPlaces | None = None,
        network: bool = False,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        needs(kind)
        self.sandbox = SessionSandbox(
            Workspace(root, root), lambda: own or OwnPlaces(), kind, network=network, tell=tell
        )
        self.ctx = tool_context(root)
        self.ctx.sandbox = self.sandbox

    async def __aenter__(self) -> Self:
        await self.sandbox.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await end_processes(grace_s=0.1)
        await self.sandbox.aclose()

    async def say(self, command: str, **more: object) -> str:
        """What the model is told of the command."""
        return text_of(await bash(self.ctx, command, **more))

    async def with_access(self, access: Access, command: str) -> str:
        """What the model is told of a command that the policy gives ``access``."""
        self.ctx.access = access
        try:
            return await self.say(command)
        finally:
            self.ctx.access = None


def told(
    root: Path, *commands: str, kind: str = "bwrap", own: OwnPlaces | None = None
) -> list[str]:
    """What the model is told of each command of a session in ``root``."""

    async def run() -> list[str]:
        async with Sandboxed(root, kind, own=own) as inside:
            return [await inside.say(command) for command in commands]

    return asyncio.run(run())
