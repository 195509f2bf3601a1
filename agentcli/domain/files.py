"""Files that anyone may have put there.

Laws: nothing is waited for, such as a pipe or a device; only a regular file is read, or a pipe that
the user has named and somebody writes to (SEC-13). What
takes a *resolved* path opens its directories one by one, none of them a link, so that one that has
become a link since it was judged is an ``OSError`` (``ELOOP``), never followed (SEC-5).
"""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader

_MOST_LINKS = 40  # of one path
_WRITER_S = 5.0
_ALL = 1 << 31
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)  # Linux; elsewhere the directory must be readable
_PASS = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NoRegularFile(OSError):
    """What has the name is something else."""


def open_regular(path: str | Path, flags: int = 0) -> BufferedReader:
    """The file, open to be read; ``flags`` are more of ``os.open``'s, such as ``O_NOFOLLOW``.

    Raises ``OSError``, of it ``NoRegularFile``; ``ValueError`` for what is no path.
    """
    return _regular(os.open(path, _READ | flags), path)


def open_resolved(path: Path) -> BufferedReader:
    """The file at the resolved ``path``, open to be read, so that it is the one that was judged.

    Raises ``OSError``, of it ``NoRegularFile``; ``ValueError`` for what is no path.
    """
    with directory_of(path) as directory:
        return _regular(open_at(path.name or path.anchor, directory), path)


