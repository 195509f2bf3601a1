"""What runs tasks: the port, and the engine of this machine (SCALE-2, SCALE-3).

A task is one process, ``agent run --session-id ID -o json``, in a session whose id is known before
it starts. Laws: run again with the same call, it goes on in that session, or says again how it
ended, without a second request for what was answered; when the caller dies, however that happens,
nothing of the task is left (its guard sees to that); what is kept of its output is bounded.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.domain.extensions.extras import own_python
from agentcli.domain.files import opened_directory
from agentcli.domain.values import frozen
from agentcli.fleet.results import MAX_LINE_BYTES, read_value
from agentcli.process.run import Command, Ending, Result, RunLimits, StartFailed, end_processes, run
from agentcli.process.shell import open_nameless
from agentcli.ui.sanitize import clean_line

MAX_RESULT_BYTES = MAX_LINE_BYTES // 2
LATE_S = 30.0
"""A task that has not ended so long after its own time limit is stopped from outside."""
_TAIL_BYTES = 8 * 1024
_MAX_ARGUMENT_BYTES = 100_000  # Linux takes 128 KiB in one argument
_SCHEMA_HANDLE = 3
# by its file: ``-m`` would load what finds modules, for each task again
_MAIN = str(Path(__file__).resolve().parents[1] / "__main__.py")
_TASK = (_MAIN, "run", "--as-task", "--output-format", "json")


@frozen
class TaskCall:
    """A task for an engine. ``arguments`` are options of ``agent run`` beside those named here.

    ``cwd`` is a real path. ``schema`` is what its result must satisfy, as JSON. ``timeout_s`` is
    for this run of it, in seconds; ``None``: no limit. A prompt that ``is_data`` calls no command
    and names no file: a program has written it.
    """

    session_id: str
    prompt: str
    cwd: Path
    arguments: tuple[str, ...] = ()
    schema: str | None = None
    timeout_s: float | None = None
    is_data: bool = False

    @property
    def by_stdin(self) -> bool:
        """Whether the prompt is too long, too odd, or not to be read, as a command line's words."""
        size = len(self.prompt.encode())
        return self.is_data or "\0" in self.prompt or size > _MAX_ARGUMENT_BYTES

    @property
    def command_line(self) -> tuple[str, ...]:
        """The process, the interpreter's path first."""
        limit = () if self.timeout_s is None else ("--timeout", f"{self.timeout_s:.3f}")
        prompt = () if self.by_stdin else (self.prompt,)
        own = ["--session-id", self.session_id]
        if self.schema is not None:
            own.append(f"--json-schema=/dev/fd/{_SCHEMA_HANDLE}")
        return (*own_python(), *_TASK, *own, *self.arguments, *limit, "--", *prompt)


@frozen
class TaskResult:
    """How a run of a task ended.

    ``end`` is its result object (CLI-5), empty where there is none: ``problem`` then says why, in
    a line. ``exit_code`` is ``None`` for a process that was killed or never started.
    """

    exit_code: int | None
    end: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    duration_ms: int = 0


class Engine(Protocol):
    """Runs tasks, as many at once as it is asked for."""

    async def run(self, call: TaskCall, cancel: CancelToken) -> TaskResult:
        """Run one to its end; a cancel stops it as Ctrl-C does, a forced one kills it.

        Raises nothing but what cancels the calling task, which kills it too.
        """

    async def aclose(self) -> None:
        """Nothing of any task is left afterwards."""


class LocalEngine:
    """Runs each task as a process of this machine, under a guard."""

    async def run(self, call: TaskCall, cancel: CancelToken) -> TaskResult:
        """See ``Engine``."""
        began = time.monotonic()
        try:
            with opened_directory(call.cwd) as place:  # no link of an earlier task's (SEC-5)
                return await self._run(call, cancel, place)
        except (StartFailed, OSError) as error:
            if isinstance(error, OSError) and error.errno in {errno.ELOOP, errno.ENOTDIR}:
                return TaskResult(2, {"result": f"{call.cwd} leads elsewhere now"})
            took_ms = _since_ms(began)
            return TaskResult(None, problem=f"could not be started: {error}", duration_ms=took_ms)
        finally:
            await uninterruptible(end_processes(call.session_id, 0.0))

    async def _run(self, call: TaskCall, cancel: CancelToken, place: int) -> TaskResult:
        began = time.monotonic()
        tail = bytearray()

        def keep(data: bytes) -> bool:
            tail.extend(data)
            del tail[:-_TAIL_BYTES]
            return True

        cwd = Path(f"/proc/{os.getpid()}/fd/{place}")
        handles = {1: open_nameless(b"")}
        try:
            if call.by_stdin:
                handles[0] = open_nameless(call.prompt.encode())
            if call.schema is not None:
                handles[_SCHEMA_HANDLE] = open_nameless(call.schema.encode())
            command = Command(
                call.command_line,
                cwd if sys.platform == "linux" else call.cwd,
                {**os.environ, "PWD": str(call.cwd)},
                owner=call.session_id,
                handles=handles,
            )
            outside_s = None if call.timeout_s is None else call.timeout_s + LATE_S
            ended = await run(command, RunLimits(cancel, outside_s), keep)
            output = await asyncio.to_thread(_content, handles[1])
        finally:
            for handle in handles.values():
                os.close(handle)
        end = _result_object(output)
        code = ended.returncode if ended.returncode is not None and ended.returncode >= 0 else None
        problem = "" if end else _problem(ended, bytes(tail))
        return TaskResult(code, end, problem, _since_ms(began))

    async def aclose(self) -> None:
        """See ``Engine``: each ``run`` has already seen to it."""


def _since_ms(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _content(handle: int) -> bytes:
    size = min(os.fstat(handle).st_size, MAX_RESULT_BYTES + 1)
    return os.pread(handle, size, 0)


def _result_object(output: bytes) -> Mapping[str, Any]:
    """The result in what a run has printed; empty where there is none."""
    if len(output) > MAX_RESULT_BYTES:
        return {}
    try:
        value = read_value(output)
    except ValueError:
        return {}
    return value if isinstance(value, dict) and value.get("type") == "result" else {}


def _problem(ended: Result, tail: bytes) -> str:
    match ended.ending:
        case Ending.CANCELLED:
            return "stopped"
        case Ending.TIMED_OUT:
            return "it did not end at its time limit, and was killed"
        case Ending.EXITED if ended.returncode is not None and ended.returncode < 0:
            return f"killed by signal {-ended.returncode}"
    lines = [clean_line(line) for line in tail.decode("utf-8", "replace").splitlines()]
    said = next((line for line in reversed(lines) if line), "")
    return said.removeprefix("error: ") or "it ended without a result"
