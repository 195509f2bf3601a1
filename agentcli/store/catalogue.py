"""The list of all sessions and a full-text index, in ``catalogue.db``: a cache.

Laws: the session files are the truth; losing or breaking the catalogue loses nothing, it is
made again without a word; none of its failures is more than a warning (FAIL-2), kept in
``warning``; it is written after a turn, never on the way to a request.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agentcli.domain.messages import AssistantMessage, Message, Usage
from agentcli.domain.session import SessionInfo, SessionStatus, StoredMessage
from agentcli.store import _private
from agentcli.store._codec import from_column, to_column

T = TypeVar("T")

VERSION = 1
BUSY_TIMEOUT_S = 2.0
MAX_INDEXED_CHARACTERS = 100_000
LOG = logging.getLogger(__name__)

_TABLES = (
    """
CREATE TABLE session (
  id TEXT PRIMARY KEY, stamp TEXT NOT NULL, title TEXT NOT NULL, cwd TEXT NOT NULL,
  created_at REAL NOT NULL, updated_at REAL NOT NULL, status TEXT NOT NULL,
  detail TEXT NOT NULL, turns INTEGER NOT NULL, model TEXT NOT NULL, parent_id TEXT,
  input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER,
  cache_write_tokens INTEGER, reasoning_tokens INTEGER, cost_usd REAL
)""",
    "CREATE TABLE indexed (id TEXT PRIMARY KEY, seq INTEGER NOT NULL, stamp TEXT NOT NULL)",
    "CREATE TABLE place (id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL)",
    "CREATE INDEX place_session ON place (session_id)",
)
_COLUMNS = (
    "id, stamp, title, cwd, created_at, updated_at, status, detail, turns, model, parent_id,"
    " input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,"
    " cost_usd"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A session as it was when its files had ``stamp``."""

    stamp: str
    info: SessionInfo


@dataclass(frozen=True, slots=True)
class SearchHit:
    """Where a text was found; ``excerpt`` has the words between ``[`` and ``]``."""

    session_id: str
    seq: int
    excerpt: str


