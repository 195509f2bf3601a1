"""What is in directories that others may have made: links in circles, crowds, what comes and goes.

Law: nothing that lies there is an error, but a directory that may not be looked into.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentcli.domain.files import real_text
from agentcli.domain.sandbox import (
    ENTERED,
    IN_DIRECTORIES,
    MANAGED,
    OBEYED,
    forms_in,
    has_form,
    is_obeyed,
    plain_name,
    says_versions,
)
from agentcli.domain.tools import real_path
from agentcli.process.set_aside import SET_ASIDE, Kind, Watched, held_at

_MOST_PARTS = 100  # of what a link says
_MOST_MODULES = 10_000  # directories that are looked into
_MOST_WORKPLACES = 20_000  # those that are looked at before an edit
_MOST_S = 1.0  # likewise
# a change within one tick of the file system's clock is not seen in the change time; some have
# whole seconds, of which FAT has every other one
_TICK_NS = 100_000_000
_SECOND_NS = 1_000_000_000
# what git and its extensions keep in their directory: nobody works there, unless by a link
_OF_GIT = frozenset({
    "objects", "refs", "logs", "hooks", "info", "worktrees", "modules", "branches", "lfs", "annex",
    "reftable", "rr-cache", "svn",
})  # fmt: skip
# and of that, what it writes to, or goes on with
_WRITTEN = frozenset(
    {"logs", "refs", "objects", "rebase-merge", "rebase-apply", "sequencer", "rr-cache"}
)
_MARKS = frozenset({".git", *IN_DIRECTORIES})
_LOOKED_FOR = _MARKS | MANAGED
_ALWAYS = _LOOKED_FOR | OBEYED  # looked at however many others there are
# others' packages: nobody opens one of them as a project, but what is a repository of its own
_PACKAGES = frozenset({"node_modules", "site-packages", ".venv", "venv", ".tox", "vendor"})
_HEAD, _LINKED_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}"), re.compile(rb"refs/")
_BARE = (frozenset({"HEAD", "objects", "refs"}), frozenset({"HEAD", "commondir"}))


MOST_FILES = 400  # of one tree
OF_NAMED_S = 1.0  # of the time for a look, for what configuration names
_MOST_ROOM_BYTES = 32 * 1024 * 1024  # of the names that are found, and what is known of them
_OF_NAME_BYTES = 300
SCRIPTS = frozenset({Kind.SCRIPT, Kind.NAMED})


def directories_in(directory: Path, tell: Callable[[str], object] = str) -> list[Path]:
    """Directories in ``directory``, also by links; a link that leads nowhere hides no other.

    ``tell`` is told of one that may not be looked into.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names
    except PermissionError:
        tell(str(directory))
        return []
    except OSError:
        return []
    return [place for name in names if is_directory(place := directory / name)]


def all_below(path: str) -> Iterator[tuple[str, bool]]:
    """``path`` and, if that is a directory, all in it, the nearest first; whether it is a file.

    What husky writes itself counts where git is told to use it, and then as a directory of its own.
    """
    waiting = deque([path])
    while waiting:
        place = waiting.popleft()
        is_file = os.path.islink(place) or not os.path.isdir(place)  # noqa: PTH112, PTH114 - texts
        yield place, is_file
        if is_file:
            continue
        try:
            names = sorted(os.listdir(place))  # noqa: PTH208 - texts
        except PermissionError:
            yield place, True  # what is in it may be run all the same, by its name
        except OSError:
            pass
        else:
            is_husky = place.endswith("/.husky")
            waiting += [f"{place}/{name}" for name in names if not (is_husky and name == "_")]


def ways_to(paths: Iterable[Path], roots: Sequence[str]) -> Iterator[str]:
    """What lies in ``roots`` of the links on the way to each absolute path, and of its end."""
    ways = (place for path in paths for place in _way_to(str(path)))
    return (place for place in ways if any(lies_below(place, root) for root in roots))


def _way_to(path: str) -> Iterator[str]:
    place, left, links = "/", path.split("/")[::-1], 0
    while left and links < _MOST_PARTS:
        name = left.pop()
        step = os.path.normpath(f"{place}/{name}")
        try:
            target = os.readlink(step)  # noqa: PTH115 - a text
        except OSError:
            place = step
            continue
        yield step
        links += 1
        place = "/" if target.startswith("/") else place
        left += target.split("/")[::-1]
    yield place


