"""Sessions as every earlier version of the program wrote them go on, and nothing of them is lost."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from agentcli.domain.session import SessionStatus
from agentcli.store import schema
from agentcli.store.files import read_info, read_session
from agentcli.store.repair.check import check
from agentcli.store.repair.pages import read_tables
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore, recover
from tests.store.sessions import text

DIRECTORY = Path(__file__).with_name("versions")
VERSIONS = range(2, schema.SCHEMA_VERSION)


@pytest.fixture(params=VERSIONS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "sessions" / "old.db"
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((DIRECTORY / f"v{request.param}.sql").read_text(encoding="utf-8"))
        assert db.execute("PRAGMA user_version").fetchone() == (request.param,)
    return path


def rows_of(path: Path) -> dict[str, list[dict[str, object]]]:
    """Every row of every table, without what its version did not know."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        names = [
            row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        return {name: [dict(row) for row in db.execute(f"SELECT * FROM {name}")] for name in names}


def test_there_is_a_file_of_every_earlier_version() -> None:
    assert sorted(DIRECTORY.glob("*.sql")) == [DIRECTORY / f"v{number}.sql" for number in VERSIONS]


@pytest.mark.spec("REC-7")
def test_a_migration_keeps_every_value_of_every_row(path: Path) -> None:
    before = rows_of(path)
    assert check(path) == []
    assert read_info(path).title == "first prompt"
    asyncio.run(_opened(path))
    after = rows_of(path)
    for name, rows in before.items():
        kept = [{key: row[key] for key in old} for old, row in zip(rows, after[name], strict=True)]
        assert kept == rows, name
    assert all(row["checksum"] is not None for row in after["message"])
    assert check(path) == []


async def _opened(path: Path) -> None:
    await (await SqliteStore.open(path)).aclose()


@pytest.mark.spec("REC-1", "REC-7")
def test_a_turn_that_was_killed_then_is_balanced_now_and_the_session_goes_on(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        loaded, results = await recover(store)
        assert [result.call_id for result in results] == ["c3"]
        assert loaded.info.status is SessionStatus.CRASHED
        assert [note.text for note in loaded.notes] == ["half an answer"]
        assert [item.text for item in await store.queue_waiting()] == ["waiting"]
        assert await store.get("todos") == ["one", "two"]
        assert await store.read("a1") == b"raw"
        await store.record_prompt(text("more"))
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []
    said = [stored.message.text for stored in read_session(path, hidden=True).messages]
    assert {"first prompt", "second prompt é☃", "third", "fourth", "more"} <= set(said)


@pytest.mark.spec("REC-7")
def test_rows_are_read_by_their_places_in_every_version(path: Path) -> None:
    """Without SQLite: what it reads of the file is what stands there."""
    found, problems = read_tables(path)
    assert problems == [] or all("file does not say where" in line for line in problems)
    for name, rows in rows_of(path).items():
        kept = [
            {key: row.get(key) for key in old} for old, row in zip(rows, found[name], strict=True)
        ]
        assert kept == rows, name


@pytest.mark.spec("REC-7")
def test_repair_brings_a_damaged_one_up_to_date(path: Path) -> None:
    messages = len(read_session(path, hidden=True).messages)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE message", b"CREATE TABLE mfssage", 1))
    assert check(path) != []
    repair(path)
    assert check(path) == []
    assert len(read_session(path, hidden=True).messages) == messages + 1  # the killed call's result