class Catalogue:
    """The cache at ``path``. Blocking; safe to use from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warning: str | None = None

    def entries(self) -> Mapping[str, Entry]:
        """All that is known, by session id; empty when the cache cannot be read."""

        def read(db: sqlite3.Connection) -> dict[str, Entry]:
            rows = db.execute(f"SELECT {_COLUMNS} FROM session").fetchall()  # noqa: S608 - constant
            return {row[0]: _entry(row) for row in rows}

        return self._use(read, {})

    def update(self, entries: Mapping[str, Entry], gone: Iterable[str] = ()) -> None:
        """Store ``entries`` and forget the sessions in ``gone``."""

        def write(db: sqlite3.Connection) -> None:
            marks = ", ".join("?" * (_COLUMNS.count(",") + 1))
            db.executemany(
                f"INSERT OR REPLACE INTO session ({_COLUMNS}) VALUES ({marks})",  # noqa: S608 - constant
                [_row(entry) for entry in entries.values()],
            )
            for session_id in gone:
                _forget(db, session_id)

        self._use(write, None)

    def indexed(self) -> Mapping[str, tuple[int, str]]:
        """The last message of each session in the full-text index, and the stamp it had then."""

        def read(db: sqlite3.Connection) -> dict[str, tuple[int, str]]:
            rows = db.execute("SELECT id, seq, stamp FROM indexed").fetchall()
            return {session_id: (seq, stamp) for session_id, seq, stamp in rows}

        return self._use(read, {})

    def index(
        self, session_id: str, messages: Sequence[StoredMessage], last: int, stamp: str
    ) -> None:
        """Add ``messages`` to the full-text index, which then reaches to ``last``."""

        def write(db: sqlite3.Connection) -> None:
            for stored in messages:
                text = _searchable(stored.message)
                if text:
                    place = db.execute(
                        "INSERT INTO place (session_id, seq) VALUES (?, ?)",
                        (session_id, stored.seq),
                    )
                    db.execute(
                        "INSERT INTO words (rowid, body) VALUES (?, ?)", (place.lastrowid, text)
                    )
            db.execute(
                "INSERT OR REPLACE INTO indexed (id, seq, stamp) VALUES (?, ?, ?)",
                (session_id, last, stamp),
            )

        self._use(write, None)

    def search(self, text: str, limit: int = 50) -> Sequence[SearchHit]:
        """The best hits for all words of ``text``, the last one possibly unfinished."""
        words = text.replace("\0", " ").split()
        if not words:
            return ()

        def read(db: sqlite3.Connection) -> list[SearchHit]:
            if _has_index(db):
                query = " ".join('"' + word.replace('"', '""') + '"' for word in words) + "*"
                rows = db.execute(
                    "SELECT session_id, seq, snippet(words, 0, '[', ']', '…', 12)"
                    " FROM words JOIN place ON place.id = words.rowid"
                    " WHERE words MATCH ? ORDER BY rank LIMIT ?",
                    (query, limit),
                )
            else:
                condition = " AND ".join(["instr(lower(body), lower(?))"] * len(words))
                rows = db.execute(
                    "SELECT session_id, seq, substr(body, 1, 80) FROM words JOIN place"  # noqa: S608 - constants
                    f" ON place.id = words.rowid WHERE {condition} LIMIT ?",
                    (*words, limit),
                )
            return [SearchHit(*row) for row in rows]

        return self._use(read, [])

    def clear(self) -> None:
        """Throw everything away; the next listing and indexing make it again."""
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                self.path.with_name(self.path.name + suffix).unlink()

    def _use(self, body: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        try:
            try:
                return self._transact(body)
            except sqlite3.DatabaseError as error:
                if not _is_broken(error):
                    raise
                self.clear()
                return self._transact(body)
        except (sqlite3.Error, OSError, ValueError) as error:
            self.warning = f"the session catalogue {self.path} cannot be used: {error}"
            LOG.warning("%s", self.warning)
            return otherwise

    def _transact(self, body: Callable[[sqlite3.Connection], T]) -> T:
        if not self.path.exists():
            _private.ensure_directory(self.path.parent)
            with contextlib.suppress(FileExistsError):
                import os

                os.close(_private.create(self.path))
        db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        with contextlib.closing(db):
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = OFF")  # a cache: it can be made again
            db.execute("BEGIN IMMEDIATE")
            _ensure_tables(db)
            result = body(db)
            db.execute("COMMIT")
        return result


def _ensure_tables(db: sqlite3.Connection) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return
    if version:
        raise sqlite3.DatabaseError("no such version")
    for statement in _TABLES:
        db.execute(statement)
    try:
        db.execute("CREATE VIRTUAL TABLE words USING fts5 (body)")
    except sqlite3.OperationalError:  # SQLite was built without FTS5
        db.execute("CREATE TABLE words (body TEXT NOT NULL)")
    db.execute(f"PRAGMA user_version = {VERSION}")


def _has_index(db: sqlite3.Connection) -> bool:
    row = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'words'").fetchone()
    return "fts5" in row[0]


def _is_broken(error: sqlite3.DatabaseError) -> bool:
    name = getattr(error, "sqlite_errorname", "")
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "no such" in str(error)


def _forget(db: sqlite3.Connection, session_id: str) -> None:
    db.execute("DELETE FROM session WHERE id = ?", (session_id,))
    db.execute("DELETE FROM indexed WHERE id = ?", (session_id,))
    db.execute(
        "DELETE FROM words WHERE rowid IN (SELECT id FROM place WHERE session_id = ?)",
        (session_id,),
    )
    db.execute("DELETE FROM place WHERE session_id = ?", (session_id,))


def _searchable(message: Message) -> str:
    """What a person may look for: what was said and what tools printed; not the thinking."""
    text = message.text
    if isinstance(message, AssistantMessage):
        calls = (" ".join(map(str, call.arguments.values())) for call in message.tool_calls)
        text = "\n".join((text, *calls))
    return text[:MAX_INDEXED_CHARACTERS].encode(errors="replace").decode().strip()


def _row(entry: Entry) -> tuple[object, ...]:
    info = entry.info
    usage = info.usage
    return (
        info.id,
        entry.stamp,
        to_column(info.title),
        to_column(info.cwd),
        info.created_at,
        info.updated_at,
        info.status.value,
        to_column(info.detail),
        info.turns,
        to_column(info.model),
        info.parent_id,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        info.cost_usd,
    )


def _entry(row: Sequence[Any]) -> Entry:
    (
        session_id, stamp, title, cwd, created_at, updated_at, status, detail, turns, model,
        parent_id, *usage, cost_usd,
    ) = row  # fmt: skip
    return Entry(
        str(stamp),
        SessionInfo(
            id=str(session_id),
            title=from_column(title),
            cwd=from_column(cwd),
            created_at=created_at,
            updated_at=updated_at,
            status=SessionStatus(status),
            turns=turns,
            model=from_column(model),
            detail=from_column(detail),
            usage=Usage(*usage),
            cost_usd=cost_usd,
            parent_id=None if parent_id is None else str(parent_id),
        ),
    )
