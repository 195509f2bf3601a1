"""The chat's start and end: options become a ``ChatHost``, the loop of ``repl`` does the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.app.compose import list_sessions, open_session
from agentcli.app.options import SessionOptions
from agentcli.cli.desk import ChatDesk
from agentcli.cli.session_request import prepare_settings, session_options
from agentcli.cli.trusting import ask_for_trust
from agentcli.config.settings import Settings
from agentcli.domain.ports import Approver
from agentcli.domain.session import SessionInfo
from agentcli.domain.tools import Asker
from agentcli.repl.host import Preferences

if TYPE_CHECKING:
    from agentcli.app.session import Session
    from agentcli.cli.options import SharedOptions


def talk(options: SharedOptions, first_prompt: str) -> int:
    """Run the chat; returns the exit code."""
    from agentcli.repl.loop import run_chat

    settings = prepare_settings(options, ask=ask_for_trust)
    host = Host(settings, session_options(options, interactive=True))
    pick_first = options.resume == ""
    return asyncio.run(run_chat(host, first_prompt or None, pick_first=pick_first))


class Host:
    """Opens sessions for the chat as the command line asked for them."""

    def __init__(self, settings: Settings, request: SessionOptions) -> None:
        self._settings = settings
        self._request = request
        self._may_fork = request.fork
        self._desk = ChatDesk(settings, request.cwd)

    @property
    def cwd(self) -> Path:
        """The directory the chat works in."""
        return self._request.cwd

    @property
    def desk(self) -> ChatDesk:
        """What commands look up outside of a session."""
        return self._desk

    @property
    def preferences(self) -> Preferences:
        """How the person likes the chat."""
        settings = self._settings
        return Preferences(
            theme=settings.theme,
            notifications=settings.notifications,
            editing_mode=settings.editing_mode,
            screen_reader=settings.screen_reader,
            background_reacts=settings.background_reacts,
            keys=settings.chat_keys,
        )

    @property
    def history_file(self) -> Path | None:
        """Where typed prompts are remembered; nowhere with ``--no-session``."""
        return None if self._request.no_session else self._settings.paths.history_file

    async def open_first(self, approver: Approver, asker: Asker) -> Session:
        """The session that the command line asks for, else the newest interrupted one (REC-4)."""
        self._may_fork = False
        return await self._open(self._request, approver, asker)

    async def open_new(self, approver: Approver, asker: Asker, model: str) -> Session:
        """A new session that ``model`` answers: the one of the session before."""
        request = replace(
            self._request,
            new=True,
            began="clear",
            resume=None,
            continue_latest=False,
            fork=False,
            model=model,
        )
        return await self._open(request, approver, asker)

    async def open_existing(self, session_id: str, approver: Approver, asker: Asker) -> Session:
        """An earlier session, by id, its beginning, or name."""
        request = replace(
            self._request,
            resume=session_id,
            new=False,
            continue_latest=False,
            fork=self._may_fork,
            no_session=False,
        )
        self._may_fork = False
        return await self._open(request, approver, asker)

    async def _open(self, request: SessionOptions, approver: Approver, asker: Asker) -> Session:
        from agentcli.repl.long_wait import LongWaitQuestion

        return await open_session(self._settings, request, approver, asker, LongWaitQuestion(asker))

    async def list_sessions(self) -> Sequence[SessionInfo]:
        """All sessions, the most recently used first."""
        return await list_sessions(self._settings)

    def known_models(self) -> Sequence[str]:
        """Models that can be chosen: those of providers with a key first."""
        from agentcli.cli.models import is_ready
        from agentcli.providers.models.table import known_models

        infos = known_models()
        ready = {name: is_ready(self._settings, name) for name in {i.provider for i in infos}}
        return [info.id for info in sorted(infos, key=lambda info: not ready[info.provider])]
