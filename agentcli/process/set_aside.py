"""Renaming what a command has made and others would execute (SEC-17).

Law: nothing is deleted, nothing is overwritten, no link is followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain, groupby
from pathlib import Path

from agentcli.domain.files import directory_of, open_regular

SUFFIX = ".set-aside"
SET_ASIDE = re.compile(rf"{re.escape(SUFFIX)}[0-9a-f]*\Z")
_MOST_NAME = 200  # bytes of a name that is kept when it is changed
_MOST_BYTES = 256 * 1024  # of one file, to be put back


class Kind(Enum):
    """Why a file counts."""

    CONFIG = "git configuration"
    HOOK = "a hook"
    LINK = "a link to a repository"
    INDEX = "what git restores files from"
    WRITTEN = "a link in the place of what git writes"
    COMMON = "a link to a repository's common directory"
    TREE = "the place of a working tree"
    ATTRIBUTES = "git attributes"
    SCRIPT = "run by other programs"
    NAMED = "run by what was there before it"
    TODO = "the steps of a rebase"
    STRATEGY = "how commits are merged"
    RESUMED = "what the next commit goes on with"
    REMOTE = "the address of a remote"
    SHUT = "a directory that cannot be looked into"


@dataclass(frozen=True, slots=True)
class Held:
    """What a path holds. ``data``: all of it, or what tells it from others (``is_whole``).

    ``has_other_name``: what is written elsewhere may be written there (link(2)).
    """

    type: int
    mode: int
    data: bytes
    is_whole: bool = True
    has_other_name: bool = False

    @property
    def is_read(self) -> bool:
        """Whether ``data`` is what a program reads there: of a link it is where that leads."""
        return stat.S_ISREG(self.type) and self.is_whole


@dataclass(frozen=True, slots=True)
class Watched:
    """``top``: the directory that it came in with, which goes as a whole if it is new."""

    kind: Kind
    content: Held
    top: str


class Pinned:
    """What lies at a path: its inode is no other's as long as this lives.

    A mount goes when another file is renamed to its place from outside of its namespace, so what
    was made read-only is so no more once something else lies there (rename(2), mount_namespaces(7):
    "detached"). Raises ``OSError``.
    """

    def __init__(self, path: str) -> None:
        self._handle = -1
        self._handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._status = os.fstat(self._handle)

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def is_at(self, path: str) -> bool:
        """Whether it still lies there."""
        try:
            return os.path.samestat(self._status, os.lstat(path))
        except OSError:
            return False


def pinned(places: Iterable[Path], files: Iterable[str]) -> dict[str, Pinned]:
    """Those of ``places`` that are there, and hold none of ``files`` that has another name."""
    linked, found = [], {}
    for file in files:  # it could be written under another name; see link(2)
        with contextlib.suppress(OSError):
            linked += [Path(file)] if os.lstat(file).st_nlink > 1 else []
    for place in places:
        if not any(path.is_relative_to(place) for path in linked):
            with contextlib.suppress(OSError):
                found[str(place)] = Pinned(str(place))
    return found


MINIMAL = Held(
    stat.S_IFREG,
    0o644,
    b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
)


def held_at(path: str, *, whole: bool = True) -> Held | None:
    """What ``path`` holds, no link followed; ``None`` where nothing is to be seen.

    Of a file no more than what tells it from others unless it may be ``whole``, and is small.
    """
    # never from memory: what is written through a mapping leaves all times as they are (mmap(2))
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    kind = stat.S_IFMT(status.st_mode)
    mode = stat.S_IMODE(status.st_mode)
    data = b""
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISLNK(status.st_mode):
            return Held(kind, 0, os.fsencode(os.readlink(path)))  # noqa: PTH115 - a text
        if not stat.S_ISREG(status.st_mode):
            return Held(kind, mode, b"", is_whole=False)
        with open_regular(path, os.O_NOFOLLOW) as file:
            data = file.read(_MOST_BYTES + 1)
        if whole and len(data) <= _MOST_BYTES:
            return Held(kind, mode, data, has_other_name=status.st_nlink > 1)
    told = (len(data), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    digest = hashlib.sha256(repr(told).encode() + data).digest()
    return Held(kind, mode, digest, is_whole=False)


def is_later(path: str, until: float) -> bool:
    """Whether what lies there was changed after ``until``, in seconds as ``time.time``."""
    with contextlib.suppress(OSError):
        return os.lstat(path).st_ctime > until
    return False


def set_aside(path: Path, before: Held | None = None) -> str:
    """Rename ``path`` to a name under which nothing looks for it, and put back what was there.

    The line for the user and the model; empty when there is nothing, or not where it seems.
    """
    return next(set_aside_each([(str(path), before)]), "")


def set_aside_each(
    changed: Iterable[tuple[str, Held | None]], tops: Collection[str] = ()
) -> Iterator[str]:
    """``set_aside`` for each; those that follow one another in a directory go together.

    What has such a name already goes up, to the one of ``tops`` that it is in; there it is hidden.
    """
    for directory, beside in groupby(changed, lambda one: os.path.dirname(one[0])):  # noqa: PTH120 - a text
        with contextlib.suppress(OSError), directory_of(Path(directory, "any")) as parent:
            yield from filter(None, (_set_aside_in(parent, *one, tops) for one in beside))


def put_back(path: Path, before: Held) -> str:
    """Make what was removed again, and its directory; the line as above, empty if that fails."""
    with contextlib.suppress(OSError), directory_of(path.parent) as above:
        os.mkdir(path.parent.name, dir_fd=above)
    is_back = False
    with contextlib.suppress(OSError), directory_of(path) as parent:
        is_back = _put_back(parent, path.name, before)
    if not is_back:
        return ""
    return (
        f"[sandbox: {_shown(str(path))} is protected and was put back; "
        'to remove it, run the command again with access "outside"]'
    )


def _set_aside_in(parent: int, path: str, before: Held | None, tops: Collection[str]) -> str:
    shown = _shown(path)
    name = os.path.basename(path)  # noqa: PTH119 - a text
    if SET_ASIDE.search(name) and (top := next((x for x in tops if path.startswith(f"{x}/")), "")):
        return _move_up(parent, name, shown, top)
    kept = os.fsencode(name)[:_MOST_NAME].decode(errors="ignore")
    target = _free_name(parent, f"{kept}{SUFFIX}")
    try:
        try:
            os.rename(name, target, src_dir_fd=parent, dst_dir_fd=parent)
        except PermissionError:
            mode = stat.S_IMODE(os.fstat(parent).st_mode) | stat.S_IRWXU
            os.chmod(f"/proc/self/fd/{parent}", mode)  # noqa: PTH101 - a text
            os.rename(name, target, src_dir_fd=parent, dst_dir_fd=parent)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"[sandbox: {shown} must not be made here: {error.strerror}]"
    _disarm(parent, target)
    is_back = before is not None and _put_back(parent, name, before)
    again = " and what was there put back" if is_back and before is not MINIMAL else ""
    return (
        f"[sandbox: {shown} would take effect outside and was renamed to {_shown(target)}{again}; "
        'to make it, run the command again with access "outside"]'
    )


def _move_up(parent: int, name: str, shown: str, top: str) -> str:
    """A hook that runs all that is in a directory would start it there under any name.

    What is there already gets one that no pattern of a shell stands for ("check*").
    """
    try:
        with directory_of(Path(top, "any")) as above:
            is_there = os.path.samestat(os.fstat(above), os.fstat(parent))
            target = _free_name(above, f".{name}" if is_there else name)
            os.rename(name, target, src_dir_fd=parent, dst_dir_fd=above)
            _disarm(above, target)
    except OSError as error:
        return f"[sandbox: {shown} must not be made here: {error.strerror}]"
    place = f"{_shown(target)} in {_shown(top)}"
    return f"[sandbox: {shown} would be run there all the same and is {place} now]"


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _disarm(parent: int, name: str) -> None:
    """Let a directory be listed, so that it hides nothing where it is now; a file runs no more.

    A hook that runs all that is in a directory would start it under any name.
    """
    with contextlib.suppress(OSError):
        flags = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, dir_fd=parent)
        try:
            mode = os.fstat(handle).st_mode
            wanted = mode | stat.S_IRWXU if stat.S_ISDIR(mode) else mode & ~0o111
            if wanted != mode and (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(wanted))  # noqa: PTH101 - a text
        finally:
            os.close(handle)


def open_again(path: str) -> str:
    """Let the owner look into a directory; the line as above, empty where that changes nothing."""
    with contextlib.suppress(OSError), directory_of(Path(path)) as parent:
        name = os.path.basename(path)  # noqa: PTH119 - a text
        before = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        _disarm(parent, name)
        now = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISDIR(now) and now != before:
            return (
                f"[sandbox: {_shown(path)} could not be looked into and was opened again; "
                'to shut it, run the command again with access "outside"]'
            )
    return ""


def _free_name(parent: int, name: str) -> str:
    """``name`` or another like it that is not taken, however many are."""
    for end in chain(("", "1", "2", "3", "4"), (secrets.token_hex(8) for _ in range(3))):
        try:
            os.stat(f"{name}{end}", dir_fd=parent, follow_symlinks=False)
        except OSError:
            return f"{name}{end}"
    return f"{name}{secrets.token_hex(16)}"


def _put_back(parent: int, name: str, before: Held) -> bool:
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(before.type):
            os.symlink(os.fsdecode(before.data), name, dir_fd=parent)
            return True
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, before.mode, dir_fd=parent)
        made = os.fstat(handle)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, before.mode)
                file.write(before.data)
        except OSError:  # a full disk: the half of it would be taken for the whole
            if os.path.samestat(made, os.stat(name, dir_fd=parent, follow_symlinks=False)):
                os.unlink(name, dir_fd=parent)
            raise
        return True
    return False
