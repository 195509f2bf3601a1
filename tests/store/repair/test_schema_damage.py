"""What a file says of its own tables is not believed: it is compared with what was made."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionDamaged
from agentcli.domain.messages import ToolResult
from agentcli.store import schema
from agentcli.store.files import read_session
from agentcli.store.repair.check import check
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import change, finished_session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return asyncio.run(finished_session(tmp_path / "sessions", turns=2))


def flip(path: Path, old: bytes, new: bytes) -> None:
    """Change ``old``, which stands once in the first page or is as good everywhere."""
    data = path.read_bytes()
    assert len(old) == len(new) and old in data
    path.write_bytes(data.replace(old, new, 1))


DAMAGES = [
    (b"body TEXT NOT NULL,\n  created_at REAL NOT NULL,\n  hidden_by", b"bodx TEXT NOT NULL,\n  created_at REAL NOT NULL,\n  hidden_by"),
    (b"role TEXT", b"rolg TEXT"),
    (b"CREATE TABLE message", b"CREATE TABLE messagf"),
    (b"CREATE TABLE message", b"CREATE TACLE message"),
    (b"IN ('queued'", b"IN ('qveued'"),
    (b"DEFAULT 'completion'", b"DEFAULT 'compleuion'"),
    (b"result TEXT,", b"result\x14TEXT,"),
    (b"place INTEGER", b"place INTEGES"),
    (b"singleton = 1", b"singleton = 3"),
]  # fmt: skip


@pytest.mark.spec("REC-7", "FAIL-3")
@pytest.mark.parametrize(("old", "new"), DAMAGES, ids=[new.decode()[:24] for _, new in DAMAGES])
def test_a_bit_of_the_schema_is_seen_and_repair_loses_nothing(
    path: Path, old: bytes, new: bytes
) -> None:
    before = read_session(path)
    flip(path, old, new)
    assert check(path) != []
    with pytest.raises(SessionDamaged, match="agent sessions repair"):
        asyncio.run(SqliteStore.open(path))
    report = repair(path)
    assert report.copy is not None
    assert check(path) == []
    after = read_session(path)
    assert [s.message for s in after.messages] == [s.message for s in before.messages]
    assert (after.info, after.notes) == (before.info, before.notes)


@pytest.mark.spec("REC-7")
@pytest.mark.parametrize("version", [1, 8, 11, 73])
def test_a_version_number_that_has_changed_is_not_believed(path: Path, version: int) -> None:
    change(path, f"PRAGMA user_version = {version}")
    assert "version number" in check(path)[0]
    repair(path)
    assert check(path) == []
    assert len(read_session(path).messages) == 10


def with_bytes(seq: int, old: bytes, new: bytes) -> Callable[[sqlite3.Connection], None]:
    def damage(db: sqlite3.Connection) -> None:
        (body,) = db.execute(
            "SELECT CAST(body AS BLOB) FROM message WHERE seq = ?", (seq,)
        ).fetchone()
        assert old in body
        db.execute(
            "UPDATE message SET body = CAST(? AS TEXT) WHERE seq = ?",
            (body.replace(old, new), seq),
        )

    return damage


def damaged_by(path: Path, damage: Callable[[sqlite3.Connection], None]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        damage(db)


@pytest.mark.spec("REC-7", "FAIL-3")
@pytest.mark.parametrize(
    ("seq", "old", "new"),
    [
        (1, b"prompt 0", b"promqt 0"),  # silent: valid JSON
        (1, b"prompt 0", b"prom\xfft 0"),
        (3, b"file.txt", b"fi\x05e.txt"),
        (2, b'"id":"a0"', b'"id":"c0"'),
        (3, b'"call_id"', b'"call_id('),
        (5, b'{"v"', b'{"w"'),
    ],
)
def test_one_byte_of_a_message_is_put_right(path: Path, seq: int, old: bytes, new: bytes) -> None:
    before = read_session(path)
    damaged_by(path, with_bytes(seq, old, new))
    assert any(f"message {seq}" in line or "UTF-8" in line for line in check(path))
    with pytest.raises(SessionDamaged):
        read_session(path)
    report = repair(path)
    assert report.restored == (f"message {seq}: one byte of it had changed",)
    assert report.lost == ()
    assert read_session(path).messages == before.messages
    assert check(path) == []


@pytest.mark.spec("REC-7")
def test_a_message_with_more_damage_is_kept_with_a_mark_and_so_is_its_result(path: Path) -> None:
    damaged_by(path, with_bytes(2, b"I look.", b"I\xff\xfe\x00k."))
    damaged_by(path, with_bytes(3, b'"text":"file.txt"', b'\xfftext":"file.tXX'))
    damaged_by(path, with_bytes(6, b"prompt 1", b"prompt 23"))
    report = repair(path)
    assert check(path) == []
    messages = [stored.message for stored in read_session(path).messages]
    assert len(messages) == 10 and len(report.lost) == 3
    assert "I��" in messages[1].text and "damaged" in messages[1].text
    assert [call.id for call in messages[1].tool_calls] == ["a0", "b0"]
    assert isinstance(messages[2], ToolResult) and messages[2].call_id == "a0"
    assert "file.tXX" in messages[2].text and "damaged" in messages[2].text
    assert messages[5].text.startswith("prompt 23") and "damaged" in messages[5].text


@pytest.mark.spec("REC-7")
def test_a_checksum_that_has_changed_is_no_damage_of_its_message(path: Path) -> None:
    before = read_session(path)
    only = "SELECT (checksum | 16) - (checksum & 16)"  # one bit is the other way round
    change(path, f"UPDATE message SET checksum = ({only}) WHERE seq = 1")
    assert check(path) != []
    assert repair(path).lost == ()
    assert read_session(path).messages == before.messages


@pytest.mark.spec("REC-7")
def test_a_message_without_a_checksum_counts_as_it_is(path: Path) -> None:
    change(path, "UPDATE message SET checksum = NULL")
    assert check(path) == []
    assert len(read_session(path).messages) == 10


def test_a_file_of_an_earlier_version_has_beginnings_of_todays_tables(path: Path) -> None:
    known = schema.known_tables()
    assert known["tool_run"].columns["raw"] == "raw TEXT REFERENCES blob (hash)"
    assert "CHECK ((cron_expression IS NULL) <> (scheduled_at IS NULL))" in known["schedule"].rules
    assert schema.least_columns("message") == 5 and schema.least_columns("event") == 4


@pytest.mark.parametrize("extra", ["TABLE mine (x)", "INDEX mine ON message (created_at)"])
def test_what_a_user_adds_to_a_file_is_no_damage(path: Path, extra: str) -> None:
    change(path, f"CREATE {extra}")
    assert check(path) == []
