"""A command line of the user's own, for example a hook.

It reads its standard input, and its two outputs are kept apart.

Law: it runs under a guard like every command (``run.py``): after a cancel, a time-out or the
end of the app nothing of it is left (CAN-10, REC-8); its environment is that of every command
(SEC-8); what is kept of its output is bounded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.domain.sandbox import Access, Confined, Sandbox, StillLives
from agentcli.domain.values import frozen
from agentcli.process.environment import base_environment, find_program, without_credentials
from agentcli.process.run import Command, Ending, Result, RunLimits, StartFailed, run
from agentcli.process.shell import open_nameless

MAX_OUTPUT_BYTES = 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
_SIGNALLED = 128
# shells that understand what a POSIX shell does; a hook's command line is written for one
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "mksh", "zsh"})


@frozen
class ProgramResult:
    """How a program ended. ``code`` is ``None`` unless it ended by itself; output is bounded.

    ``problem`` says in words why there is no ``code``.
    """

    code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    problem: str = ""


@frozen
class Program:
    """A command line for the user's shell, with what it reads from its standard input.

    ``contained``: it runs in the sandbox where there is one; ``not_without``: else not at all.
    """

    command: str
    cwd: Path
    stdin: bytes
    timeout_s: float
    env: Mapping[str, str]
    owner: str = ""
    contained: bool = False
    not_without: bool = False


RunProgram = Callable[[Program, CancelToken], Awaitable[ProgramResult]]
"""As ``run_program``: never raises but for a cancellation of the calling task."""


class _Kept:
    """The head of an output."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.data = b""

    def __call__(self, data: bytes) -> bool:
        """Take more of it; what is too much is thrown away, and the writer goes on."""
        self.data += data[: self._limit - len(self.data)]
        return True


async def run_program(
    program: Program, cancel: CancelToken, sandbox: Sandbox | None = None
) -> ProgramResult:
    """Run it in the user's shell, with ``env`` added to what every command gets (SEC-8)."""
    shell = _shell(program.cwd)
    if shell is None:
        return ProgramResult(None, problem="there is no shell to run it with")
    try:
        stdin = open_nameless(program.stdin)
    except OSError as error:
        return ProgramResult(None, problem=f"could not be run: {error}")
    try:
        within = sandbox if program.contained else None
        if within is not None and not (await within.begin()).is_on:
            within = None
        if within is None and program.not_without:
            why = "was not run: it may run, or open, what others have put into this directory"
            return ProgramResult(None, problem=f"{why}, and there is no sandbox for it")
        return await _run_with(stdin, shell, program, cancel, within)
    except (StartFailed, OSError) as error:
        return ProgramResult(None, problem=f"could not be started in {program.cwd}: {error}")
    finally:
        os.close(stdin)


async def _run_with(
    stdin: int, shell: str, program: Program, cancel: CancelToken, sandbox: Sandbox | None
) -> ProgramResult:
    output, errors = _Kept(MAX_OUTPUT_BYTES), _Kept(MAX_ERROR_BYTES)
    environment = base_environment()
    if program.contained and sandbox is None:
        environment = without_credentials(environment)
    environment |= {**program.env, "PWD": str(program.cwd)}
    argv = (shell, "-c", program.command)
    inside = Confined(argv, program.cwd)
    lives: StillLives | None = None
    if sandbox is not None:
        environment = await asyncio.to_thread(sandbox.environment, environment)
        inside = await sandbox.confine(argv, program.cwd, Access.INSIDE)
    try:
        with _pipe_into(errors) as stderr:
            command = Command(
                inside.argv,
                inside.cwd,
                environment,
                program.owner,
                inside.namespaces,
                inside.rules,
                {0: stdin, 2: stderr},
            )
            ended = await run(command, RunLimits(cancel, program.timeout_s), output)
            lives = ended.still_lives
    finally:
        if sandbox is not None:
            await uninterruptible(sandbox.settle(lives))
    return _result(ended, output.data, errors.data, program.timeout_s)


def _result(ended: Result, output: bytes, errors: bytes, timeout_s: float) -> ProgramResult:
    if ended.ending is Ending.EXITED and ended.returncode is not None:
        code = ended.returncode
        return ProgramResult(code if code >= 0 else _SIGNALLED - code, output, errors)
    problems = {
        Ending.TIMED_OUT: f"took longer than {timeout_s:g} s and was stopped",
        Ending.CANCELLED: "was stopped",
    }
    return ProgramResult(None, output, errors, problems.get(ended.ending, "was killed"))


@contextmanager
def _pipe_into(kept: _Kept) -> Iterator[int]:
    """Gives the writing end of a pipe that is read until the block ends, even if still held."""
    end, writing = os.pipe()
    os.set_blocking(end, False)
    loop = asyncio.get_running_loop()

    def read() -> bool:
        try:
            return bool(data := os.read(end, MAX_ERROR_BYTES)) and kept(data)
        except BlockingIOError:
            return False

    loop.add_reader(end, read)
    try:
        yield writing
    finally:
        loop.remove_reader(end)
        for _ in range(MAX_OUTPUT_BYTES // MAX_ERROR_BYTES):  # a daemon may go on writing
            if not read():
                break
        os.close(end)
        os.close(writing)


def _shell(cwd: Path) -> str | None:
    own = os.environ.get("SHELL", "")
    if own.startswith("/") and Path(own).name in _SHELLS and os.access(own, os.X_OK):
        return own
    return find_program("bash", (cwd,)) or find_program("sh", (cwd,))
