"""What a user runs with "!": in the session's own shell, told to the model afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import UsageError
from agentcli.domain.events import Prompt
from agentcli.domain.messages import UserMessage, user_text
from agentcli.domain.tools import OutputKind
from tests.support import sessions as support
from tests.support.cli import agent_env
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.replies import Reply, Text


def in_session(
    server: ModelServer, body: Callable[[Session], Awaitable[Any]], **options: Any
) -> None:
    env = agent_env(server, ANTHROPIC)
    settings = load_settings(Paths.from_env(env), env)
    support.in_session(settings, SessionOptions(**options), body)


def said(session: Session) -> list[str]:
    return [m.text for m in session.history.messages if isinstance(m, UserMessage)]


@pytest.mark.spec("UI-4")
def test_a_typed_command_runs_unasked_and_is_told_once_with_the_next_prompt(
    tmp_path: Path,
) -> None:
    heard: list[str] = []

    async def body(session: Session) -> None:
        token = CancelToken()
        output = await session.run_command("echo told; cd /", token, heard.append)
        assert output.kind is OutputKind.SUCCESS and "told" in "".join(heard)
        secret = await session.run_command("echo hidden; pwd", token, heard.append, remember=False)
        assert "/\n" in secret.parts[0].text  # type: ignore[union-attr]  # a command prints text
        assert len(session.history) == 0
        await session.run(Prompt(user_text("first")))
        await session.run(Prompt(user_text("second")))
        first, second = said(session)
        assert first.startswith("first") and "echo told" in first and "\ntold" in first
        assert "hidden" not in first and second == "second"

    with ModelServer([Reply(blocks=(Text("ok"),))] * 2) as server:
        in_session(server, body, cwd=tmp_path)
        assert "told" in str(server.requests[0].body["messages"])


@pytest.mark.spec("UI-4")
def test_what_was_not_told_yet_is_told_after_a_restart(tmp_path: Path) -> None:
    async def before(session: Session) -> None:
        await session.run(Prompt(user_text("hello")))
        await session.run_command("echo early", CancelToken(), lambda text: None)

    async def after(session: Session) -> None:
        await session.run(Prompt(user_text("go on")))
        assert "echo early" in said(session)[-1]

    with ModelServer([Reply(blocks=(Text("ok"),))] * 2) as server:
        in_session(server, before, cwd=tmp_path)
        in_session(server, after, cwd=tmp_path, continue_latest=True)


@pytest.mark.spec("UI-4", "CAN-9")
def test_a_typed_command_can_be_cancelled(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        token = CancelToken()

        def on_output(text: str) -> None:
            token.cancel()

        output = await session.run_command("echo on; exec sleep 600", token, on_output)
        assert output.kind is OutputKind.CANCELLED
        gone = CancelToken()
        gone.cancel()
        late = await session.run_command("touch late", gone, on_output)
        assert late.kind is OutputKind.CANCELLED and not (tmp_path / "late").exists()
        with pytest.raises(UsageError):
            await session.run_command("  ", CancelToken(), on_output)

    with ModelServer([]) as server:
        in_session(server, body, cwd=tmp_path)
