"""What was known before commands ran, on disk until what they have made is put right (SEC-17).

An app that is killed while something runs inside compares nothing any more, and what that has made
would be taken for the user's own by the next one. So each sandbox has a file with what its watch
knows, locked while the app lives, whose first byte says whether anything may write and whose time
is set again and again while something may. Laws: of a file that nobody holds what changed until
shortly after its time is put right, as after a command; what is newer is the user's. Nothing fails
where no such file can be written.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.domain.files import make_private_directory, open_regular
from agentcli.process.directories import Listing, Survey, lies_below
from agentcli.process.git_config import shared_by
from agentcli.process.set_aside import Held, Kind, Watched, is_later, set_aside

if TYPE_CHECKING:
    from agentcli.process.sandbox_watch import TreeWatch

_UNSETTLED, _SETTLED = b"u", b"s"
_SLACK_S = 20.0  # between the last sign of life and the end of what ran
_END = ".json"
_ENDED = "[sandbox: agent was ended here while a command could still write; what that has left:]"


@dataclass(frozen=True, slots=True)
class _Left:
    """What an app that is gone knew. ``until`` is when the last of its commands may have ended.

    ``shared`` are git directories outside of ``roots`` that working trees there have.
    """

    roots: tuple[Path, ...]
    shared: tuple[str, ...]
    unborn: tuple[Path, ...]
    known: Survey
    named: dict[str, Kind]
    until: float


class Record:
    """The file of one sandbox in ``directory``, which works in ``roots``; all of it blocks."""

    def __init__(self, directory: Path, roots: Sequence[Path]) -> None:
        self._directory = directory
        self._roots = roots
        self._path = directory / f"{os.getpid()}-{secrets.token_hex(8)}{_END}"
        self._handle = -1
        self._written: object = None
        with contextlib.suppress(OSError):  # before a command, from which it is hidden
            make_private_directory(directory)

    def put_right_what_was_left(self, make: Callable[[Sequence[Path]], TreeWatch]) -> list[str]:
        """By commands of apps that were killed; ``make`` gives a watch of what they worked in."""
        lines = []
        ours = [*map(str, self._roots)]
        ours += [shared_by(link) or link for root in self._roots if (link := _link_above(root))]
        for left in _left_in(self._directory, ours):
            watch = make(left.roots)
            watch.known = watch.users = left.known
            watch.named, watch.until = left.named, left.until
            watch.shared = {*left.shared}
            unborn = [path for path in left.unborn if not is_later(str(path), left.until)]
            lines += put_right(watch, unborn)
        return [_ENDED, *lines] if lines else []

    def keep(self, watch: TreeWatch, unborn: Sequence[Path]) -> None:
        """While something may write; ``unborn`` are places where nothing may come up."""
        known = watch.known
        told = (dict(_kept(known)), dict(known.git_directories), {*watch.shared}, unborn)
        with contextlib.suppress(OSError):
            if told != self._written:
                self._write(watch, unborn)
                self._written = told
        self._say(_UNSETTLED)

    def beat(self) -> None:
        """Something still may; also while the others are called."""
        with contextlib.suppress(OSError):
            os.utime(self._path)

    def settled(self) -> None:
        """Nothing may any more, and what was made is put right."""
        self._say(_SETTLED)

    def _say(self, state: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._handle >= 0:
                os.pwrite(self._handle, state, 0)

    def _write(self, watch: TreeWatch, unborn: Sequence[Path]) -> None:
        head = {
            "roots": [*map(str, self._roots)],
            "unborn": [*map(str, unborn)],
            "shared": sorted(watch.shared),
        }
        items = (_told_of(path, item) for path, item in _kept(watch.known))
        lines = chain((head, _told(watch.known, watch.named)), items)
        new = self._path.with_suffix(".new")
        handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(handle, 0o600)  # whatever the umask
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with os.fdopen(os.dup(handle), "wb") as file:
                file.write(_UNSETTLED + b"\n")
                file.writelines(json.dumps(line).encode() + b"\n" for line in lines)
            new.replace(self._path)
        except OSError:
            os.close(handle)
            raise
        before, self._handle = self._handle, handle
        if before >= 0:
            os.close(before)

    def close(self) -> None:
        """Nothing runs any more; also called again."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._handle)
            self._handle = -1


