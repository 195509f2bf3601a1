"""The map on disk: a SQLite file per project, kept up by what has changed (MEM-3).

Law: a file whose time and size are the same is as it was, and one whose content is the same too;
all else is read again. What cannot be read as a database is thrown away and made again. A pass is
bounded, commits as it goes, leaves room on the disk, and the next one goes on where it stopped.
Which file is being read is on disk: one that ends the process twice is left out until it changes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentcli.codemap.parse import GIVEN_UP, PARSE_S, Parsed, is_code, parse
from agentcli.domain.errors import PersistenceError
from agentcli.domain.files import NoRegularFile, open_resolved

VERSION = 2
MAX_FILE_BYTES = 1024 * 1024
MAX_FILES = 100_000
MAX_DIRECTORIES = 50_000
PASS_S = 40.0
"""Seconds that one pass takes at most, and a little more."""
QUICK_S = 0.5
"""The same in the process of the session itself."""
LEAST_FREE_BYTES = 64 * 1024 * 1024
RELIST_S = 600.0
IGNORE_FILES = frozenset({".gitignore", ".ignore", ".rgignore"})
ENDED = "ended the process that read it"
SMALL_FILES, SMALL_BYTES = 20, 64 * 1024
"""What is read in the process of the session itself; a query of a tree lets no other thread run."""
_MINIFIED_BYTES = 32 * 1024
_MINIFIED_LINE = 400  # bytes of a line, on average
_COMMIT_EVERY = 200
_WORTH_RANKING = 50
_BUSY_MS = 1_000
_NO_DAMAGE = tuple(
    f"SQLITE_{name}"
    for name in ("BUSY", "LOCKED", "FULL", "IOERR", "READONLY", "CANTOPEN", "PERM", "NOMEM")
)
_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    (
        "CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL,"
        " hash BLOB NOT NULL, language TEXT NOT NULL, note TEXT NOT NULL,"
        " rank REAL NOT NULL DEFAULT 0)"
    ),
    "CREATE TABLE directory (path TEXT PRIMARY KEY, mtime INTEGER NOT NULL, names BLOB NOT NULL)",
    "CREATE INDEX file_note ON file (language, note)",
    "CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
    "CREATE VIRTUAL TABLE part USING fts5(text, content = '', tokenize = 'trigram')",
    (
        "CREATE TABLE symbol (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, name INTEGER NOT NULL,"
        " kind TEXT NOT NULL, line INTEGER NOT NULL, end INTEGER NOT NULL, container TEXT NOT NULL,"
        " rank REAL NOT NULL DEFAULT 0, bases TEXT NOT NULL DEFAULT '')"
    ),
    "CREATE INDEX symbol_rank ON symbol (rank)",
    "CREATE INDEX symbol_file ON symbol (file)",
    "CREATE INDEX symbol_name ON symbol (name)",
    (
        "CREATE TABLE used (name INTEGER NOT NULL, how INTEGER NOT NULL, file INTEGER NOT NULL,"
        " owner TEXT NOT NULL, lines TEXT NOT NULL, PRIMARY KEY (name, how, file, owner))"
        " WITHOUT ROWID"
    ),
    "CREATE INDEX used_file ON used (file, how)",
)


def map_file(directory: Path, root: Path) -> Path:
    """Where the map of the project at ``root`` is kept."""
    key = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:20]
    return directory / f"{key}.db"


def discard(path: Path) -> None:
    """Throw the map ``path`` away."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def is_busy(error: Exception) -> bool:
    """Whether another process is writing the map."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith(_NO_DAMAGE[:2])


def is_damage(error: Exception) -> bool:
    """Whether it tells that a file is no map of this version, not what happens to any file."""
    name = getattr(error, "sqlite_errorname", None) or ""
    kinds = (sqlite3.DatabaseError, ValueError)
    return isinstance(error, kinds) and not name.startswith(_NO_DAMAGE)


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the map. ``unlisted``: there may be files that it does not know."""

    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    unlisted: bool = False
    size_bytes: int = 0

    @property
    def is_small(self) -> bool:
        """Whether it is read so soon that no process is worth it."""
        return not self.unlisted and (
            len(self.changed) <= SMALL_FILES and self.size_bytes <= SMALL_BYTES
        )


