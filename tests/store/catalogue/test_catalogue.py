"""The catalogue: a cache that may be lost, locked or cancelled without harm (FAIL-2)."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.session import SessionStatus
from agentcli.store.catalogue import catalogue
from agentcli.store.catalogue import catalogue as _cache
from agentcli.store.catalogue.catalogue import CatalogueEntry
from agentcli.store.disk import stamp_of
from agentcli.store.files import SessionFiles, read_session
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import change, fresh, fresh_info, make, now, one_turn, run_child, text


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path / "sessions", tmp_path / "catalogue.db")


@pytest.mark.spec("REC-7", "FAIL-2")
@pytest.mark.parametrize(
    "content", [b"", b"garbage" * 1000, None], ids=["empty", "garbage", "gone"]
)
def test_a_lost_catalogue_is_made_again_without_a_word(
    files: SessionFiles, content: bytes | None
) -> None:
    session_id = make(files, "first")
    now(files.list())
    if content is None:
        files.catalogue.path.unlink()
    else:
        files.catalogue.path.write_bytes(content)
    assert [info.id for info in now(files.list())] == [session_id]
    assert files.catalogue.warning is None
    assert set(now(files.catalogue.entries())) == {session_id}
    assert files.catalogue.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("FAIL-2")
def test_a_catalogue_that_cannot_be_written_is_a_warning_only(
    files: SessionFiles, tmp_path: Path
) -> None:
    session_id = make(files, "first")
    (tmp_path / "file").write_text("in the way")
    blocked = SessionFiles(files.directory, tmp_path / "file" / "catalogue.db")
    assert [info.id for info in now(blocked.list())] == [session_id]
    warning = now(blocked.touch("stamp", now(blocked.list())[0]))
    assert warning is not None
    assert "catalogue" in warning
    assert "\n" not in warning
    assert now(blocked.search("first")) == []


@pytest.mark.spec("FAIL-2", "FAIL-5")
def test_telling_the_catalogue_of_a_turn_costs_the_session_no_commit(files: SessionFiles) -> None:
    async def scenario() -> None:
        store = fresh(files.directory)
        await one_turn(store, "go")
        commits = store.commits
        assert await files.touch(*await store.stamped_info()) is None
        assert store.commits == commits
        known = await files.catalogue.entries()
        assert known[store.path.stem].info == await store.info()
        assert await files.touch("", replace(await store.info(), id="gone")) is None
        assert "gone" not in await files.catalogue.entries()
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("CLI-8")
def test_texts_and_tool_output_are_found(files: SessionFiles) -> None:
    one, two = make(files, "teach the parser to fly"), make(files, "walk")
    assert [(hit.session_id, hit.seq) for hit in now(files.search("parser FLY"))] == [(one, 1)]
    assert {hit.session_id for hit in now(files.search("file.txt"))} == {one, two}
    assert "[parser]" in now(files.search("pars"))[0].excerpt
    for odd in ('"', "AND OR NOT", "*", "a:b", "''", "\0", "(", "   "):
        now(files.search(odd))
    assert files.catalogue.warning is None

    async def more() -> None:
        store = await SqliteStore.open(files.path_of(two))
        await store.record_prompt(text("a heron \ud800"))
        await store.aclose()

    asyncio.run(more())
    assert [hit.seq for hit in now(files.search("heron"))] == [6]
    assert len(now(files.search("parser"))) == 1
    assert now(files.reindex()) == 2
    assert [hit.seq for hit in now(files.search("heron"))] == [6]


def test_two_processes_may_use_one_catalogue(files: SessionFiles) -> None:
    make(files, "first")

    async def scenario() -> None:
        others = [SessionFiles(files.directory, files.catalogue.path) for _ in range(8)]
        found = await asyncio.gather(*(other.list() for other in others))
        assert [len(infos) for infos in found] == [1] * 8
        assert [other.catalogue.warning for other in others] == [None] * 8

    asyncio.run(scenario())


def test_two_that_index_at_once_index_nothing_twice(files: SessionFiles) -> None:
    make(files, "a heron")

    async def scenario() -> None:
        others = [SessionFiles(files.directory, files.catalogue.path) for _ in range(4)]
        for hits in await asyncio.gather(*(other.search("heron") for other in others)):
            assert len(hits) == 1

    asyncio.run(scenario())
    assert len(now(files.search("heron"))) == 1


def test_a_stored_catalogue_entry_comes_back_whole(files: SessionFiles) -> None:
    info = fresh_info(
        cwd=os.fsdecode(b"/\xff"),
        title="t\ud800",
        detail="why",
        status=SessionStatus.FAILED,
        cost_usd=0.5,
        parent_id="p",
    )
    now(files.catalogue.update({info.id: CatalogueEntry("stamp", info)}))
    assert now(files.catalogue.entries()) == {info.id: CatalogueEntry("stamp", info)}


def test_a_catalogue_of_another_version_is_replaced(files: SessionFiles) -> None:
    session_id = make(files, "first")
    now(files.list())
    change(files.catalogue.path, "PRAGMA user_version = 99")
    assert [info.id for info in now(files.list())] == [session_id]
    assert files.catalogue.warning is None


def test_a_catalogue_with_odd_rows_is_made_again(files: SessionFiles) -> None:
    session_id = make(files, "first")
    now(files.list())
    change(files.catalogue.path, "UPDATE session SET status = 'asleep'")
    assert [info.id for info in now(files.list())] == [session_id]
    assert files.catalogue.warning is None
    assert now(files.catalogue.entries())[session_id].info.status is SessionStatus.DONE


def test_more_messages_than_fit_one_insert_are_all_found(files: SessionFiles) -> None:
    async def scenario() -> str:
        store = fresh(files.directory)
        for number in range(45):
            await one_turn(store, f"heron{number}", suffix=str(number))
        await store.aclose()
        return store.path.stem

    session_id = asyncio.run(scenario())
    messages = read_session(files.path_of(session_id)).messages
    assert len(messages) > catalogue.MESSAGES_PER_INSERT
    for number in (0, 20, 44):
        hits = now(files.search(f"heron{number}x"[:-1]))
        assert (session_id, number * 5 + 1) in {(hit.session_id, hit.seq) for hit in hits}
    other = make(files, "heron again")
    assert {hit.session_id for hit in now(files.search("heron again"))} == {other}


@pytest.fixture
def locked(files: SessionFiles) -> Iterator[sqlite3.Connection]:
    """The write lock of the catalogue, held by somebody else."""
    make(files, "first")
    now(files.list())
    db = sqlite3.connect(files.catalogue.path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    yield db
    db.close()


@pytest.mark.spec("FAIL-2")
def test_a_catalogue_that_stays_locked_is_a_warning_and_the_list_is_true(
    files: SessionFiles, locked: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cache, "BUSY_TIMEOUT_S", 0.05)
    session_id = make(files, "second")
    infos = now(files.list())
    assert infos[0].id == session_id
    assert "locked" in str(files.catalogue.warning)
    assert "locked" in str(now(files.touch("stamp", infos[0])))


def test_reading_never_waits_for_a_writer(files: SessionFiles, locked: sqlite3.Connection) -> None:
    assert [info.title for info in now(files.list())] == ["first"]
    assert now(files.catalogue.search("first")) == []
    assert files.catalogue.warning is None


def test_the_event_loop_goes_on_while_the_catalogue_is_locked(
    files: SessionFiles, locked: sqlite3.Connection
) -> None:
    async def scenario() -> None:
        info = (await files.list())[0]
        touching = asyncio.ensure_future(files.touch("stamp", info))
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert not touching.done()
        locked.execute("COMMIT")  # never reached by a loop that waits for it
        assert await touching is None

    asyncio.run(scenario())


@pytest.mark.spec("FAIL-2")
def test_touching_gives_up_after_its_time(
    files: SessionFiles, locked: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcli.store.files.TOUCH_TIMEOUT_S", 0.05)
    monkeypatch.setattr(_cache, "BUSY_TIMEOUT_S", 0.5)
    info = now(files.list())[0]
    assert "TimeoutError" in str(now(files.touch("stamp", info)))


Operation = Callable[[SessionFiles], Coroutine[Any, Any, Any]]
OPERATIONS: dict[str, Operation] = {
    "list": lambda files: files.list(),
    "search": lambda files: files.search("first"),
    "reindex": lambda files: files.reindex(),
    "touch": lambda files: files.touch("stamp", read_session(files.path_of("one")).info),
    "update": lambda files: files.catalogue.update({}, ["one"]),
}


def threads_of_sqlite() -> list[str]:
    return [t.name for t in threading.enumerate() if "_connection_worker_thread" in t.name]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("times", [1, 2])
def test_an_operation_cancelled_at_any_step_harms_nothing(
    files: SessionFiles, name: str, times: int
) -> None:
    make(files, "first", session_id="one")

    async def cancelled_after(steps: int) -> bool:
        task = asyncio.ensure_future(OPERATIONS[name](files))
        seen = 0
        while seen < steps and not task.done():
            await asyncio.sleep(0)
            seen += 1
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False

    # a step is a turn of the loop, of which waiting for a thread takes as many as it takes
    for steps in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 10**9):
        was_cancelled = asyncio.run(cancelled_after(steps))
        assert was_cancelled or steps
        assert threads_of_sqlite() == []
        assert files.catalogue.warning is None
    gc.collect()  # an unclosed connection would be a warning now
    assert [info.id for info in now(files.list())] == ["one"]
    assert [hit.session_id for hit in now(files.search("first"))] == ["one"]
    assert files.catalogue.warning is None


def test_no_thread_and_no_log_is_left(files: SessionFiles, tmp_path: Path) -> None:
    make(files, "first", session_id="one")

    async def scenario() -> None:
        for operation in OPERATIONS.values():
            await operation(files)
            assert threads_of_sqlite() == []

    asyncio.run(scenario())
    assert {path.name for path in tmp_path.iterdir()} == {
        "sessions",
        "catalogue.db",
        "catalogue.db.stamp",
    }


def test_an_operation_under_way_does_not_keep_the_process_alive(files: SessionFiles) -> None:
    make(files, "first")
    child = run_child(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from agentcli.store.files import SessionFiles\n"
        "async def main():\n"
        "    files = SessionFiles(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "    tasks = [asyncio.ensure_future(files.reindex()) for _ in range(3)]\n"
        "    await asyncio.sleep(0.005)\n"
        "asyncio.run(main())\n",
        files.directory,
        files.catalogue.path,
        PYTHONWARNINGS="error",
    )
    assert (child.returncode, child.stderr) == (0, "")


@pytest.mark.spec("SEC-9")
def test_what_sessions_say_does_not_get_into_a_debug_log(
    files: SessionFiles, caplog: pytest.LogCaptureFixture
) -> None:
    make(files, "canary in a coal mine")
    with caplog.at_level(logging.DEBUG):
        now(files.reindex())
        assert now(files.search("canary"))
    assert "canary" not in caplog.text


def test_listing_a_session_by_its_id_does_not_need_the_catalogue(files: SessionFiles) -> None:
    session_id = make(files, "first")
    assert now(files.resolve(session_id)) == session_id
    assert not files.catalogue.path.exists()


@pytest.mark.spec("UI-8")
def test_each_session_is_found_once_by_its_best_text(files: SessionFiles) -> None:
    often = make(files, "heron heron heron")
    for _ in range(5):
        change(
            files.path_of(often),
            "INSERT INTO message (seq, created_at, role, body) SELECT"
            " (SELECT max(seq) + 1 FROM message), 0, role, body FROM message"
            " WHERE role = 'user' ORDER BY seq LIMIT 1",
        )
    once = make(files, "a heron by the lake")
    make(files, "nothing of the kind")
    assert now(files.search_sessions("heron")) == []  # not known to the index yet
    now(files.refresh_index())
    found = now(files.search_sessions("hero"))
    assert {hit.session_id for hit in found} == {often, once}
    assert len(found) == 2
    assert all("[heron" in hit.excerpt for hit in found)
    assert len(now(files.search_sessions("heron", 1))) == 1
    assert now(files.search_sessions("")) == ()
    for odd in ('"', "*", "NEAR(", "a AND", "\0", "col:x"):
        now(files.search_sessions(odd))


@pytest.mark.spec("REC-7", "FAIL-2")
@pytest.mark.parametrize("page", [1, 2, 3, 5, 8, 11, 14, 17])
def test_a_search_finds_the_same_whatever_page_of_the_catalogue_is_damaged(
    files: SessionFiles, page: int
) -> None:
    for number in range(3):
        make(files, f"the heron number {number} " + " ".join(f"w{n}" for n in range(600)))
    expected = {(hit.session_id, hit.seq) for hit in now(files.search("heron"))}
    assert len(expected) == 3
    assert files.catalogue.losses == 0
    data = bytearray(files.catalogue.path.read_bytes())
    start = page * 4096 % len(data)
    for offset in (*range(8), *range(100, 200), *range(3000, 4096)):
        data[start + offset] ^= 0x55
    files.catalogue.path.write_bytes(data)
    again = SessionFiles(files.directory, files.catalogue.path)
    assert {(hit.session_id, hit.seq) for hit in now(again.search("heron"))} == expected
    assert len(now(again.list())) == 3
    assert again.catalogue.warning is None
    third = SessionFiles(files.directory, files.catalogue.path)
    now(third.search("heron"))
    assert third.catalogue.losses == 0


@pytest.mark.spec("CLI-8")
def test_what_is_as_it_was_left_is_not_proved_again(files: SessionFiles) -> None:
    for said in ("heron", "another heron"):
        make(files, said)
        now(files.search("heron"))
        known = files.catalogue.path.with_name("catalogue.db.stamp").read_text()
        assert known == stamp_of(files.catalogue.path)


@pytest.mark.spec("CLI-8", "REC-7")
def test_progress_is_told_of_what_is_to_be_indexed(files: SessionFiles) -> None:
    for number in range(3):
        make(files, f"heron {number}")
    told: list[tuple[int, int]] = []
    for _ in range(2):
        now(files.search("heron", on_progress=lambda done, total: told.append((done, total))))
        assert told == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.spec("CLI-8", "REC-7")
@pytest.mark.parametrize(
    "name", ["backup of monday.db", "Copy (2).db", ".hidden.db", "x" * 70 + ".db"]
)
def test_a_stray_file_is_no_session(files: SessionFiles, name: str) -> None:
    session_id = make(files, "first", cwd="/work")
    (files.directory / name).write_bytes(files.path_of(session_id).read_bytes())
    assert [info.id for info in now(files.list())] == [session_id]
    (files.directory / "notes.db").write_bytes(b"")
    latest = now(files.latest("/work"))
    assert latest is not None
    assert latest.id == session_id
