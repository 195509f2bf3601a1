"""The sandbox of a session: made when it is needed, an error where it was named, told once."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from agentcli.app.boundary import make_sandbox, policy_for, session_sandbox
from agentcli.app.compose import open_session
from agentcli.app.options import SessionOptions
from agentcli.config.paths import Paths
from agentcli.config.settings import Settings, load_settings
from agentcli.domain.cancel import CancelToken
from agentcli.domain.errors import ConfigError
from agentcli.domain.events import Notice
from agentcli.domain.sandbox import SandboxKind
from agentcli.domain.tools import Workspace
from agentcli.process import sandbox_setup
from agentcli.process.sandbox_setup import Probe
from tests.support.cli import agent_env
from tests.support.processes import until
from tests.support.sandboxes import needs
from tests.support.sessions import Nobody


def settings_with(sandbox: str) -> Settings:
    env = agent_env()
    return replace(load_settings(Paths.from_env(env), env), sandbox=sandbox)


@pytest.fixture
def without_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.spec("SEC-7")
@pytest.mark.usefixtures("without_bwrap")
def test_what_was_named_and_cannot_be_had_is_an_error_with_advice(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="--sandbox bwrap: bubblewrap is not installed") as told:
        asyncio.run(make_sandbox(settings_with("bwrap"), workspace))
    assert "install bubblewrap" in told.value.advice


@pytest.mark.spec("SEC-7")
@pytest.mark.usefixtures("without_bwrap")
def test_auto_falls_back_on_landlock_and_says_what_it_does_not_do(tmp_path: Path) -> None:
    needs("landlock")

    async def run() -> None:
        sandbox = await make_sandbox(settings_with("auto"), Workspace(tmp_path, tmp_path))
        assert not sandbox.state.known
        state = await sandbox.begin()
        assert state.kind is SandboxKind.LANDLOCK
        assert "bubblewrap is not installed; Landlock does less" in state.problem
        await sandbox.aclose()

    asyncio.run(run())


@pytest.mark.spec("SEC-7")
@pytest.mark.usefixtures("without_bwrap")
def test_that_there_is_none_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_setup, "probe_landlock", lambda *_: Probe("no Landlock"))
    told: list[str] = []

    async def run() -> None:
        options = SessionOptions(cwd=tmp_path, interactive=True, model="offline/rules")
        session = await open_session(settings_with("auto"), options, Nobody())
        try:
            session.add_listener(
                lambda event: told.append(event.text) if isinstance(event, Notice) else None
            )
            assert (session.notices, session.boundary) == ((), "")  # nobody waits for it
            await session.look_for_sandbox()
            await session.look_for_sandbox()
            assert session.boundary == "no sandbox"
        finally:
            await session.aclose()

    asyncio.run(run())
    (line,) = told
    assert "without a sandbox" in line and "bubblewrap is not installed" in line


@pytest.mark.spec("SEC-7")
def test_a_session_that_ends_while_it_is_found_out_leaves_nothing_behind(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()

    async def run() -> None:
        sandbox = session_sandbox(settings_with("auto"), Workspace(tmp_path, tmp_path))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tempfile, "tempdir", str(private))
            looking = asyncio.ensure_future(sandbox.begin())
            await asyncio.sleep(0)
            await sandbox.aclose()
            await looking

    asyncio.run(run())
    assert not list(private.iterdir())


@pytest.mark.spec("SEC-7", "CAN-13")
@pytest.mark.skipif(sys.platform != "linux", reason="there is a sandbox on Linux only")
def test_a_bubblewrap_that_hangs_is_waited_for_by_nobody_who_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, programs, private = (tmp_path / name for name in ("work", "programs", "private"))
    for place in (work, programs, private):
        place.mkdir()
    (programs / "bwrap").write_text("#!/bin/sh\n: >$0.begun; exec sleep 1000\n")
    (programs / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(sandbox_setup, "TIMEOUT_S", 1000.0)
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    begun = programs / "bwrap.begun"

    async def run() -> None:
        sandbox = session_sandbox(settings_with("auto"), Workspace(work, work))
        looking = asyncio.ensure_future(sandbox.begin())
        await until(begun.exists, "a run of bubblewrap")
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert not sandbox.state.known  # whoever asks next finds out
        begun.unlink()
        looking = asyncio.ensure_future(sandbox.begin())
        await until(begun.exists, "a run of bubblewrap")
        await sandbox.aclose()
        assert not (await looking).known

    asyncio.run(run())
    assert not list(private.iterdir())


@pytest.mark.spec("SEC-7")
def test_off_looks_for_nothing_until_it_is_switched_on(tmp_path: Path) -> None:
    needs("bwrap")

    async def run() -> None:
        sandbox = await make_sandbox(settings_with("off"), Workspace(tmp_path, tmp_path))
        assert not (await sandbox.begin()).is_on
        assert sandbox.take_notice() == ""
        sandbox.switch(on=True)
        assert (await sandbox.begin()).kind is SandboxKind.BWRAP
        sandbox.switch(on=False)
        assert not (await sandbox.begin()).is_on
        await sandbox.aclose()

    asyncio.run(run())


@pytest.mark.spec("SEC-7", "UI-4")
def test_what_a_person_types_after_an_exclamation_mark_runs_outside(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()

    async def run() -> None:
        options = SessionOptions(cwd=work, interactive=True, model="offline/rules")
        session = await open_session(settings_with("auto"), options, Nobody())
        try:
            await session.run_command(f"echo 1 > {outside}", CancelToken(), lambda _: None)
        finally:
            await session.aclose()

    asyncio.run(run())
    assert outside.read_text() == "1\n"


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kept", [".claude", ".qwen"])
def test_what_a_link_in_a_hidden_directory_leads_to_is_obeyed_there(
    tmp_path: Path, kept: str
) -> None:
    for name in ("conf", "mine", "other", kept):
        (tmp_path / name).mkdir()
    (tmp_path / kept / "hooks").symlink_to("../mine")
    (tmp_path / "conf/skills").symlink_to("../other")
    (tmp_path / ".goose").symlink_to("conf")
    settings = load_settings(Paths.from_env(os.environ), os.environ)
    runs = policy_for(settings, SessionOptions(cwd=tmp_path)).run_by_others
    assert runs(tmp_path / "mine/a") and runs(tmp_path / "other/a")
    assert runs(tmp_path / "conf/mcp.json") and not runs(tmp_path / "conf/x.md")
