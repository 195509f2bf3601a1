"""Files of version 1 are brought up to date, once, with a copy kept (DESIGN, the store)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from pathlib import Path

import pytest

from agentcli.domain.errors import PersistenceError, SessionTooNew
from agentcli.domain.messages import TextPart, ToolResult, Usage, UserMessage
from agentcli.domain.ports import RunStatus
from agentcli.domain.session import SessionStatus
from agentcli.store import schema as _migrations
from agentcli.store.files import SessionFiles, read_info, read_session
from agentcli.store.repair.check import check
from agentcli.store.schema import APPLICATION_ID, REWIND_TABLES, SCHEMA_VERSION, TABLES, table_names
from agentcli.store.sqlite import SqliteStore, recover
from tests.store.sessions import finished_session, text
from tests.support.databases import opened

VERSION_1_RUNS = """
CREATE TABLE tool_run (
  call_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  message_seq INTEGER NOT NULL REFERENCES message (seq),
  started_at REAL,
  finished_at REAL,
  raw TEXT REFERENCES blob (hash)
)"""


VERSION_2_MESSAGES = """
CREATE TABLE message (
  seq INTEGER PRIMARY KEY,
  role TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at REAL NOT NULL,
  hidden_by INTEGER REFERENCES message (seq)
)"""


def older(table: str, version: int) -> str:
    """The statement that made ``table`` in that version, up to 3."""
    table = table.replace(",\n  seal TEXT NOT NULL DEFAULT ''", "")
    if "TABLE task" in table:
        head, _, _ = table.partition(",\n  task_id")
        return f"{head}) WITHOUT ROWID"
    if "TABLE input_queue" in table:
        return table.replace(",\n  source TEXT NOT NULL DEFAULT 'user'", "")
    if "TABLE message" in table:
        return VERSION_2_MESSAGES
    if "TABLE tool_run" in table:
        head, _, _ = table.partition(",\n  line")
        return VERSION_1_RUNS if version == 1 else f"{head}\n)"
    return table


def body(**fields: object) -> str:
    return json.dumps({"v": 1, **fields})


OLDER_TABLES = [table for table in TABLES if table not in REWIND_TABLES]


def part(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """What version 1 wrote: partial answers in the history, bare rows for calls."""
    path = tmp_path / "sessions" / "old.db"
    path.parent.mkdir()
    db = sqlite3.connect(path)
    for table in OLDER_TABLES:
        if "TABLE note" not in table:
            db.execute(older(table, 1))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 1")
    db.execute(
        "INSERT INTO session VALUES (1, 'old', 'Old one', '/w', 1, 2, 'running', '', 2, 'a/b', NULL)"
    )
    calls = [
        {"type": "tool_call", "id": name, "name": "bash", "arguments": {}} for name in ("a", "b")
    ]
    maker = {"provider": "a", "model": "b", "stop_reason": "tool_use", "usage": {}}
    rows = [
        (1, "user", body(parts=[part("hi")])),
        (2, "partial", body(text="half an ans")),
        (3, "user", body(parts=[part("go on")])),
        (4, "assistant", body(parts=calls, **maker)),
        (5, "tool", body(parts=[part("A")], call_id="a", name="bash", status="ok")),
    ]
    db.executemany("INSERT INTO message (seq, role, body, created_at) VALUES (?, ?, ?, 5)", rows)
    db.execute("INSERT INTO tool_run VALUES ('a', 'bash', 'finished', 4, 5, 6, NULL)")
    db.execute("INSERT INTO tool_run VALUES ('b', 'bash', 'running', 4, 6, NULL, NULL)")
    db.commit()
    db.close()
    return path


def test_a_file_of_version_1_opens_with_everything_in_its_new_place(path: Path) -> None:
    before = path.read_bytes()

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        loaded = await store.load()
        assert [stored.seq for stored in loaded.messages] == [1, 3, 4, 5]
        assert [(n.after_seq, n.kind, n.text) for n in loaded.notes] == [
            (1, "partial", "half an ans")
        ]
        assert loaded.info.status is SessionStatus.CRASHED
        assert set(await store.tool_runs()) == {"b"}
        balanced, results = await recover(store)
        assert len(results) == 1
        assert balanced.messages[-2].message == ToolResult("a", "bash", (TextPart("A"),))
        assert balanced.runs["b"].status is RunStatus.INTERRUPTED
        await store.aclose()

    asyncio.run(scenario())
    backup = path.with_name("old.v1.backup")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with opened(backup) as db:
        assert db.execute("SELECT count(*) FROM message").fetchone() == (5,)
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert len(before) == backup.stat().st_size
    assert check(path) == []


@pytest.mark.spec("CMP-3")
def test_a_file_of_version_2_gets_the_column_that_orders_summaries(tmp_path: Path) -> None:
    path = tmp_path / "two.db"
    db = sqlite3.connect(path)
    for table in OLDER_TABLES:
        db.execute(older(table, 2))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute("PRAGMA user_version = 2")
    db.execute(
        "INSERT INTO session VALUES (1, 'two', 'Two', '/w', 1, 2, 'done', '', 1, 'a/b', NULL)"
    )
    rows = [(1, "user", body(parts=[part("hi")])), (2, "user", body(parts=[part("again")]))]
    db.executemany("INSERT INTO message (seq, role, body, created_at) VALUES (?, ?, ?, 5)", rows)
    db.commit()
    db.close()
    assert [stored.seq for stored in read_session(path).messages] == [1, 2]

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        summary = UserMessage((TextPart("short"),), is_summary=True)
        await store.record_compaction(summary, [0], 2, usage=Usage(), model="")
        assert [stored.seq for stored in (await store.load()).messages] == [3, 2]
        await store.aclose()

    asyncio.run(scenario())
    assert path.with_name("two.v2.backup").exists()
    assert check(path) == []


def test_migrated_tables_are_those_of_a_new_file(path: Path, tmp_path: Path) -> None:
    async def scenario() -> Path:
        await (await SqliteStore.open(path)).aclose()
        return await finished_session(tmp_path / "new")

    def shape(file: Path) -> dict[str, list[tuple[object, ...]]]:
        db = sqlite3.connect(file)
        try:
            return {
                name: sorted(row[1:] for row in db.execute(f"PRAGMA table_info({name})"))
                for name in table_names()
            }
        finally:
            db.close()

    new = asyncio.run(scenario())
    assert shape(path) == shape(new)


def test_reading_an_old_file_leaves_it_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    assert read_info(path).title == "Old one"
    assert len(read_session(path).notes) == 1
    assert check(path) == []
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_migration_whose_rows_do_not_add_up_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lossy(db: sqlite3.Connection) -> dict[str, int]:
        db.execute("DELETE FROM message WHERE seq = 5")
        return {}

    monkeypatch.setattr(_migrations, "STEPS", {1: lossy})
    with pytest.raises(PersistenceError, match="row counts differ"):
        asyncio.run(SqliteStore.open(path))
    monkeypatch.undo()
    assert len(read_session(path).messages) == 4


def test_a_file_of_a_newer_version_is_refused_and_untouched(tmp_path: Path) -> None:
    path = asyncio.run(finished_session(tmp_path))
    with opened(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    for writable in (True, False):
        with pytest.raises(SessionTooNew, match="newer version") as caught:
            asyncio.run(SqliteStore.open(path, writable=writable))
        assert "upgrade" in caught.value.advice
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_a_migrated_session_goes_on(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await recover(store)
        assert await store.record_prompt(text("more")) == 7
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []


def test_a_fork_of_an_older_version_is_of_this_one_and_leaves_the_old_file(path: Path) -> None:
    before = path.read_bytes()
    files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")
    copy = files.path_of(files.fork(path.stem))
    assert check(copy) == []
    assert path.read_bytes() == before
    assert read_session(copy).messages == read_session(path).messages
    assert {item.name for item in path.parent.iterdir()} == {path.name, copy.name}
