"""The list of all sessions and a full-text index, in ``catalogue.db``: a cache.

Laws: the session files are the truth; losing or breaking the catalogue loses nothing; it is
written after a turn, never on the way to a request. An operation is one transaction on a
connection of its own; a broken file is made again, which ``losses`` counts; before a search it is
proved unless it is as this program has left it (``verify``); any other failure is a warning
and a value given for that case (FAIL-2). An operation can be cancelled at any moment: it is rolled
back, which costs a cache nothing, and neither connection nor thread is left.

Built on aiosqlite: statement by statement, never on the event loop. A session file cannot afford
that: there a transaction is one job that nothing may tear. So session files have a thread of
their own (``store.sqlite.Worker``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sqlite3
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Sized
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentcli.domain.messages import Usage
from agentcli.domain.secrecy import CUT, MARKS, excerpt, plain_part
from agentcli.domain.session import AFTER_ALL, Origin, SessionInfo, SessionStatus
from agentcli.domain.values import frozen
from agentcli.store import disk
from agentcli.store.codec import from_column, to_column, to_json

if TYPE_CHECKING:
    from aiosqlite import Connection


T = TypeVar("T")
Body = Callable[["Connection"], Awaitable[T]]

BUSY_TIMEOUT_S = 2.0
RETRY_DELAY_S = 0.02
STATEMENT_TIMEOUT_S = 0.05  # what SQLite waits for a lock, out of reach of a cancel
JOIN_TIMEOUT_S = 1.0
_ROWS_PER_FETCH = 64
_IDS_PER_QUERY = 500
LOG = logging.getLogger(__name__)

VERSION = 6
MESSAGES_PER_INSERT = 200
MAX_RANKED = 2_000
_AROUND = 8_192  # characters: more than a key has
_FOUND, _FIRST = (
    f"snippet(words, 0, '{MARKS[0]}', '{MARKS[1]}', '{CUT}', 12)",
    "substr(body, 1, 80)",
)
_SHOWN = "shown({0}, substr(body, max(1, instr(body, plain({0})) - {1}), length({0}) + 2 * {1}))"
_WORDS_OF_DAMAGE = (
    "no such",
    "has no column",
    "Could not decode",
    "vtable constructor",
    "malformed",
    "fts5",
)

_STAMPS = "CREATE INDEX session_stamp ON session (id, stamp)"  # new in version 6
_TABLES = (
    """
CREATE TABLE session (
  id TEXT PRIMARY KEY, stamp TEXT NOT NULL, title TEXT NOT NULL, cwd TEXT NOT NULL,
  created_at REAL NOT NULL, updated_at REAL NOT NULL, status TEXT NOT NULL,
  detail TEXT NOT NULL, turns INTEGER NOT NULL, model TEXT NOT NULL, parent_id TEXT,
  input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER,
  cache_write_tokens INTEGER, reasoning_tokens INTEGER, cost_usd REAL, agent TEXT NOT NULL,
  origin TEXT NOT NULL, proof INTEGER NOT NULL
)""",
    "CREATE INDEX session_newest ON session (updated_at, id)",
    "CREATE INDEX session_place ON session (cwd, updated_at, id)",
    _STAMPS,
    "CREATE TABLE seen (singleton INTEGER PRIMARY KEY, mark TEXT NOT NULL, busy TEXT NOT NULL)",
    """
CREATE TABLE indexed (
  id TEXT PRIMARY KEY, seq INTEGER NOT NULL, stamp TEXT NOT NULL, proof INTEGER NOT NULL
)""",
    """