def is_directory(path: Path) -> bool:
    """Whether it is one, or a link to one; never raises."""
    return os.path.isdir(path)  # noqa: PTH112 - see above


def is_executable(path: str) -> bool:
    """Whether it is a file that somebody may run; of a link: no."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def git_directories_below(
    modules: Path, is_inside: Callable[[Path], bool], tell: Callable[[str], object] = str
) -> Iterator[Path]:
    """Git directories of submodules, whose names may hold slashes; real paths.

    ``modules`` is in a real directory. Links may lead in circles, and away from what is inside.
    ``tell`` is told of one that may not be looked into, and of nothing (``""``) if there are more.
    """
    waiting, seen, gits = deque([followed(modules)]), set[Path](), set[Path]()
    while waiting:
        if len(seen) >= _MOST_MODULES:
            tell("")
            return
        place = waiting.popleft()
        for child in directories_in(place, tell) if is_inside(place) else ():
            entry = followed(child)
            # those of another git directory are looked for by who is given that
            if not is_inside(entry) or (child.name == "modules" and place in gits):
                continue
            # a command may have removed some of it, but not what is read-only
            if any(os.path.lexists(entry / name) for name in ("HEAD", "config", "hooks")):
                gits.add(entry)
                yield entry
            if entry not in seen and not _is_taken_for_one(entry):
                seen.add(entry)
                waiting.append(entry)


def _is_taken_for_one(git: Path) -> bool:
    """Whether git itself takes it for a git directory, in which it uses no other.

    See ``is_git_directory`` and ``validate_submodule_git_dir`` in its sources.
    """
    head = held_at(str(git / "HEAD"))
    if head is None or os.path.lexists(git / "commondir"):
        return False
    is_head = _LINKED_HEAD if stat.S_ISLNK(head.type) else _HEAD
    parts = (git / "objects", git / "refs")
    return bool(is_head.match(head.data)) and all(os.access(part, os.X_OK) for part in parts)


def followed(path: Path) -> Path:
    """The real path of what is in a real directory."""
    return real_path(path) if os.path.islink(path) else path  # noqa: PTH114 - never raises


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in a directory, as far as it matters here; ``stamp`` tells when it has changed."""

    directories: tuple[str, ...]
    marks: tuple[str, ...]
    links: tuple[str, ...]
    """Those that lead to where nobody looks otherwise, also on their way to where they end."""
    is_repository: bool
    is_empty: bool = False
    is_whole: bool = True
    stamp: tuple[int, int, int] = (0, 0, 0)
    is_settled: bool = False


def listing_of(
    path: str,
    known: Listing | None,
    most: int,
    is_untrusted: Callable[[str], bool],
    give_up: float,
) -> Listing | None:
    """What is in a directory, as it was ``known`` until it changes; ``None``: it is no directory.

    Raises ``PermissionError``. Of a crowd: the first ``most``, those that are seen until
    ``give_up``, and names of ``_ALWAYS`` and ``forms_in``.
    """
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return None
        stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
        if known is not None and known.is_settled and known.stamp == stamp:
            return known
        tick = _TICK_NS if status.st_ctime_ns % _SECOND_NS else _TICK_NS + 2 * _SECOND_NS
        is_settled = time.time_ns() - status.st_ctime_ns > tick
        with os.scandir(path) as entries:
            found = _listed(path, entries, most, is_untrusted, give_up)
    except PermissionError:
        raise
    except OSError:
        return None
    return replace(found, stamp=stamp, is_settled=is_settled and time.monotonic() <= give_up)


def _listed(
    path: str,
    entries: Iterable[os.DirEntry[str]],
    most: int,
    is_untrusted: Callable[[str], bool],
    give_up: float,
) -> Listing:
    """In ``.git``: what is not git's own."""
    around = plain_name(os.path.basename(path))  # noqa: PTH119 - a text
    is_git = around == ".git"
    around = "" if SET_ASIDE.search(around) else around
    forms = forms_in(around)
    directories, first, marks, links, names = [], [], [], [], set()
    is_empty, kept = True, 0
    for entry in entries:
        is_empty = False
        name = entry.name
        lower = plain_name(name)
        if name in _ALWAYS or name in forms:
            first.append(name)
        elif name in {"HEAD", "objects", "refs", "commondir"}:
            names.add(name)
        elif kept >= most or time.monotonic() > give_up:
            kept = most
            continue
        elif _is_mark(around, lower, entry) and not SET_ASIDE.search(name):
            marks.append(name)
            kept += 1
        if lower != ".git" and entry.is_dir(follow_symlinks=False):
            directories += [] if is_git and name in _OF_GIT else [name]
            kept += 1
        elif entry.is_symlink():
            if any("/.git/" in way.lower() or is_untrusted(way) for way in _ways_of(entry.path)):
                links.append(entry.path)
            kept += 1
    is_repository = not is_git and any(names >= wanted for wanted in _BARE)
    return Listing(
        tuple(directories),
        (*first, *marks),
        tuple(links),
        is_repository,
        is_empty,
        is_whole=kept < most,
    )


