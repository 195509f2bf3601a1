"""A database that may be lost: how the catalogue reads and writes its file.

Laws: an operation is one transaction on a connection of its own; a broken file is made again
without a word; any other failure is a warning and a value given for that case (FAIL-2). An
operation can be cancelled at any moment: it is rolled back, which costs a cache nothing, and
neither connection nor thread is left.

Built on aiosqlite: statement by statement, never on the event loop. A session file cannot
afford that: there a transaction is one job that nothing may tear. So session files have a
thread of their own (``_worker``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentcli.store import _private

if TYPE_CHECKING:
    from aiosqlite import Connection

T = TypeVar("T")
Body = Callable[["Connection"], Awaitable[T]]

BUSY_TIMEOUT_S = 2.0
RETRY_DELAY_S = 0.02
STATEMENT_TIMEOUT_S = 0.05  # what SQLite waits for a lock, out of reach of a cancel
JOIN_TIMEOUT_S = 1.0
_ROWS_PER_FETCH = 64
LOG = logging.getLogger(__name__)


class Broken(sqlite3.DatabaseError):
    """What is in the file is not ours."""


class Cache:
    """The file at ``path``; ``warning`` is what went wrong last."""

    def __init__(self, path: Path, version: int, create_tables: Body[None]) -> None:
        self.path = path
        self.warning: str | None = None
        self._version = version
        self._create_tables = create_tables

    async def read(self, body: Body[T], otherwise: T) -> T:
        """What ``body`` returns; ``otherwise`` without a file or when it cannot be read."""
        return await self._use(body, otherwise, writing=False)

    async def write(self, body: Body[None]) -> None:
        """Commit what ``body`` does; it may be called again while others hold the lock."""
        await self._use(body, None, writing=True)

    async def clear(self) -> None:
        """Throw everything away."""
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                self.path.with_name(self.path.name + suffix).unlink()

    async def _use(self, body: Body[T], otherwise: T, *, writing: bool) -> T:
        try:
            if not writing and not self.path.exists():
                return otherwise
            try:
                return await self._run_patiently(body, writing=writing)
            except sqlite3.DatabaseError as error:
                if not _is_broken(error):
                    raise
                await self.clear()
                return await self._run_patiently(body, writing=writing)
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
            _private.ensure_directory(self.path.parent)
            with contextlib.suppress(FileExistsError):
                os.close(_private.create(self.path))
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
        if await value(db, "PRAGMA user_version") == self._version:
            return
        await db.execute("PRAGMA journal_mode = WAL")
        await db.execute("BEGIN IMMEDIATE")
        found = await value(db, "PRAGMA user_version")
        if found == 0:
            await self._create_tables(db)
            await db.execute(f"PRAGMA user_version = {self._version}")
        elif found != self._version:
            raise Broken(f"version {found}")
        await db.execute("COMMIT")


async def value(db: Connection, query: str) -> Any:
    """The first column of the first row."""
    return next(iter(await db.execute_fetchall(query)))[0]


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
        _end(thread, opened)


def _end(thread: Any, opened: list[sqlite3.Connection]) -> None:
    """Wait for a thread to which nothing is left that takes long."""
    if thread.ident is not None:
        thread.join(JOIN_TIMEOUT_S)
    if not thread.is_alive():
        for db in opened:
            db.close()


def _is_broken(error: sqlite3.DatabaseError) -> bool:
    if isinstance(error, Broken):
        return True
    return _name(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "no such" in str(error)


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or ""
