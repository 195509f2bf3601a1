"""Tasks as processes of this machine: run, stopped, killed, and run again."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.fleet.engine import LocalEngine, TaskCall, TaskResult
from tests.support.batches import processes_of
from tests.support.cli import agent_env
from tests.support.model_server import ModelServer
from tests.support.replies import call, fails, say


@pytest.fixture
def service(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """The model's service of every task of the test."""
    for name, value in agent_env(model_server).items():
        monkeypatch.setenv(name, value)
    return model_server


def task(cwd: Path, prompt: str, *arguments: str) -> TaskCall:
    return TaskCall(str(uuid.uuid4()), prompt, cwd, arguments, timeout_s=30)


def run(wanted: TaskCall) -> TaskResult:
    return asyncio.run(LocalEngine().run(wanted, CancelToken()))


@pytest.mark.spec("SCALE-2")
def test_a_task_that_is_killed_goes_on_in_its_session_and_is_answered_once(
    service: ModelServer, tmp_path: Path, home: Path
) -> None:
    held = say("never said", hold=threading.Event())
    service.add(call("bash", {"command": "echo one > made.txt"}), held, "done at last")
    wanted = task(tmp_path, "make a file", "--yolo")

    async def kill_it() -> TaskResult:
        token = CancelToken()
        running = asyncio.create_task(LocalEngine().run(wanted, token))
        await service.holding(2)
        token.cancel(force=True)
        return await running

    killed = asyncio.run(kill_it())
    assert (killed.end, killed.problem) == ({}, "stopped")
    assert not processes_of(home)
    done = run(wanted)
    assert done.exit_code == 0 and done.end["result"] == "done at last"
    assert done.end["session_id"] == wanted.session_id
    assert str(service.requests[2].body).count("make a file") == 1
    both = done.end["total_cost_usd"]
    again = run(wanted)
    assert again.exit_code == 0 and again.end["result"] == "done at last"
    assert again.end["total_cost_usd"] == pytest.approx(both) and both > 0
    assert len(service.requests) == 3


def test_a_prompt_of_any_size_arrives_and_what_cannot_start_says_why(
    service: ModelServer, tmp_path: Path
) -> None:
    service.add("read")
    long = "--no-option " + "x" * 150_000
    assert run(task(tmp_path, long)).end["result"] == "read"
    assert "x" * 150_000 in str(service.requests[0].body)
    wrong = run(task(tmp_path, "hello", "--effort", "huge"))
    assert wrong.exit_code == 2 and "--effort huge" in wrong.end["result"]
    nowhere = run(task(tmp_path / "gone", "hello"))
    assert nowhere.exit_code is None and "No such file or directory" in nowhere.problem


@pytest.mark.slow
@pytest.mark.spec("SCALE-2")
def test_a_rate_limit_is_told_at_once_so_that_others_wait_as_well(
    service: ModelServer, tmp_path: Path
) -> None:
    service.add(fails(429, retry_after="25"), "after the pause")
    wanted = task(tmp_path, "hello")
    refused = run(wanted)
    assert refused.exit_code == 75 and refused.end["retry_after_s"] == 25
    assert len(service.requests) == 1
    assert run(wanted).end["result"] == "after the pause"
