"""The session's sandbox as the settings ask for it; a part of ``compose`` (SEC-7).

Law: what was asked for by name and cannot be had is an error; what ``auto`` cannot find is told
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentcli.config.settings import Settings
from agentcli.domain.errors import ConfigError
from agentcli.domain.sandbox import SandboxKind
from agentcli.domain.tools import Workspace
from agentcli.process.sandbox import SessionSandbox

if TYPE_CHECKING:
    from agentcli.process.sandbox_places import OwnPlaces


def session_sandbox(settings: Settings, workspace: Workspace) -> SessionSandbox:
    """The sandbox that the settings ask for; nothing is looked at before it is needed."""

    def own_places() -> OwnPlaces:
        from agentcli.process.sandbox_places import OwnPlaces

        paths = settings.paths
        catalogue = paths.catalogue_file
        return OwnPlaces(
            read_only=paths.own_places(workspace.root),
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

    wanted, network = settings.sandbox, settings.sandbox_network
    return SessionSandbox(workspace, own_places, wanted, network=network)


async def make_sandbox(settings: Settings, workspace: Workspace) -> SessionSandbox:
    """The same; raises ``ConfigError`` if it was named and fails."""
    sandbox = session_sandbox(settings, workspace)
    if settings.sandbox in {SandboxKind.BWRAP, SandboxKind.LANDLOCK}:
        state = await sandbox.begin()
        if not state.is_on:
            await sandbox.aclose()
            advice = f"{state.advice or 'see: agent doctor'}; or use --sandbox auto, or off"
            raise ConfigError(f"--sandbox {settings.sandbox}: {state.problem}", advice)
    return sandbox


async def sandbox_banner(sandbox: SessionSandbox, *, wanted: bool) -> tuple[str, ...]:
    """The line for the top of the chat when there is no sandbox and nobody has said so."""
    if not wanted:
        return ()
    await sandbox.begin()
    return tuple(line for line in (sandbox.take_notice(),) if line)
