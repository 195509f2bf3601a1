"""What could act in a session file and has no mark of this home is dropped, however it is written."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.background import ACTIVE_STATES, TaskState
from agentcli.domain.errors import SessionDamaged, StoreError
from agentcli.domain.messages import user_text
from agentcli.domain.rewind import FileKind, FileState
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store import seals
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore

pytestmark = pytest.mark.spec("SEC-16")
KEPT = {"cwd": "/kept"}


def test_the_ends_of_a_run_are_those_that_there_are() -> None:
    ended = {str(state) for state in TaskState if state not in ACTIVE_STATES}
    assert set(re.findall(r"\w+", seals._ENDED)) == ended


def seal(text: str) -> str:
    return f"mark of {hash(text)}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A session of this home that keeps one value."""
    path = tmp_path / "s.db"

    async def begin() -> None:
        info = SessionInfo("s", "T", "/here", 1.0, 1.0, SessionStatus.NEW, 0, "a/b")
        store = SqliteStore.new(path, info, seal=seal)
        await store.set("shell", KEPT)
        await store.record_prompt(user_text("hi"))
        await store.aclose()

    asyncio.run(begin())
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


def taken_up(path: Path, cwd: str = "/here") -> tuple[tuple[str, ...], Any, int]:
    """What was dropped, what the kept value is then, and how many commits it took."""

    async def run() -> tuple[tuple[str, ...], Any, int]:
        store = await SqliteStore.open(path, seal=seal)
        try:
            dropped = await store.drop_foreign(Path(cwd))
            return dropped, await store.get("shell"), store.commits
        finally:
            await store.aclose()

    return asyncio.run(run())


def test_what_this_home_wrote_is_taken_as_it_is_and_costs_no_commit(path: Path) -> None:
    assert taken_up(path) == ((), KEPT, 0)
    assert taken_up(path, "/there") == ((), KEPT, 0)


OTHER_KV = "CREATE TABLE other (key TEXT {}, value TEXT, seal TEXT)"
SWAP = ("INSERT INTO other SELECT key, value, seal FROM kv", "DROP TABLE kv",
        "ALTER TABLE other RENAME TO kv")  # fmt: skip


@pytest.mark.parametrize(
    "statements",
    [
        ('UPDATE kv SET value = \'{"cwd": "/evil"}\'',),
        ("UPDATE kv SET seal = ''",),
        ("UPDATE kv SET seal = '-'",),
        ("UPDATE kv SET seal = x'00'",),
        ("UPDATE kv SET seal = (SELECT seal FROM session)",),
    ],
)
def test_a_row_that_was_changed_is_dropped_once(path: Path, statements: tuple[str, ...]) -> None:
    change(path, *statements)
    dropped, value, _ = taken_up(path)
    assert dropped and value is None
    assert taken_up(path) == ((), None, 0)


def test_an_older_row_of_the_same_session_holds_as_an_older_copy_of_the_file_does(
    path: Path,
) -> None:
    """A seal says who wrote a row and for which session, not when (SECURITY.md)."""
    with closing(sqlite3.connect(path)) as db:
        (older,) = db.execute("SELECT quote(value) || ', ' || quote(seal) FROM kv").fetchone()

    async def go_on() -> None:
        store = await SqliteStore.open(path, seal=seal)
        await store.set("shell", {"another": 1})
        await store.aclose()

    asyncio.run(go_on())
    change(path, f"UPDATE kv SET (value, seal) = ({older})")
    assert taken_up(path) == ((), KEPT, 0)


def test_a_row_holds_in_no_other_session(path: Path) -> None:
    other = path.with_name("other.db")
    other.write_bytes(path.read_bytes())
    dropped, value, _ = taken_up(other, "/there")
    assert dropped == ("the state of its shell", "its directory /here", "its model a/b")
    assert value is None


TASK = ("INSERT INTO task (run_id, tool, arguments, state, created_at, updated_at, signals)"
        " VALUES ('r', 'bash', '{}', ")  # fmt: skip

SCHEDULE = (
    "INSERT INTO schedule (id, cron_expression, run, state, created_at, updated_at)"
    " VALUES ('s', '* * * * *', '{}', 'active', 1, 1)"
)


@pytest.mark.parametrize(
    "statement",
    [
        f"{TASK} 'running', 1, 1, 1)",
        f"{TASK} 'RUNNING', 1, 1, 0)",
        f"{TASK} 'succeeded', 1, 1, 1)",
        f"{TASK} 'succeeded', 1, 1, 'yes')",
        SCHEDULE,
        "INSERT INTO input_queue (kind, body, created_at, updated_at) VALUES ('steering', 'x', 1, 1)",
        "INSERT INTO kv (key, value) VALUES ('anything else', '1')",
    ],
)
def test_every_row_that_could_act_is_dropped(path: Path, statement: str) -> None:
    change(path, statement)
    dropped, value, _ = taken_up(path)
    assert len(dropped) == 1 and value == KEPT
    assert taken_up(path)[0] == ()


def test_what_only_remembers_stays(path: Path) -> None:
    change(path, "INSERT INTO kv (key, value) VALUES ('todos', '[]'), ('memory', '{}')")
    assert taken_up(path) == ((), KEPT, 0)


@pytest.mark.parametrize(
    "statements",
    [
        (OTHER_KV.format("PRIMARY KEY"), *SWAP, "UPDATE kv SET seal = NULL"),
        (OTHER_KV.format("COLLATE NOCASE PRIMARY KEY"), *SWAP, "UPDATE kv SET key = 'SHELL'"),
    ],
)
def test_tables_that_are_not_ours_are_damage_and_what_repair_makes_of_them_acts_no_more(
    path: Path, statements: tuple[str, ...]
) -> None:
    change(path, *statements)
    with pytest.raises(SessionDamaged, match="its table kv is not as it was made"):
        taken_up(path)
    repair(path)
    assert taken_up(path)[1] is None


