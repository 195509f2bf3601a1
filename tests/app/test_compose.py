"""Settings and options become a session, with every real part in its place."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.compose import _are_steady, open_session
from agentcli.app.opening import session_files
from agentcli.app.options import SessionOptions
from agentcli.app.session import Session
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.cancel import CancelReason
from agentcli.domain.errors import ConfigError, SessionLocked, SessionNotFound, UsageError
from agentcli.domain.events import Outcome, Prompt
from agentcli.domain.messages import user_text
from agentcli.domain.ports import PermissionMode
from agentcli.domain.tools import Workspace
from agentcli.policy.decision import Policy
from agentcli.process.sandbox import SessionSandbox
from agentcli.process.sandbox_places import OwnPlaces
from tests.support.cli import agent_env
from tests.support.model_server import ANTHROPIC, OPENAI, ModelServer
from tests.support.replies import Call, Reply, Text, call
from tests.support.sessions import Nobody, in_session

PROTOCOLS = [ANTHROPIC, OPENAI]


def settings_for(server: ModelServer | None = None, protocol: str = ANTHROPIC) -> Settings:
    env = agent_env(server, protocol)
    return load_settings(Paths.from_env(env), env)


def options(cwd: Path, **more: Any) -> SessionOptions:
    return SessionOptions(cwd=cwd, **more)


def say(text: str) -> Callable[[Session], Awaitable[Any]]:
    async def body(session: Session) -> Any:
        return await session.run(Prompt(user_text(text))), session.id

    return body


@pytest.mark.spec("CTX-2", "LOOP-3")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_prefix_of_a_request_is_the_same_from_step_to_step(
    tmp_path: Path, protocol: str
) -> None:
    (tmp_path / "a.txt").write_text("content\n")
    script = [
        Reply(blocks=(Text("looking"), Call("read_file", {"path": "a.txt"}))),
        Reply(blocks=(Call("read_file", {"path": "a.txt"}), Call("list_directory", {}))),
        "done",
        "again",
    ]
    with ModelServer(script) as server:

        async def body(session: Session) -> None:
            assert (await session.run(Prompt(user_text("go")))).outcome is Outcome.DONE
            await session.run(Prompt(user_text("more")))

        in_session(settings_for(server, protocol), options(tmp_path), body)
        assert not server.violations
        bodies = [recorded.body for recorded in server.requests]
    assert len(bodies) == 4
    assert len(json.dumps(bodies[0])) < 20_000
    for name in ("system", "tools", "model"):
        assert len({json.dumps(body.get(name)) for body in bodies}) == 1
    for earlier, later in pairwise(bodies):
        before = [without_marks(message) for message in earlier["messages"]]
        after = [without_marks(message) for message in later["messages"]]
        assert after[: len(before)] == before


def without_marks(message: Any) -> Any:
    """A message without its cache breakpoint, which moves on by design."""
    if isinstance(message, dict):
        return {k: without_marks(v) for k, v in message.items() if k != "cache_control"}
    return [without_marks(item) for item in message] if isinstance(message, list) else message


@pytest.mark.spec("CTX-1")
def test_agents_md_reaches_the_model_and_nothing_else_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Always greet the moon.")
    (tmp_path / ".agentcli").mkdir()
    (tmp_path / ".agentcli/config.toml").write_text('model = "offline/assistant"')
    with ModelServer(["x"]) as server:
        in_session(settings_for(server), options(tmp_path), say("hi"))
        system = json.dumps(server.requests[0].body["system"])
    assert "greet the moon" in system


@pytest.mark.spec("REC-4")
@pytest.mark.parametrize("interactive", [True, False])
def test_only_the_chat_takes_up_an_interrupted_session_by_itself(
    tmp_path: Path, interactive: bool
) -> None:
    with ModelServer(["never read", "x", "y", "z"]) as server:
        settings = settings_for(server)

        async def cut(session: Session) -> str:
            session.add_listener(
                lambda event: (
                    session.interrupt(CancelReason.USER) if event.type == "step_start" else None
                )
            )
            assert (await session.run(Prompt(user_text("do it")))).outcome is Outcome.CANCELLED
            return session.id

        first = in_session(settings, options(tmp_path), cut)

        async def look(session: Session) -> tuple[str, bool]:
            return session.id, session.resumed is not None

        second, resumed = in_session(settings, options(tmp_path, interactive=interactive), look)
        assert (second == first, resumed) == (interactive, interactive)
        fresh, _ = in_session(settings, options(tmp_path, interactive=True, new=True), look)
        assert fresh != first
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        other, _ = in_session(settings, options(elsewhere, interactive=True), look)
        assert other != first


def test_a_session_is_continued_by_its_directory_its_id_or_its_name(tmp_path: Path) -> None:
    with ModelServer(["one", "two", "three", "four"]) as server:
        settings = settings_for(server)
        _, first = in_session(settings, options(tmp_path), say("hello there"))
        for wanted in (
            options(tmp_path, continue_latest=True),
            options(tmp_path, resume=first[:13]),
            options(tmp_path, resume="hello there"),
        ):
            _, found = in_session(settings, wanted, say("more"))
            assert found == first
        assert len(server.requests[-1].messages) == 7
        with pytest.raises(SessionNotFound):
            in_session(settings, options(tmp_path, resume="nothing like it"), say("x"))
        (tmp_path / "sub").mkdir()
        with pytest.raises(SessionNotFound):
            in_session(settings, options(tmp_path / "sub", continue_latest=True), say("x"))


@pytest.mark.spec("REC-6")
def test_a_session_that_is_open_can_be_forked_but_not_opened_twice(tmp_path: Path) -> None:
    with ModelServer(["one", "two", "three"]) as server:
        settings = settings_for(server)

        async def body(session: Session) -> None:
            await session.run(Prompt(user_text("hi")))
            with pytest.raises(SessionLocked):
                await open_session(settings, options(tmp_path, resume=session.id), Nobody())
            copy = await open_session(
                settings, options(tmp_path, resume=session.id, fork=True), Nobody()
            )
            try:
                assert copy.id != session.id
                await copy.run(Prompt(user_text("in the copy")))
                assert len(copy.history) == 4
            finally:
                await copy.aclose()
            assert len(session.history) == 2

        in_session(settings, options(tmp_path), body)


@pytest.mark.spec("CLI-3")
def test_a_fork_that_cannot_be_opened_leaves_no_copy(tmp_path: Path) -> None:
    with ModelServer(["one"]) as server:
        settings = settings_for(server)
        in_session(settings, options(tmp_path), say("hi"))
        wanted = options(tmp_path, continue_latest=True, fork=True, model="nosuch/model")
        with pytest.raises(ConfigError):
            in_session(settings, wanted, say("again"))
        assert len(asyncio.run(session_files(settings).newest(9))) == 1
        assert len(list(settings.paths.sessions_dir.glob("*.db"))) == 1


def test_nothing_is_left_of_a_run_without_a_session(tmp_path: Path) -> None:
    with ModelServer(["one"]) as server:
        settings = settings_for(server)
        in_session(settings, options(tmp_path, no_session=True), say("hi"))
        assert asyncio.run(session_files(settings).newest(9)) == []
    assert (
        not list(settings.paths.sessions_dir.glob("*"))
        if settings.paths.sessions_dir.exists()
        else True
    )


@pytest.mark.spec("CLI-10")
def test_without_a_key_the_offline_assistant_answers(tmp_path: Path) -> None:
    (summary, _) = in_session(settings_for(), options(tmp_path), say("who are you?"))
    assert "not a language model" in summary.text


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"model": "nosuch/model"}, ConfigError),
        ({"tools": ("nosuch",)}, UsageError),
        ({"allow": ("bash(",)}, UsageError),
    ],
)
def test_what_cannot_be_is_an_error_before_anything_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: dict[str, Any],
    error: type[Exception],
) -> None:
    settings = settings_for()
    with pytest.raises(error):
        in_session(settings, options(tmp_path, **wanted), say("hi"))
    assert not settings.paths.sessions_dir.exists()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(error):
        in_session(settings, options(tmp_path, no_session=True, **wanted), say("hi"))
    assert not list(temporary.iterdir())


@pytest.mark.spec("SEC-8")
def test_a_command_sees_no_key_not_even_of_the_users_own_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVER_PASS", "canary-value-1")
    with ModelServer([Reply(blocks=(Call("bash", {"command": "env"}),)), "done"]) as server:
        env = agent_env(server)
        paths = Paths.from_env(env)
        paths.config_dir.mkdir(parents=True, exist_ok=True)
        paths.config_file.write_text(
            f'[providers.mine]\nkind = "openai"\nbase_url = "{server.base_url(OPENAI)}"\n'
            'api_key_env = "MY_SERVER_PASS"\n'
        )
        monkeypatch.setenv("ANTHROPIC_API_KEY", env["ANTHROPIC_API_KEY"])
        settings = load_settings(paths, {**os.environ, **env})
        in_session(
            settings,
            options(tmp_path, model="mine/some-model", mode=PermissionMode.YOLO),
            say("show me"),
        )
        sent = json.dumps(server.requests[1].body)
    assert "PATH=" in sent
    assert "canary-value-1" not in sent
    assert env["ANTHROPIC_API_KEY"] not in sent


@pytest.mark.spec("CLI-10")
def test_without_a_key_a_server_on_this_machine_answers_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(["I am local."], models=["qwen3:8b"]) as server:
        monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.port}")

        async def body(session: Session) -> None:
            assert session.model.id == "ollama/qwen3:8b"
            assert f"127.0.0.1:{server.port}" in "\n".join(session.notices)
            assert (await session.run(Prompt(user_text("hello")))).text == "I am local."

        in_session(settings_for(), options(tmp_path), body)
        monkeypatch.setenv("AGENTCLI_MODEL", "offline/assistant")

        async def configured(session: Session) -> None:
            assert session.model.id == "offline/assistant"

        in_session(settings_for(), options(tmp_path), configured)


@pytest.mark.spec("CLI-10")
def test_a_session_begun_offline_goes_on_with_a_real_model_once_there_is_one(
    tmp_path: Path,
) -> None:
    _, session_id = in_session(settings_for(), options(tmp_path), say("hello"))
    with ModelServer(["Now for real."]) as server:

        async def body(session: Session) -> None:
            assert session.model.provider == "anthropic"
            assert (await session.run(Prompt(user_text("and now")))).text == "Now for real."

        in_session(settings_for(server), options(tmp_path, resume=session_id), body)
        assert not server.violations


@pytest.mark.spec("COST-2")
def test_a_budget_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    async def notices(session: Session) -> str:
        return "\n".join(session.notices)

    with ModelServer() as server:
        env = agent_env(server, OPENAI) | {"AGENTCLI_MODEL": "openai/some-model-of-tomorrow"}
        settings = load_settings(Paths.from_env(env), env)
        assert "cannot be kept" in in_session(
            settings, options(tmp_path, max_budget_usd=1.0), notices
        )
        assert "cannot be kept" not in in_session(settings, options(tmp_path), notices)
        priced = settings_for(server)
        assert not in_session(priced, options(tmp_path, max_budget_usd=1.0), notices)


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("name", ["work/new.txt", "config.toml", "sessions/x.db"])
def test_a_workspace_in_our_home_is_workable_and_our_files_are_not(home: Path, name: str) -> None:
    base = home / "agentcli"
    work = base / "work"
    work.mkdir(parents=True)
    with ModelServer([call("write_file", {"path": str(base / name), "content": "x"}), "ok"]) as s:
        wanted = options(work, mode=PermissionMode.YOLO)
        in_session(settings_for(s), wanted, say("write"))
    assert (base / name).exists() is (name == "work/new.txt")


@pytest.mark.spec("CTX-1", "EXT-4")
@pytest.mark.parametrize("name", [
    "home/.claude/CLAUDE.md", "home/.claude/rules/a.md", "home/.agents/AGENTS.md",
    "config/agentcli/AGENTS.md", "config/agentcli/CLAUDE.md", "repo/AGENTS.override.md",
    "repo/.claude/CLAUDE.md", "repo/.claude/rules/deep/a.md", "repo/sub/CLAUDE.local.md",
])  # fmt: skip
def test_a_start_reads_instructions_wherever_they_may_stand(tmp_path: Path, name: str) -> None:
    home, cwd, file = tmp_path / "home", tmp_path / "repo" / "sub", tmp_path / name
    for directory in (file.parent, cwd, tmp_path / "repo" / ".git"):
        directory.mkdir(parents=True, exist_ok=True)
    file.write_text("say please")
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    settings = load_settings(Paths.from_env(env), env)

    async def body(session: Session) -> None:
        assert [(doc.path, doc.text) for doc in session.documents] == [(file, "say please")]

    in_session(settings, options(cwd, model="offline", new=True), body)


@pytest.mark.spec("SEC-5")
def test_a_name_that_something_inside_has_led_elsewhere_is_told_to_no_hook_outside(
    tmp_path: Path,
) -> None:
    work = (tmp_path / "work").resolve()
    work.mkdir()
    (work / "a.txt").write_text("")
    (work / "link").symlink_to(tmp_path / "key")
    workspace = Workspace(work, work)
    sandbox = SessionSandbox(workspace, OwnPlaces, "auto")
    place = (workspace, sandbox, Policy(contained=True))
    assert _are_steady(place, ["a.txt", str(work / "a.txt")])
    assert not _are_steady(place, ["a.txt", "link"])
    assert _are_steady((workspace, sandbox, Policy()), ["link"])  # nothing is kept inside
