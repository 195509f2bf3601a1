"""The write-ahead log: what a kill or a full disk leaves is no fault; a change of what was committed is."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import pytest

from agentcli.store.wal import FRAME_HEADER_SIZE, HEADER_SIZE, count_whole, fault_of_log

STEP = FRAME_HEADER_SIZE + 4096


def logged(path: Path, *, given_up: int, commits: int) -> bytes:
    """A log in which a transaction of many pages was given up, as on a full disk, then went on."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA cache_size = 2")  # pages leave for the log before the commit
        db.execute("CREATE TABLE t (x)")
        db.execute("INSERT INTO t VALUES ('first')")
        db.execute("BEGIN")
        for number in range(given_up):
            db.execute("INSERT INTO t VALUES (?)", (str(number) * 9000,))
        db.execute("ROLLBACK")
        for number in range(commits):
            db.execute("INSERT INTO t VALUES (?)", (f"later {number}",))
        return path.with_name(path.name + "-wal").read_bytes()


def fault(path: Path, log: bytes | bytearray) -> str:
    path.with_name(path.name + "-wal").write_bytes(log)
    return fault_of_log(path)


@pytest.mark.spec("FAIL-1", "OPS-1", "REC-7")
@pytest.mark.parametrize("given_up", [1, 2, 30])
@pytest.mark.parametrize("commits", [0, 1, 3])
def test_a_transaction_that_was_given_up_leaves_no_damage(
    tmp_path: Path, given_up: int, commits: int
) -> None:
    path = tmp_path / "s.db"
    log = logged(path, given_up=given_up, commits=commits)
    whole = count_whole(log)[1]
    frames = (len(log) - HEADER_SIZE) // STEP
    assert commits == 0 or given_up < 30 or whole < frames
    for cut in {0, 1, STEP // 2, (frames - whole - 1) * STEP if frames > whole else 0}:
        assert fault(path, log[: len(log) - cut]) == ""


@pytest.mark.spec("REC-7")
def test_a_change_in_what_was_committed_is_found_before_what_was_given_up(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    log = logged(path, given_up=30, commits=3)
    whole = count_whole(log)[1]
    dice = random.Random(6)
    for frame in range(whole):
        damaged = bytearray(log)
        damaged[HEADER_SIZE + frame * STEP + FRAME_HEADER_SIZE + dice.randrange(4096)] ^= 4
        assert "has changed" in fault(path, damaged), frame
