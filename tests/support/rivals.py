"""Sessions on real parts that talk to one loopback server in every protocol of the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentcli.app.compose import open_session
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.events import AgentEvent, Failed, Notice, Prompt, TurnSummary
from agentcli.domain.messages import UserMessage, user_text
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Effort, PermissionMode, Verdict
from tests.support.cli import KEY, MODELS, agent_env
from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer

PROTOCOLS = (ANTHROPIC, GEMINI, OPENAI, RESPONSES)
EFFORT = Effort.MEDIUM


class Refuses:
    """A person who says no to everything."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        return ApprovalAnswer(Verdict.NO, "not now")


def settings_for(server: ModelServer, protocol: str) -> Settings:
    gemini = {"GEMINI_API_KEY": KEY, "GEMINI_BASE_URL": server.base_url(GEMINI)}
    env = agent_env(server, protocol, **gemini)
    return load_settings(Paths.from_env(env), env)


class Talk:
    """One session, its events, and what a person does with it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[AgentEvent] = []
        session.add_listener(self.events.append)
        conversation = session._conversation
        retry = replace(conversation.parts.retry, sleep=_no_sleep)
        conversation.parts = replace(conversation.parts, retry=retry)

    async def say(self, message: str | UserMessage) -> TurnSummary:
        self.events.clear()
        prompt = user_text(message) if isinstance(message, str) else message
        return await self.session.run(Prompt(prompt))

    async def switch(self, protocol: str) -> None:
        await self.session.switch_model(MODELS[protocol])

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def failure(self) -> str:
        return next((str(e.error) for e in self.events if isinstance(e, Failed)), "")


async def _no_sleep(delay_s: float) -> None:
    await asyncio.sleep(0)


def talk(
    server: ModelServer,
    protocol: str,
    cwd: Path,
    body: Callable[[Talk], Awaitable[Any]],
    **options: Any,
) -> Any:
    """Run ``body`` in a session that begins with ``protocol``; ``resume`` takes up an earlier one."""
    wanted = {"mode": PermissionMode.YOLO, "effort": EFFORT, **options}

    async def run() -> Any:
        settings = settings_for(server, protocol)
        session = await open_session(settings, SessionOptions(cwd=cwd, **wanted), Refuses())
        try:
            return await body(Talk(session))
        finally:
            await session.aclose()

    return asyncio.run(run())
