r"""Limits itself with Landlock, then becomes the command; run by path, not imported by the app.

``python _sandbox_landlock.py RULES PROGRAM ARGUMENT...``: ``RULES`` is a JSON object
``{writable, readable, hidden, shut, network, read_only}``. Law: a rule can only be added to, so a
process that has come this far never gets more than it has; what cannot be limited on this kernel is
told by ``shortcomings``, never kept quiet. Numbers are those of the kernel's ``linux/landlock.h``
(https://docs.kernel.org/userspace-api/landlock.html); only the standard library is available.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_SET_NO_NEW_PRIVS, _DROP_BOUNDING = 38, 24
_CAPABILITY_VERSION_3 = 0x20080522
_KEPT_CAPABILITIES = 1 << 1  # CAP_DAC_OVERRIDE: root writes where Landlock lets it

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_ACCESSES = (1 << 13) - 1
_FILE_ACCESSES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1 << 0, 1 << 1
_OPENAT2, _AT_FDCWD, _NO_LINKS = 437, -100, 0x04 | 0x02  # nor those of /proc
_FIRST_FREE = 100
_loaded: list[ctypes.CDLL] = []

ABI_REFER, ABI_TRUNCATE, ABI_NETWORK, ABI_IOCTL, ABI_SCOPE = 2, 3, 4, 5, 6
_DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
)  # fmt: skip


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi_version() -> int:
    """Which Landlock this kernel has; 0 for none."""
    if sys.platform != "linux":
        return 0
    try:
        found = int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))
    except (OSError, AttributeError):
        return 0
    return max(0, found)


def shortcomings(abi: int, *, filtered: bool) -> str:
    """What Landlock of that version cannot keep a command from, in words.

    ``filtered``: system calls are, too, which closes network and sockets.
    """
    missing = ["git's hooks and configuration in the workspace can be changed"]
    if filtered:
        missing.append("without the network no command reaches a server that another has started")
    else:
        missing.append("only TCP is kept from the network")
        if abi < ABI_NETWORK:
            missing[-1] = "the network is open"
        missing.append("sockets of other programs can be reached")
    missing.append("a search cannot read what it makes itself beside a credential of the workspace")
    missing.append("file permissions can be changed anywhere")
    missing.append("names, sizes, times and attributes of hidden files can be found out")
    missing.append("command lines of other programs can be read, their shared memory reached")
    missing.append("the priority of other processes can be changed")
    if abi < ABI_SCOPE:
        missing.append("other processes can be sent signals")
    if abi < ABI_REFER:
        missing.append("files cannot be moved between directories")
    missing.append("no command can list / or open a terminal")
    return "Landlock does less than bubblewrap: " + ", ".join(missing)


def handled_accesses(abi: int) -> int:
    """The accesses to files that a kernel with this version knows."""
    known = _FIRST_ACCESSES
    for since, access in ((ABI_REFER, _REFER), (ABI_TRUNCATE, _TRUNCATE), (ABI_IOCTL, _IOCTL_DEV)):
        known |= access if abi >= since else 0
    return known


def restrict(rules: dict[str, object]) -> None:
    """Limit this process and all that come of it; raises ``OSError``."""
    abi = abi_version()
    if not abi:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    handled = handled_accesses(abi)
    no_tcp = abi >= ABI_NETWORK and not rules.get("network")
    scoped = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if abi >= ABI_SCOPE else 0
    attributes = _Ruleset(handled, _BIND_TCP | _CONNECT_TCP if no_tcp else 0, scoped)
    # a kernel refuses what it does not know, even when it is zero beyond the end it knows
    size = 24 if abi >= ABI_SCOPE else 16 if abi >= ABI_NETWORK else 8
    ruleset = _checked(
        _libc().syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0)
    )
    _add_places(ruleset, handled, rules)
    zero = ctypes.c_ulong(0)
    _drop_capabilities()
    _checked(_libc().prctl(_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero))
    _checked(_libc().syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _add_places(ruleset: int, handled: int, rules: dict[str, object]) -> None:
    shut = set(_texts(rules.get("shut")))  # in what is allowed: it is seen, and cannot be read
    hidden = {*_texts(rules.get("hidden")), *shut}
    for top in ("/", *_texts(rules.get("readable"))):
        for path in readable(top, hidden - {top}):
            _allow(ruleset, path, (EXECUTE | READ_FILE | READ_DIR) & handled)
        if top != "/" and _holds(top, shut):
            _allow(ruleset, top, READ_DIR & handled)
    for path in _texts(rules.get("listed")):
        _allow(ruleset, path, READ_DIR & handled)
    device = READ_FILE | WRITE_FILE | READ_DIR | _TRUNCATE | _IOCTL_DEV
    for path in _DEVICES:
        _allow(ruleset, path, device & handled)
    if not rules.get("read_only"):
        _allow(ruleset, "/dev/shm", handled & ~EXECUTE)  # noqa: S108 - not a name of ours
    for path in _texts(rules.get("writable")):
        _allow(ruleset, path, handled & ~READ_FILE if _holds(path, shut) else handled)


def readable(top: str, hidden: set[str]) -> list[str]:
    """What is to be allowed so that all below ``top`` but ``hidden`` can be read.

    Landlock cannot take away below what it has given: on the way to what is hidden each neighbour
    is named by itself.
    """
    if top in hidden:
        return []
    prefix = top.rstrip("/") + "/"
    if not _holds(top, hidden):
        return [top]
    try:
        names = sorted(os.listdir(top))  # noqa: PTH208 - pathlib is slow to load
    except OSError:
        return []
    return [path for name in names for path in readable(prefix + name, hidden)]


def _holds(top: str, paths: set[str]) -> bool:
    prefix = top.rstrip("/") + "/"
    return any(path.startswith(prefix) for path in paths)


def _allow(ruleset: int, path: str, access: int) -> None:
    """What is not there, or is a link, needs no rule: what it leads to has its own."""
    try:
        handle = open_real(path)
    except OSError:
        return
    try:
        is_directory = stat.S_ISDIR(os.fstat(handle).st_mode)
        rule = _PathBeneath(access if is_directory else access & _FILE_ACCESSES, handle)
        _checked(
            _libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint(0))
        )
    finally:
        os.close(handle)


def open_real(path: str) -> int:
    """An ``O_PATH`` file, above the numbers that commands are given; raises ``OSError``.

    ``path`` is a real one: what has become a link meanwhile is not followed, on the way neither
    (openat2(2); before Linux 5.6 only the last part is looked at).
    """
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    how = struct.pack("=QQQ", flags, 0, _NO_LINKS)
    text = os.fsencode(path)
    found = _libc().syscall(_OPENAT2, _AT_FDCWD, text, how, ctypes.c_size_t(len(how)))
    if found < 0:
        number = ctypes.get_errno()
        if number not in {errno.ENOSYS, errno.EPERM}:
            raise OSError(number, os.strerror(number))
        found = os.open(path, flags)
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    moved = fcntl.fcntl(found, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    os.close(found)
    return moved


def _drop_capabilities() -> None:
    """Of root's powers only the one that Landlock bounds is left, also after ``exec``."""
    libc, zero = _libc(), ctypes.c_ulong(0)
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    _checked(libc.capget(ctypes.byref(header), sets))
    for number in range(64):
        if not _KEPT_CAPABILITIES >> number & 1:
            libc.prctl(_DROP_BOUNDING, ctypes.c_ulong(number), zero, zero, zero)
    kept = sets[1] & _KEPT_CAPABILITIES
    wanted = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    _checked(libc.capset(ctypes.byref(header), wanted))


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _libc() -> ctypes.CDLL:
    if not _loaded:  # loading it for each rule would take most of that time
        _loaded.append(ctypes.CDLL(None, use_errno=True))
    return _loaded[0]


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def main(argv: list[str]) -> int:
    """Limit this process, then become the command."""
    import json

    try:
        restrict(json.loads(argv[0]))
    except OSError as error:
        os.write(2, f"landlock: {error.strerror}\n".encode())
        return 126
    try:
        os.execv(argv[1], argv[1:])  # noqa: S606 - what the app has asked for
    except OSError as error:
        os.write(2, f"landlock: {argv[1]}: {error.strerror}\n".encode())
    return 127


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
