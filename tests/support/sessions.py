"""A session for a test, and who approves in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from agentcli.app.compose import open_session
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.config.settings import Settings
from agentcli.domain.errors import ProviderError
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, Approver, Verdict

T = TypeVar("T")


class User:
    """Gives the same answer to every question and remembers what was asked."""

    def __init__(self, verdict: Verdict = Verdict.UNATTENDED) -> None:
        self.verdict = verdict
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(self.verdict)


class Nobody(User):
    """Is not there to be asked."""

    def __init__(self) -> None:
        super().__init__(Verdict.UNATTENDED)

    async def ask(self, question: str, options: Sequence[str]) -> str:
        return ""

    async def offer(self, error: ProviderError, delay_s: float) -> bool:
        return False


def in_session(
    settings: Settings,
    wanted: SessionOptions,
    body: Callable[[Session], Awaitable[T]],
    user: Approver | None = None,
) -> T:
    """What ``body`` returns of a session, which is closed afterwards."""

    async def run() -> T:
        session = await open_session(settings, wanted, user or Nobody())
        try:
            return await body(session)
        finally:
            await session.aclose()

    return asyncio.run(run())
