"""What tests of background runs share: a session on a real file, with real processes."""

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
from agentcli.domain.background import BackgroundTask, Spawned, SpawnWish
from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import BackgroundChanged, Prompt
from agentcli.domain.messages import user_text
from agentcli.domain.ports import PermissionMode
from tests.support.cli import agent_env
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.replies import say
from tests.support.sessions import User


def settings_for(server: ModelServer) -> Settings:
    env = agent_env(server, ANTHROPIC)
    return replace(load_settings(Paths.from_env(env), env), sandbox="off")


def options(cwd: Path, **more: Any) -> SessionOptions:
    wanted: dict[str, Any] = {"cwd": cwd, "model": "anthropic/claude-sonnet-4-5", "new": True}
    wanted |= {"mode": PermissionMode.YOLO, "interactive": True}
    return SessionOptions(**{**wanted, **more})


def in_session(
    server: ModelServer,
    wanted: SessionOptions,
    body: Callable[[Session], Awaitable[Any]],
    user: User | None = None,
) -> Any:
    """What ``body`` returns; a session that is new has had one turn."""

    async def run() -> Any:
        session = await open_session(settings_for(server), wanted, user or User())
        try:
            if session.resumed is None:
                server.add(say("Hello."))
                await session.run(Prompt(user_text("hi")))
            return await body(session)
        finally:
            await session.aclose()

    return asyncio.run(run())


async def shell(session: Session, command: str, **more: Any) -> Spawned:
    """Start ``command`` in the background."""
    assert session.background is not None
    arguments = {"command": command, **more.pop("arguments", {})}
    return await session.background.spawn(SpawnWish("bash", arguments, **more))


def task_of(session: Session, run_id: str) -> BackgroundTask:
    assert session.background is not None
    return next(task for task in session.background.tasks() if task.run_id == run_id)


async def ended(session: Session, run_id: str) -> BackgroundTask:
    """The run, when it is over."""
    changed = asyncio.Event()
    remove = session.add_listener(
        lambda event: changed.set() if isinstance(event, BackgroundChanged) else None
    )
    try:
        while task_of(session, run_id).is_active:
            await asyncio.wait_for(changed.wait(), 9)
            changed.clear()
    finally:
        remove()
    return task_of(session, run_id)


async def printed(session: Session, run_id: str, text: str) -> str:
    """The log of a run, when ``text`` stands in it."""
    assert session.background is not None
    offset = 0
    while True:
        page = await session.background.output(run_id, offset, 30_000, 9, CancelToken())
        whole = (await session.background.output(run_id, 0, 300_000, 0, CancelToken())).text
        if text in whole:
            return whole
        assert page.text or page.task.is_active, whole
        offset = page.size
