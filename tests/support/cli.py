"""The installed program as a process: run it to its end, or start it and act on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, ModelServer

AGENT = (sys.executable, "-m", "agentcli")
MODELS = {
    ANTHROPIC: "anthropic/claude-sonnet-4-5",
    OPENAI: "openai/gpt-4.1",
    RESPONSES: "openai-responses/gpt-6-sol",
    GEMINI: "gemini/gemini-3.6-flash",
}
KEY = "sk-test-0123456789abcdef"


@dataclass(frozen=True)
class Finished:
    """A run that has ended. ``code`` is negative for a signal nobody handled."""

    args: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line of stdout as JSON: the result object of ``json`` and ``stream-json``."""
        value: dict[str, Any] = json.loads(self.stdout.splitlines()[-1])
        return value

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Every line of stdout as JSON."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def agent_env(
    server: ModelServer | None = None, protocol: str = ANTHROPIC, **more: str | None
) -> dict[str, str]:
    """The environment for a run: this test's home, and ``server`` as the model's service.

    ``more`` adds variables, or removes them where the value is ``None``.
    """
    env = dict(os.environ)
    if server is not None:
        env["AGENTCLI_MODEL"] = MODELS[protocol]
        env |= {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.base_url(ANTHROPIC)}
        env |= {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url(OPENAI)}
        if protocol == GEMINI:
            env |= {"GEMINI_API_KEY": KEY, "GEMINI_BASE_URL": server.base_url(GEMINI)}
    for name, value in more.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def run_agent(
    *args: str,
    input: str | bytes | None = None,  # noqa: A002 - subprocess.run's name
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 20.0,
) -> Finished:
    """Run the program to its end. Without ``input`` its stdin is /dev/null."""
    data = input.encode() if isinstance(input, str) else input
    done = subprocess.run(
        [*AGENT, *args],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        env=env,
        cwd=cwd,
        timeout=timeout,
        start_new_session=True,
        check=False,
    )
    return Finished(args, done.returncode, _text(done.stdout), _text(done.stderr))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


class Running:
    """A run under way. A context manager that leaves no process of its group."""

    def __init__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.args = args
        self.process = subprocess.Popen(
            [*AGENT, *args],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        self._changed = threading.Condition()
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        self._open = 2
        self._threads = [
            threading.Thread(target=self._collect, args=pair, daemon=True)
            for pair in ((self.process.stdout, self._out), (self.process.stderr, self._err))
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, pipe: Any, into: list[bytes]) -> None:
        for line in pipe:
            with self._changed:
                into.append(line)
                self._changed.notify_all()
        pipe.close()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        for thread in self._threads:
            thread.join(10)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    @property
    def stdout(self) -> str:
        """What has come so far."""
        with self._changed:
            return _text(b"".join(self._out))

    @property
    def stderr(self) -> str:
        """What has come so far."""
        with self._changed:
            return _text(b"".join(self._err))

    def events(self) -> list[dict[str, Any]]:
        """The JSON lines that have come whole so far."""
        with self._changed:
            return [json.loads(line) for line in self._out if line.endswith(b"\n")]

    def wait_for(
        self, condition: Callable[[dict[str, Any]], bool], timeout: float = 10.0
    ) -> dict[str, Any]:
        """The first JSON line for which ``condition`` holds."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for event in self.events():
                    if condition(event):
                        return event
                left = deadline - time.monotonic()
                if left <= 0 or not self._open:
                    raise AssertionError(f"no such line\n{self.stdout}\n{self.stderr}")
                self._changed.wait(left)

    def signal(self, number: int) -> None:
        """Send a signal to the program itself."""
        self.process.send_signal(number)

    def wait(self, timeout: float = 10.0) -> Finished:
        """The end of the run, with all that it printed."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"still running after {timeout} s\n{self.stdout}\n{self.stderr}"
            ) from None
        for thread in self._threads:
            thread.join(timeout)
        return Finished(self.args, code, self.stdout, self.stderr)


def spawn_agent(*args: str, **options: Any) -> Running:
    """Start the program; see ``Running``."""
    return Running(*args, **options)
