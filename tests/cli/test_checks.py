"""What the doctor finds: on disk within a bound, and at the address of a provider."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from agentcli.cli.setup import checks
from agentcli.cli.setup.checks import (
    check_leftovers,
    check_privacy,
    check_sessions,
    proxy_for,
    reach,
)
from agentcli.config.paths import Paths
from tests.store.sessions import change, finished_session


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    home = tmp_path / "ours"
    (home / "sessions").mkdir(parents=True)
    home.chmod(0o700)
    (home / "sessions").chmod(0o700)
    return Paths(home, home, home)


@pytest.mark.spec("OPS-3", "SEC-9")
def test_what_others_could_read_is_named_with_the_command_that_closes_it(paths: Paths) -> None:
    assert [finding.status for finding in check_privacy(paths)] == ["ok"]
    paths.sessions_dir.chmod(0o755)
    paths.credentials_file.write_text("{}")
    paths.credentials_file.chmod(0o644)
    advice = [finding.advice for finding in check_privacy(paths)]
    assert advice == [f"chmod 700 {paths.sessions_dir}", f"chmod 600 {paths.credentials_file}"]


@pytest.mark.spec("OPS-3", "FAIL-1")
def test_rescued_texts_and_kept_copies_are_told(paths: Paths) -> None:
    assert check_leftovers(paths) == []
    (paths.sessions_dir / "a.recovery.txt").write_text("what was typed")
    (paths.sessions_dir / "a.v1.backup").write_bytes(bytes(10))
    (paths.sessions_dir / "b.damaged-1.db").write_bytes(bytes(10))
    rescued, copies = check_leftovers(paths)
    assert (rescued.status, copies.status) == ("warn", "ok")
    assert "a.recovery.txt" in rescued.detail and "read it" in rescued.advice
    assert copies.detail.startswith("2 older copies")


@pytest.mark.spec("OPS-3", "REC-7")
def test_when_time_is_over_damage_is_still_found_and_the_rest_is_counted(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def several() -> list[Path]:
        return [await finished_session(paths.sessions_dir) for _ in range(5)]

    files = asyncio.run(several())
    (sound,) = check_sessions(paths)
    assert (sound.status, sound.detail) == ("ok", "5 of 5 sound")
    files[0].write_bytes(files[0].read_bytes()[:-4096])
    files[1].write_bytes(b"")
    files[2].write_bytes(b"garbage" * 1000)
    monkeypatch.setattr(checks, "SESSIONS_S", -1.0)
    total, *damaged = check_sessions(paths)
    assert total.status == "fail" and "0 of 3 sound, 2 not proved here" in total.detail
    assert {finding.advice for finding in damaged} == {
        f"agent sessions repair {file.stem}" for file in files[:3]
    }


@pytest.mark.spec("OPS-3", "REC-7")
def test_a_session_of_a_newer_version_is_not_said_to_be_mendable(paths: Paths) -> None:
    change(asyncio.run(finished_session(paths.sessions_dir)), "PRAGMA user_version = 999")
    _, finding = check_sessions(paths)
    assert "repair" not in finding.advice and "upgrade" in finding.advice


# --- knocking at an address: reached, refused, unknown, silent, a resolver that hangs ---


@pytest.mark.spec("OPS-3")
def test_an_address_answers_or_says_why_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach("127.0.0.1", port, 5)
    with pytest.raises(ConnectionRefusedError):
        reach("127.0.0.1", port, 5)
    with pytest.raises(OSError, match="valid name"):
        reach("a" * 70 + ".example", port, 5)
    with pytest.raises(socket.gaierror):
        reach("nobody.invalid", port, 5)


@pytest.mark.spec("OPS-3", "OPS-1")
def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: answer.wait() and [])
    with pytest.raises(TimeoutError, match="name"):
        reach("slow.example", 443, 0.1)
    answer.set()


@pytest.mark.spec("OPS-3")
def test_the_proxy_is_what_is_knocked_at() -> None:
    env = {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost,.corp.example"}
    assert proxy_for("https://api.example/v1", env) == "http://proxy:3128"
    assert proxy_for("https://models.corp.example/v1", env) == ""
    assert proxy_for("http://api.example/v1", env) == ""
