"""A chat without a terminal, made of the real parts: what commands show is collected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from agentcli.app.library import AsksUser, SessionLibrary
from agentcli.app.options import SessionOptions
from agentcli.cli.interactive import user_files
from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings
from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import Prompt
from agentcli.domain.messages import user_text
from agentcli.repl import commands as registry
from agentcli.repl.commands import SlashCommand
from agentcli.repl.panel import PickRow
from agentcli.ui.theme import PLAIN
from tests.support.cli import agent_env
from tests.support.model_server import ModelServer
from tests.support.sessions import Nobody


class DirectChat:
    """Satisfies ``commands.Chat``; ``do`` runs a line as the chat would."""

    theme = PLAIN

    def __init__(self, cwd: Path, server: ModelServer | None = None, **env: str) -> None:
        environment = agent_env(server, **env)
        settings = load_settings(Paths.from_env(environment), environment)
        options = SessionOptions(cwd, interactive=True)
        self.sessions = SessionLibrary(settings, options)
        self.user = user_files(settings, options)
        self.session: Any = None
        self.shown: list[str] = []
        self.sent: list[str] = []
        self.has_terminal = True
        self.user_of_questions: AsksUser = Nobody()
        self.edited: str | None = None
        self.choice: int | None = None
        self.offered: list[str] = []

    async def open(self) -> None:
        self.session = await self.sessions.open_first(self.user_of_questions)
        registry.use_custom(map(registry.custom_command, self.session.extensions.commands))

    def show(self, lines: Sequence[str]) -> None:
        self.shown += lines

    def open_transcript(self) -> None:
        self.shown.append("transcript")

    def leave(self) -> None:
        self.shown.append("left")

    async def switch_to(self, session_id: str | None) -> None:
        old = self.session
        if session_id is None:
            self.session = await self.sessions.open_new(Nobody(), old.model.id)
        else:
            self.session = await self.sessions.open_existing(session_id, Nobody())
        await old.aclose()

    async def reload(self) -> None:
        old = self.session
        await old.aclose()
        self.session = await (
            self.sessions.open_existing(old.id, self.user_of_questions)
            if old.turns
            else self.sessions.open_new(self.user_of_questions, old.model.id)
        )
        registry.use_custom(map(registry.custom_command, self.session.extensions.commands))

    async def pick_session(self) -> str | None:
        return None

    async def choose(self, title: str, rows: Sequence[PickRow], **more: Any) -> int | None:
        """The row that the test has chosen."""
        self.offered = [row.text for row in rows]
        return self.choice

    def commands(self) -> Sequence[SlashCommand]:
        return registry.all_commands()

    async def send(self, making: AbstractAsyncContextManager[Prompt | None]) -> None:
        async with making as prompt:
            if prompt is not None:
                await self.session.run(prompt)

    async def say(self, text: str) -> None:
        await self.session.run(Prompt(user_text(text)))

    def send_to_terminal(self, sequence: str) -> bool:
        self.sent.append(sequence)
        return self.has_terminal

    async def edit(self, text: str) -> str:
        return self.edited if self.edited is not None else text

    async def work(self, run: Callable[[CancelToken], Awaitable[Any]], label: str) -> Any:
        return await run(CancelToken())

    async def do(self, line: str) -> list[str]:
        """What the command shows."""
        self.shown.clear()
        parsed = registry.parse(line)
        assert parsed is not None
        command = registry.find(parsed[0])
        assert command is not None, line
        await command.run(self, parsed[1])
        return list(self.shown)


def talk(chat: DirectChat, body: Callable[[DirectChat], Awaitable[None]]) -> None:
    """Open, do ``body``, close."""

    async def main() -> None:
        await chat.open()
        try:
            await body(chat)
        finally:
            await chat.session.aclose()

    asyncio.run(main())