class MapIndex:
    """The open map of the project at ``root``; used by one thread at a time."""

    def __init__(self, path: Path, root: Path) -> None:
        self.root = os.path.realpath(root)
        self._path = path
        self.before_file: Callable[[], object] | None = None
        self._reading = -1
        try:
            self.db = self._open()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            discard(path)
            self.db = self._open()
        self._left_out = self._leave_out_what_ended_others()

    def _open(self) -> sqlite3.Connection:
        if self._path.is_symlink():
            raise OSError(errno.ELOOP, "it is a link", str(self._path))
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = OFF")  # it can be made again
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                db.execute("BEGIN IMMEDIATE")
                if not db.execute("SELECT 1 FROM sqlite_schema").fetchone():
                    for statement in _TABLES:
                        db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
                db.execute("COMMIT")
            _require_version(db)
            os.utime(self._path)  # somebody asks it: see ``worker``
        except BaseException:
            db.close()
            raise
        return db

    @staticmethod
    def _set(db: sqlite3.Connection, key: str, value: str) -> None:
        old = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if old != (value,):
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def get(self, key: str) -> str:
        """A fact of the map by its key, or nothing."""
        row = self.db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else ""

    def close(self) -> None:
        """Close it."""
        self.db.close()
        if self._reading >= 0:
            os.close(self._reading)
            self._reading_file(os.getpid()).unlink(missing_ok=True)
            self._reading = -1

    # --- files that end the process that reads them ----------------------------------------

    def _reading_file(self, process: int) -> Path:
        return self._path.with_name(f"{self._path.stem}.{process}.reading")

    def _about_to_read(self, path: str) -> None:
        if self._reading < 0:
            flags = os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._reading = os.open(self._reading_file(os.getpid()), flags, 0o600)
        os.ftruncate(self._reading, 0)
        os.pwrite(self._reading, os.fsencode(path), 0)
        if self.before_file is not None:
            self.before_file()

    def left_out(self) -> int:
        """How many files were being read by processes that have died."""
        return self._left_out

    def _leave_out_what_ended_others(self) -> int:
        count = 0
        for left in _left_by_the_dead(self._path):
            with contextlib.suppress(OSError):
                path = os.fsdecode(left.read_bytes())
                left.unlink()
                stamp, _ = self._stamp(path)
                count += bool(path)
                if path and stamp and self.get("suspect") == path:  # twice is no accident
                    with self._transaction():
                        self._replace(path, stamp, b"", Parsed("", note=ENDED))
                self._set(self.db, "suspect", path)
        return count

    # --- what has changed ------------------------------------------------------------------

    def directories(self) -> list[str]:
        """Those with files that are listed, relative to the project."""
        return [path for (path,) in self.db.execute("SELECT path FROM directory")]

    def changes(self, seen: Iterable[str] | None = None) -> Changes:
        """What has changed on disk since the last pass, by times, sizes and names.

        ``seen`` are the files and directories in which something has changed, where that is known.
        """
        if abs(time.time() - float(self.get("listed") or 0)) > RELIST_S:  # clocks are set back
            return Changes(unlisted=True)
        changed, gone, size = list[str](), list[str](), 0
        for path, stamp in self._of("SELECT path, stamp FROM file", seen):
            now, size_now = self._stamp(path)
            if not now:
                gone.append(path)
            elif now != stamp:
                changed.append(path)
                size += size_now
        unlisted = any(
            self._directory(path, mtime, names)
            for path, mtime, names in self._of("SELECT * FROM directory", seen)
        )
        return Changes(tuple(changed), tuple(gone), unlisted, size)

    def _of(self, select: str, paths: Iterable[str] | None) -> list[tuple[Any, ...]]:
        if paths is None:
            return self.db.execute(select).fetchall()
        rows = (
            self.db.execute(f"{select} WHERE path = ?", (path,)).fetchone()
            for path in paths
            if _is_text(path)
        )
        return [row for row in rows if row]

    def _stamp(self, path: str) -> tuple[str, int]:
        try:
            found = os.lstat(self._full(path))
        except (OSError, ValueError):
            return "", 0
        if not stat.S_ISREG(found.st_mode):
            return "", 0
        return f"{found.st_mtime_ns}:{found.st_ctime_ns}:{found.st_size}", found.st_size

    def _full(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}" if path else self.root

    def _directory(self, path: str, mtime: int, names: bytes) -> bool:
        """Whether other names are in the directory than were."""
        try:
            now = os.lstat(self._full(path)).st_mtime_ns
        except OSError:
            return True
        if now == mtime:
            return False
        found, is_ruled = self._names(path)
        if found != names:
            return True
        if not is_ruled:
            self.db.execute("UPDATE directory SET mtime = ? WHERE path = ?", (now, path))
        return False

    def _names(self, path: str) -> tuple[bytes, bool]:
        """What stands for the names in a directory, and whether files there say what is ignored."""
        rules = list[str]()
        try:
            with os.scandir(self._full(path)) as entries:
                found = sorted(entry.name for entry in entries)
            rules = [
                self._stamp(f"{path}/{name}" if path else name)[0]
                for name in found
                if name in IGNORE_FILES
            ]
        except OSError:
            found = []
        names = [name for name in found if not name.startswith((".git", ".#", "#"))]
        text = "\0".join((*names, *rules))
        return hashlib.blake2b(os.fsencode(text), digest_size=8).digest(), bool(rules)

    # --- a pass ----------------------------------------------------------------------------

    def update(
        self, changes: Changes, listed: Sequence[str] | None = None, *, quick: bool = False
    ) -> int:
        """Take up ``changes``, or all that differs from the files ``listed``.

        Returns how many files are left for the next pass; with ``quick`` also those that take long.
        Raises ``PersistenceError`` where the disk is nearly full.
        """
        until = time.monotonic() + (QUICK_S if quick else PASS_S)
        begun = time.time()
        if listed is not None:
            self._set(self.db, "unnamed", str(sum(not _is_text(path) for path in listed)))
            listed = [path for path in listed if _is_text(path)]
            changes = self._against(listed)
        self._forget(changes.gone)
        self._set(self.db, "waiting", str(len(changes.changed)))
        left = len(changes.changed)
        for number in range(0, len(changes.changed), _COMMIT_EVERY):
            if time.monotonic() > until:
                break
            if listed is not None:
                self._require_room()
            batch = changes.changed[number : number + _COMMIT_EVERY]
            read = []
            for path in batch:
                if time.monotonic() > until:
                    break
                found = self._read(path, QUICK_S if quick else PARSE_S)
                if quick and found[2] is not None and found[2].note == GIVEN_UP:
                    break
                read.append((path, found))
            self._write(read)
            left -= len(read)
        with self._transaction():
            self._set(self.db, "waiting", str(left))
            self._set(self.db, "suspect", "")
            moved = int(self.get("unranked") or 0) + len(changes.changed) + len(changes.gone)
            self._set(self.db, "unranked", str(moved))
            self._set(self.db, "symbols", str(self._one("SELECT COUNT(*) FROM symbol")))
            if listed is not None:
                self._keep_directories(listed)
                self._set(self.db, "listed", str(begun if not left else 0.0))
        return left

    def _require_room(self) -> None:
        """The sessions write to that disk too."""
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES:
            free = f"less than {LEAST_FREE_BYTES >> 20} MiB are free on the disk of the map"
            raise PersistenceError(free, f"make room below {self._path.parent}")

    def _one(self, select: str) -> int:
        found: int = self.db.execute(select).fetchone()[0]
        return found

    @property
    def needs_ranks(self) -> bool:
        """Whether so much has changed that what is used most may be another."""
        return int(self.get("unranked") or 0) * _WORTH_RANKING > self._one(
            "SELECT COUNT(*) FROM file"
        )

    def ranked(self) -> None:
        """All that is there has its rank."""
        self._set(self.db, "unranked", "0")

    def _against(self, listed: Sequence[str]) -> Changes:
        known = dict(self.db.execute("SELECT path, stamp FROM file"))
        wanted = [path for path in listed if is_code(path)][:MAX_FILES]
        there = set(wanted)
        gone = tuple(path for path in known if path not in there)
        changed = tuple(
            path for path in wanted if path not in known or self._stamp(path)[0] != known[path]
        )
        return Changes(changed, gone)

    def _keep_directories(self, listed: Iterable[str]) -> None:
        paths = {""}
        for path in listed:
            parent = path.rpartition("/")[0]
            while parent not in paths and len(paths) < MAX_DIRECTORIES:
                paths.add(parent)
                parent = parent.rpartition("/")[0]
        self.db.execute("DELETE FROM directory")
        for path in paths:
            with contextlib.suppress(OSError):
                names, is_ruled = self._names(path)
                mtime = -1 if is_ruled else os.lstat(self._full(path)).st_mtime_ns
                row = (path, mtime, names)
                self.db.execute("INSERT INTO directory VALUES (?, ?, ?)", row)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def _forget(self, paths: Sequence[str]) -> None:
        if paths:
            with self._transaction():
                for path in paths:
                    self._clear(path)
                    self.db.execute("DELETE FROM file WHERE path = ?", (path,))

    def _clear(self, path: str) -> None:
        row = self.db.execute("SELECT id FROM file WHERE path = ?", (path,)).fetchone()
        if row:
            self.db.execute("DELETE FROM symbol WHERE file = ?", row)
            self.db.execute("DELETE FROM used WHERE file = ?", row)

    def _read(self, path: str, limit_s: float) -> tuple[str, bytes, Parsed | None]:
        """The file's stamp, the hash of its content, and what is in it unless that is known."""
        stamp, _ = self._stamp(path)
        source, note = self._content(path)
        digest = hashlib.blake2b(source, digest_size=16).digest()
        if note:
            return stamp, digest, Parsed("", note=note)
        row = self.db.execute("SELECT hash, language FROM file WHERE path = ?", (path,)).fetchone()
        if row is not None and row[0] == digest and row[1]:
            return stamp, digest, None
        self._about_to_read(path)
        return stamp, digest, parse(path, source, limit_s)

    def _content(self, path: str) -> tuple[bytes, str]:
        """What is in the file, or why it is left out."""
        try:
            with open_resolved(Path(self._full(path))) as file:  # through no link
                source = file.read(MAX_FILE_BYTES + 1)
        except NoRegularFile:
            return b"", "no file"
        except OSError as error:
            return b"", "link" if error.errno == errno.ELOOP else "unreadable"
        note = _left_out(source)
        return b"" if note else source, note

    def _write(self, read: Sequence[tuple[str, tuple[str, bytes, Parsed | None]]]) -> None:
        with self._transaction():
            for path, (stamp, digest, found) in read:
                if not stamp:  # it has gone meanwhile
                    self._clear(path)
                    self.db.execute("DELETE FROM file WHERE path = ?", (path,))
                elif found is None:
                    self.db.execute("UPDATE file SET stamp = ? WHERE path = ?", (stamp, path))
                else:
                    self._replace(path, stamp, digest, found)

    def _replace(self, path: str, stamp: str, digest: bytes, found: Parsed) -> None:
        self._clear(path)
        row: tuple[Any, ...] = (path, stamp, digest, found.language, found.note)
        file = self.db.execute(
            "INSERT INTO file (path, stamp, hash, language, note) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (path) DO UPDATE SET stamp = excluded.stamp, hash = excluded.hash,"
            " language = excluded.language, note = excluded.note RETURNING id",
            row,
        ).fetchone()[0]
        texts = {each.name for each in found.definitions} | {name for name, _, _ in found.uses}
        ids = self._name_ids(texts)
        self.db.executemany(
            "INSERT INTO symbol (file, name, kind, line, end, container, bases)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (file, ids[each.name], each.kind, each.line, each.end, each.container, each.bases)
                for each in found.definitions
            ),
        )
        self.db.executemany(
            "INSERT INTO used VALUES (?, ?, ?, ?, ?)",
            (
                (ids[name], how, file, owner, " ".join(map(str, lines)))
                for (name, how, owner), lines in found.uses.items()
            ),
        )

    def _name_ids(self, texts: Iterable[str]) -> dict[str, int]:
        ids = dict[str, int]()
        for text in sorted(texts):
            row = self.db.execute("SELECT id FROM name WHERE text = ?", (text,)).fetchone()
            if row is None:
                added = self.db.execute("INSERT INTO name (text) VALUES (?)", (text,))
                row = (added.lastrowid,)
                self.db.execute("INSERT INTO part (rowid, text) VALUES (?, ?)", (*row, text))
            ids[text] = row[0]
        return ids


def forget_reading(path: Path) -> None:
    """Hold it against no file that processes were told to end while they made the map ``path``."""
    for left in _left_by_the_dead(path):
        left.unlink(missing_ok=True)


def _left_by_the_dead(path: Path) -> Iterator[Path]:
    for left in path.parent.glob(f"{path.stem}.*.reading"):
        process = left.name.split(".")[1]
        if process.isdecimal() and not _is_alive(int(process)):
            yield left


def _is_text(path: str) -> bool:
    """Whether a database takes it: not every name of a file is UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _require_version(db: sqlite3.Connection) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise sqlite3.DatabaseError(f"version {version}")


def _left_out(source: bytes) -> str:
    """Why it is no part of the map, or nothing."""
    if len(source) > MAX_FILE_BYTES:
        return "too large"
    if b"\0" in source:
        return "no text"
    if len(source) > _MINIFIED_BYTES and len(source) > _MINIFIED_LINE * source.count(b"\n"):
        return "minified"
    return ""