def test_what_cannot_be_dropped_is_a_damaged_file(path: Path) -> None:
    change(path, OTHER_KV.format("PRIMARY KEY") + "", *SWAP)
    change(
        path,
        "CREATE TABLE stuck (id TEXT PRIMARY KEY, cron_expression TEXT, scheduled_at TEXT,"
        " time_zone TEXT, run TEXT, state TEXT CHECK (state = 'active'), next_at REAL,"
        " created_at REAL, updated_at REAL, seal TEXT NOT NULL DEFAULT '')",
        "DROP TABLE schedule",
        "ALTER TABLE stuck RENAME TO schedule",
        "INSERT INTO schedule (id, run, state, created_at) VALUES ('s', '{}', 'active', 1)",
    )
    with pytest.raises(StoreError):
        taken_up(path)


@pytest.mark.parametrize("code", ["TRIGGER t AFTER DELETE ON kv BEGIN SELECT 1; END",
                                  "VIEW v AS SELECT 1"])  # fmt: skip
def test_a_file_with_code_of_its_own_is_damaged(path: Path, code: str) -> None:
    change(path, f"CREATE {code}")
    with pytest.raises(SessionDamaged, match="triggers or views"):
        taken_up(path)


def test_a_file_whose_rows_are_not_in_the_order_of_their_names_is_damaged(path: Path) -> None:
    row = "INSERT INTO file_change (seq, call_id, path, before_kind, created_at) VALUES (1, {})"
    change(path, row.format("'a', '/x', 'absent', 1"), row.format("'b', '/y', 'absent', 1"))
    with closing(sqlite3.connect(path)) as db:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'file_change'"
        (page,) = db.execute(query).fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    at = (page - 1) * 4096 + 8  # where the page says where its rows begin
    data[at : at + 4] = data[at + 2 : at + 4] + data[at : at + 2]
    path.write_bytes(data)
    with pytest.raises(SessionDamaged, match="out of order"):
        taken_up(path)
    repair(path)
    assert taken_up(path)[1] == KEPT


def test_a_model_that_somebody_else_wrote_is_dropped(path: Path) -> None:
    change(path, "UPDATE session SET model = 'other/b'")
    assert taken_up(path)[:2] == (("its model other/b",), KEPT)
    assert taken_up(path) == ((), KEPT, 0)


def test_a_model_that_the_user_chose_stays_and_its_choice_marks_nothing_else(path: Path) -> None:
    async def choose() -> None:
        store = await SqliteStore.open(path, seal=seal)
        await store.set_model("a/c")
        await store.aclose()

    asyncio.run(choose())
    assert taken_up(path, "/there") == ((), KEPT, 0)
    change(path, "UPDATE session SET cwd = '/evil'")
    asyncio.run(choose())
    assert taken_up(path)[0] == ("its directory /evil", "its model a/c")


def test_a_session_from_before_models_were_marked_keeps_its_directory(path: Path) -> None:
    earlier = seal('["session", "s", "session", 1, "/here"]')
    change(path, f"UPDATE session SET seal = '{earlier}'")
    assert taken_up(path, "/there")[:2] == (("its model a/b",), KEPT)
    assert taken_up(path, "/there") == ((), KEPT, 0)


def test_bytes_have_another_mark_than_the_text_that_reads_like_them(path: Path) -> None:
    change(path, "UPDATE session SET cwd = x'2f68'")
    assert taken_up(path, "/h")[0] == ("its model a/b",)
    change(path, "UPDATE session SET cwd = x'2f68', model = x'62'")
    with closing(sqlite3.connect(path)) as db, db:
        seals.prepare(db, "s", seal)
        seals.put_mark(db, "session", 1)
    assert taken_up(path, "/there") == ((), KEPT, 0)
    change(path, "UPDATE session SET cwd = '2f68', model = '62'")
    assert taken_up(path)[0] == ("its directory 2f68", "its model 62")


@pytest.mark.spec("TT-2")
def test_a_change_of_a_file_belongs_to_the_prompt_that_this_home_has_written_down(
    path: Path,
) -> None:
    async def changes() -> list[FileKind]:
        store = await SqliteStore.open(path, seal=seal)
        try:
            if not await store.rewinds.changes_since(0):
                await store.rewinds.keep("c", {Path("/x"): FileState(FileKind.ABSENT)})
            return [each.before.kind for each in await store.rewinds.changes_since(0)]
        finally:
            await store.aclose()

    assert asyncio.run(changes()) == [FileKind.ABSENT]
    change(path, "UPDATE file_change SET seq = seq + 1")
    assert asyncio.run(changes()) == [FileKind.UNKEPT]


@pytest.mark.spec("SEC-13", "REC-7")
@pytest.mark.parametrize(
    "statement",
    [
        (
            "INSERT INTO task (run_id, tool, arguments, state, created_at, updated_at) VALUES"
            """ ({}, 'bash', '"' || hex(zeroblob(20000000)) || '"', 'succeeded', 1, 1)"""
        ),
        "UPDATE session SET title = hex(zeroblob(20000000)) WHERE {}",
    ],
    ids=["runs", "title"],
)
def test_a_file_that_holds_more_beside_its_messages_than_any_session_is_damaged(
    path: Path, statement: str
) -> None:
    change(path, statement.format("1"), statement.format("2"))

    async def look() -> None:
        store = await SqliteStore.open(path, seal=seal)
        try:
            await store.info()
            await store.tasks.tasks()
        finally:
            await store.aclose()

    with pytest.raises(SessionDamaged):
        asyncio.run(look())
    assert repair(path).copy is not None
    asyncio.run(look())
