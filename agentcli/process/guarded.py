"""One command under its guard (``guard.py``), driven by callbacks of the running event loop.

Law: a command can always be stopped, with everything that it started; what it is told to do
and how it ended are values.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agentcli.domain.cancel import uninterruptible
from agentcli.process import guard as _guard

GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL (CAN-10)."""
JOIN_S = GRACE_S + _guard.GIVE_UP_S + 1.0
"""Seconds after which a process that even SIGKILL does not end is given up."""
QUIET_S = 0.1
DRAIN_S = 0.5
READ_BYTES = 256 * 1024
_PIPE_BYTES = 1024 * 1024
_GUARD = str(Path(_guard.__file__).resolve())


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: the program's absolute path first.

    ``scratch`` is a directory of plain files to be removed if the app dies meanwhile. ``owner``
    is the id of the session whose keeper ends what the command leaves behind. ``namespaces`` are
    open files of a user and a network namespace to start it in, ``landlock`` the rules that it
    runs under (SEC-7).
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    scratch: Path | None = None
    owner: str = ""
    namespaces: tuple[int, ...] = ()
    landlock: Mapping[str, object] | None = None


class Ending(Enum):
    """Why a run is over."""

    EXITED = "exited"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    ENOUGH = "enough"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. ``returncode`` is negative for a signal, ``None`` when unknown.

    ``left_running`` are the processes that it left in the background; after a stop those that
    could not be killed.
    """

    ending: Ending
    returncode: int | None
    duration_s: float
    left_running: tuple[int, ...] = ()


class StartFailed(Exception):
    """The command could not be started; the text says why."""


Sink = Callable[[bytes], bool]
"""Takes output as it comes; ``False`` means that no more is wanted: the command is killed."""


class GuardedProcess:
    """A command and its guard, driven by callbacks of the running event loop."""

    def __init__(self, sink: Sink, namespaces: tuple[int, ...] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink: Sink | None = sink
        self._said = b""
        self._request_sent = False
        self._kill_wanted: float | None = None
        self.started: asyncio.Future[str] = self._loop.create_future()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.stopping: asyncio.Future[Ending] = self._loop.create_future()
        self.output_ended: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.bytes_read = 0
        self.pid = 0
        try:
            self._control, theirs, self._output, write_end = _channels()
        except OSError as error:
            raise _cannot_start(error) from None
        try:
            self.guard = _start_guard(theirs, write_end, namespaces)
        except OSError as error:
            self._control.close()
            os.close(self._output)
            raise _cannot_start(error) from None
        finally:
            theirs.close()
            os.close(write_end)
        self._control.settimeout(0)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._control.fileno(), self._on_control)
        self._loop.add_reader(self._output, self._on_output)

    async def start(self, command: Command) -> None:
        """Have the guard start the command; raises ``StartFailed``."""
        request: dict[str, object] = {
            "argv": [_as_utf8(item) for item in command.argv],
            "cwd": _as_utf8(str(command.cwd)),
            "env": {_as_utf8(name): _as_utf8(value) for name, value in command.env.items()},
        }
        request["scratch"] = _as_utf8(str(command.scratch or ""))
        request["join"] = command.namespaces
        request["landlock"] = command.landlock
        await uninterruptible(self._send_request(json.dumps(request).encode()))
        problem = await self.started
        if problem:
            raise StartFailed(problem)

    async def _send_request(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a guard that has gone is noticed in ``_close``
            await self._loop.sock_sendall(self._control, b"%016x%s" % (len(data), data))
        self._request_sent = True
        if self._kill_wanted is not None:
            self.kill(self._kill_wanted)

    def stop(self, ending: Ending, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after ``grace_s``; may be called again to shorten the grace.

        A command that has already ended keeps its result, and what it left running (CAN-6).
        """
        if not self.exited.done() or self.stopping.done():
            self.abandon(ending, grace_s)

    def abandon(self, ending: Ending, grace_s: float) -> None:
        """``stop``, even when the command itself has ended."""
        if not self.stopping.done():
            self.stopping.set_result(ending)
        self.kill(grace_s)

    def kill(self, grace_s: float) -> None:
        """Tell the guard; does nothing when it has gone."""
        if not self._request_sent:
            self._kill_wanted = grace_s
            return
        with contextlib.suppress(OSError):
            self._control.send(b"stop %d\n" % round(grace_s * 1000))
            self.guard.send_signal(signal.SIGCONT)  # the command may have stopped it

    def read_rest(self) -> None:
        """Take what is in the pipe now, whatever the loop was busy with."""
        for _ in range(2 * _PIPE_BYTES // READ_BYTES):
            before = self.bytes_read
            if not self.output_ended.done():
                self._on_output()
            if self.bytes_read == before:
                return

    def detach(self) -> None:
        """From now on output is read (so that a daemon does not stall) and thrown away."""
        self._sink = None

    def _on_output(self) -> None:
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_output()
            return
        self.bytes_read += len(data)
        if self._sink is not None and not self._sink(data):
            self._sink = None
            self.stop(Ending.ENOUGH, 0.0)

    def _on_control(self) -> None:
        try:
            data = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            self._hear(line)
        if not data:
            self._close()

    def _hear(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word == b"pid":
            self.pid = int(rest)
            if not self.started.done():
                self.started.set_result("")
        elif word == b"exit" and not self.exited.done():
            self.exited.set_result(int(rest))
        elif word == b"fail" and not self.started.done():
            number, _, what = rest.partition(b" ")
            self.started.set_result(f"{os.strerror(int(number))} ({what.decode()})")

    def finish(self) -> None:
        """The guard has ended: release what we hold. May be called again, and after the loop."""
        if self._loop.is_closed():
            self._control.close()
            if self._output >= 0:
                os.close(self._output)
                self._output = -1
        elif not self.gone.done():
            self._close()

    def _close(self) -> None:
        """The guard has gone. If somebody killed it, the command's group is all that we know."""
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self.guard.wait()
        if self.guard.returncode and self.pid and not self.exited.done():
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        if not self.started.done():
            self.started.set_result("its guard did not start")
        self.read_rest()
        self._close_output()
        self.gone.set_result(None)

    def _close_output(self) -> None:
        if self._output >= 0:
            self._loop.remove_reader(self._output)
            os.close(self._output)
            self._output = -1
        if not self.output_ended.done():
            self.output_ended.set_result(None)


def _channels() -> tuple[socket.socket, socket.socket, int, int]:
    """Our end and the guard's end of their socket, the reading and the writing end of a pipe."""
    ours, theirs = socket.socketpair()
    try:
        return ours, theirs, *os.pipe()
    except OSError:
        ours.close()
        theirs.close()
        raise


def _cannot_start(error: OSError) -> StartFailed:
    return StartFailed(f"cannot start a process: {error.strerror or error}")


def _start_guard(
    control: socket.socket, output: int, namespaces: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # fewer wake-ups for the same output
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    own_libraries = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return subprocess.Popen(  # noqa: S603 - our own interpreter and our own file
        [sys.executable, "-I", "-S", "-X", "utf8", _GUARD],
        stdin=control.fileno(),
        stdout=output,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in own_libraries if name in os.environ},
        cwd="/",
        start_new_session=True,
        pass_fds=namespaces,
    )


def _as_utf8(text: str) -> str:
    """The same bytes, as the guard (which always runs in UTF-8 mode) will encode them."""
    return os.fsencode(text).decode("utf-8", "surrogateescape")