def _is_mark(around: str, name: str, entry: os.DirEntry[str]) -> bool:
    """Whether others obey what is called ``name`` there, or may obey what it leads to."""
    if name in _LOOKED_FOR or is_obeyed(name) or has_form(around, name):
        return True
    return name.startswith(".") and entry.is_symlink()


def holds_form(name: str, path: str) -> bool:
    """Whether a directory called ``name``, at ``path``, holds what its kind obeys by its form.

    However many others it holds.
    """
    return any(os.path.lexists(f"{path}/{form}") for form in forms_in(name))


@dataclass(slots=True)
class Survey:
    """What was found, the nearest first. ``repositories``: each ``.git``, and bare ones."""

    items: dict[str, Watched] = field(default_factory=dict)
    repositories: list[Path] = field(default_factory=list)
    git_directories: dict[str, tuple[int, int]] = field(default_factory=dict)
    trees: dict[str, set[str]] = field(default_factory=dict)
    """By git directory: the working trees that use it, which is where its programs start."""
    directories: dict[str, Listing] = field(default_factory=dict)
    is_cut: bool = False
    crowded: set[str] = field(default_factory=set)
    room_bytes: int = 0
    room_of_directories: int = field(default_factory=lambda: _MOST_ROOM_BYTES)
    room_of_marks: int = field(default_factory=lambda: _MOST_ROOM_BYTES)
    give_up: float = 0.0

    def fitting(self, prefix: str, directories: Iterable[str]) -> Iterator[str]:
        """The paths of those for which there is room."""
        for name in directories:
            self.room_of_directories -= _OF_NAME_BYTES + len(prefix) + len(name)
            if self.room_of_directories < 0 or self.is_over:
                self.is_cut = True
                return
            yield prefix + name

    def has_room(self, mark: str, number: int) -> bool:
        """Whether there are room and time for one more in its directory."""
        self.room_of_marks -= _OF_NAME_BYTES + len(mark)
        is_fitting = number < MOST_FILES or not self.is_over
        self.is_cut |= not is_fitting
        return is_fitting

    @property
    def is_over(self) -> bool:
        """Whether there is no more room, or time."""
        return self.room_of_marks < 0 or time.monotonic() > self.give_up - OF_NAMED_S

    def tops(self, trees: Mapping[str, set[str]]) -> set[str]:
        """The directories that repositories lie in, and ``trees``, by git directory."""
        return {str(each.parent) for each in self.repositories}.union(*trees.values())

    @property
    def scripts(self) -> list[Path]:
        """The files there are that other programs run; what husky writes itself is left to it.

        So are versions, of which what they say is judged.
        """
        return [
            Path(path)
            for path, item in self.items.items()
            if item.kind in SCRIPTS and "/.husky/_/" not in path
            if not says_versions(os.path.basename(path))  # noqa: PTH119 - a text
        ]


def line_of_more(found: Survey) -> str:
    """What is said where there are more directories than are looked at."""
    return (
        f"[sandbox: only the nearest {len(found.directories)} directories are looked at for "
        "git configuration and other files that run programs; the others are not protected]"
    )


def line_of_crowds(places: Iterable[str]) -> str:
    """What is said of directories with more files than are looked at."""
    shown = ", ".join(place if place.isprintable() else ascii(place) for place in places)
    return (
        f"[sandbox: {shown}: only the nearest {MOST_FILES} files there are compared; "
        "look at the others before you run them]"
    )


