r"""The small process that stands between the app and one command; it knows nothing of the app.

Law: every process that the command leaves behind, however it detached itself, is a descendant
of its guard (Linux: it is their "child subreaper"), and the guard does not end before they have.
It kills them when told to, and at once when the app is gone, which it notices because its end of
their socket reports end-of-file: also after a SIGKILL of the app (REC-8, CAN-10). Where it is
itself killed (by the kernel, for want of memory) its parent, which does nothing else, kills them.

Protocol on standard input, a socket: the app sends 16 hex digits of length and, in ``marshal``'s
form, ``{argv, cwd, is_real, env, handles, join, close, rules, give_up}``, later ``stop
MILLISECONDS\n``, maybe often (SIGTERM now, SIGKILL that much later). The guard answers ``pid N
OWN\n`` (the command's and its own) or ``fail ERRNO WHAT\n``, then ``exit CODE\n`` when the command
itself has ended (negative: the signal), and end-of-file when nothing of it is left. ``is_real``: it
starts in ``cwd`` itself, not where a link leads. ``handles`` are open files and
the numbers under which the command gets them, ``join`` those of a user and a network namespace that
it starts in, ``close`` what it does not get of all that the guard was given, ``rules`` those that
it takes upon itself (``domain.sandbox.Confined``): it makes the calls that they hand over;
what has any is stopped while ``app``, a process, is, which looks at what that makes;
``give_up`` the seconds that it waits for what it has killed. What bubblewrap itself runs as is not
told to end: it would take the command with it.
Only the standard library is available here, and of that what loads at once: each command waits for
it. Where there is no ``/proc``, ``ps`` is asked.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

    from agentcli.process.sandbox_calls import SocketKeeper
else:
    import _signal as signal  # "signal" itself makes enumerations, and loads what that takes

CONTROL = 0
_STDERR = 2
RESCAN_S = 0.02
GROUP_POLL_S = 0.5
_ORPHANS_GIVE_UP_S = 5.0
_LISTENER = b"listener "
_HELPERS = frozenset({b"bwrap"})
# above the numbers that commands are given files under
_FIRST_FREE = 100
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 15, 36, 38
# linux/seccomp.h
_SET_FILTER, _NEW_LISTENER, _BYTES_OF_STEP = 1, 1 << 3, 8


def process_table() -> Iterator[tuple[int, int, int]]:
    """(pid, parent's pid, process group) of each process that can be seen; zombies left out."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib is slow to load
    except OSError:
        names = []
    if "self" not in names:
        yield from _process_table_of_ps()
        return
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - pathlib is slow to load
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields and fields[0] not in {b"Z", b"X"}:
            yield int(name), int(fields[1]), int(fields[2])


def _process_table_of_ps() -> Iterator[tuple[int, int, int]]:
    import subprocess

    try:
        listing = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid=,pgid=,stat="],
            capture_output=True,
            check=False,
        )
    except OSError:
        return
    for line in listing.stdout.splitlines():
        pid, parent, group, state = line.split()[:4]
        if not state.startswith(b"Z"):
            yield int(pid), int(parent), int(group)


def descendants(ancestor: int, group: int = 0) -> list[int]:
    """Every living process below ``ancestor``, and the members of ``group``."""
    table = list(process_table())
    children: dict[int, list[int]] = {}
    for pid, parent, _ in table:
        children.setdefault(parent, []).append(pid)
    found = dict.fromkeys(pid for pid, _, its_group in table if group and its_group == group)
    waiting = [ancestor, *found]
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), []) if pid not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return [pid for pid in found if pid not in {ancestor, os.getpid()}]


def without_helpers(pids: list[int]) -> list[int]:
    """``pids`` without the processes that only hold a sandbox together."""
    return [pid for pid in pids if _name_of(pid) not in _HELPERS]


def _name_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:  # noqa: PTH123 - pathlib is slow to load
            return file.read().rstrip(b"\n")
    except OSError:
        return b""


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped it; not while it is traced."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is slow to load
            return file.read().rpartition(b")")[2].split()[:1] == [b"T"]
    except OSError:
        return False


