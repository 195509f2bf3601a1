"""Snapshots and rewinds of a salvaged session, for its new file (REC-7, TT-1).

Law: a row whose content is lost says so instead of naming what is not there.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from agentcli.domain.rewind import FileKind
from agentcli.store.repair.salvage import Row, Tables

_SIDES = ("before", "after")


def insert_rewinds(
    db: sqlite3.Connection,
    tables: Tables,
    new_seq: Mapping[int | None, int],
    blobs: Mapping[str, bytes],
    lost: list[str],
) -> None:
    """Write both tables; messages are numbered anew by ``new_seq``."""
    known = sorted(seq for seq in new_seq if seq is not None)
    for row in tables.get("rewind", ()):
        _try(db, "rewind", _rewind(row, new_seq, known), lost)
    rewinds = {row_id for (row_id,) in db.execute("SELECT id FROM rewind")}
    for row in tables.get("file_change", ()):
        _try(db, "file_change", _change(row, new_seq, known, blobs, rewinds), lost)


def _rewind(row: Row, new_seq: Mapping[int | None, int], known: Sequence[int]) -> Row:
    try:
        moves = [[new_seq.get(seq) for seq in move] for move in json.loads(row["messages"])]
    except (ValueError, TypeError):
        moves = []
    newest = _place(row.get("newest_seq"), new_seq, known)
    return {
        **row,
        "messages": json.dumps([move for move in moves if move[:1] != [None]]),
        "newest_seq": newest,
    }


def _change(
    row: Row,
    new_seq: Mapping[int | None, int],
    known: Sequence[int],
    blobs: Mapping[str, bytes],
    rewinds: set[int],
) -> Row:
    mended = {**row, "seq": _place(row.get("seq"), new_seq, known)}
    for side in _SIDES:
        name = row.get(f"{side}_data")
        if name is not None and name not in blobs:
            mended |= {f"{side}_kind": FileKind.UNKEPT.value, f"{side}_data": None}
    if row.get("rewind") not in rewinds:
        mended["rewind"] = None
    return mended


def _place(seq: Any, new_seq: Mapping[int | None, int], known: Sequence[int]) -> int:
    """The new number of the message ``seq`` or of the last one before it that is left."""
    at = bisect_right(known, seq) if isinstance(seq, int) else 0
    return new_seq[known[at - 1]] if at else 0


def _try(db: sqlite3.Connection, table: str, row: Row, lost: list[str]) -> None:
    names = [name for name in row if name != "__rowid"]
    marks = ", ".join("?" * len(names))
    try:
        db.execute(
            f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 - own names
            [row[name] for name in names],
        )
    except sqlite3.Error as error:
        lost.append(f"a row of {table}: {error}")
