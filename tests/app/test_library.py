"""The chat's sessions and the user's files: what is opened, what is trusted, which models come first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agentcli.app.library import SessionLibrary
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.app.user_files import UserFiles
from agentcli.config.paths import Paths
from agentcli.config.redaction import Redactor
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.events import Prompt
from agentcli.domain.messages import user_text
from tests.support.cli import agent_env
from tests.support.model_server import ModelServer
from tests.support.sessions import Nobody


def settings_of(server: ModelServer | None = None, **env: str | None) -> Settings:
    environment = agent_env(server, **env)
    return load_settings(Paths.from_env(environment), environment)


def files_of(settings: Settings, options: SessionOptions) -> UserFiles:
    return UserFiles(settings, options, Redactor(), lambda: (), lambda: ())


async def _within(
    opening: Awaitable[Session], body: Callable[[Session], Awaitable[object]] | None = None
) -> str:
    session = await opening
    try:
        if body is not None:
            await body(session)
        return session.id
    finally:
        await session.aclose()


@pytest.mark.spec("UI-5", "UI-8")
def test_a_copy_is_made_of_the_session_that_was_asked_for_and_of_no_later_one(
    model_server: ModelServer, tmp_path: Path
) -> None:
    model_server.add("Hello.")
    settings = settings_of(model_server)
    options = SessionOptions(tmp_path, interactive=True)

    async def body() -> None:
        library = SessionLibrary(settings, options)
        say = Prompt(user_text("hi"))
        first = await _within(library.open_first(Nobody()), lambda session: session.run(say))
        assert [info.id for info in await library.list()] == [first]
        forking = SessionLibrary(settings, SessionOptions(tmp_path, interactive=True, fork=True))
        copy = await _within(forking.open_existing(first, Nobody()))
        assert copy != first
        assert await _within(forking.open_existing(copy, Nobody())) == copy
        assert len((await library.load(await library.fork(first))).messages) == 2

    asyncio.run(body())


@pytest.mark.spec("SEC-1")
def test_only_what_was_shown_is_trusted(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    config = tmp_path / ".agents" / "config.toml"
    config.parent.mkdir()
    config.write_text('[permissions]\ndeny = ["bash(rm *)"]\n')
    files = files_of(settings_of(), SessionOptions(tmp_path, interactive=True))

    async def body() -> None:
        assert any("bash(rm *)" in line for line in await files.set_trust(trusted=True))
        config.write_text('[permissions]\ndeny = ["bash(mv *)"]\n')
        assert any("bash(mv *)" in line for line in await files.set_trust(trusted=True))
        assert (await files.set_trust(trusted=True))[0].startswith("Trusted, from")

    asyncio.run(body())


@pytest.mark.spec("UI-5")
def test_models_that_can_be_used_now_come_first_and_nothing_typed_is_kept_without_a_session(
    tmp_path: Path,
) -> None:
    settings = settings_of(ANTHROPIC_API_KEY=None, OPENAI_API_KEY=None, GEMINI_API_KEY="k")
    options = SessionOptions(tmp_path, no_session=True)
    files = files_of(settings, options)
    found = SessionLibrary(settings, options).known_models()
    ready = [info.provider for info, is_ready in found if is_ready]
    assert "gemini" in ready and "anthropic" not in ready
    assert all(is_ready for _, is_ready in found[: len(ready)])
    assert files.history_file is None