def send_signal(pids: list[int], number: int) -> None:
    """The signal to each of them that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


class Guard:
    """One command and everything that comes of it."""

    def __init__(self) -> None:
        self.command = 0
        self.ended = False
        self.deadline: float | None = None
        self.give_up_s = 0.0
        self.give_up: float | None = None
        self.sockets: SocketKeeper | None = None
        self.app = 0
        self.is_held = False
        self.reaps_orphans = prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0
        prctl(PR_SET_PDEATHSIG, signal.SIGCONT)  # the command may have stopped us
        self._wake_read, wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def start(self) -> bool:
        """Start the command; whether that worked is told to the app."""
        size = int(_read_exactly(16), 16)
        request = marshal.loads(_read_exactly(size))  # noqa: S302 - what the app itself has sent
        self.give_up_s = request["give_up"]
        self.app = request["app"] if request["rules"] else 0
        for handle in request["close"]:
            os.close(handle)
        calls = request["rules"].get("calls")
        hands_over = bool(calls and calls["handing"]) and _module("sandbox_calls").can_hand_over()
        error_read, error_write = os.pipe()
        go_read, go_write = os.pipe()
        self.command = os.fork()
        if not self.command:
            os.close(go_write)
            _become(request, error_write, go_read if hands_over else None)
        theirs = (ours for ours, _ in request["handles"])
        for handle in (error_write, go_read, *request["join"], *theirs):
            os.close(handle)
        with os.fdopen(error_read, "rb", buffering=0) as file:
            failure = file.read(64) or b""
            if failure.startswith(_LISTENER):
                self._keep_sockets(int(failure.removeprefix(_LISTENER)), request["rules"])
                os.write(go_write, b"\n")
                failure = file.read(64) or b""
        os.close(go_write)
        if failure:
            os.waitpid(self.command, 0)
            _send(b"fail " + failure)
            return False
        _send(b"pid %d %d" % (self.command, os.getpid()))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.close(quiet)
        return True

    def _keep_sockets(self, listener: int, rules: dict[str, Any]) -> None:
        writable = None
        if "landlock" in rules:
            writable = [*rules["landlock"]["writable"], "/dev/shm"]  # noqa: S108 - not a name of ours
        keeper = _module("sandbox_calls").SocketKeeper
        self.sockets = keeper(self.command, listener, rules["calls"]["registry"], writable)

    def watch(self) -> None:
        """Return when nothing of the command is left."""
        watched: list[int] = [CONTROL, self._wake_read]
        if self.sockets is not None:
            watched.append(self.sockets.listener)
        while self._reap():
            ready, _, _ = select.select(watched, [], [], self._pause())
            sockets = self.sockets
            if sockets is not None and sockets.listener in ready and not sockets.serve():
                watched.remove(sockets.listener)
            if self._wake_read in ready:
                try:
                    os.read(self._wake_read, 4096)
                except BlockingIOError:
                    pass
            if CONTROL in ready and not self._obey():
                watched.remove(CONTROL)
            self._hold()
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self._kill()
            if self.give_up is not None and time.monotonic() >= self.give_up:
                return

    def end(self) -> None:
        """Kill all of it, and return as ``watch`` does; what it asks for is answered no more."""
        if self.sockets is not None:
            self.sockets.close()  # none counts as the session's own beyond it
        self.sockets = None
        self._stop(0.0)
        self.watch()

    def _pause(self) -> float | None:
        """Seconds until something has to be done unasked; ``None`` while nothing has."""
        if self.deadline is not None:
            return max(0.0, self.deadline - time.monotonic())
        return GROUP_POLL_S if self.app or not self.reaps_orphans else None

    def _hold(self) -> None:
        """Stop what runs inside while the app is stopped: nobody looks at what that makes."""
        was_held, self.is_held = self.is_held, bool(self.app) and is_stopped(self.app)
        if self.is_held and self.deadline is None:
            send_signal(self._targets(), signal.SIGSTOP)
        elif was_held:
            send_signal(self._targets(), signal.SIGCONT)

    def _reap(self) -> bool:
        """Collect what has ended; whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self.reaps_orphans and bool(descendants(os.getpid(), self.command))
            if not pid:
                return True
            if pid == self.command and not self.ended:
                self.ended = True
                _send(b"exit %d" % os.waitstatus_to_exitcode(status))

    def _obey(self) -> bool:
        """Read what the app says; False when it will never say anything again."""
        try:
            said = os.read(CONTROL, 4096)
        except OSError:
            said = b""
        if not said:
            self._stop(0.0)
            return False
        for line in said.splitlines():
            word, _, number = line.partition(b" ")
            if word == b"stop":
                self._stop(int(number) / 1000)
        return True

    def _stop(self, grace_s: float) -> None:
        """SIGTERM now; a deadline once set only ever comes nearer."""
        deadline = time.monotonic() + grace_s
        self.deadline = deadline if self.deadline is None else min(deadline, self.deadline)
        if grace_s:
            targets = without_helpers(self._targets())
            send_signal(targets, signal.SIGTERM)
            send_signal(targets, signal.SIGCONT)  # a stopped process cannot act on SIGTERM
            if not targets:
                self.deadline = time.monotonic()  # only a sandbox in which nothing runs yet

    def _kill(self) -> None:
        send_signal(self._targets(), signal.SIGKILL)
        now = time.monotonic()
        self.deadline = now + RESCAN_S  # what was being forked meanwhile
        self.give_up = now + self.give_up_s if self.give_up is None else self.give_up

    def _targets(self) -> list[int]:
        found = descendants(os.getpid(), 0 if self.reaps_orphans else self.command)
        # where processes cannot be listed, the command's own group is all that can be named
        return found or ([] if self.ended else [-self.command])


