"""The map that a chat makes in the background: in nobody's way, and gone with the chat (MEM-3)."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentcli.codemap.index import map_file
from agentcli.codemap.worker import lock_of
from agentcli.config.paths import Paths
from tests.e2e.chat import IDLE, Chat, leave
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.processes import wait_until
from tests.support.replies import call, say

pytestmark = pytest.mark.sampled


@contextmanager
def _held_up(work: Path) -> Iterator[None]:
    """No pass over ``work`` goes on meanwhile."""
    lock = lock_of(map_file(Paths.from_env(agent_env()).maps_dir, work))
    lock.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _passes(work: Path) -> list[int]:
    """The processes that map ``work``, and their guards."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                words = (each / "cmdline").read_bytes()
            except OSError:
                continue
            if b"codemap.worker" in words and os.fsencode(work) in words:
                found.append(int(each.name))
    return found


@pytest.mark.slow
@pytest.mark.spec("MEM-3", "CAN-13")
@pytest.mark.parametrize("end", ["exit", pytest.param("kill", marks=pytest.mark.slow)])
def test_a_chat_maps_its_repository_meanwhile_and_leaves_no_process(
    model_server: ModelServer, chat: Chat, work: Path, end: str
) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "cart.py").write_text("class Cart: pass\n")
    model_server.add("Hello there.", say("Half an answer", piece=20, stall_at="text"), "And more.")
    with _held_up(work):
        terminal = chat()
        assert not _passes(work)
        terminal.line("hello")
        terminal.wait_for("Hello there.")
        wait_until(lambda: bool(_passes(work)), "the map is being made")
        terminal.line("second")
        terminal.wait_for("Half an answer")
        terminal.key("ctrl-c")
        terminal.wait_for("ancelled")
        terminal.wait_for(IDLE)
        terminal.line("third")
        terminal.wait_for("And more.")
        assert _passes(work)
        if end == "exit":
            leave(terminal)
            assert not _passes(work)
        else:
            terminal.kill(signal.SIGKILL)
            wait_until(lambda: not _passes(work), "its pass ends with a chat that is killed")


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_a_question_waits_for_the_map_that_is_being_made(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "cart.py").write_text("class Cart: pass\n")
    model_server.add(call("symbols", {"query": "Cart"}), "There it is.")
    with _held_up(work):
        terminal = chat()
        terminal.line("where is Cart?")
        wait_until(lambda: bool(_passes(work)), "the map is being made")
    terminal.wait_for("There it is.")
    assert b"cart.py:1 class Cart" in model_server.requests[-1].raw
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
def test_no_map_without_a_repository_or_a_chat_or_where_it_is_switched_off(
    model_server: ModelServer, chat: Chat, work: Path
) -> None:
    maps = Paths.from_env(agent_env()).maps_dir
    (work / "cart.py").write_text("class Cart: pass\n")
    model_server.add("Hello there.", "One shot.", "Hello again.", "Third.")
    terminal = chat()
    terminal.line("hello")
    terminal.wait_for("Hello there.")
    leave(terminal)
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    assert run_agent("run", "hello", env=agent_env(model_server), cwd=work).code == 0
    assert run_agent("config", "set", "background_map", "false", env=agent_env()).code == 0
    assert "background_map" in run_agent("config", env=agent_env()).stdout
    terminal = chat("--new")
    terminal.line("hello")
    terminal.wait_for("Hello again.")
    terminal.line("where is Cart?")
    terminal.wait_for("Third.")
    leave(terminal)
    assert not maps.exists()