CREATE TABLE place (
  id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL, proof INTEGER NOT NULL
)""",
    "CREATE INDEX place_session ON place (session_id)",
)
_WORDS = "CREATE VIRTUAL TABLE words USING fts5 (body)"
_PLAIN_WORDS = "CREATE TABLE words (body TEXT NOT NULL)"
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
_COUNT_PLACES = "SELECT count(*) FROM place JOIN words ON words.rowid = place.id"
_COLUMNS = (
    "id, stamp, title, cwd, created_at, updated_at, status, detail, turns, model, parent_id,"
    " input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,"
    " cost_usd, agent, origin, proof"
)
_FORGET = (
    "DELETE FROM session WHERE id = ?",
    "DELETE FROM indexed WHERE id = ?",
    "DELETE FROM words WHERE rowid IN (SELECT id FROM place WHERE session_id = ?)",
    "DELETE FROM place WHERE session_id = ?",
)


class Broken(sqlite3.DatabaseError):
    """What is in the file is not ours."""


class Outdated(Broken):
    """The file is of another version."""


@frozen
class CatalogueEntry:
    """A session as it was when its files had ``stamp``."""

    stamp: str
    info: SessionInfo


@frozen
class SeenDirectory:
    """The directory of sessions when the cache was last brought up to date with all of it.

    ``mark`` is its stamp, empty where that proves nothing; ``busy`` are the sessions that somebody
    had open; ``count`` is how many are known now.
    """

    count: int
    mark: str = ""
    busy: frozenset[str] = frozenset()


@frozen
class IndexedText:
    """What is searched in a session's messages, by their seqs, up to ``last``."""

    session_id: str
    stamp: str
    last: int
    texts: Sequence[tuple[int, str]]


@frozen
class SearchHit:
    """Where a text was found; ``excerpt`` has the words between ``[`` and ``]``."""

    session_id: str
    seq: int
    excerpt: str


