"""What is known of a project beyond its sessions, as Markdown files that the user owns (MEM-1).

``memory/NAME/MEMORY.md`` is the index, which is part of the prompt; the files beside it are topics,
read on demand; ``memory/unconfirmed/NAME.md`` holds what the user has not said, out of the prompt
and of what is free to read (MEM-2). A fact is one line: ``- text (date, session ID)``.

Which project it is: the place where it was told (the common git directory, so that worktrees are
one; else the directory), found again after a move by what a move keeps; else the address of the
git remote, so that all clones are one. A directory can claim any remote: it is believed where it
holds a commit that the project had, which nobody knows who cannot read the project, or where the
user says so. Laws: one writer at a time; a reader sees the old file or the new; no link is
followed; no git is run, since a repository's configuration can run programs (SEC-2).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.clean import clean_text, one_line, plain_text
from agentcli.domain.errors import PersistenceError
from agentcli.domain.files import make_private_directory, open_regular
from agentcli.domain.values import frozen
from agentcli.domain.worktrees import common_of_worktree

INDEX = "MEMORY.md"
MAX_LINES = 200
MAX_CHARS = 8_000
MAX_FACT_CHARS = 500
MAX_FACTS = 2_000
MAX_FILE_BYTES = 1024 * 1024
MAX_TOPIC_CHARS = 24
_MAX_CONFIG_BYTES = 256 * 1024
_MAX_PROJECTS, _MAX_PROJECTS_BYTES = 10_000, 16 * 1024 * 1024
_TEMPORARY, _PROJECTS = ".memory-", "projects.json"
_MAX_PLACES, _MAX_COMMITS, _MAX_MARKS, _MAX_PACKS = 20, 20, 16, 2_000
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PACKED = re.compile(r"^[0-9a-f]{40,64} (refs/remotes/\S+)$", re.MULTILINE)
_PREFIX = 2
_FAN_OUT = struct.Struct(">256I")
_HEAD = "# What is known of this project\n\n"
_FACT = re.compile(
    r"- (?P<text>.*?)(?: \((?P<date>\d{4}-\d\d-\d\d), session (?P<session>[\w-]{1,64})"
    r"(?:; topic (?P<topic>[\w-]+))?(?:; in place of: (?P<old>.*))?\))?"
)
_JOINERS = re.compile("([\u200c\u200d])")
_LINK = re.compile(r"- \[[\w-]+\]\([\w-]+\.md\).*")
_SCP = re.compile(r"(?:[^@/\s]+@)?([^:/\s]+):(?!//)(.+)")


@frozen
class Fact:
    """One line. ``topic`` is empty for the index; ``old`` is what an unconfirmed one corrects."""

    text: str
    date: str = ""
    session: str = ""
    topic: str = ""
    old: str = ""

    def line(self, *, is_confirmed: bool = True) -> str:
        """As it stands in its file."""
        if not self.date:
            return f"- {self.text}"
        more = "" if is_confirmed or not self.topic else f"; topic {self.topic}"
        more += "" if is_confirmed or not self.old else f"; in place of: {self.old}"
        return f"- {self.text} ({self.date}, session {self.session}{more})"


def fact_text(text: str) -> str:
    """``text`` as a fact: one line; raises ``ValueError`` for none and for one that is too long."""
    fact = one_line(_visible(text)).strip()
    if not fact:
        raise ValueError("a fact has a text")
    if len(fact) > MAX_FACT_CHARS:
        raise ValueError(f"a fact has {MAX_FACT_CHARS} characters at most; keep what matters")
    dated = Fact(fact, "2000-01-01", "session")
    if _facts(dated.line()) != [dated]:
        raise ValueError("a fact looks like no link and has no date and session of its own")
    return fact


def _visible(text: str) -> str:
    """``text`` with a mark for what hides from a reader or moves a cursor; joiners belong to words.

    What the user confirms is all that the model is told.
    """
    pieces = _JOINERS.split(clean_text(text))
    return "".join(each if _JOINERS.fullmatch(each) else plain_text(each) for each in pieces)


def topic_name(text: str) -> str:
    """The file name of a topic without its ending: short, since it stands in the prompt."""
    name = re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")[:MAX_TOPIC_CHARS].strip("-")
    return "" if name == "memory" else name


class MemoryFiles:
    """The files of the project that ``cwd`` belongs to, below ``base``. All methods block.

    ``claimed`` names another project whose remote ``cwd`` claims and is not believed to have.
    """

    def __init__(self, base: Path, cwd: Path) -> None:
        self._base = base
        self._place = ProjectPlace.of(cwd)
        self.claimed = ""
        known = self._projects()
        self.name = self._known(known)
        remote = f"remote:{self._place.remote}"
        taken = any(row.key == remote for name, row in known.items() if name != self.name)
        self._key = remote if self._place.remote and not taken else self._place.key
        self.name = self.name or _name(self._key, self._place.title)
        self.directory = base / self.name
        self.index = self.directory / INDEX
        self.unconfirmed = base / "unconfirmed" / f"{self.name}.md"

    @property
    def remote(self) -> str:
        """The address that the directory gives itself, or nothing."""
        return self._place.remote

    def _known(self, known: Mapping[str, ProjectRow]) -> str:
        """The name under which the project is known, or nothing."""
        place, here = self._place, ""
        remote = f"remote:{place.remote}" if place.remote else ""
        for name, row in known.items():
            if place.was_in(row):
                here = name
                if not remote or row.key == remote:
                    return name
        for name, row in known.items():
            if remote and row.key == remote:
                if place.shares(row.commits):
                    return name
                self.claimed = "" if here else name
        return here or next((name for name, row in known.items() if place.is_moved(row)), "")

    def _projects(self) -> dict[str, ProjectRow]:
        return _projects(read_file(self._base / _PROJECTS, _MAX_PROJECTS_BYTES)) or {}

    # --- reading -----------------------------------------------------------------------------

    def prompt(self) -> str:
        """The index as it stands in the prompt; empty where nothing is known."""
        text = read_file(self.index).replace(_HEAD, "", 1).strip()
        lines = [line for line in text.splitlines() if line.strip()]
        shown = [_visible(line[: MAX_CHARS + 1]) for line in lines[:MAX_LINES]]
        if len(lines) <= MAX_LINES and sum(map(len, shown)) + len(shown) <= MAX_CHARS:
            return "\n".join(shown)
        more = f"more lines: read_file {clean_text(str(self.index))})"
        kept: list[str] = []
        size = len(f"({len(lines)} {more}")
        for line in shown[: MAX_LINES - 1]:
            size += len(line) + 1
            if size > MAX_CHARS:
                break
            kept.append(line)
        return "\n".join((*kept, f"({len(lines) - len(kept)} {more}"))

    def facts(self) -> list[Fact]:
        """All that holds, the index first."""
        found = [replace(fact, topic="") for fact in _facts(read_file(self.index))]
        for path in self.topics():
            found += [replace(fact, topic=path.stem) for fact in _facts(read_file(path))]
        return found

    def waiting(self) -> list[Fact]:
        """What the user has not confirmed."""
        return _facts(read_file(self.unconfirmed))

    def topics(self) -> list[Path]:
        """The files of topics, by name."""
        try:
            return sorted(p for p in self.directory.glob("*.md") if p.name != INDEX)
        except OSError:
            return []

    # --- writing -----------------------------------------------------------------------------

    def try_lock(self) -> int | None:
        """Become the one writer; ``None`` while another is. Raises ``PersistenceError``."""
        with _told(self._base):
            for directory in (self._base, self.directory, self.unconfirmed.parent):
                _private(directory)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(self._base / ".lock", flags, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for directory in (self._base, self.directory, self.unconfirmed.parent):
                    for left in directory.glob(f"{_TEMPORARY}*"):  # by a writer that was killed
                        left.unlink(missing_ok=True)
            except OSError as error:
                os.close(handle)
                if error.errno != errno.EWOULDBLOCK:
                    raise
                return None
        return handle

    def path_of(self, topic: str) -> Path:
        """The file of ``topic``; an empty one is the index."""
        return self.directory / f"{topic}.md" if topic else self.index

    def register(self) -> None:
        """Let the project be found again, from here too."""
        self._let_belong(self.name, self._key)

    def join(self) -> str:
        """Let the directory be of the project that it claims to be; its name. Blocks."""
        self._let_belong(self.claimed, f"remote:{self._place.remote}")
        return self.claimed

    def _let_belong(self, name: str, key: str) -> None:
        file = self._base / _PROJECTS
        rows = _projects(text := editable(file, _MAX_PROJECTS_BYTES))
        if rows is None:  # the projects are found again by where they are
            write_files({file.with_suffix(".damaged"): text})
        known = rows or {}
        old = known.get(name, ProjectRow(key))
        others = {each: mark for each, mark in old.places.items() if each != self._place.key}
        places = {**others, self._place.key: self._place.mark()}
        commits = dict.fromkeys((*self._place.commits(), *old.commits))
        row = ProjectRow(
            key, dict(list(places.items())[-_MAX_PLACES:]), tuple(commits)[:_MAX_COMMITS]
        )
        if row == old or (name not in known and len(known) >= _MAX_PROJECTS):
            return
        for each, other in known.items():  # a place belongs to one
            kept = {at: mark for at, mark in other.places.items() if at != self._place.key}
            known[each] = replace(other, places=kept)
        known[name] = row
        write_files({file: json.dumps({each: asdict(one) for each, one in known.items()}) + "\n"})

    def change(
        self,
        gone: Sequence[Fact] = (),
        new: Sequence[Fact] = (),
        *,
        answered: Sequence[Fact] = (),
        waiting: Sequence[Fact] = (),
    ) -> None:
        """Add ``new`` to what holds and ``waiting`` to what waits, take out the other two.

        A full disk changes nothing; after a kill, or where one cannot be replaced, it can be done
        again. Raises ``PersistenceError``, ``ValueError`` where there is no more room.
        """
        self.register()
        texts: dict[Path, str] = {}  # in the order in which they are replaced
        topics = dict.fromkeys(fact.topic for fact in (*new, *gone) if fact.topic)
        index = [self.index] if topics else []
        for path in (*map(self._file_of, new), *index, *map(self._file_of, gone)):
            texts[path] = texts[path] if path in texts else editable(path)
        for fact in gone:
            texts[self._file_of(fact)] = _without(texts[self._file_of(fact)], fact)
        for fact in new:
            text = texts[self._file_of(fact)] or (f"# {fact.topic}\n\n" if fact.topic else _HEAD)
            if fact.text not in {each.text for each in _facts(text)}:  # a kill came before the rest
                texts[self._file_of(fact)] = _with(text, fact.line())
        for topic in topics:
            texts[self.index] = self._linked(texts[self.index] or _HEAD, topic, texts)
        if answered or waiting:
            text = editable(self.unconfirmed) or "# Not confirmed: no session is told of it\n\n"
            for fact in answered:
                text = _without(text, fact, is_confirmed=False)
            for fact in waiting:
                text = _with(text, fact.line(is_confirmed=False))
            texts[self.unconfirmed] = text
        write_files(texts)

    def _file_of(self, fact: Fact) -> Path:
        return self.path_of(fact.topic)

    def confirm(self, facts: Sequence[Fact]) -> None:
        """Let these that wait hold, each in place of what it corrects."""
        known = {fact.text: fact for fact in self.facts()}
        gone = [known[fact.old] for fact in facts if fact.old in known]
        self.change(gone, [replace(fact, old="") for fact in facts], answered=facts)

    def _linked(self, index: str, topic: str, texts: Mapping[Path, str]) -> str:
        """The index with the line that names ``topic``."""
        count = len(_facts(texts[self.path_of(topic)]))
        start = f"- [{topic}]({topic}.md)"
        what = f"{start}: {count} fact{'' if count == 1 else 's'}, read {self.path_of(topic)}"
        lines = index.rstrip("\n").split("\n")
        at = next((n for n, line in enumerate(lines) if line.startswith(start)), None)
        if at is not None:
            lines[at : at + 1] = [what] if count else []
            return "\n".join(lines).rstrip("\n") + "\n"
        return _with(index, what) if count else index


def _projects(text: str) -> dict[str, ProjectRow] | None:
    """The projects by their names; ``None`` where that is no list of them."""
    try:
        rows = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    good = re.compile(r"[\w.-]{1,80}")
    return (
        {
            name: ProjectRow.of(row)
            for name, row in rows.items()
            if isinstance(row, dict) and good.fullmatch(name) and name.strip(".")
        }
        if isinstance(rows, dict)
        else None
    )


def search_memory(base: Path, text: str, limit: int) -> list[tuple[str, str, bool]]:
    """Facts of all projects in which every word stands: project, fact, whether it holds."""
    words = text.casefold().split()
    found: list[tuple[str, str, bool]] = []
    if not words or not base.is_dir():
        return found
    for path in sorted(base.glob("*/*.md")):
        is_confirmed = path.parent.name != "unconfirmed"
        project = path.parent.name if is_confirmed else path.stem
        for fact in _facts(read_file(path)):
            line = fact.line()
            if all(word in line.casefold() for word in words):
                found.append((project, line.removeprefix("- "), is_confirmed))
            if len(found) >= limit:
                return found
    return found


def _facts(text: str) -> list[Fact]:
    found = []
    for line in text.splitlines():
        match = None if _LINK.fullmatch(line) else _FACT.fullmatch(line)
        if match and match["text"].strip():
            found.append(Fact(**{key: value or "" for key, value in match.groupdict().items()}))
    return found


def _without(text: str, fact: Fact, *, is_confirmed: bool = True) -> str:
    """Without the line of ``fact``, however it ends; of what holds its place tells the topic."""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        for found in _facts(_decoded(_encoded(line))):
            if found == fact or (is_confirmed and found.line() == fact.line()):
                return "".join((*lines[:number], *lines[number + 1 :]))
    return text


def _with(text: str, line: str) -> str:
    """With one line more. Raises ``ValueError`` where there is no room for it."""
    gap = "\n" if text.rstrip().rpartition("\n")[2].startswith("#") else ""
    found = f"{text.rstrip()}\n{gap}{line}\n"
    if found.count("\n- ") > MAX_FACTS or len(_encoded(found)) > MAX_FILE_BYTES:
        raise ValueError(f"no more than {MAX_FACTS} facts are kept: forget what no longer holds")
    return found


# --- files ---------------------------------------------------------------------------------------


def read_file(path: Path, limit: int = MAX_FILE_BYTES) -> str:
    """The text of a regular file, at most ``limit`` bytes; empty where there is none."""
    try:
        return _decoded(_bytes(path, limit))
    except (OSError, ValueError):
        return ""


def editable(path: Path, limit: int = MAX_FILE_BYTES) -> str:
    """All of a file that is going to be replaced, to the byte; empty where there is none.

    Raises ``PersistenceError``: what cannot be read would be lost.
    """
    with _told(path, "read"):
        try:
            data = _bytes(path, limit + 1)
        except FileNotFoundError:
            return ""
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"it is larger than {limit:,} bytes; shorten it by hand")
    return data.decode("utf-8", "surrogateescape")


def _bytes(path: Path, limit: int) -> bytes:
    with open_regular(path, os.O_NOFOLLOW) as file:
        return file.read(limit)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def write_files(texts: Mapping[Path, str]) -> None:
    """Replace these files, 0600, each at one moment and in this order, once all are on the disk.

    Raises ``PersistenceError``; what a disk does not take then replaces nothing.
    """
    made: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            with _told(path):
                handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
                made[path] = Path(temporary)
                with os.fdopen(handle, "wb") as file:
                    os.fchmod(handle, 0o600)
                    file.write(_encoded(text))
                    file.flush()
                    os.fsync(handle)
        for path, temporary_path in made.items():
            with _told(path):
                temporary_path.replace(path)
    except BaseException:
        for left in made.values():
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)
        raise


def _private(directory: Path) -> None:
    make_private_directory(directory)
    directory.chmod(0o700)


@contextlib.contextmanager
def _told(path: Path, what: str = "write") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise PersistenceError(f"cannot {what} {path}: {reason}") from error


# --- which project it is -------------------------------------------------------------------------


@frozen
class ProjectRow:
    """What is kept of a project: its name for itself, where it was, what only it can know."""

    key: str
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    commits: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ProjectRow:
        """As it was written; what does not fit is left out."""
        places, commits, key = row.get("places"), row.get("commits"), str(row.get("key") or "")
        return cls(
            key,
            {
                str(place): tuple(map(str, mark))
                for place, mark in (places.items() if isinstance(places, dict) else ())
                if isinstance(mark, list)
            },
            tuple(map(str, commits)) if isinstance(commits, list) else (),
        )


@frozen
class ProjectPlace:
    """Where a project is: ``directory`` is the common one of git, or the directory itself."""

    directory: Path
    title: str
    is_git: bool = False
    remote: str = ""

    @classmethod
    def of(cls, cwd: Path) -> ProjectPlace:
        """The place that ``cwd`` belongs to."""
        real = Path(os.path.realpath(cwd))
        for root in (real, *real.parents):
            if os.path.lexists(root / ".git"):
                return cls._of_repository(root)
        return cls(real, real.name)

    @classmethod
    def _of_repository(cls, root: Path) -> ProjectPlace:
        common = _common_directory(root / ".git")
        remote = _remote(read_file(common / "config", _MAX_CONFIG_BYTES))
        title = (remote or str(root)).rstrip("/").rpartition("/")[2]
        if common.name == ".git" and not remote:
            title = common.parent.name
        return cls(common, title, is_git=True, remote=remote)

    @property
    def key(self) -> str:
        """As it is kept."""
        return f"{'git' if self.is_git else 'dir'}:{self.directory}"

    def mark(self) -> tuple[str, ...]:
        """What a move of the directory keeps and no other can be given: numbers of the kernel.

        First its own inode, then those of what is in it with the times that no program can set.
        """
        try:
            with os.scandir(self.directory) as entries:
                found = [entry.stat(follow_symlinks=False) for entry in islice(entries, 1_000)]
            found.sort(key=lambda each: (each.st_ctime_ns, each.st_ino))
            own = self.directory.stat().st_ino
        except OSError:
            return ()
        return str(own), *(f"{each.st_ino}:{each.st_ctime_ns}" for each in found[:_MAX_MARKS])

    def was_in(self, row: ProjectRow) -> bool:
        """Whether the project of ``row`` was told something here, before ``git init`` too."""
        here = {self.key}
        if self.is_git and self.directory.name == ".git":
            here.add(f"dir:{self.directory.parent}")
        return bool(here & row.places.keys())

    def is_moved(self, row: ProjectRow) -> bool:
        """Whether the project of ``row`` was in this directory when that was elsewhere."""
        kind = self.key.partition(":")[0]
        for place, known in row.places.items():
            old_kind, _, path = place.partition(":")
            if old_kind == kind and known and not os.path.lexists(path):
                mark = self.mark()
                if mark[:1] == known[:1] and {*mark[1:]} & {*known[1:]}:
                    return True
        return False

    def commits(self) -> tuple[str, ...]:
        """Commits by which a clone proves to be one; "?" where there are some but not known."""
        if not self.is_git:
            return ()
        head = read_file(self.directory / "HEAD", 4096).strip().removeprefix("ref:").strip()
        packed = read_file(self.directory / "packed-refs")
        names = dict.fromkeys((*self._remote_refs(), *_PACKED.findall(packed), head))
        found = dict.fromkeys(self._commit(name, packed) for name in names)
        known = tuple(each for each in found if each)[:_MAX_COMMITS]
        return known or (("?",) if any(self._packs()) or self._has_objects() else ())

    def _has_objects(self) -> bool:
        try:
            names = os.listdir(self.directory / "objects")  # noqa: PTH208 - names are enough
        except OSError:
            return False
        return any(len(name) == _PREFIX for name in names)

    def _remote_refs(self) -> list[str]:
        top = self.directory / "refs" / "remotes"
        try:
            found = sorted(islice(top.glob("*/*"), _MAX_COMMITS))
            return [str(path.relative_to(self.directory)) for path in found if path.is_file()]
        except OSError:
            return []

    def _commit(self, ref: str, packed: str) -> str:
        if _COMMIT.fullmatch(ref):
            return ref
        if ".." in ref or not ref.startswith("refs/"):
            return ""
        loose = read_file(self.directory / ref, 4096).strip()
        if _COMMIT.fullmatch(loose):
            return loose
        line = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(ref)}$", packed, re.MULTILINE)
        return line[1] if line else ""

    def shares(self, commits: Sequence[str]) -> bool:
        """Whether one of ``commits`` is in the repository itself, reached by no link."""
        packs = list(self._packs())
        return not commits or any(
            _COMMIT.fullmatch(each)
            and (self._is_loose(each) or any(_in_pack(p, each) for p in packs))
            for each in commits
        )

    def _is_loose(self, commit: str) -> bool:
        path = self.directory / "objects" / commit[:_PREFIX] / commit[_PREFIX:]
        with contextlib.suppress(OSError):
            return path.is_file() and os.path.realpath(path) == str(path)
        return False

    def _packs(self) -> Iterator[Path]:
        packs = self.directory / "objects" / "pack"
        if os.path.realpath(packs) == str(packs):
            with contextlib.suppress(OSError):
                yield from islice(sorted(packs.glob("*.idx")), _MAX_PACKS)


def _in_pack(index: Path, commit: str) -> bool:
    """Whether ``commit`` is in a pack (https://git-scm.com/docs/pack-format, version 2)."""
    wanted = bytes.fromhex(commit)
    try:
        handle = os.open(index, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.pread(handle, 8, 0) != b"\xfftOc\0\0\0\2":
            return False
        counts = os.pread(handle, 1024, 8)
        first, end = ([0, *_FAN_OUT.unpack(counts)][wanted[0] + side] for side in (0, 1))
        while first < end:
            middle = (first + end) // 2
            found = os.pread(handle, len(wanted), 1032 + middle * len(wanted))
            if found == wanted:
                return True
            first, end = (middle + 1, end) if found < wanted else (first, middle)
    except (OSError, struct.error, OverflowError):
        pass
    finally:
        os.close(handle)
    return False


def _common_directory(git: Path) -> Path:
    """Where all worktrees meet; a link that is not answered from there is not believed."""
    if git.is_symlink() or git.is_dir():
        return git
    named = read_file(git, 4096).strip().removeprefix("gitdir:").strip()
    if not named:
        return git
    place = Path(os.path.realpath(git.parent / named))
    above = read_file(place / "commondir", 4096).strip()
    if not above:  # of a submodule
        back = _value(read_file(place / "config", _MAX_CONFIG_BYTES), "core", "worktree")
        return place if back and os.path.realpath(place / back) == str(git.parent) else git
    return common_of_worktree(git, place) or git


def _values(config: str) -> Iterator[tuple[str, str, str]]:
    """Section, key and value of each line."""
    section = ""
    for line in config.splitlines():
        text = line.strip()
        if text.startswith("["):
            section = text.partition("]")[0][1:].strip()
            continue
        key, equals, value = text.partition("=")
        if equals:
            yield section, key.strip().casefold(), value.strip().strip('"')


def _value(config: str, section: str, key: str) -> str:
    rows = _values(config)
    return next((text for at, name, text in rows if (at.casefold(), name) == (section, key)), "")


def _remote(config: str) -> str:
    """The address of ``origin``, else of the first remote, the same however it is written."""
    found: dict[str, str] = {}
    for section, key, value in _values(config):
        name = re.fullmatch(r'remote\s+"([^"]*)"', section)
        if name and key == "url":
            found.setdefault(name[1], value)
    return _canonical(found.get("origin") or next(iter(found.values()), ""))


def _canonical(url: str) -> str:
    if not url:
        return ""
    host = path = ""
    if "://" in url:
        try:
            parts = urlsplit(url)
            host, path = (parts.hostname or "").lower(), parts.path
            host += f":{parts.port}" if parts.port and parts.port not in {22, 80, 443} else ""
        except ValueError:
            return ""
    elif (scp := _SCP.fullmatch(url)) is not None:
        host, path = scp[1].lower(), scp[2]
    else:
        path = url if url.startswith("/") else ""
    path = path.rstrip("/").removesuffix(".git").strip("/")
    return f"{host}/{path}" if path else ""


def _name(key: str, title: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")[:40] or "project"
    return f"{slug}-{hashlib.sha256(key.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
