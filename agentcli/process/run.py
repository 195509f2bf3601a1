"""Run one command so that it can always be stopped, with everything that it started.

Laws: each command has a guard (``guard.py``), and each guard an owner, the session, until nothing
of its command is left. ``run`` returns or raises only when the command has ended by itself or
everything of it was killed (bounded: see ``JOIN_S``). What a command leaves running in the
background lives until ``end_processes`` or the end of the app (CAN-10, REC-8). However much it
prints, what is kept of it is bounded.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.domain.cancel import CancelToken, uninterruptible
from agentcli.domain.values import frozen

if TYPE_CHECKING:
    from agentcli.domain.sandbox import Confined

GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL (CAN-10)."""
GIVE_UP_S = 5.0
"""Seconds after SIGKILL that a guard waits for the end of what it has killed."""
JOIN_S = GRACE_S + GIVE_UP_S + 1.0
"""Seconds after which a process that even SIGKILL does not end is given up."""
QUIET_S = 0.1
_PART_S = 1.0  # of a time-out; what passes while we are stopped is more, and does not count
DRAIN_S = 0.5
READ_BYTES = 256 * 1024
HEAD_BYTES = 3 * 1024 * 1024
TAIL_BYTES = 1024 * 1024
INTERVAL_S = 0.05
LIVE_BYTES = 8 * 1024
_PIPE_BYTES = 1024 * 1024
_GUARD = str(Path(__file__).resolve().parent)
# imported, not run by path: then it is compiled only once; there is nothing to take down at its end
_RUN_GUARD = "import os, sys; sys.path.append(sys.argv[1]); import guard; guard.main(); os._exit(0)"