def prctl(option: int, value: int | bytes) -> int:
    """Linux's prctl, or -1 where there is none."""
    try:
        import ctypes

        argument = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
        zero = ctypes.c_ulong(0)
        return int(ctypes.CDLL(None).prctl(option, argument, zero, zero, zero))
    except (ImportError, OSError, AttributeError):
        return -1


def join(handles: list[int]) -> None:
    """Enter the namespaces: a user namespace first, then the network that belongs to it."""
    if not handles:
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    for handle, kind in zip(handles, (_CLONE_NEWUSER, _CLONE_NEWNET), strict=True):
        if libc.setns(handle, kind):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        os.close(handle)


def _module(name: str) -> ModuleType:
    """The neighbour of this file."""
    import sys

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to load
    if here not in sys.path:
        sys.path.append(here)
    module: ModuleType = __import__(name)
    return module


def _hand_over(handles: list[tuple[int, int]]) -> None:
    """Give each of our open files the number under which the command expects it."""
    import fcntl

    out_of_the_way = [
        (fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE), theirs) for ours, theirs in handles
    ]
    for ours, _ in handles:
        os.close(ours)
    for handle, theirs in out_of_the_way:
        os.dup2(handle, theirs)


def _limit(request: dict[str, Any], error_write: int, go: int | None) -> None:
    """Take the rules upon this process; ``go`` says when the guard answers calls."""
    rules = request["rules"]
    for place in rules.get("opened", ()):
        handle = _module("sandbox_landlock").open_real(request["argv"][place])
        os.set_inheritable(handle, True)  # noqa: FBT003 - the standard library's signature
        request["argv"][place] = str(handle)
    if "landlock" in rules:
        _module("sandbox_landlock").restrict(rules["landlock"])
    if not (calls := rules.get("calls")):
        return
    if calls["sealed"]:
        request["argv"][1:1] = ["--seccomp", str(_nameless(calls["sealed"]))]
    listener = _put_on(calls, hands_over=go is not None)
    if listener >= 0 and go is not None:
        os.write(error_write, _LISTENER + b"%d" % listener)
        if not os.read(go, 1):  # nobody would answer
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        os.close(listener)