class Catalogue:
    """The cache at ``path``; ``warning`` is what went wrong last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warning: str | None = None
        self.losses = 0
        self._stamp_path = path.with_name(path.name + ".stamp")

    async def entries(self) -> Mapping[str, CatalogueEntry]:
        """All that is known, by session id; empty when the cache cannot be read."""

        async def read(db: Connection) -> dict[str, CatalogueEntry]:
            rows = await db.execute_fetchall(f"SELECT {_COLUMNS} FROM session")  # noqa: S608 - constant
            return await asyncio.to_thread(_entries, rows)

        return await self._read(read, {})

    async def newest(
        self,
        limit: int,
        places: Sequence[str] = (),
        *,
        agents: bool = False,
        before: tuple[float, str] = AFTER_ALL,
    ) -> Sequence[CatalogueEntry] | None:
        """The newest ``limit`` sessions, with ``places`` only those of one of these directories.

        ``agents`` includes those of sub-agents and batches; with ``before`` they come after a
        session of that time and id. ``None`` when the cache cannot be read.
        """
        query = f"SELECT {_COLUMNS} FROM session"  # noqa: S608 - constant
        order = "AND (updated_at, id) < (?, ?) ORDER BY updated_at DESC, id DESC LIMIT ?"
        whose = "1" if agents else "agent = ''"

        async def read(db: Connection) -> list[CatalogueEntry] | None:
            found: list[Any] = []
            for one in [[to_column(place)] for place in places] or [[]]:  # each by the index
                where = f"WHERE {'cwd = ? AND ' * len(one)}{whose} {order}"
                found += await db.execute_fetchall(f"{query} {where}", (*one, *before, limit))
            entries = (await asyncio.to_thread(_entries, found)).values()
            newest = sorted(entries, key=lambda e: (e.info.updated_at, e.info.id), reverse=True)
            return newest[:limit]

        return await self._read(read, None)

    async def entries_of(self, ids: Sequence[str]) -> Mapping[str, CatalogueEntry]:
        """What is known of these sessions."""

        async def read(db: Connection) -> dict[str, CatalogueEntry]:
            found: list[Any] = []
            for start in range(0, len(ids), _IDS_PER_QUERY):
                some = ids[start : start + _IDS_PER_QUERY]
                query = f"SELECT {_COLUMNS} FROM session WHERE id IN ({_marks(some)})"  # noqa: S608 - constant
                found += await db.execute_fetchall(query, some)
            return _entries(found)

        return await self._read(read, {})

    async def parents(self) -> Mapping[str, str]:
        """The sessions of sub-agents, and whose they are."""
        query = "SELECT id, parent_id FROM session WHERE agent != '' AND parent_id IS NOT NULL"
        return await self._all(query, lambda rows: {str(i): str(above) for i, above in rows}, {})

    async def ids(self) -> set[str]:
        """All sessions that are known."""
        query = "SELECT id FROM session"
        return await self._all(query, lambda rows: {row[0] for row in rows}, set())

    async def called(self, name: str) -> Mapping[str, str]:
        """The titles by id of what ``name`` may mean, newest first: a title, an id's start or end.

        A title in upper or lower case.
        """
        query = (
            "WITH meant(name) AS (SELECT ?) SELECT id, title FROM session, meant WHERE"
            " folded(title) = name OR substr(id, -length(name)) = name"
            " OR substr(id, 1, length(name)) = name ORDER BY updated_at DESC, id DESC"
        )
        return await self._all(
            query, lambda rows: {str(i): from_column(t) for i, t in rows}, {}, _folded(name)
        )

    async def seen(self) -> SeenDirectory:
        """What the cache was last brought up to date with."""

        async def read(db: Connection) -> SeenDirectory:
            count = int(await value(db, "SELECT count(*) FROM session"))
            for mark, busy in await db.execute_fetchall("SELECT mark, busy FROM seen"):
                return SeenDirectory(count, str(mark), frozenset(str(busy).split()))
            return SeenDirectory(count)

        return await self._read(read, SeenDirectory(0))

    async def note_seen(self, mark: str, busy: Iterable[str]) -> None:
        """Remember what the cache is up to date with."""

        async def write(db: Connection) -> None:
            await db.execute(
                "INSERT OR REPLACE INTO seen (singleton, mark, busy) VALUES (1, ?, ?)",
                (mark, " ".join(sorted(busy))),
            )

        await self._write(write)

    async def unindexed(self) -> Mapping[str, tuple[str, int]]:
        """The stamp of each session that is not all in the index, and the last message that is."""
        query = (
            "SELECT session.id, session.stamp, coalesce(indexed.seq, 0),"
            " (SELECT updated_at FROM session AS same WHERE same.id = session.id) AS time"
            " FROM session INDEXED BY session_stamp"
            " LEFT JOIN indexed ON indexed.id = session.id"
            " WHERE indexed.stamp IS NOT session.stamp ORDER BY time DESC"
        )
        return await self._all(query, lambda rows: {i: (str(s), int(n)) for i, s, n, _ in rows}, {})

    async def update(self, entries: Mapping[str, CatalogueEntry], gone: Iterable[str] = ()) -> None:
        """Store ``entries`` and forget the sessions in ``gone``."""
        ids = [(session_id,) for session_id in gone]

        async def write(db: Connection) -> None:
            marks = _marks(_COLUMNS.split(","))
            await db.executemany(
                f"INSERT OR REPLACE INTO session ({_COLUMNS}) VALUES ({marks})",  # noqa: S608 - constant
                (_row(entry) for entry in entries.values()),
            )
            for statement in _FORGET if ids else ():
                await db.executemany(statement, ids)

        await self._write(write)

    async def index(self, sessions: Sequence[IndexedText]) -> None:
        """Add these texts to the full-text index."""

        async def write(db: Connection) -> None:
            place = await value(db, "SELECT coalesce(max(id), 0) FROM place")
            for one in sessions:
                rows = await db.execute_fetchall(
                    "SELECT seq FROM indexed WHERE id = ?", (one.session_id,)
                )
                done = max((seq for (seq,) in rows), default=0)  # another process may be faster
                texts = [(seq, text) for seq, text in one.texts if seq > done]
                for start in range(0, len(texts), MESSAGES_PER_INSERT):
                    batch = texts[start : start + MESSAGES_PER_INSERT]
                    await db.executemany(
                        "INSERT INTO place (id, session_id, seq, proof) VALUES (?, ?, ?, ?)",
                        [
                            _proved((place + n, one.session_id, seq))
                            for n, (seq, _) in enumerate(batch, 1)
                        ],
                    )
                    await db.executemany(
                        "INSERT INTO words (rowid, body) VALUES (?, ?)",
                        [(place + n, text) for n, (_, text) in enumerate(batch, 1)],
                    )
                    place += len(batch)
                await db.execute(
                    "INSERT OR REPLACE INTO indexed (id, seq, stamp, proof) VALUES (?, ?, ?, ?)",
                    _proved((one.session_id, max(one.last, done), one.stamp)),
                )

        await self._write(write)

    async def search(self, text: str, limit: int = 50) -> Sequence[SearchHit]:
        """The best hits for all words of ``text``, the last one possibly unfinished."""
        words = text.replace("\0", " ").split()
        if not words:
            return ()

        async def read(db: Connection) -> list[SearchHit]:
            if await _has_index(db):
                query = _query(words)
                rows = await db.execute_fetchall(
                    f"SELECT session_id, seq, {_SHOWN.format(_FOUND, _AROUND)}"  # noqa: S608 - constants
                    " FROM words JOIN place ON place.id = words.rowid"
                    " WHERE words MATCH ? ORDER BY rank LIMIT ?",
                    (query, limit),
                )
            else:
                condition = " AND ".join(["instr(lower(body), lower(?))"] * len(words))
                rows = await db.execute_fetchall(
                    f"SELECT session_id, seq, {_SHOWN.format(_FIRST, _AROUND)}"  # noqa: S608 - constants
                    " FROM words JOIN place"
                    f" ON place.id = words.rowid WHERE {condition} LIMIT ?",
                    (*words, limit),
                )
            return [SearchHit(*row) for row in rows]

        return await self._read(read, [])

    async def search_sessions(self, text: str, limit: int = 50) -> Sequence[SearchHit]:
        """The sessions that ``text`` is found in, each with its best hit, best first."""
        words = text.replace("\0", " ").split()
        if not words:
            return ()

        async def read(db: Connection) -> list[SearchHit] | None:
            if not await _has_index(db):
                return None
            query = _query(words)
            best = dict(islice((await _best_places(db, query)).items(), limit))
            marks = _marks(best)
            rows = await db.execute_fetchall(
                f"SELECT rowid, {_SHOWN.format(_FOUND, _AROUND)} FROM words"  # noqa: S608 - marks
                f" WHERE words MATCH ? AND rowid IN ({marks})",
                (query, *(row for row, _ in best.values())),
            )
            excerpts = dict(tuple(row) for row in rows)
            return [
                SearchHit(session_id, seq, excerpts.get(row, ""))
                for session_id, (row, seq) in best.items()
            ]

        nothing: list[SearchHit] | None = []
        found = await self._read(read, nothing)
        if found is not None:
            return found
        first: dict[str, SearchHit] = {}
        for hit in await self.search(text, limit * 4):
            first.setdefault(hit.session_id, hit)
        return list(first.values())[:limit]

    async def verify(self, *, texts: bool = True) -> None:
        """Prove the file, unless it is as it was left; what is damaged is thrown away.

        Without ``texts`` only the list of sessions is proved.
        """
        if self._is_as_left():
            return

        async def prove(db: Connection) -> bool:
            await _prove_schema(db)
            for line in await db.execute_fetchall(
                "PRAGMA integrity_check(1)" if texts else "PRAGMA integrity_check(session)"
            ):
                if line[0] != "ok":
                    raise Broken(line[0])
            if texts:
                await _prove_texts(db)
            return texts

        if await self._read(prove, otherwise=False):
            self._leave()

    def _is_as_left(self) -> bool:
        stamp = disk.stamp_of(self.path)
        try:
            return not stamp or self._stamp_path.read_text(encoding="ascii") == stamp
        except (OSError, ValueError):
            return False

    def _leave(self) -> None:
        with contextlib.suppress(OSError):
            descriptor = disk.open_or_create(self._stamp_path, os.O_TRUNC)
            try:
                os.write(descriptor, disk.stamp_of(self.path).encode())
            finally:
                os.close(descriptor)

    async def clear(self) -> None:
        """Throw everything away."""
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm", ".stamp"):
            with contextlib.suppress(OSError):
                self.path.with_name(self.path.name + suffix).unlink()

    # --- one operation, one transaction --------------------------------------------------

    async def _read(self, body: Body[T], otherwise: T) -> T:
        """What ``body`` returns; ``otherwise`` without a file or when it cannot be read."""
        return await self._use(body, otherwise, writing=False)

    async def _all(
        self, query: str, make: Callable[[Iterable[Any]], T], nothing: T, *values: str | bytes
    ) -> T:
        """What ``make`` makes of the rows."""

        async def read(db: Connection) -> T:
            return make(await db.execute_fetchall(query, values))

        return await self._read(read, nothing)

    async def _write(self, body: Body[None]) -> None:
        """Commit what ``body`` does; it may be called again while others hold the lock."""
        was_left = self._is_as_left()
        await self._use(body, None, writing=True)
        if was_left:
            self._leave()

    async def _use(self, body: Body[T], otherwise: T, *, writing: bool) -> T:
        try:
            if not writing and not self.path.exists():
                return otherwise
            try:
                return await self._run_patiently(body, writing=writing)
            except (sqlite3.DatabaseError, ValueError, TypeError, LookupError) as error:
                if not _is_broken(error):
                    raise
                self.losses += not isinstance(error, Outdated)
                await self.clear()
                result = await self._run_patiently(body, writing=writing)
                self._leave()  # it is new
                return result
        except (sqlite3.Error, OSError, ValueError, RuntimeError) as error:
            self.warning = f"the session catalogue {self.path} cannot be used: {error}"
            LOG.warning("%s", self.warning)
            return otherwise

    async def _run_patiently(self, body: Body[T], *, writing: bool) -> T:
        """Wait here for what others write: where SQLite waits no cancel reaches it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + BUSY_TIMEOUT_S
        while True:
            try:
                return await self._run(body, writing=writing)
            except sqlite3.OperationalError as error:
                if not _name(error).startswith("SQLITE_BUSY") or loop.time() >= until:
                    raise
            await asyncio.sleep(RETRY_DELAY_S)

    async def _run(self, body: Body[T], *, writing: bool) -> T:
        if not self.path.exists():
            disk.ensure_directory(self.path.parent)
            with contextlib.suppress(FileExistsError):
                os.close(disk.create(self.path))
        async with _opened(self.path) as db:
            await db.execute("PRAGMA synchronous = OFF")  # it can be made again
            await self._ensure_tables(db)
            if not writing:
                return await body(db)
            await db.execute("BEGIN IMMEDIATE")
            result = await body(db)
            await db.execute("COMMIT")
            return result

    async def _ensure_tables(self, db: Connection) -> None:
        if await value(db, "PRAGMA user_version") == VERSION:
            return
        await db.execute("PRAGMA journal_mode = WAL")
        await db.execute("BEGIN IMMEDIATE")
        found = await value(db, "PRAGMA user_version")
        if found == 0:
            for statement in _TABLES:
                await db.execute(statement)
            try:
                await db.execute(_WORDS)
            except sqlite3.OperationalError:  # SQLite was built without FTS5
                await db.execute(_PLAIN_WORDS)
        elif found == VERSION - 1:
            await db.execute(_STAMPS)
        elif found != VERSION:
            raise Outdated(f"version {found}")
        await db.execute(f"PRAGMA user_version = {VERSION}")
        await db.execute("COMMIT")