def workplaces_below(roots: Iterable[str], listings: dict[str, Listing]) -> list[str]:
    """Directories with a ``.git`` or ``.envrc`` (``ENTERED``) and bare ones, the nearest first.

    ``listings`` is kept for the next look.
    """
    found, waiting = [], deque(roots)
    seen, give_up = set[str](), time.monotonic() + _MOST_S
    while waiting and len(seen) < _MOST_WORKPLACES and time.monotonic() < give_up:
        place = waiting.popleft()
        if place in seen:
            continue
        seen.add(place)
        with contextlib.suppress(PermissionError):
            most, before = _MOST_WORKPLACES, listings.get(place)
            known = listing_of(place, before, most, lambda _: False, give_up)
            if known is None:
                continue
            listings[place] = known
            is_one = known.is_repository or not {".git", *ENTERED}.isdisjoint(known.marks)
            found += [place] if is_one else []
            waiting += [f"{place.rstrip('/')}/{name}" for name in known.directories]
    return found


def _ways_of(link: str) -> Iterator[str]:
    """Where each part of what ``link`` says leads, and it itself."""
    with contextlib.suppress(OSError, ValueError):
        place = os.path.dirname(link)  # noqa: PTH120 - a text
        for part in os.readlink(link).split("/")[:_MOST_PARTS]:  # noqa: PTH115 - a text
            place = os.path.join(place, part or "/")  # noqa: PTH118 - texts
            yield real_text(place)
    yield real_text(link)


def lies_below(path: str, directory: str) -> bool:
    """Whether ``path`` is ``directory`` or in it; both are texts."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def links_in(git: str, give_up: float) -> Iterator[str]:
    """Links among what git writes in its directory: its next commit would write where they lead.

    Or "git gc" would, or empty that, as it does with what is left of a working tree. A ``HEAD`` may
    be one (git-config(1): "core.preferSymlinkRefs"). Ends at ``give_up``.
    """
    waiting = deque([git])
    while waiting and time.monotonic() < give_up:
        place = waiting.popleft()
        below = place[len(git) + 1 :]
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.is_symlink():
                    is_head = not below and entry.name == "HEAD"
                    is_head = is_head and os.readlink(entry.path).startswith("refs/")  # noqa: PTH115 - a text
                    # what is set aside counts where it would be a branch, or a working tree
                    is_kept = below != "worktrees" and "refs" not in below
                    is_aside = is_kept and SET_ASIDE.search(entry.name)
                    yield from () if is_head or is_aside else (entry.path,)
                elif (
                    (below or entry.name in _WRITTEN | {"worktrees", "info"})
                    and below != "worktrees"
                    and (below != "objects" or entry.name in {"info", "pack"})  # or there are many
                    and entry.is_dir(follow_symlinks=False)
                ):
                    waiting.append(entry.path)


def is_of_git(place: str, git: str) -> bool:
    """Whether ``place`` is the git directory, or what git keeps in it.

    Working trees may lie in one that is not called ".git".
    """
    if not lies_below(place, git):
        return False
    name = place[len(git) + 1 :].partition("/")[0]
    return not name or name in _OF_GIT | _WRITTEN or plain_name(os.path.basename(git)) == ".git"  # noqa: PTH119 - a text


def link_or(path: str) -> str:
    """``path``, or the directory that it lies in if that is a link: edits elsewhere change it."""
    parent = os.path.dirname(path)  # noqa: PTH120 - a text
    return parent if os.path.islink(parent) else path  # noqa: PTH114 - a text


def is_in_package(path: str, roots: Iterable[str], trees: Container[str] = ()) -> bool:
    """Whether the directory is part of others' packages in one of ``roots``.

    A repository in there is none, such as a submodule in "vendor": ``trees`` have been one.
    """
    place = path.rstrip("/")
    for root in roots:
        below = place[len(root) :].split("/") if lies_below(place, root) else []
        packages = [at for at, name in enumerate(below) if name in _PACKAGES]
        for at in range(len(below), packages[-1] if packages else len(below), -1):
            each = root + "/".join(below[:at])
            if each in trees or os.path.lexists(f"{each}/.git"):
                break
        else:
            if packages:
                return True
    return False


def parents_of(path: str) -> Iterator[str]:
    """The directories that it lies in, the nearest first."""
    while path != (path := os.path.dirname(path)):  # noqa: PTH120 - a text
        yield path


def identity_of(path: str) -> tuple[int, int]:
    """Device and inode; zeros where nothing is to be seen."""
    try:
        status = os.lstat(path)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino
