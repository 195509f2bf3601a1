"""Damaged session files: a clear error each, never a traceback, never in the way (REC-7)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionDamaged, SessionNotFound, StoreError
from agentcli.domain.session import SessionStatus
from agentcli.store.files import SessionFiles, read_session
from agentcli.store.repair.check import check
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import finished_session, fresh, now, text
from tests.support.databases import opened

pytestmark = pytest.mark.sampled


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))


def only_text(path: Path) -> None:
    path.write_text("this is not a database\n" * 400)


def other_database(path: Path) -> None:
    path.unlink()
    with opened(path) as db:
        db.execute("CREATE TABLE t (x)")


def header_gone(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 100)


def page_gone(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        for offset in range(8192, size, 4096 * 3):
            file.seek(offset)
            file.write(b"\xff" * 4096)


def no_session_row(path: Path) -> None:
    with opened(path) as db:
        db.execute("DELETE FROM session")


def no_message_table(path: Path) -> None:
    with opened(path) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("DROP TABLE message")


def odd_types(path: Path) -> None:
    with opened(path) as db:
        db.execute("UPDATE message SET created_at = 'yesterday' WHERE seq = 2")


def unknown_state(path: Path) -> None:
    with opened(path) as db:
        db.execute("UPDATE session SET status = 'asleep'")


def broken_text(path: Path) -> None:
    with opened(path) as db:
        db.execute("UPDATE message SET body = CAST(x'ff00fe' AS TEXT) WHERE seq = 2")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def truncated(share: float) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * share))

    return cut


DAMAGES = [
    empty,
    garbage,
    only_text,
    other_database,
    header_gone,
    page_gone,
    no_session_row,
    no_message_table,
    odd_types,
    unknown_state,
    broken_text,
    directory,
]
CUTS = [0.01, 0.05, 0.2, 0.4, 0.5, 0.7, 0.9, 0.99]


async def open_and_load(path: Path, *, writable: bool) -> None:
    store = await SqliteStore.open(path, writable=writable)
    try:
        await store.load()
    finally:
        await store.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return asyncio.run(finished_session(tmp_path / "sessions", turns=12))


@pytest.mark.spec("REC-7", "FAIL-3", "OPS-1")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("writable", [True, False])
def test_a_damaged_file_is_an_error_that_names_it_and_the_way_out(
    path: Path, damage: Callable[[Path], None], writable: bool
) -> None:
    damage(path)
    with pytest.raises(SessionDamaged) as caught:
        asyncio.run(open_and_load(path, writable=writable))
    assert str(path) in caught.value.message
    assert caught.value.advice == f"run: agent sessions repair {path.stem}"
    assert "\n" not in str(caught.value)
    assert check(path) != []


@pytest.mark.spec("REC-7", "FAIL-3")
@pytest.mark.parametrize("share", CUTS)
def test_a_truncated_file_is_damaged_wherever_it_was_cut(path: Path, share: float) -> None:
    truncated(share)(path)
    for writable in (True, False):
        with pytest.raises(SessionDamaged):
            asyncio.run(open_and_load(path, writable=writable))


@pytest.mark.spec("REC-7")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_a_damaged_session_blocks_neither_others_nor_a_new_one(
    path: Path, damage: Callable[[Path], None]
) -> None:
    files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")
    other = asyncio.run(finished_session(path.parent))
    damage(path)
    states = {info.id: info.status for info in now(files.list())}
    assert states[other.stem] is SessionStatus.DONE
    # a message that cannot be read is found when the session is opened, not by a list
    if damage not in {odd_types, broken_text, no_message_table, page_gone}:
        assert states[path.stem] is SessionStatus.DAMAGED

    async def scenario() -> None:
        store = fresh(path.parent)
        await store.record_prompt(text("new"))
        await store.aclose()

    asyncio.run(scenario())
    assert now(files.latest("/work")) is not None


@pytest.mark.spec("REC-7")
@pytest.mark.parametrize("damage", [*DAMAGES[:-1], *map(truncated, CUTS)], ids=lambda f: f.__name__)
def test_a_repaired_session_is_sound_and_goes_on(
    path: Path, damage: Callable[[Path], None]
) -> None:
    damage(path)
    damaged = path.read_bytes()
    report = repair(path)
    assert check(path) == []
    assert report.lost
    assert report.copy is not None
    assert report.copy.read_bytes() == damaged

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        assert len((await store.load()).messages) == report.messages
        await store.record_prompt(text("on we go"))
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []
    left = {item.name for item in path.parent.iterdir()}
    assert left == {path.name, report.copy.name}


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound):
        asyncio.run(SqliteStore.open(tmp_path / "none.db"))
    with pytest.raises(SessionNotFound):
        repair(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("REC-3")
def test_a_log_left_by_a_crash_is_part_of_the_session(path: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await store.record_prompt(text("in the log only"))
        copy = tmp_path / "copy" / path.name
        copy.parent.mkdir()
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            copy.with_name(copy.name + suffix).write_bytes(source.read_bytes())
        await store.aclose()
        assert read_session(copy).messages[-1].message == text("in the log only")
        again = await SqliteStore.open(copy)
        assert (await again.load()).messages[-1].message == text("in the log only")
        await again.aclose()

    asyncio.run(scenario())


def test_a_damaged_log_costs_no_more_than_itself(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(os.urandom(5000))
    assert len(read_session(path).messages) == 60


def test_errors_of_other_kinds_are_store_errors_too(path: Path) -> None:
    lock = path.with_suffix(".lock")
    lock.mkdir()
    with pytest.raises(StoreError, match="cannot read session file"):
        asyncio.run(SqliteStore.open(path))
