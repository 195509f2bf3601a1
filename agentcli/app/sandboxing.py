"""The session's sandbox, made when the first command needs it; a part of ``compose`` (SEC-7).

Law: until then nothing is imported, run or written: the first request does not wait for it. What
was asked for by name and cannot be had is an error; what ``auto`` cannot find is told once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.config.settings import Settings
from agentcli.domain.errors import ConfigError
from agentcli.domain.sandbox import Access, Confined, SandboxKind, SandboxState
from agentcli.domain.tools import Workspace

if TYPE_CHECKING:
    from agentcli.process.sandbox import SessionSandbox

NO_SANDBOX = "commands run without a sandbox, with all of your rights"


class LateSandbox:
    """Implements ``Sandbox``; loads the real one when it is needed."""

    def __init__(self, settings: Settings, workspace: Workspace) -> None:
        self._settings = settings
        self._workspace = workspace
        self._real: SessionSandbox | None = None
        self._before = SandboxState(
            SandboxKind.OFF,
            settings.sandbox,
            network=settings.sandbox_network,
            known=settings.sandbox == "off",
        )
        self._told = False

    @property
    def state(self) -> SandboxState:
        """What is in force, as far as it is known."""
        return self._before if self._real is None else self._real.state

    async def begin(self) -> SandboxState:
        """Find out what works here, once; nothing is looked for while it is switched off."""
        if self._real is None and not self._before.known:
            self._real = await asyncio.to_thread(self._load)
        return self.state if self._real is None else await self._real.begin()

    def _load(self) -> SessionSandbox:
        from agentcli.process.sandbox import SessionSandbox
        from agentcli.process.sandbox_places import OwnPlaces

        paths, settings = self._settings.paths, self._settings
        catalogue = paths.catalogue_file
        own = OwnPlaces(
            read_only=paths.own_places(self._workspace.root),
            hidden=(
                paths.credentials_file,
                paths.trust_file,
                paths.sessions_dir,
                *(catalogue.with_name(catalogue.name + end) for end in ("", "-wal", "-shm")),
                paths.log_file,
                paths.history_file,
                paths.seal_file,
            ),
        )
        wanted = self._before.wanted
        return SessionSandbox(self._workspace, own, wanted, network=settings.sandbox_network)

    def take_notice(self) -> str:
        """What a person is told once when there is none: why, and how to mend it."""
        state = self.state
        if not state.lacks_it or self._told:
            return ""
        self._told = True
        advice = f" ({state.advice})" if state.advice else ""
        return f"{NO_SANDBOX}: {state.problem}{advice}"

    def switch(self, *, on: bool) -> None:
        """Use it or do not, from the next command on."""
        if self._real is not None:
            self._real.switch(on=on)
            return
        wanted = self._settings.sandbox if self._settings.sandbox != "off" or not on else "auto"
        self._before = SandboxState(
            SandboxKind.OFF,
            wanted if on else "off",
            network=self._settings.sandbox_network,
            known=not on,
        )

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """See the port."""
        return dict(base) if self._real is None else self._real.environment(base)

    def on_machine(self, path: Path) -> Path:
        """See the port."""
        return path if self._real is None else self._real.on_machine(path)

    @property
    def scratch_parent(self) -> Path | None:
        """See the port."""
        return None if self._real is None else self._real.scratch_parent

    async def confine(
        self, argv: Sequence[str], cwd: Path, access: Access, scratch: Path
    ) -> Confined:
        """See the port."""
        if self._real is None:
            return Confined(tuple(argv), cwd)
        return await self._real.confine(argv, cwd, access, scratch)

    async def settle(self) -> tuple[str, ...]:
        """See the port."""
        return () if self._real is None else await self._real.settle()

    async def aclose(self) -> None:
        """See the port."""
        if self._real is not None:
            await self._real.aclose()


async def make_sandbox(settings: Settings, workspace: Workspace) -> LateSandbox:
    """The sandbox that the settings ask for; raises ``ConfigError`` if it was named and fails."""
    sandbox = LateSandbox(settings, workspace)
    if settings.sandbox in {SandboxKind.BWRAP, SandboxKind.LANDLOCK}:
        state = await sandbox.begin()
        if not state.is_on:
            await sandbox.aclose()
            advice = f"{state.advice or 'see: agent doctor'}; or use --sandbox auto, or off"
            raise ConfigError(f"--sandbox {settings.sandbox}: {state.problem}", advice)
    return sandbox


async def sandbox_banner(sandbox: LateSandbox, *, wanted: bool) -> tuple[str, ...]:
    """The line for the top of the chat when there is no sandbox and nobody has said so."""
    if not wanted:
        return ()
    await sandbox.begin()
    return tuple(line for line in (sandbox.take_notice(),) if line)
