"""Reading what can be read of a damaged database, row by row.

A damaged page costs the rows on it and no others: rows are fetched upwards from the first,
downwards from the last, and one by one in between. A damaged first page is replaced by that
of a fresh session file, whose tables start on the same pages.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentcli.store import _private
from agentcli.store._file import MAX_VALUE_BYTES
from agentcli.store._schema import STATEMENTS

MAX_PROBES = 50_000
MAX_PROBES_BEYOND = 2_000  # where no row above the damage can be reached
_PAGE_COUNT = slice(28, 32)  # https://sqlite.org/fileformat2.html#the_database_header
_FREE_LIST = slice(32, 40)
_WAL_MARK = slice(18, 20)

Row = Mapping[str, Any]
Tables = dict[str, list[Row]]


def salvage(path: Path, tables: tuple[str, ...]) -> tuple[Tables, list[str]]:
    """The readable rows of ``tables`` in the copy at ``path``, and what could not be read.

    ``path`` may be changed; give it a copy.
    """
    found, lost = _read_tables(path, tables)
    if not found.get("message"):
        _replace_first_page(path)
        again, lost_again = _read_tables(path, tables)
        if again.get("message"):
            return again, [*lost_again, "the first page was damaged and was replaced"]
    return found, lost


def _read_tables(path: Path, tables: tuple[str, ...]) -> tuple[Tables, list[str]]:
    found: Tables = {}
    lost: list[str] = []
    try:
        db = sqlite3.connect(path, isolation_level=None)
    except sqlite3.Error as error:
        return found, [str(error)]
    with contextlib.closing(db):
        db.row_factory = sqlite3.Row
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        for table in tables:
            try:
                db.execute("PRAGMA writable_schema = ON")  # reads truncated files, too
                rows, problem = _read_table(db, table)
            except (sqlite3.Error, OverflowError) as error:
                rows, problem = [], str(error)
            found[table] = rows
            if problem:
                lost.append(f"table {table}: {problem}; {len(rows)} rows could be read")
    return found, lost


def _read_table(db: sqlite3.Connection, table: str) -> tuple[list[Row], str]:
    columns = [row["name"] for row in db.execute(f"PRAGMA table_info({table})")]
    if not columns:
        return [], "missing"
    key = "rowid" if _has_rowid(db, table) else None
    if key is None:
        rows, problem = _run(db, f"SELECT * FROM {table}")  # noqa: S608 - own names
        return rows, problem
    query = f"SELECT rowid AS __rowid, * FROM {table}"  # noqa: S608 - own names
    upwards, problem = _run(db, f"{query} ORDER BY rowid")
    if not problem:
        return upwards, ""
    downwards, _ = _run(db, f"{query} ORDER BY rowid DESC")
    rows_by_id = {row["__rowid"]: row for row in (*upwards, *downwards)}
    low = max((row["__rowid"] for row in upwards), default=0) + 1
    high = min((row["__rowid"] for row in downwards), default=low + MAX_PROBES_BEYOND)
    for rowid in range(low, min(high, low + MAX_PROBES)):
        for row in _run(db, f"{query} WHERE rowid = {rowid}")[0]:
            rows_by_id[rowid] = row
    return [rows_by_id[rowid] for rowid in sorted(rows_by_id)], problem


def _has_rowid(db: sqlite3.Connection, table: str) -> bool:
    try:
        db.execute(f"SELECT rowid FROM {table} LIMIT 0")  # noqa: S608 - own names
    except sqlite3.OperationalError:
        return False
    return True


def _run(db: sqlite3.Connection, query: str) -> tuple[list[Row], str]:
    rows: list[Row] = []
    try:
        rows.extend(dict(row) for row in _each(db, query))
    except sqlite3.Error as error:
        return rows, str(error)
    return rows, ""


def _each(db: sqlite3.Connection, query: str) -> Iterator[sqlite3.Row]:
    yield from db.execute(query)


def _replace_first_page(path: Path) -> None:
    fresh = path.with_name(f"{path.name}.fresh")
    os.close(_private.create(fresh))
    try:
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as db:
            page_size = int(db.execute("PRAGMA page_size").fetchone()[0])
            db.execute("BEGIN")
            for statement in STATEMENTS:
                db.execute(statement)
            db.execute("COMMIT")
        page = bytearray(fresh.read_bytes()[:page_size])
    finally:
        fresh.unlink()
    size = path.stat().st_size
    if size <= page_size:
        return
    page[_PAGE_COUNT] = (size // page_size).to_bytes(4)
    page[_FREE_LIST] = bytes(8)
    page[_WAL_MARK] = b"\x01\x01"
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with path.open("r+b") as file:
        file.write(page)