def _regular(handle: int, path: str | Path) -> BufferedReader:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NoRegularFile(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb")


def open_named(path: Path) -> BufferedReader:
    """What the user has named, a file or a pipe (``<(command)`` in the shell), open to be read.

    A named pipe that nobody writes to for a while is given up. Raises ``OSError``, of it
    ``NoRegularFile``.
    """
    handle = os.open(path, _READ)
    try:
        _insist_on_content(handle, path)
        os.set_blocking(handle, True)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _insist_on_content(handle: int, path: Path) -> None:
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return
    if not stat.S_ISFIFO(mode):
        raise NoRegularFile(errno.EINVAL, "it is neither a file nor a pipe", str(path))
    if not os.path.exists(os.path.realpath(path)):  # noqa: PTH110 - the shell's pipe has no name
        return
    news = select.poll()
    news.register(handle, select.POLLIN)
    if news.poll(_WRITER_S * 1000):
        return
    with suppress(OSError):  # whether it has ended is known once a writer has come and gone
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
        if not any(event & select.POLLHUP for _, event in news.poll(0)):
            return  # somebody takes longer
    raise NoRegularFile(errno.EPIPE, "nobody writes to that pipe", str(path))


def refuse_links(path: Path) -> Path:
    """Where a file that is to be written lies, resolved but for a link of its own.

    Raises ``OSError`` where a link leads it elsewhere (SEC-5): it is one itself, or one in the
    working directory is on its way: what worked there may have made it. Those of the system
    (``/dev/stdout``) are followed.
    """
    named = Path(os.path.normpath(path.absolute()))
    place = Path(real_text(str(named.parent))) / named.name
    is_link = named.is_symlink()
    with suppress(FileNotFoundError):  # there may be no working directory any more
        is_link |= named.is_relative_to(Path.cwd()) and place != named
    if is_link and named.parts[1:2] not in {("dev",), ("proc",)}:
        raise OSError(errno.ELOOP, "a link leads elsewhere", str(path))
    return place


def real_text(path: str) -> str:
    """``path`` with links followed, as text, as far as that goes.

    The links that a process has in ``/proc`` may be read by its own user only, and of others, which
    anybody may have made, no kernel follows more than ``_MOST_LINKS`` (path_resolution(7)).
    """
    if "\0" in path:
        raise ValueError("embedded null byte")
    whole = path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109 - a text
    parts, left, plain = list[str](), whole.split("/")[::-1], set[str]()
    links, seen = 0, _ALL  # so many parts: what lies deeper is not there, or not to be seen
    while left:
        name = left.pop()
        if name == "..":
            del parts[-1:]
            seen = seen if len(parts) >= seen else _ALL
        if name in {"", ".", ".."}:
            continue
        parts.append(name)
        if len(parts) > seen or (step := "/" + "/".join(parts)) in plain:
            continue
        try:
            target = os.readlink(step) if links < _MOST_LINKS else ""  # noqa: PTH115 - a text
        except OSError as error:
            target = ""
            if error.errno == errno.EINVAL:  # it is no link
                plain.add(step)
                continue
        if not target:
            seen = len(parts)
            continue
        links += 1
        parts = [] if target.startswith("/") else parts[:-1]
        left += target.split("/")[::-1]
    return "/" + "/".join(parts)


def read_start(path: str | Path, most_bytes: int = 256 * 1024, flags: int = 0) -> bytes:
    """The first bytes of a file; empty where there is none that can be read."""
    try:
        with open_regular(path, flags) as file:
            return file.read(most_bytes)
    except (OSError, ValueError):
        return b""


def small_file(path: str | Path, most_bytes: int = 16 * 1024, flags: int = 0) -> bytes:
    """All that a small file holds; empty where it is too large, or cannot be read."""
    data = read_start(path, most_bytes + 1, flags)
    return data if len(data) <= most_bytes else b""


@contextmanager
def directory_of(path: Path, made: list[Path] | None = None) -> Iterator[int]:
    """A descriptor of ``path``'s directory. ``path`` is resolved; raises ``OSError``.

    With ``made``, missing directories are created and added to it.
    """
    descriptor = os.open(path.anchor, _PASS)
    try:
        here = Path(path.anchor)
        for name in path.parent.parts[1:]:
            here /= name
            descriptor = _exchange(descriptor, _enter(name, descriptor, here, made))
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def below(directory: int, names: Sequence[str]) -> Iterator[int]:
    """A descriptor of the directory that ``names`` lead to from an open one."""
    descriptor = os.dup(directory)
    try:
        for name in names:
            descriptor = _exchange(descriptor, _enter(name, descriptor, Path(name), None))
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """A descriptor of the directory at the resolved ``path``, to be listed; raises ``OSError``."""
    with directory_of(path) as directory:
        # the root has no name of its own
        descriptor = os.open(path.name or path.anchor, _LIST, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_at(name: str, directory: int) -> int:
    """A descriptor of the entry, for reading; it never waits and is no link."""
    return os.open(name, _READ | os.O_NOFOLLOW, dir_fd=directory)


def lstat_at(name: str, directory: int) -> os.stat_result:
    """What an entry of an open directory is."""
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def lstat_of(path: Path) -> os.stat_result:
    """What stands at the resolved ``path``; raises ``OSError``."""
    if not path.name:
        return path.lstat()
    with directory_of(path) as directory:
        return lstat_at(path.name, directory)


def readlink_of(path: Path) -> str:
    """Where the link at ``path`` leads; its directory is resolved; raises ``OSError``."""
    with directory_of(path) as directory:
        return os.readlink(path.name, dir_fd=directory)


def size_of(path: Path) -> int:
    """The bytes of the file at the resolved ``path``; 0 where there is none."""
    try:
        return lstat_of(path).st_size
    except (OSError, ValueError):
        return 0


def walk(
    top: str | Path, onerror: Callable[[OSError], object] = str, *, follow_links: bool = False
) -> Iterator[tuple[str, list[str], list[str]]]:
    """``os.walk``, which before Python 3.12 calls itself and so ends in deep directories (SEC-13).

    The caller may sort the names of directories, and take some away.
    """
    waiting = [os.fspath(top)]
    while waiting:
        place = waiting.pop()
        below, files = list[str](), list[str]()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    (below if _leads_to_directory(entry) else files).append(entry.name)
        except OSError as error:
            onerror(error)
            continue
        yield place, below, files
        paths = (f"{place.rstrip('/')}/{name}" for name in reversed(below))
        waiting += (path for path in paths if follow_links or not os.path.islink(path))  # noqa: PTH114 - texts


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def make_private_directory(path: Path) -> None:
    """Make ``path`` and its missing parents, each 0700 whatever the umask; raises ``OSError``."""
    for missing in (*reversed(path.parents), path):
        if not missing.is_dir():
            missing.mkdir(mode=0o700, exist_ok=True)
            missing.chmod(0o700)  # the umask may have taken more away


def is_directory(path: Path) -> bool:
    """Whether a directory stands at the resolved ``path``."""
    try:
        return stat.S_ISDIR(lstat_of(path).st_mode)
    except (OSError, ValueError):
        return False


def _exchange(old: int, new: int) -> int:
    os.close(old)
    return new


def _enter(name: str, directory: int, here: Path, made: list[Path] | None) -> int:
    try:
        return _pass(name, directory)
    except FileNotFoundError:
        if made is None:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
        made.append(here)
    return _pass(name, directory)


def _pass(name: str, directory: int) -> int:
    if name == "..":  # no resolved path has it
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    try:
        return os.open(name, _PASS, dir_fd=directory)
    except NotADirectoryError:
        if stat.S_ISLNK(lstat_at(name, directory).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


# --- whose files --------------------------------------------------------------------------


@lru_cache(maxsize=4)
def homes_of_users(home: str) -> tuple[str, ...]:
    """The home directories whose secrets and start-up files are known by name.

    ``home``, ``$HOME`` which may be set to any place, the account's own, and for root those below
    ``/home`` that are so by the account that they belong to.
    """
    named = [home, *_of_account(os.getuid())]
    for place in _below("/home") if not os.getuid() else ():
        with suppress(OSError):
            named += {place} & {*_of_account(os.stat(place).st_uid)}  # noqa: PTH116 - a text
    return tuple(dict.fromkeys(named))


def _below(directory: str) -> Sequence[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        return [entry.path for entry in entries if entry.is_dir()]
    return ()


@lru_cache
def _of_account(uid: int) -> tuple[str, ...]:
    import pwd

    with suppress(KeyError):
        return (pwd.getpwuid(uid).pw_dir,)
    return ()