async def _prove_schema(db: Connection) -> None:
    """SQLite believes what the file says of its tables, so it has to be what was made."""
    stored = set(await db.execute_fetchall(_SCHEMA))
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        for statement in (*_TABLES, _WORDS if await _has_index(db) else _PLAIN_WORDS):
            fresh.execute(statement)
        if {tuple(row) for row in stored} != set(fresh.execute(_SCHEMA)):
            raise Broken("its tables are not as they were made")


async def _prove_texts(db: Connection) -> None:
    """Each row by itself, and that for each text there is its place."""
    if await _has_index(db):  # https://sqlite.org/fts5.html#the_integrity_check_command
        await db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    if await value(db, "SELECT count(*) FROM words") != await value(db, _COUNT_PLACES):
        raise Broken("texts and places differ")
    for columns in (
        f"{_COLUMNS} FROM session",
        "id, session_id, seq, proof FROM place",
        "id, seq, stamp, proof FROM indexed",
    ):
        async with db.execute(f"SELECT {columns}") as rows:
            async for *row, proof in rows:
                if proof != _proof(row):
                    raise Broken(f"the row {row[0]} has changed")


def _marks(values: Sized) -> str:
    return ", ".join("?" * len(values))


async def _best_places(db: Connection, query: str) -> dict[str, tuple[int, int]]:
    """Of each session that ``query`` finds the best row and its message, best session first."""
    rows = await db.execute_fetchall(
        "SELECT words.rowid, session_id, seq FROM words JOIN place ON place.id = words.rowid"
        " WHERE words MATCH ? ORDER BY rank LIMIT ?",
        (query, MAX_RANKED),
    )
    best: dict[str, tuple[int, int]] = {}
    for row, session_id, seq in rows:
        best.setdefault(session_id, (row, seq))
    return best