def put_right(watch: TreeWatch, unborn: Iterable[Path], *, is_under_way: bool = False) -> list[str]:
    """Set aside what has come up at ``unborn`` or is told by ``watch``; a line about each."""
    lines = [line for path in unborn if (line := set_aside(path))]
    lines += watch.compare(is_under_way=is_under_way)
    # it may be run under its new name
    return lines + watch.compare(is_under_way=is_under_way) if lines else lines


def _link_above(root: Path) -> str:
    """The nearest ``.git``; empty where there is none."""
    links = (f"{place}/.git" for place in (root, *root.parents))
    return next(filter(os.path.lexists, links), "")


def _left_in(directory: Path, places: Sequence[str]) -> Iterator[_Left]:
    """What concerns ``places`` of what killed apps have left; each is removed once it was used."""
    with contextlib.suppress(OSError):
        for path in sorted(directory.iterdir()):
            with contextlib.suppress(OSError, ValueError), open_regular(path) as file:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # else it is in use
                if not os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                    continue  # it has just been written again
                if path.suffix == _END and (left := _read(file)):
                    if not _meet((*map(str, left.roots), *left.shared), places):
                        continue
                    yield left
                path.unlink()


def _meet(some: Sequence[str], others: Sequence[str]) -> bool:
    pairs = ((one, other) for one in some for other in others)
    return any(lies_below(one, other) or lies_below(other, one) for one, other in pairs)


def _read(file: BufferedReader) -> _Left | None:
    """``None`` where nothing is to be done: all is put right, or what it is about is gone."""
    wrong = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
    with contextlib.suppress(*wrong):
        state, said, told = file.readline().strip(), *map(json.loads, islice(file, 2))
        roots, unborn = (tuple(map(Path, said[name])) for name in ("roots", "unborn"))
        shared = tuple(map(str, said["shared"]))
        is_there = any(place.is_dir() for place in (*roots, *map(Path, shared)))
        if state == _UNSETTLED and is_there:
            until = os.fstat(file.fileno()).st_mtime + _SLACK_S
            known, named = _known(told, file)
            is_whole = len(known.items) == told["items"]
            return _Left(roots, shared, unborn, known, named, until) if is_whole else None
    return None


def _kept(known: Survey) -> Iterator[tuple[str, Watched]]:
    """What is compared with what was there; git's index, which each "git add" changes, is not."""
    return ((path, item) for path, item in known.items.items() if item.kind is not Kind.INDEX)


def _told(known: Survey, named: dict[str, Kind]) -> dict[str, Any]:
    directories = (
        [path, listing.is_empty, listing.directories if known.is_cut else ()]
        for path, listing in known.directories.items()
    )
    return {
        "items": sum(1 for _ in _kept(known)),
        "git": list(known.git_directories.items()),
        "trees": [[git, sorted(trees)] for git, trees in known.trees.items()],
        "repositories": [str(path) for path in known.repositories],
        "directories": list(directories),
        "crowded": sorted(known.crowded),
        "is_cut": known.is_cut,
        "named": [[place, kind.name] for place, kind in named.items()],
    }


def _told_of(path: str, item: Watched) -> list[Any]:
    held = item.content
    data = base64.b64encode(held.data).decode()
    content = [held.type, held.mode, data, held.is_whole, held.has_other_name]
    return [path, item.kind.name, item.top, content]


def _held(kind: int, mode: int, data: str, is_whole: bool, has_other_name: bool) -> Held:  # noqa: FBT001 - as they were written
    return Held(kind, mode, base64.b64decode(data), is_whole, has_other_name)


def _known(told: dict[str, Any], items: Iterable[bytes]) -> tuple[Survey, dict[str, Kind]]:
    nothing = Listing((), (), (), is_repository=False)
    known = Survey(
        items={
            path: Watched(Kind[kind], _held(*content), top)
            for path, kind, top, content in map(json.loads, items)
        },
        repositories=[*map(Path, told["repositories"])],
        git_directories={git: (device, inode) for git, (device, inode) in told["git"]},
        trees={git: set(trees) for git, trees in told["trees"]},
        directories={
            path: replace(nothing, is_empty=is_empty, directories=tuple(inner))
            for path, is_empty, inner in told["directories"]
        },
        is_cut=told["is_cut"],
        crowded=set(told["crowded"]),
    )
    return known, {place: Kind[kind] for place, kind in told["named"]}