@frozen
class Command:
    """What to run: the program's absolute path first.

    ``owner`` is the id of the session that ends what the command leaves behind. ``namespaces`` are
    open files of a user and a network namespace to start it in, or those that ``confine`` may
    name and those of them that it did not (``unused``), ``rules`` those that it runs under
    (``Confined``). ``handles`` are open files of ours by the numbers (below 100) that it gets them
    under. ``is_real``: ``cwd`` was found to lead through no link, and is to be so still.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    owner: str = ""
    namespaces: tuple[int, ...] = ()
    rules: Mapping[str, object] = field(default_factory=dict)
    handles: Mapping[int, int] = field(default_factory=dict)
    unused: tuple[int, ...] = ()
    is_real: bool = False


@frozen
class RunLimits:
    """What ends a command early. Once ``unlimited`` is done ``timeout_s`` holds no more.

    ``on_exit`` is called at the moment in which the command ends by itself, whatever it leaves;
    ``on_life`` gets what will be the ``still_lives`` of the result once the command has started.
    """

    cancel: CancelToken
    timeout_s: float | None = None
    unlimited: asyncio.Future[None] | None = None
    on_exit: Callable[[], None] | None = None
    on_life: Callable[[Callable[[], int]], None] = lambda _: None


class Ending(Enum):
    """Why a run is over."""

    EXITED = "exited"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    ENOUGH = "enough"
    LOST = "lost"


@frozen
class Result:
    """How a command ended. ``returncode`` is negative for a signal, ``None`` when unknown.

    ``left_running`` are the processes that it left in the background; after a stop those that
    could not be killed. ``still_lives`` tells whether anything of it is left by then.
    """

    ending: Ending
    returncode: int | None
    duration_s: float
    left_running: tuple[int, ...] = ()
    still_lives: Callable[[], int] | None = None


class StartFailed(Exception):
    """The command could not be started; the text says why."""


class DirectoryFailed(StartFailed):
    """Because its directory cannot be entered."""


Sink = Callable[[bytes], bool]
"""Takes output as it comes; ``False`` means that no more is wanted: the command is killed."""

# what has not ended, or has left something in the background, by the session that owns it
_live: dict[str, set[GuardedProcess]] = {}


async def run(
    command: Command,
    limits: RunLimits,
    sink: Sink,
    on_start: Callable[[int], Awaitable[None]] | None = None,
    confine: Callable[[], Awaitable[Confined]] | None = None,
) -> Result:
    """Run ``command``, its output (standard error too) going to ``sink``; raises ``StartFailed``.

    ``on_start`` gets the command's pid, which is also its process group. ``confine`` gives what the
    command runs as instead; it is asked while the guard starts, and may raise ``OSError``.

    On cancel everything that came of it gets SIGTERM at once and SIGKILL ``GRACE_S`` later, or at
    once when the token is forced. The same happens when the calling task is cancelled or
    ``on_start`` fails, before the exception leaves this function.
    """
    began = time.monotonic()
    cancel = limits.cancel
    if cancel.cancelled:
        return Result(Ending.CANCELLED, None, 0.0)
    process = GuardedProcess(sink, (*command.namespaces, *command.handles.values()))
    _live.setdefault(command.owner, set()).add(process)
    process.gone.add_done_callback(lambda _: _forget(command.owner, (process,)))

    def stop() -> None:
        process.stop(Ending.CANCELLED, 0.0 if cancel.forced else GRACE_S)

    if (on_exit := limits.on_exit) is not None:
        process.exited.add_done_callback(lambda _: on_exit())
    forget = cancel.add_callback(stop)
    try:
        if confine is not None:
            try:
                command = _confined(command, await confine())
            except OSError as error:
                raise StartFailed(f"the sandbox cannot be set up: {error}") from None
            began = time.monotonic()
            if process.stopping.done():
                process.dismiss()
                return Result(Ending.CANCELLED, None, 0.0)
        await process.start(command)
        limits.on_life(process.still_lives)
        if on_start is not None:
            await on_start(process.pid)
        return await _watch(process, began, limits)
    except StartFailed:
        process.dismiss()
        process.kill(0.0)
        await uninterruptible(_join_guard(process))
        raise
    except BaseException:
        process.dismiss()
        process.abandon(Ending.CANCELLED, 0.0 if cancel.forced else GRACE_S)
        await uninterruptible(_join_guard(process))
        raise
    finally:
        forget()
        process.sink = None  # output is still read, so that a daemon does not stall


def confined_guards() -> list[int]:
    """Those of what is left of commands in a sandbox, of all sessions."""
    every = [process for live in tuple(_live.values()) for process in tuple(live)]
    return [pid for process in every if process.is_confined and (pid := process.still_lives())]


def _confined(command: Command, inside: Confined) -> Command:
    return replace(
        command,
        argv=inside.argv,
        cwd=inside.cwd,
        namespaces=inside.namespaces,
        rules=inside.rules,
        unused=tuple(handle for handle in command.namespaces if handle not in inside.namespaces),
    )


async def end_processes(owner: str = "", grace_s: float = 0.5) -> None:
    """Kill all that a session has left; SIGKILL comes ``grace_s`` after SIGTERM. Bounded.

    Two sessions share no processes (CAN-11); what belongs to none has the owner ``""``.
    """
    live = tuple(_live.get(owner, ()))
    if not live:
        return
    for process in live:
        process.kill(grace_s)
    give_up = time.monotonic() + grace_s + GIVE_UP_S + 1.0

    def join() -> None:
        for process in live:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.guard.wait(max(0.0, give_up - time.monotonic()))

    await asyncio.to_thread(join)
    for process in live:
        if process.guard.returncode is not None:
            process.finish()
    _forget(owner, live)


def _forget(owner: str, gone: Iterable[GuardedProcess]) -> None:
    """A session that has none left is forgotten, too."""
    if left := _live.get(owner, set()) - set(gone):
        _live[owner] = left
    else:
        _live.pop(owner, None)


async def _watch(process: GuardedProcess, began: float, limits: RunLimits) -> Result:
    left, unlimited = None, limits.unlimited
    if limits.timeout_s is not None:
        left = max(0.0, began + limits.timeout_s - time.monotonic())
    waiting: set[asyncio.Future[int] | asyncio.Future[Ending] | asyncio.Future[None]]
    waiting = {process.exited, process.stopping, process.gone}
    bounded = waiting if unlimited is None else {*waiting, unlimited}
    await _first_of(bounded, left)
    if unlimited is not None and unlimited.done():
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if process.exited.done() and not process.stopping.done():
        duration_s = time.monotonic() - began
        await _drain(process)
        background = await _left_running(process)
        return Result(
            Ending.EXITED, process.exited.result(), duration_s, background, process.still_lives
        )
    if process.gone.done() and not process.stopping.done():
        return Result(Ending.LOST, None, time.monotonic() - began)
    if not process.stopping.done():
        process.stop(Ending.TIMED_OUT, GRACE_S)
    await _join_guard(process)
    survivors = await _left_running(process) if not process.gone.done() else ()
    returncode = process.exited.result() if process.exited.done() else None
    ending = process.stopping.result()
    duration_s = time.monotonic() - began
    return Result(ending, returncode, duration_s, survivors, process.still_lives)


async def _first_of(waiting: Iterable[asyncio.Future[Any]], left: float | None) -> None:
    """Until one of them is done, or ``left`` seconds are over, in which we were not stopped."""
    while left is None or left >= 0:
        part, began = left if left is None else min(left, _PART_S), time.monotonic()
        done, _ = await asyncio.wait(waiting, timeout=part, return_when=asyncio.FIRST_COMPLETED)
        if done or not left or part is None:
            return
        left = max(0.0, left - min(time.monotonic() - began, part + _PART_S))


async def _join_guard(process: GuardedProcess) -> None:
    await asyncio.wait({process.gone}, timeout=JOIN_S)


async def _drain(process: GuardedProcess) -> None:
    """Wait for the rest of the output, but not for a daemon that keeps it open."""
    give_up = time.monotonic() + DRAIN_S
    while not process.output_ended.done() and time.monotonic() < give_up:
        before = process.bytes_read
        await asyncio.wait({process.output_ended}, timeout=QUIET_S)
        if process.bytes_read == before:
            break
    process.read_rest()


async def _left_running(process: GuardedProcess) -> tuple[int, ...]:
    """The processes that the command has left, seen once the dust has settled."""
    await asyncio.wait({process.gone}, timeout=QUIET_S)
    if process.gone.done():
        return ()
    from agentcli.process.guard import descendants, without_helpers

    found = await asyncio.to_thread(descendants, process.guarding)
    return tuple(sorted(without_helpers(found)))


class GuardedProcess:
    """A command and its guard, driven by callbacks of the running event loop."""

    def __init__(self, sink: Sink, handles: tuple[int, ...] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self.sink: Sink | None = sink
        self._said = b""
        self._request_sent = False
        self._kill_wanted: float | None = None
        self.started: asyncio.Future[str] = self._loop.create_future()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.stopping: asyncio.Future[Ending] = self._loop.create_future()
        self.output_ended: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.bytes_read = 0
        self.pid = self.guarding = 0
        self.is_confined = False
        try:
            self._control, self._output, self.guard = _start_guard(handles)
        except OSError as error:
            raise StartFailed(f"cannot start a process: {error.strerror or error}") from None
        self._control.settimeout(0)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._control.fileno(), self._on_control)
        self._loop.add_reader(self._output, self._on_output)

    def still_lives(self) -> int:
        """The pid of the guard while anything of the command is left, else 0."""
        return 0 if self.gone.done() else self.guarding

    async def start(self, command: Command) -> None:
        """Have the guard start the command; raises ``StartFailed``."""

        def as_utf8(text: str) -> str:
            """The same bytes, as the guard (which always runs in UTF-8 mode) will encode them."""
            if sys.getfilesystemencoding() == "utf-8":
                return text
            return os.fsencode(text).decode("utf-8", "surrogateescape")

        self.is_confined = bool(command.rules)
        request = {
            "argv": [as_utf8(item) for item in command.argv],
            "cwd": as_utf8(str(command.cwd)),
            "is_real": command.is_real,
            "env": {as_utf8(name): as_utf8(value) for name, value in command.env.items()},
            "handles": [(ours, theirs) for theirs, ours in command.handles.items()],
            "join": command.namespaces,
            "close": command.unused,
            "rules": dict(command.rules),
            "app": os.getpid(),
            "give_up": GIVE_UP_S,
        }
        await uninterruptible(self._send_request(marshal.dumps(request)))
        problem = await self.started
        if problem:
            is_directory = problem.endswith("(directory)")
            raise (DirectoryFailed if is_directory else StartFailed)(problem)

    async def _send_request(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a guard that has gone is noticed in ``_close``
            await self._loop.sock_sendall(self._control, b"%016x%s" % (len(data), data))
        self._request_sent = True
        if self._kill_wanted is not None:
            self.kill(self._kill_wanted)

    def dismiss(self) -> None:
        """Let the guard go if it has not been told of a command; it will hear of none."""
        if not self._request_sent:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)

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
        if self.sink is not None and not self.sink(data):
            self.sink = None
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
            word, _, rest = line.partition(b" ")
            if word == b"pid":
                self.pid, self.guarding = map(int, rest.split())
                if not self.started.done():
                    self.started.set_result("")
            elif word == b"exit" and not self.exited.done():
                self.exited.set_result(int(rest))
            elif word == b"fail" and not self.started.done():
                number, _, what = rest.partition(b" ")
                self.started.set_result(f"{os.strerror(int(number))} ({what.decode()})")
        if not data:
            self._close()

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


def _start_guard(handles: tuple[int, ...]) -> tuple[socket.socket, int, subprocess.Popen[bytes]]:
    """Our end of the guard's socket, the reading end of the command's output, and the guard."""
    own_libraries = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    with contextlib.ExitStack() as on_failure, contextlib.ExitStack() as theirs:
        control, their_control = socket.socketpair()
        on_failure.callback(control.close)
        theirs.callback(their_control.close)
        output, write_end = os.pipe()
        on_failure.callback(os.close, output)
        theirs.callback(os.close, write_end)
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # fewer wake-ups for the same output
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        guard = subprocess.Popen(  # noqa: S603 - our own interpreter and our own file
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _RUN_GUARD, _GUARD],
            stdin=their_control.fileno(),
            stdout=write_end,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in own_libraries if name in os.environ},
            cwd="/",
            start_new_session=True,
            pass_fds=handles,
        )
        on_failure.pop_all()
        return control, output, guard


# --- its output -------------------------------------------------------------------------------


class Capture:
    """The beginning and the end of what was fed: ``HEAD_BYTES + TAIL_BYTES`` at most."""

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.size_bytes = 0
        self._head = bytearray()
        self._head_bytes = head_bytes
        self._tail: deque[bytes] = deque()
        self._tail_bytes = tail_bytes
        self._in_tail = 0

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self.size_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._in_tail += len(data)
        while self._in_tail - len(self._tail[0]) >= self._tail_bytes:
            self._in_tail -= len(self._tail.popleft())

    def data(self) -> bytes:
        """All of it, or its two ends with a line between them that says what is missing."""
        tail = b"".join(self._tail)[-self._tail_bytes :]
        missing = self.size_bytes - len(self._head) - len(tail)
        if not missing:
            return bytes(self._head) + tail
        return b"%s\n[... %d bytes of output were not kept ...]\n%s" % (self._head, missing, tail)


class LiveOutput:
    """Passes output on as text, at most every ``INTERVAL_S`` and then the newest.

    ``close`` passes on the rest.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._waiting = bytearray()
        self._skipped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self._waiting += data[-LIVE_BYTES:]
        excess = len(self._waiting) - LIVE_BYTES
        self._skipped += max(0, len(data) - LIVE_BYTES)
        if excess > 0:
            del self._waiting[:excess]
            self._skipped += excess
        if self._timer is None:
            loop = asyncio.get_running_loop()
            delay = max(0.0, self._last + INTERVAL_S - loop.time())
            self._timer = loop.call_later(delay, self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._last = asyncio.get_running_loop().time()
        if self._skipped:
            self._decoder.reset()
            self._report(f"\n[... {self._skipped} bytes ...]\n")
            self._skipped = 0
        text = self._decoder.decode(bytes(self._waiting))
        self._waiting.clear()
        if text:
            self._report(text)

    def close(self) -> None:
        """Report what is waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._flush()
