"""A signal is never lost, and output that nobody reads does not keep the program from ending."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcli.headless import signals
from agentcli.headless.signals import StalledWrites
from tests.support.cli import AGENT, agent_env
from tests.support.model_server import ModelServer
from tests.support.processes import wait_until
from tests.support.replies import say

pytestmark = pytest.mark.sampled

FULL_PIPE_BYTES = 49_152  # of 65,536: what is written in pieces leaves pages partly empty


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those of this process are as before in the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGALRM)}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def waiting_bytes(descriptor: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    return int(count)


@pytest.mark.spec("CLI-12", "OPS-1", "CLI-6")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_whose_reader_does_not_read(
    model_server: ModelServer, tmp_path: Path, number: int, code: int
) -> None:
    model_server.add(say("x" * 400_000, piece=1_000))
    command = [*AGENT, "run", "-o", "stream-json", "--include-partial-messages", "go"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=agent_env(model_server),
        cwd=tmp_path,
    ) as process:
        try:
            assert process.stdout is not None
            output = process.stdout.fileno()
            wait_until(lambda: waiting_bytes(output) >= FULL_PIPE_BYTES, "the pipe is full")
            process.send_signal(number)
            assert process.wait(10) == code
            assert process.stderr is not None
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.spec("CLI-12", "OPS-1")
@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("is_under_way", [False, True])
def test_a_write_is_given_up_whether_it_began_before_the_signal_or_after_it(
    monkeypatch: pytest.MonkeyPatch, *, is_under_way: bool
) -> None:
    monkeypatch.setattr(signals, "PATIENCE_S", 0.01)
    reader, writer = os.pipe()

    def write() -> None:
        if is_under_way:
            signal.raise_signal(signal.SIGUSR1)
        while True:
            os.write(writer, bytes(65_536))

    try:
        writes = StalledWrites()
        writes.watch(signal.SIGUSR1)
        if not is_under_way:
            signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(BrokenPipeError, match="does not read"):
            writes.run(write)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.usefixtures("handlers")
def test_a_write_that_ends_by_itself_is_left_alone_and_what_it_raises_comes_out() -> None:
    writes = StalledWrites()
    done: list[str] = []
    writes.run(lambda: done.append("one"))

    def fails() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        writes.run(fails)
    writes.watch(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    writes.run(lambda: done.append("two"))
    assert done == ["one", "two"]


DROPPED = """
import os, signal
from agentcli.headless import signals
from agentcli.headless.signals import dropped_signal, raise_on_signals

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(10))

raise_on_signals()
assert dropped_signal() is None
Finalized()
print(dropped_signal().name)
"""


@pytest.mark.spec("CLI-5", "OPS-1")
def test_a_signal_whose_exception_python_drops_is_not_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("SIGTERM\n", "")
