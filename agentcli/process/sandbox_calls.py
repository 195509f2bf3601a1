r"""Which system calls a command may make, and which Unix sockets it may reach (SEC-4, SEC-18).

The first half runs in the app, which makes the filter that the guard puts on the command; the
second in the guard, where only the standard library is available. Laws: a seccomp filter can only
be added to; it sees numbers, not what a pointer leads to. So no command connects a socket by
itself: the kernel hands that call to the guard, which copies the address once, opens what it names,
and connects for the command only to a socket at which a command of this session listens. Where the
kernel cannot hand calls over there are no Unix sockets but connected pairs.
Numbers are those of ``linux/seccomp.h``, ``linux/filter.h`` and the system call tables
(https://docs.kernel.org/userspace-api/seccomp_filter.html).
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import fcntl
import os
import select
import struct
import sys

_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _HAND_OVER = 0x7FFF0000, 0x00050000, 0x7FC00000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_IS_AVAILABLE = 2
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_KERNELS_OWN = (0, 4, 15)  # NETLINK_ROUTE, _SOCK_DIAG, _KOBJECT_UEVENT
_STREAM, _SEQPACKET, _TYPE_MASK = 1, 5, 0xF
# of an open file, however it was opened: what is asked of it by those that only read
_FREE_KINDS = (0x54, 0x89, 0xB7)  # terminals and pipes, sockets, namespaces
# FIGETBSZ, FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FSGETXATTR, FS_IOC_FIEMAP
_FREE_REQUESTS = (2, 0x80086601, 0x80087601, 0x801C581F, 0xC020660B)
# and by others: filters, counters, epoll, processes; FICLONE and FICLONERANGE, to what is writable
_KINDS_OF_WRITERS, _CLONES = (0x21, 0x24, 0x8A, 0xFF), (0x40049409, 0x4020940D)
# its operations pass no filter; ``barred`` are the keyrings, what looks on at others (fanotify),
# and what could stall the guard
_URING = (425, 426, 427)
_FILE_SETATTR = 469  # what ``ioctl`` is refused for "chattr", by the name of any file
_CLONE3 = 435  # its flags lie where a pointer leads: clone(2) is taken then
_NEW_CONTROL_GROUP, _NEW_USER = 0x02000000, 0x10000000
# open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, open_tree_attr
_MOUNTS = (428, 429, 430, 431, 432, 433, 442, 467)
# fchmodat2, setxattrat, removexattrat
_CHANGES_EVERYWHERE = (452, 463, 466)


class _Numbers:
    """The system calls of one architecture, and those of its older one, which it also runs."""

    def __init__(self, architecture: int, **numbers: int | tuple[int, ...]) -> None:
        self.architecture = architecture
        self.numbers = numbers

    def one(self, name: str) -> int:
        """The number of that system call."""
        return self.many(name)[0]

    def many(self, name: str) -> tuple[int, ...]:
        """The numbers that belong together."""
        found = self.numbers.get(name, ())
        return found if isinstance(found, tuple) else (found,)


# asm-generic/unistd.h
_GENERIC: dict[str, int | tuple[int, ...]] = {
    "seccomp": 277, "socket": 198, "connect": 203, "listen": 201, "socketpair": 199, "ioctl": 29,
    "barred": (217, 218, 219, 262, 282), "prlimit": 261, "clone": (220, 97),
    "changes": (5, 6, 7, 14, 15, 16, 45, 52, 53, 54, 55, 88),
}  # fmt: skip
_MACHINES = {
    "x86_64": _Numbers(
        0xC000003E,
        seccomp=317, socket=41, connect=42, listen=50, socketpair=53, ioctl=16,
        barred=(248, 249, 250, 300, 323), prlimit=302, clone=(56, 272),
        changes=(76, 90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261,
                 268, 280),
        older=0x40000003, older_barred=(102, 359, 360, 361, 362, 286, 287, 288, 338, 374),
        older_prlimit=340, older_clone=(120, 310), older_ioctl=54,
        other_numbers=0x40000000,
    ),
    "aarch64": _Numbers(
        0xC00000B7, **_GENERIC, older=0x40000028,
        older_barred=(281, 282, 283, 288, 309, 310, 311, 367, 388), older_prlimit=369,
        older_clone=(120, 337), older_ioctl=54,
    ),
    "riscv64": _Numbers(0xC00000F3, **_GENERIC),
    "loongarch64": _Numbers(0xC0000102, **_GENERIC),
}  # fmt: skip


def machine() -> _Numbers | None:
    """The system calls here; ``None`` where they are not known, or the kernel filters none."""
    here = _MACHINES.get(os.uname().machine) if sys.maxsize > 1 << 32 else None
    if here is None:
        return None
    libc, action = ctypes.CDLL(None, use_errno=True), ctypes.c_uint32(_ERRNO)
    lacks = libc.syscall(here.one("seccomp"), _IS_AVAILABLE, 0, ctypes.byref(action))
    return None if lacks else here


# --- the filter -----------------------------------------------------------------------------------


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _answer(value: int) -> bytes:
    return _step(_RETURN, value)


def _refuse(number: int) -> bytes:
    return _answer(_ERRNO | number)


def _argument(index: int) -> bytes:
    return _step(_LOAD, _ARGUMENTS_AT + 8 * index)


def _when(value: int, then: bytes) -> bytes:
    """``then``, which ends in an answer, if what was loaded last is ``value``."""
    return _step(_IF_EQUAL, value, 0, len(then) // 8) + then


def filters(*, inet: bool, unix: bool, frozen: bool, mounts: bool) -> dict[str, object]:
    """What the guard of a command puts on it; nothing where ``machine`` is not known.

    ``inet``: it may have network sockets; ``unix``: Unix sockets, which needs the guard to connect
    them; ``frozen``: it changes no file's rights, times or attributes either; ``mounts``: it runs
    in bubblewrap, and what it mounts in there itself leads to no more.

    Of what a file system does to a file that is open for reading (``ioctl``) only known requests
    pass: one may make a copy elsewhere of all that the file system holds (btrfs).
    """
    if (here := machine()) is None:  # told by ``shortcomings``
        return {}
    barred = () if mounts else _MOUNTS
    return {
        "seccomp": here.one("seccomp"),
        "filter": _filter(here, barred, inet=inet, unix=False, frozen=frozen),
        "handing": _filter(here, barred, inet=inet, unix=True, frozen=frozen) if unix else b"",
        "sealed": _sealed(here) if mounts else b"",
    }


def _asked(*, frozen: bool) -> bytes:
    """What is answered to ``ioctl``."""
    requests = (*_FREE_REQUESTS, *(() if frozen else _CLONES))
    kinds = (*_FREE_KINDS, *(() if frozen else _KINDS_OF_WRITERS))
    known = b"".join(_when(request, _answer(_ALLOW)) for request in requests)
    known += _step(_AND, 0xFF00)
    known += b"".join(_when(kind << 8, _answer(_ALLOW)) for kind in kinds)
    return _argument(1) + known + _refuse(errno.ENOTTY)


def _filter(
    here: _Numbers, barred: tuple[int, ...], *, inet: bool, unix: bool, frozen: bool
) -> bytes:
    barred = (*_URING, _FILE_SETATTR, *barred)
    asked = _asked(frozen=frozen)
    older = b"".join(
        _when(number, _refuse(errno.ENOSYS)) for number in (*here.many("older_barred"), *barred)
    )
    older += b"".join(_when(number, asked) for number in here.many("older_ioctl"))
    itself = _argument(0) + _when(0, _answer(_ALLOW)) + _refuse(errno.EPERM)
    older += b"".join(_when(number, itself) for number in here.many("older_prlimit"))
    older = _refuse(errno.ENOSYS) if frozen else older + _answer(_ALLOW)
    program = _step(_LOAD, _ARCHITECTURE_AT)
    load = _step(_LOAD, _NUMBER_AT)
    for architecture in here.many("older"):
        program += _when(architecture, load + older)
    program += _step(_IF_EQUAL, here.architecture, 1, 0) + _refuse(errno.ENOSYS) + load
    for at_least in here.many("other_numbers"):
        program += _step(_IF_AT_LEAST, at_least, 0, 1) + _refuse(errno.ENOSYS)
    for number in (*barred, *here.many("barred")):
        program += _when(number, _refuse(errno.ENOSYS))
    program += _when(here.one("prlimit"), itself)
    connected = _argument(1) + _step(_AND, _TYPE_MASK)
    connected += _when(_STREAM, _answer(_ALLOW)) + _when(_SEQPACKET, _answer(_ALLOW))
    connected += _refuse(errno.EACCES)  # what has no connection is sent to any address
    program += _when(here.one("socketpair"), connected)
    network = _answer(_ALLOW) if inet else _refuse(errno.ENETUNREACH)
    families = _when(_UNIX, connected if unix else _refuse(errno.EACCES))
    families += _when(_INET, network) + _when(_INET6, network)
    # of the kernel, in protocols by which no program may send to another (netlink(7))
    kernels = b"".join(_when(each, _answer(_ALLOW)) for each in _KERNELS_OWN)
    families += _when(_NETLINK, _argument(2) + kernels + _refuse(errno.EPROTONOSUPPORT))
    program += _when(here.one("socket"), _argument(0) + families + _refuse(errno.EAFNOSUPPORT))
    if unix:
        for name in ("connect", "listen"):
            program += _when(here.one(name), _answer(_HAND_OVER))
    for number in (*here.many("changes"), *_CHANGES_EVERYWHERE) if frozen else ():
        program += _when(number, _refuse(errno.EROFS))
    return program + _when(here.one("ioctl"), asked) + _answer(_ALLOW)


def _sealed(here: _Numbers) -> bytes:
    """The program that bubblewrap puts on: no more control group namespaces, no users for root.

    With one of its own it could mount the control groups (cgroups(7)) that it is itself in, whose
    files are root's, or where systemd manages them the user's: what it limits, stops or kills there
    runs outside.
    """
    flags = _NEW_CONTROL_GROUP | (0 if os.getuid() else _NEW_USER)
    checked = _argument(0) + _step(_AND, flags) + _when(0, _answer(_ALLOW))
    checked += _refuse(errno.EPERM)

    def calls(name: str) -> bytes:
        known = _step(_LOAD, _NUMBER_AT) + _when(_CLONE3, _refuse(errno.ENOSYS))
        return known + b"".join(_when(each, checked) for each in here.many(name)) + _answer(_ALLOW)

    program = _step(_LOAD, _ARCHITECTURE_AT)
    for architecture in here.many("older"):
        program += _when(architecture, calls("older_clone"))
    return program + calls("clone")


def _failure() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


# --- what is handed over, in the guard ------------------------------------------------------------

_PIDFD_GETFD, _OPENAT2 = 438, 437
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTICE = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_LOCK = struct.Struct("hhqqi0q")  # fcntl(2): struct flock
_IN_ROOT = 0x10
_CONTINUE = 1
_MOST_UNHEARD = 1000
_MOST_ADDRESS_BYTES = 128  # struct sockaddr_storage
_SOL_SOCKET, _SO_TYPE, _SO_NETNS_COOKIE = 1, 3, 71
_LISTENS = b"00010000"  # __SO_ACCEPTCON, as /proc/net/unix tells it


def can_hand_over() -> bool:
    """Whether this process may take open files of others, as the second half does."""
    if not hasattr(os, "pidfd_open") or machine() is None:
        return False
    try:
        os.close(_file_of(os.getpid(), 0))
    except OSError:
        return False
    return True


def _file_of(pid: int, number: int) -> int:
    """The open file ``number`` of another process; raises ``OSError``."""
    process = os.pidfd_open(pid)
    try:
        found = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, number, 0)
        if found < 0:
            raise _failure()
        os.set_inheritable(found, False)  # noqa: FBT003 - the standard library's signature
        return int(found)
    finally:
        os.close(process)


def reachable_sockets() -> str:
    """Which Unix sockets a command can reach, in words."""
    if machine() is None:
        return "all of this machine: there is no filter of system calls for it"
    return "those of its own session" if can_hand_over() else "none, only connected pairs"


class SocketKeeper:
    """Connects for the commands below one guard, and remembers where they listen.

    ``registry`` is a directory out of their reach, shared by the guards of a session, with a name
    for each socket at which one of their commands listens. The inode is held open as long as the
    guard lives, so its number means no other; so long the name is locked, and counts.
    ``writable`` are the directories in which its commands make files, where no mount tells.
    """

    def __init__(
        self, pid: int, listener: int, registry: str, writable: list[str] | None = None
    ) -> None:
        self.listener = _file_of(pid, listener)
        self._registry = registry
        self._writable = writable
        self._held: dict[str, tuple[int, int]] = {}
        self._unheard: dict[int, int] = {}
        here = machine()
        self._listen = here.one("listen") if here is not None else -1

    def serve(self) -> bool:
        """Answer one call; false when nobody is left who could make one."""
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, notice)
        except OSError:
            poll = select.poll()
            poll.register(self.listener, select.POLLIN)
            return not any(events & select.POLLHUP for _, events in poll.poll(0))
        call, thread, _, number, _, _, *arguments = _NOTICE.unpack(notice)
        if number == self._listen:
            try:
                self._listens(call, thread, arguments)
            except Exception:  # noqa: BLE001 - likewise
                pass
            self._respond(call, 0, _CONTINUE)  # harmless, whatever it is by now
            return True
        try:
            process, handle, address = self._take(call, thread, arguments)
        except Exception as error:  # noqa: BLE001 - likewise: no address is beyond 2^63
            self._respond(call, getattr(error, "errno", None) or errno.EFAULT)
            return True
        self._begin(call, process, handle, address)
        return True

    def _begin(self, call: int, process: int, handle: int, address: bytes) -> None:
        """Connect, in a thread of its own: whether it waits the command can change at any time."""
        try:
            _thread.start_new_thread(self._do, (call, process, handle, address))
        except RuntimeError:  # the command has used up all of them
            os.close(handle)
            self._respond(call, errno.EAGAIN)

    def close(self) -> None:
        """Forget the sockets of this guard's commands."""
        for name in list(self._held):
            self._forget(name)

    def _take(self, call: int, thread: int, arguments: list[int]) -> tuple[int, int, bytes]:
        """The caller's process, its socket, and the address, which it can change no more."""
        size = arguments[2] & 0xFFFFFFFF
        if not 2 <= size <= _MOST_ADDRESS_BYTES:  # noqa: PLR2004 - a family at least
            raise OSError(errno.EINVAL, "address")
        memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            address = os.pread(memory, size, arguments[1])
        finally:
            os.close(memory)
        if len(address) != size:
            raise OSError(errno.EFAULT, "address")
        process = _process_of(thread)
        return process, self._socket_of(call, process, arguments), address

    def _socket_of(self, call: int, process: int, arguments: list[int]) -> int:
        handle = _file_of(process, arguments[0] & 0xFFFFFFFF)
        try:  # else the number of the process may be another's by now
            fcntl.ioctl(self.listener, _IS_VALID, struct.pack("=Q", call))
        except OSError:
            os.close(handle)
            raise
        return handle

    def _do(self, call: int, process: int, handle: int, address: bytes) -> None:
        socket = os.fstat(handle).st_ino
        try:
            if (known := self._unheard.pop(socket, None)) is not None:
                problem = known
            else:
                problem = self._connect(process, handle, address)
        except Exception as error:  # noqa: BLE001 - nothing that a command makes ends its guard
            problem = getattr(error, "errno", None) or errno.EACCES
        finally:
            os.close(handle)
        if not self._respond(call, problem):
            if len(self._unheard) >= _MOST_UNHEARD:
                self._unheard.clear()
            self._unheard[socket] = problem

    def _respond(self, call: int, problem: int, flags: int = 0) -> bool:
        """Whether it was heard: a signal ends the call, which the command may make again."""
        try:
            fcntl.ioctl(self.listener, _SEND, _RESPONSE.pack(call, 0, -problem, flags))
        except OSError:
            return False
        return True

    def _connect(self, process: int, handle: int, address: bytes) -> int:
        family = _family(address)
        if family == _NETLINK and any(address[4:12]):  # to others than the kernel: our right alone
            return errno.EPERM
        if family != _UNIX:
            return _connected(handle, address)
        if not (path := _path(address)):
            is_known = self._knows(_abstract_name(handle, address, listens=False))
            return _connected(handle, address) if is_known else errno.EACCES
        found = _open_of(process, path)
        try:
            is_known = self._knows(_inode_name(found))
            return _connected(handle, _address_of(found)) if is_known else errno.EACCES
        finally:
            os.close(found)

    def _listens(self, call: int, thread: int, arguments: list[int]) -> None:
        """Remember the socket, which is about to listen."""
        process = _process_of(thread)
        handle = self._socket_of(call, process, arguments)
        try:
            address = _name_of(handle)
            if _family(address) != _UNIX or len(address) == 2:  # noqa: PLR2004 - the family alone
                return
            if not (path := _path(address)):
                self._note(_abstract_name(handle, address, listens=True), -1)
                return
            found = _open_of(process, path)
            if not self._may_have_made(found) or _answers(found, handle):  # another program's
                os.close(found)
            else:
                self._note(_inode_name(found), found)
        finally:
            os.close(handle)

    def _may_have_made(self, found: int) -> bool:
        """Whether it lies where the command writes: what a link leads to else is left in peace."""
        if os.fstatvfs(found).f_flag & os.ST_RDONLY:
            return False
        path = os.readlink(f"/proc/self/fd/{found}")  # noqa: PTH115 - pathlib is slow to load
        places = tuple(f"{place.rstrip('/')}/" for place in self._writable or ("/",))
        return path.startswith(places)

    def _note(self, name: str, handle: int) -> None:
        for known, (held, _) in list(self._held.items()):
            if known == name or (held >= 0 and not os.fstat(held).st_nlink):
                self._forget(known)
        path = os.path.join(self._registry, name)  # noqa: PTH118 - pathlib is slow to load
        entry = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._held[name] = handle, entry
        fcntl.fcntl(entry, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))

    def _forget(self, name: str) -> None:
        try:
            os.unlink(os.path.join(self._registry, name))  # noqa: PTH108, PTH118 - likewise
        except OSError:
            pass
        handle, entry = self._held.pop(name)
        os.close(entry)
        if handle >= 0:
            os.close(handle)

    def _knows(self, name: str) -> bool:
        """Whether a guard holds that name; the kernel takes it from one that was killed."""
        try:
            entry = os.open(os.path.join(self._registry, name), os.O_RDWR | os.O_CLOEXEC)  # noqa: PTH118 - likewise
        except OSError:
            return False
        try:
            asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_ = _LOCK.unpack(fcntl.fcntl(entry, fcntl.F_OFD_GETLK, asked))
            return bool(kind != fcntl.F_UNLCK)
        finally:
            os.close(entry)