def _put_on(calls: dict[str, Any], *, hands_over: bool) -> int:
    """Put ``sandbox_calls.filters`` on this process and all that come of it; raises ``OSError``.

    Returns the open file at which calls are handed over, or -1 when none are (seccomp(2)).
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def put(code: bytes, flags: int) -> int:
        text = ctypes.create_string_buffer(code, len(code))
        # linux/filter.h: struct sock_fprog
        program = (ctypes.c_uint64 * 2)(len(code) // _BYTES_OF_STEP, ctypes.addressof(text))
        return int(libc.syscall(calls["seccomp"], _SET_FILTER, flags, program))

    is_ready = prctl(_PR_SET_NO_NEW_PRIVS, 1) == 0
    if is_ready and hands_over and (listener := put(calls["handing"], _NEW_LISTENER)) >= 0:
        return listener
    # an outer sandbox is handed these calls already, or the kernel knows nothing of it
    if not is_ready or put(calls["filter"], 0) < 0:
        number = ctypes.get_errno() or errno.EPERM
        raise OSError(number, os.strerror(number))
    return -1


def _nameless(data: bytes) -> int:
    """An open file that no path leads to, with ``data`` to be read."""
    import fcntl

    made = os.memfd_create("filter")
    os.pwrite(made, data, 0)
    handle = fcntl.fcntl(made, fcntl.F_DUPFD, _FIRST_FREE)
    os.close(made)
    return handle


def _become(request: dict[str, Any], error_write: int, go: int | None) -> None:
    """Turn the forked child into the command; never returns."""
    import fcntl

    problem = "start"
    try:
        error_write = fcntl.fcntl(error_write, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
        os.setsid()
        problem = "sandbox"
        join(request["join"])
        _limit(request, error_write, go)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # joining a user namespace takes it back
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(1, 2)
        _hand_over(request["handles"])
        problem = "directory"
        _enter(request["cwd"], is_real=request["is_real"])
        problem = "program"
        os.execve(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - the one place that starts commands
    except OSError as error:
        os.write(error_write, b"%d %s" % (error.errno or 0, problem.encode()))
    except ValueError:
        os.write(error_write, b"%d %s" % (errno.EINVAL, problem.encode()))
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def _enter(directory: str, *, is_real: bool) -> None:
    os.chdir(directory)
    if is_real and os.getcwd() != directory:  # noqa: PTH109 - pathlib is slow to load
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _read_exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(CONTROL, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _send(line: bytes) -> None:
    try:
        os.write(CONTROL, line + b"\n")
    except OSError:
        pass


def _outlive(guard: int) -> None:
    """Wait for the guard; what one that was killed has left is ours by now, and is killed."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    try:
        names = os.listdir("/proc/self/fd")  # noqa: PTH208 - pathlib is slow to load
    except OSError:
        names = []
    for handle in map(int, names):
        if handle > _STDERR:  # what the command alone is to hold open
            os.closerange(handle, handle + 1)  # the one that was listed has gone already
    prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
    signal.signal(signal.SIGCONT, lambda *_: send_signal([guard], signal.SIGCONT))
    _, status = os.waitpid(guard, 0)
    signal.signal(signal.SIGCONT, signal.SIG_DFL)
    give_up = time.monotonic() + _ORPHANS_GIVE_UP_S
    while status and time.monotonic() < give_up:
        send_signal(descendants(os.getpid()), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(RESCAN_S)


def main() -> None:
    """Guard the command that the app asks for."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    prctl(_PR_SET_NAME, b"agent-guard")
    if prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0:
        try:
            guarding = os.fork()
        except OSError:  # no process is left for it: the guard goes on alone
            guarding = 0
        if guarding:
            _outlive(guarding)
            return
    guard = Guard()
    try:
        started = guard.start()
    except EOFError:
        return
    if started:
        try:
            guard.watch()
        except Exception:  # noqa: BLE001 - whatever it is, nothing of the command outlives its guard
            guard.end()
    if guard.sockets is not None:
        guard.sockets.close()