def _query(words: Sequence[str]) -> str:
    """All of ``words``, the last one possibly unfinished, in the language of FTS5."""
    return " ".join('"' + word.replace('"', '""') + '"' for word in words) + "*"


async def _has_index(db: Connection) -> bool:
    return "fts5" in await value(db, "SELECT sql FROM sqlite_schema WHERE name = 'words'")


def _folded(text: Any) -> str | bytes:
    return to_column(from_column(text).casefold())


def _row(entry: CatalogueEntry) -> tuple[object, ...]:
    info = entry.info
    usage = info.usage
    row = (
        info.id, entry.stamp, to_column(info.title), to_column(info.cwd), float(info.created_at),
        float(info.updated_at), info.status.value, to_column(info.detail), info.turns,
        to_column(info.model), info.parent_id, usage.input_tokens, usage.output_tokens,
        usage.cache_read_tokens, usage.cache_write_tokens, usage.reasoning_tokens,
        None if info.cost_usd is None else float(info.cost_usd), to_column(info.agent),
        "" if info.origin is None else to_json(info.origin.as_json()),
    )  # fmt: skip
    return _proved(row)


def _proved(row: tuple[object, ...]) -> tuple[object, ...]:
    return (*row, _proof(row))


def _proof(row: Sequence[object]) -> int:
    """What a row is proved by when it is read: a cache answers with what was written, or not."""
    return zlib.crc32(repr(tuple(row)).encode("utf-8", "surrogatepass"))


