"""What is known of a project beyond its sessions, as Markdown files that the user owns (MEM-1).

``memory/NAME/MEMORY.md`` is the index, which is part of the prompt; the files beside it are topics,
read on demand; ``memory/unconfirmed/NAME.md`` holds what the user has not said, out of the prompt
and of what is free to read (MEM-2). A fact is one line: ``- text (date, session ID)``.

Which project it is: the address of its git remote, so that every clone and worktree is the same
one; else the common git directory, found again after a move by what a move keeps; else the
directory. Laws: one writer at a time; a reader sees the old file or the new; no git is run, since a
repository's configuration can run programs (SEC-2).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentcli.domain.clean import clean_text, one_line
from agentcli.domain.errors import PersistenceError
from agentcli.domain.values import frozen

INDEX = "MEMORY.md"
MAX_LINES = 200
MAX_CHARS = 8_000
MAX_FACT_CHARS = 500
MAX_FACTS = 2_000
MAX_FILE_BYTES = 1024 * 1024
MAX_TOPIC_CHARS = 24
_MAX_CONFIG_BYTES = 256 * 1024
_MAX_PROJECTS = 10_000
_HEAD = "# What is known of this project\n\n"
_FACT = re.compile(
    r"- (?P<text>.*?)(?: \((?P<date>\d{4}-\d\d-\d\d), session (?P<session>[\w-]{1,64})"
    r"(?:; topic (?P<topic>[\w-]+))?(?:; in place of: (?P<old>.*))?\))?"
)
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
    fact = one_line(clean_text(text)).strip()
    if not fact:
        raise ValueError("a fact has a text")
    if len(fact) > MAX_FACT_CHARS:
        raise ValueError(f"a fact has {MAX_FACT_CHARS} characters at most; keep what matters")
    return fact


def topic_name(text: str) -> str:
    """The file name of a topic without its ending: short, since it stands in the prompt."""
    name = re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")[:MAX_TOPIC_CHARS].strip("-")
    return "" if name == "memory" else name


class MemoryFiles:
    """The files of the project that ``cwd`` belongs to, below ``base``. All methods block."""

    def __init__(self, base: Path, cwd: Path) -> None:
        self._base = base
        keys, self._mark, title = project_keys(cwd)
        self.name = self._known(keys, title)
        self.directory = base / self.name
        self.index = self.directory / INDEX
        self.unconfirmed = base / "unconfirmed" / f"{self.name}.md"
        self._key = keys[0]

    def _known(self, keys: Sequence[str], title: str) -> str:
        names = [_name(key, title) for key in keys]
        known = self._projects()
        for key in keys:
            found = next((name for name, row in known.items() if row.get("key") == key), "")
            if found:
                return found
        for name, row in known.items() if self._mark else ():
            key = str(row.get("key"))
            moved = key.startswith("git:") and not os.path.lexists(key.removeprefix("git:"))
            if moved and row.get("mark") == self._mark:
                return name
        return names[0]

    def _projects(self) -> dict[str, dict[str, Any]]:
        try:
            rows = json.loads(read_file(self._base / "projects.json") or "{}")
        except ValueError:
            return {}
        if not isinstance(rows, dict):
            return {}
        good = re.compile(r"[\w.-]{1,80}")
        return {n: r for n, r in rows.items() if isinstance(r, dict) and good.fullmatch(n)}

    # --- reading -----------------------------------------------------------------------------

    def prompt(self) -> str:
        """The index as it stands in the prompt; empty where nothing is known."""
        text = read_file(self.index).replace(_HEAD, "", 1).strip()
        lines = [line for line in clean_text(text).splitlines() if line.strip()]
        kept: list[str] = []
        size = 0
        for line in lines:
            size += len(line) + 1
            if len(kept) >= MAX_LINES - 1 or size > MAX_CHARS - 200:
                kept.append(f"({len(lines) - len(kept)} more lines: read_file {self.index})")
                break
            kept.append(line)
        return "\n".join(kept)

    def facts(self) -> list[Fact]:
        """All that holds, the index first."""
        found = _facts(read_file(self.index))
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
        except OSError:
            os.close(handle)
            return None
        return handle

    def path_of(self, topic: str) -> Path:
        """The file of ``topic``; an empty one is the index."""
        return self.directory / f"{topic}.md" if topic else self.index

    def register(self) -> None:
        """Let the project be found again."""
        known = self._projects()
        row = {"key": self._key, "mark": self._mark}
        if known.get(self.name) != row and len(known) < _MAX_PROJECTS:
            known[self.name] = row
            write_file(self._base / "projects.json", json.dumps(known, indent=1) + "\n")

    def add(self, fact: Fact) -> None:
        """One more fact that holds. Raises ``PersistenceError``, ``ValueError`` if it is full."""
        self.register()
        path = self.path_of(fact.topic)
        text = read_file(path) or (_HEAD if not fact.topic else f"# {fact.topic}\n\n")
        _check_room(text)
        write_file(path, f"{text.rstrip()}\n{_gap(text)}{fact.line()}\n")
        if fact.topic:
            self._link(fact.topic)

    def add_waiting(self, fact: Fact) -> None:
        """One that the user has not said."""
        self.register()
        text = read_file(self.unconfirmed) or "# Not confirmed: no session is told of it\n\n"
        _check_room(text)
        line = fact.line(is_confirmed=False)
        write_file(self.unconfirmed, f"{text.rstrip()}\n{_gap(text)}{line}\n")

    def remove(self, fact: Fact) -> None:
        """Take out one that holds."""
        path = self.path_of(fact.topic)
        write_file(path, _without(read_file(path), replace(fact, topic="").line()))
        if fact.topic:
            self._link(fact.topic)

    def remove_waiting(self, fact: Fact) -> None:
        """Take out one that waits."""
        line = fact.line(is_confirmed=False)
        write_file(self.unconfirmed, _without(read_file(self.unconfirmed), line))

    def confirm(self, fact: Fact) -> None:
        """Let one that waits hold, in place of what it corrects."""
        old = next((each for each in self.facts() if fact.old and each.text == fact.old), None)
        if old is not None:
            self.remove(old)
        self.add(replace(fact, old=""))
        self.remove_waiting(fact)

    def _link(self, topic: str) -> None:
        """The line of the index that names ``topic``."""
        count = len(_facts(read_file(self.path_of(topic))))
        text = read_file(self.index) or _HEAD
        start = f"- [{topic}]({topic}.md)"
        what = f"{start}: {count} fact{'' if count == 1 else 's'}, read {self.path_of(topic)}"
        lines = text.rstrip("\n").split("\n")
        at = next((n for n, line in enumerate(lines) if line.startswith(start)), None)
        if at is not None:
            lines[at : at + 1] = [what] if count else []
        elif count:
            lines += ["", what] if lines[-1].startswith("#") else [what]
        write_file(self.index, "\n".join(lines).rstrip("\n") + "\n")


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


def _without(text: str, line: str) -> str:
    lines = text.split("\n")
    if line in lines:
        lines.remove(line)
    return "\n".join(lines)


def _gap(text: str) -> str:
    return "\n" if text.rstrip().rpartition("\n")[2].startswith("#") else ""


def _check_room(text: str) -> None:
    if text.count("\n- ") >= MAX_FACTS:
        raise ValueError(f"{MAX_FACTS} facts are kept at most: forget what no longer holds")


# --- files ---------------------------------------------------------------------------------------


def read_file(path: Path, limit: int = MAX_FILE_BYTES) -> str:
    """The text of a regular file, its beginning at least; empty where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        return file.read(limit).decode("utf-8", "replace")


