"""A session's file as any program may read and change it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def opened(path: Path | str) -> Iterator[sqlite3.Connection]:
    """The database: what was changed is committed, and unlike ``sqlite3`` alone it is closed."""
    with closing(sqlite3.connect(path)) as db, db:
        yield db