def _entries(rows: Iterable[Any]) -> dict[str, CatalogueEntry]:
    try:
        return {row[0]: _entry(row) for row in rows}
    except (ValueError, TypeError) as error:
        raise Broken(str(error)) from error


def _entry(row: Sequence[Any]) -> CatalogueEntry:
    *row, proof = row
    if proof != _proof(row):
        raise Broken(f"the line of session {row[0]} has changed")
    (
        session_id, stamp, title, cwd, created_at, updated_at, status, detail, turns, model,
        parent_id, *usage, cost_usd, agent, origin,
    ) = row  # fmt: skip
    return CatalogueEntry(
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
            agent=from_column(agent),
            origin=Origin.from_json(json.loads(origin)) if origin else None,
        ),
    )


# --- connections -----------------------------------------------------------------------------


async def value(db: Connection, query: str) -> Any:
    """The first column of the first row; raises ``Broken`` without one."""
    for row in await db.execute_fetchall(query):
        return row[0]
    raise Broken(f"no answer to {query}")


@contextlib.asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[Connection]:
    """A connection that is closed, and its thread ended, whatever happens to the caller.

    aiosqlite drops what a cancelled opening opens, and its thread is no daemon: a connection
    left open keeps the process from exiting (read in 0.22.1, ``core.py``).
    """
    import aiosqlite

    logging.getLogger("aiosqlite").setLevel(logging.INFO)  # below that it logs whole sessions
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        db = sqlite3.connect(
            path, timeout=STATEMENT_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        db.create_function("folded", 1, _folded, deterministic=True)
        db.create_function("plain", 1, plain_part, deterministic=True)
        db.create_function("shown", 2, excerpt, deterministic=True)
        opened.append(db)
        return db

    connection = aiosqlite.Connection(connect, _ROWS_PER_FETCH)
    thread: Any = getattr(connection, "_thread", connection)
    thread.daemon = True  # a hanging disk must not keep the process from exiting
    try:
        await connection
        yield connection
        await connection.close()
    except BaseException:
        with contextlib.suppress(sqlite3.ProgrammingError):  # it was closed already
            for db in opened:
                db.interrupt()
        connection.stop()
        raise
    finally:
        if thread.ident is not None:
            thread.join(JOIN_TIMEOUT_S)  # nothing is left to it that takes long
        if not thread.is_alive():
            for db in opened:
                db.close()


def _is_broken(error: Exception) -> bool:
    if isinstance(error, Broken) or not isinstance(error, sqlite3.Error):
        return True  # a value that is none of ours
    if _name(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return True
    return any(words in str(error) for words in _WORDS_OF_DAMAGE)


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or ""
