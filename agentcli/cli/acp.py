"""``agent acp``: an editor speaks the Agent Client Protocol on stdin and stdout (ACP-1, CLI-13)."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Annotated

from agentcli.cli.options import CommandSpec, DirectCommand, Option, SharedOptions, print_version
from agentcli.domain.errors import UsageError
from agentcli.headless.streams import is_terminal, write_error_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentcli.acp.agent import AskedSession
    from agentcli.app.library import SessionLibrary

_BY_THE_EDITOR = {"--continue": "continue_", "--resume": "resume", "--session": "session"}


class AcpOptions(SharedOptions):
    """All shared options, and the login that an editor may start in a terminal."""

    login: Annotated[
        bool, Option("--login", "Ask for an API key, keep it, and exit: for an editor's login.")
    ] = False

    def check(self) -> None:
        """Raise ``UsageError`` for what the editor decides, and for wrong values."""
        for name, field in _BY_THE_EDITOR.items():
            if getattr(self, field) not in {None, False}:
                raise UsageError(f"{name} is not for agent acp", "the editor opens the sessions")
        if self.worktree is not None:
            raise UsageError(
                "--worktree is not for agent acp", "the editor says where a session works"
            )
        super().check()


def acp(options: AcpOptions) -> int:
    """Serve the editor until it leaves; the exit code."""
    if options.version:
        return print_version()
    options.check()
    if options.login:
        from agentcli.cli.main import invoke

        return invoke("auth", ["login"])
    from agentcli.acp.agent import EditorHost
    from agentcli.acp.stdio import serve
    from agentcli.cli.logging_setup import REDACTOR
    from agentcli.cli.session_request import prepare_settings

    prepare_settings(options)
    if is_terminal(sys.stdin):
        write_error_line("agent acp is for editors: it waits for JSON-RPC on stdin; Ctrl-C ends it")
    return serve(
        EditorHost(
            library=lambda asked: _library(options, asked),
            is_ready=_is_ready,
            redact=REDACTOR.redact_known,
        )
    )


def _library(options: AcpOptions, asked: AskedSession) -> tuple[SessionLibrary, Sequence[str]]:
    """Sessions in a directory, by its settings; the user is not asked to trust it."""
    from dataclasses import replace

    from agentcli.app.extensions.servers import given_by_editor
    from agentcli.app.library import SessionLibrary
    from agentcli.cli.session_request import session_options, settings_in_force

    here = copy.copy(options)
    here.cd = str(asked.cwd)
    here.add_dir = [*(options.add_dir or ()), *map(str, asked.more)]
    settings, notices = settings_in_force(here)
    wanted = session_options(here, interactive=True)
    if asked.servers:
        given = given_by_editor(asked.servers)
        wanted = replace(wanted, mcp_config=(*wanted.mcp_config, given))
    return SessionLibrary(settings, wanted), notices


def _is_ready() -> bool:
    from agentcli.app.models import is_ready, listed_models
    from agentcli.cli.session_request import settings_here

    settings, _ = settings_here()
    return any(is_ready(settings, name) for name in {i.provider for i in listed_models(settings)})


COMMAND = DirectCommand(
    CommandSpec(
        "acp",
        "Serve an editor over the Agent Client Protocol.\n\nThe editor starts this command and"
        " speaks JSON-RPC on its stdin and stdout; logs and warnings go to stderr. See: agent"
        " help editors.",
        tells_codes=True,
    ),
    AcpOptions,
    acp,
)
