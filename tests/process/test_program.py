"""Programs of the person: real shells, real processes, nothing of them left."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.cancel import CancelToken
from agentcli.process.program import (
    MAX_ERROR_BYTES,
    MAX_OUTPUT_BYTES,
    Program,
    ProgramResult,
    run_program,
)
from agentcli.process.run import end_processes
from tests.support.processes import alive, until


def runs(body: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on an event loop, and see to it that nothing is left of it."""

    @functools.wraps(body)
    def whole(*args: Any, **kwargs: Any) -> None:
        async def run_it() -> None:
            try:
                await body(*args, **kwargs)
            finally:
                await end_processes(grace_s=0.1)

        asyncio.run(run_it())

    return whole


def program(command: str, cwd: Path, stdin: bytes = b"", timeout_s: float = 30.0) -> Program:
    return Program(command, cwd, stdin, timeout_s, {"AGENTCLI_PROJECT_DIR": str(cwd)})


async def run(command: str, cwd: Path, stdin: bytes = b"") -> ProgramResult:
    return await run_program(program(command, cwd, stdin), CancelToken())


@runs
async def test_it_reads_its_input_and_its_two_outputs_are_kept_apart(tmp_path: Path) -> None:
    result = await run("cat; echo problem >&2; pwd; exit 2", tmp_path, b'{"a": 1}\n')
    assert result.code == 2
    assert result.stdout.decode().splitlines() == ['{"a": 1}', str(tmp_path)]
    assert result.stderr == b"problem\n"


@runs
async def test_input_that_nobody_reads_and_a_megabyte_of_it_do_no_harm(tmp_path: Path) -> None:
    big = b"x" * 1_000_000
    assert (await run("true", tmp_path, big)).code == 0
    assert (await run("wc -c", tmp_path, big)).stdout.strip() == b"1000000"


@pytest.mark.spec("SEC-13")
@runs
async def test_what_is_kept_of_its_output_is_bounded(tmp_path: Path) -> None:
    result = await run("head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2", tmp_path)
    assert result.code == 0
    assert (len(result.stdout), len(result.stderr)) == (MAX_OUTPUT_BYTES, MAX_ERROR_BYTES)


@pytest.mark.spec("SEC-8")
@runs
async def test_its_environment_is_that_of_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "evil"))
    monkeypatch.setenv("PLAIN", "kept")
    shown = (await run("env", tmp_path)).stdout.decode().splitlines()
    assert f"AGENTCLI_PROJECT_DIR={tmp_path}" in shown and "PLAIN=kept" in shown
    assert not [line for line in shown if line.startswith(("ANTHROPIC_", "BASH_ENV"))]


@runs
async def test_it_runs_in_the_shell_of_the_user_when_that_is_one_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = tmp_path / "zsh"
    shell.write_text('#!/bin/sh\necho mine\nexec /bin/sh "$@"\n')
    shell.chmod(0o755)
    monkeypatch.setenv("SHELL", str(shell))
    assert (await run("echo done", tmp_path)).stdout == b"mine\ndone\n"
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert (await run("echo done", tmp_path)).stdout == b"done\n"


@runs
async def test_a_missing_program_and_a_missing_directory_are_values(tmp_path: Path) -> None:
    missing = await run("no-such-program-here", tmp_path)
    assert missing.code == 127 and b"not found" in missing.stderr
    nowhere = await run("true", tmp_path / "gone")
    assert nowhere.code is None and "could not be started" in nowhere.problem


@runs
async def test_one_that_is_killed_by_a_signal_has_the_code_of_a_shell(tmp_path: Path) -> None:
    result = await run("kill -9 $$", tmp_path)
    assert result.code == 128 + signal.SIGKILL


LINGER = "sh -c 'echo $$ > inner.pid; trap \"\" TERM; sleep 300 & wait' & echo $$ > outer.pid; wait"


def pid(path: Path) -> int:
    return int(path.read_text())


@pytest.mark.slow
@pytest.mark.spec("CAN-10")
@runs
async def test_after_its_time_out_nothing_of_it_is_left(tmp_path: Path) -> None:
    result = await run_program(program(LINGER, tmp_path, timeout_s=0.5), CancelToken())
    assert result.code is None and "longer than 0.5 s" in result.problem
    assert not alive(pid(tmp_path / "inner.pid")) and not alive(pid(tmp_path / "outer.pid"))


@pytest.mark.sampled
@pytest.mark.spec("CAN-9", "CAN-10")
@pytest.mark.parametrize("how", ["token", "task"])
@runs
async def test_after_a_cancel_nothing_of_it_is_left(tmp_path: Path, how: str) -> None:
    token = CancelToken()
    task = asyncio.create_task(run_program(program(LINGER, tmp_path), token))
    files = [tmp_path / "inner.pid", tmp_path / "outer.pid"]
    await until(lambda: all(f.exists() and f.read_text().strip() for f in files), "never started")
    if how == "token":
        token.cancel(force=True)
        assert (await task).problem == "was stopped"
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not [file for file in files if alive(pid(file))]


@runs
async def test_a_daemon_that_holds_its_outputs_open_is_not_waited_for(tmp_path: Path) -> None:
    result = await run("sleep 300 & echo $! > left.pid; echo told; echo why >&2", tmp_path)
    assert (result.code, result.stdout, result.stderr) == (0, b"told\n", b"why\n")
    os.kill(pid(tmp_path / "left.pid"), signal.SIGKILL)


@runs
async def test_no_file_of_it_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    await run("cat; exit 2", tmp_path, b"secret")
    assert list(scratch.iterdir()) == []