def _process_of(thread: int) -> int:
    with open(f"/proc/{thread}/status", "rb") as file:  # noqa: PTH123 - pathlib is slow to load
        for line in file:
            if line.startswith(b"Tgid:"):
                return int(line.split()[1])
    raise OSError(errno.ESRCH, "process")


def _open_of(process: int, path: bytes) -> int:
    """What ``path`` means to that process, whatever its root and its mounts."""
    if not path.startswith(b"/"):
        path = os.path.join(os.readlink(b"/proc/%d/cwd" % process), path)  # noqa: PTH115, PTH118 - likewise
    root = os.open(f"/proc/{process}/root", os.O_PATH | os.O_CLOEXEC)
    try:
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT)
        libc = ctypes.CDLL(None, use_errno=True)
        found = libc.syscall(_OPENAT2, root, path, how, ctypes.c_size_t(len(how)))
        if found < 0:
            raise _failure()
        return int(found)
    finally:
        os.close(root)


def _connected(handle: int, address: bytes) -> int:
    """The error's number, 0 for none."""
    connect = ctypes.CDLL(None, use_errno=True).connect
    return ctypes.get_errno() if connect(handle, address, len(address)) else 0


def _answers(socket: int, like: int) -> bool:
    """Whether a program listens there already; what has just been bound refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    kind, size = ctypes.c_int(), ctypes.c_uint32(4)
    if libc.getsockopt(like, _SOL_SOCKET, _SO_TYPE, ctypes.byref(kind), ctypes.byref(size)):
        raise _failure()
    probe = libc.socket(_UNIX, kind.value | os.O_NONBLOCK | os.O_CLOEXEC, 0)
    if probe < 0:
        raise _failure()
    try:
        return _connected(probe, _address_of(socket)) != errno.ECONNREFUSED
    finally:
        os.close(probe)


def _family(address: bytes) -> int:
    return int(struct.unpack_from("=H", address)[0])


def _path(address: bytes) -> bytes:
    """Where the socket lies; empty for an abstract one."""
    return address[2:].partition(b"\0")[0]


def _address_of(handle: int) -> bytes:
    return struct.pack("=H", _UNIX) + f"/proc/self/fd/{handle}".encode() + b"\0"


def _name_of(handle: int) -> bytes:
    """The address that a socket is bound to."""
    room = ctypes.create_string_buffer(_MOST_ADDRESS_BYTES)
    size = ctypes.c_uint32(len(room))
    if ctypes.CDLL(None, use_errno=True).getsockname(handle, room, ctypes.byref(size)):
        raise _failure()
    return room.raw[: size.value]


def _abstract_name(handle: int, address: bytes, *, listens: bool) -> str:
    """The name and the network it is a name of (Linux 5.14); raises ``OSError``.

    The same name in another network, such as the machine's, is another program's socket. In the
    machine's another program may also take it once it is free: there the listener counts, too.
    """
    network = _network_of(handle)
    name = f"abstract-{network:x}-{address[3:].hex()}"
    own = ctypes.CDLL(None, use_errno=True).socket(_UNIX, _STREAM | os.O_CLOEXEC, 0)
    if own < 0:
        raise _failure()
    try:
        is_machine = network == _network_of(own)
    finally:
        os.close(own)
    if not is_machine:
        return name
    return f"{name}-{os.fstat(handle).st_ino if listens else _listener_at(address)}"


def _network_of(handle: int) -> int:
    network, size = ctypes.c_uint64(), ctypes.c_uint32(8)
    libc = ctypes.CDLL(None, use_errno=True)
    at = ctypes.byref(network)
    if libc.getsockopt(handle, _SOL_SOCKET, _SO_NETNS_COOKIE, at, ctypes.byref(size)):
        raise _failure()
    return network.value


def _listener_at(address: bytes) -> int:
    """The socket that listens at an abstract address of the machine; 0 if it is not certain."""
    name, found = address[2:].replace(b"\0", b"@"), set[int]()
    with open("/proc/self/net/unix", "rb") as file:  # noqa: PTH123 - pathlib is slow to load
        for line in file:
            fields = line.rstrip(b"\n").split(None, 7)
            if fields[7:] == [name] and fields[3] == _LISTENS:  # a name may look like a line
                found.add(int(fields[6]) if fields[6].isdigit() else 0)
    return found.pop() if len(found) == 1 else 0


def _inode_name(handle: int) -> str:
    found = os.fstat(handle)
    return f"inode-{found.st_dev}-{found.st_ino}"