def write_file(path: Path, text: str) -> None:
    """Replace ``path``, 0600, at one moment. Raises ``PersistenceError``."""
    temporary = ""
    with _told(path):
        try:
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".memory-")
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                os.fchmod(handle, 0o600)
                file.write(text)
                file.flush()
                os.fsync(handle)
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary or path.with_name("")).unlink()
            raise


def _private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise PersistenceError(f"cannot write {path}: {reason}", "nothing was changed") from error


# --- which project it is -------------------------------------------------------------------------


def project_keys(cwd: Path) -> tuple[list[str], str, str]:
    """What names the project of ``cwd``, the best first; what a move keeps; a title for people."""
    real = Path(os.path.realpath(cwd))
    for directory in (real, *real.parents):
        if os.path.lexists(directory / ".git"):
            return _of_repository(directory)
    return [f"dir:{real}"], "", real.name


def _of_repository(root: Path) -> tuple[list[str], str, str]:
    common = _common_directory(root / ".git")
    remote = _remote(read_file(common / "config", _MAX_CONFIG_BYTES))
    title = (remote or str(root)).rstrip("/").rpartition("/")[2]
    if common.name == ".git" and not remote:
        title = common.parent.name
    keys = [f"remote:{remote}"] if remote else []
    return [*keys, f"git:{common}"], _mark(common), title


def _common_directory(git: Path) -> Path:
    """Where all worktrees meet; a link that is not answered from there is not believed."""
    if git.is_dir():
        return Path(os.path.realpath(git))
    named = read_file(git, 4096).strip().removeprefix("gitdir:").strip()
    if not named:
        return git
    place = Path(os.path.realpath(git.parent / named))
    above = read_file(place / "commondir", 4096).strip()
    if not above:
        return place
    back = read_file(place / "gitdir", 4096).strip()
    if not back or os.path.realpath(place / back) != str(git):
        return git
    return Path(os.path.realpath(place / above))


def _mark(common: Path) -> str:
    """What neither a move nor work in the repository changes: files that git makes but once."""
    for name in ("description", "info/exclude"):
        try:
            found = (common / name).lstat()
            place = common.stat()
        except OSError:
            continue
        return f"{place.st_ino}:{found.st_ino}:{found.st_mtime_ns}"
    return ""


def _remote(config: str) -> str:
    """The address of ``origin``, else of the first remote, the same however it is written."""
    found: dict[str, str] = {}
    name = ""
    for line in config.splitlines():
        text = line.strip()
        if text.startswith("["):
            section = re.fullmatch(r'\[remote\s+"([^"]*)"\].*', text)
            name = section[1] if section else ""
            continue
        key, equals, value = text.partition("=")
        if name and equals and key.strip().casefold() == "url":
            found.setdefault(name, value.strip().strip('"'))
    url = found.get("origin") or next(iter(found.values()), "")
    return _canonical(url)


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
