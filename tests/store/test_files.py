"""The list of sessions: true, newest first, found by any part of a name."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionNotFound
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store.catalogue import Entry
from agentcli.store.files import SessionFiles, new_session_id, read_session
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import finished_session, fresh, fresh_info, one_turn, text


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path / "sessions", tmp_path / "catalogue.db")


def make(files: SessionFiles, prompt: str, **fields: object) -> str:
    async def scenario() -> str:
        store = fresh(files.directory, **fields)
        await one_turn(store, prompt)
        await store.aclose()
        return store.path.stem

    return asyncio.run(scenario())


def test_ids_are_uuids_of_version_7_in_the_order_of_their_creation() -> None:
    before = time.time_ns() // 1_000_000
    ids = [uuid.UUID(new_session_id()) for _ in range(50)]
    after = time.time_ns() // 1_000_000
    assert {(value.version, value.variant) for value in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == 50
    assert all(before <= value.int >> 80 <= after for value in ids)


def test_a_home_without_sessions_is_an_empty_list(files: SessionFiles) -> None:
    assert list(files.list()) == []
    assert files.latest("/work") is None
    with pytest.raises(SessionNotFound):
        files.resolve("any")


@pytest.mark.spec("CLI-8")
def test_sessions_are_listed_most_recently_used_first(files: SessionFiles) -> None:
    first, second = make(files, "first"), make(files, "second")
    assert [info.id for info in files.list()] == [second, first]

    async def touch() -> None:
        store = await SqliteStore.open(files.path_of(first))
        await one_turn(store, "more", suffix="2")
        await store.aclose()

    asyncio.run(touch())
    assert [(info.id, info.turns) for info in files.list()] == [(first, 2), (second, 1)]


@pytest.mark.spec("REC-4")
def test_the_latest_of_a_directory(files: SessionFiles, tmp_path: Path) -> None:
    make(files, "elsewhere", cwd="/elsewhere")
    mine = make(files, "mine", cwd=str(tmp_path))
    make(files, "elsewhere", cwd="/elsewhere")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert files.latest(str(tmp_path)).id == mine
    assert files.latest(str(link)).id == mine
    assert files.latest("/nowhere") is None


def test_a_list_follows_what_others_do_to_the_files(files: SessionFiles) -> None:
    session_id = make(files, "first")
    assert files.list()[0].title == "first"

    async def rename() -> None:
        store = await SqliteStore.open(files.path_of(session_id))
        await store.set_title("renamed")
        assert files.list()[0].title == "renamed"
        await store.aclose()

    asyncio.run(rename())
    assert files.list()[0].title == "renamed"
    files.path_of(session_id).unlink()
    assert list(files.list()) == []
    assert files.catalogue.entries() == {}


def test_a_list_of_unchanged_files_reads_none_of_them(files: SessionFiles) -> None:
    session_id = make(files, "first")
    entry = files.list() and files.catalogue.entries()[session_id]
    files.catalogue.update({session_id: Entry(entry.stamp, replace(entry.info, title="cached"))})
    assert files.list()[0].title == "cached"
    os.utime(files.path_of(session_id))
    assert files.list()[0].title == "first"


@pytest.mark.spec("REC-7", "FAIL-2")
@pytest.mark.parametrize(
    "content", [b"", b"garbage" * 1000, None], ids=["empty", "garbage", "gone"]
)
def test_a_lost_catalogue_is_made_again_without_a_word(
    files: SessionFiles, content: bytes | None
) -> None:
    session_id = make(files, "first")
    files.list()
    if content is None:
        files.catalogue.path.unlink()
    else:
        files.catalogue.path.write_bytes(content)
    assert [info.id for info in files.list()] == [session_id]
    assert files.catalogue.warning is None
    assert set(files.catalogue.entries()) == {session_id}
    assert files.catalogue.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("FAIL-2")
def test_a_catalogue_that_cannot_be_written_is_a_warning_only(
    files: SessionFiles, tmp_path: Path
) -> None:
    session_id = make(files, "first")
    (tmp_path / "file").write_text("in the way")
    blocked = SessionFiles(files.directory, tmp_path / "file" / "catalogue.db")
    assert [info.id for info in blocked.list()] == [session_id]
    warning = asyncio.run(blocked.touch(blocked.list()[0]))
    assert warning is not None
    assert "catalogue" in warning
    assert "\n" not in warning
    assert blocked.search("first") == []


@pytest.mark.spec("FAIL-2", "FAIL-5")
def test_telling_the_catalogue_of_a_turn_costs_the_session_no_commit(files: SessionFiles) -> None:
    async def scenario() -> None:
        store = fresh(files.directory)
        await one_turn(store, "go")
        commits = store.commits
        assert await files.touch(await store.info()) is None
        assert store.commits == commits
        assert files.catalogue.entries()[store.path.stem].info == await store.info()
        await store.aclose()

    asyncio.run(scenario())


def test_a_session_is_found_by_id_start_end_and_title(files: SessionFiles) -> None:
    one = make(files, "Fix the parser", session_id="0198aaaa-0000-7000-8000-00000000abcd")
    two = make(files, "Write docs", session_id="0198bbbb-0000-7000-8000-00000000ef01")
    for name in (one, "0198a", "abcd", "Fix the parser", "fix THE parser", " 0198a "):
        assert files.resolve(name) == one
    assert files.resolve("ef01") == two


@pytest.mark.parametrize("name", ["", "nothing", "01", "../../etc/passwd", "a/b", "\ud800", "\0"])
def test_an_unknown_name_is_not_found_in_one_line(files: SessionFiles, name: str) -> None:
    make(files, "one", session_id="0298aaaa-0000-7000-8000-000000000001")
    with pytest.raises(SessionNotFound) as caught:
        files.resolve(name)
    assert "\n" not in str(caught.value)
    if name:
        assert repr(name) in caught.value.message


def test_an_ambiguous_name_lists_the_candidates(files: SessionFiles) -> None:
    ids = {make(files, f"session {n}") for n in range(3)}
    with pytest.raises(SessionNotFound) as caught:
        files.resolve("0")
    assert "fits 3 sessions" in str(caught.value)
    assert all(session_id in str(caught.value) for session_id in ids)
    make(files, "same")
    make(files, "same")
    with pytest.raises(SessionNotFound, match="fits 2 sessions"):
        files.resolve("same")


def test_a_path_is_never_outside_the_directory(files: SessionFiles) -> None:
    for bad in ("../x", "a/b", "", ".", "x\0", "é"):
        with pytest.raises(SessionNotFound):
            files.path_of(bad)


def test_deleting_removes_everything_of_a_session_and_nothing_else(files: SessionFiles) -> None:
    doomed, kept = make(files, "doomed"), make(files, "kept")
    files.search("doomed")
    for name in (".recovery.txt", ".v1.backup", ".damaged-20260101-000000-abcd", ".db-wal"):
        (files.directory / (doomed + name)).write_text("")
    files.delete(doomed)
    assert {item.name for item in files.directory.iterdir()} == {f"{kept}.db"}
    assert [info.id for info in files.list()] == [kept]
    assert files.search("doomed") == []
    with pytest.raises(SessionNotFound):
        files.delete(doomed)


@pytest.mark.spec("CLI-8")
def test_texts_and_tool_output_are_found(files: SessionFiles) -> None:
    one, two = make(files, "teach the parser to fly"), make(files, "walk")
    assert [(hit.session_id, hit.seq) for hit in files.search("parser FLY")] == [(one, 1)]
    assert {hit.session_id for hit in files.search("file.txt")} == {one, two}
    assert "[parser]" in files.search("pars")[0].excerpt
    for odd in ('"', "AND OR NOT", "*", "a:b", "''", "\0", "(", "   "):
        files.search(odd)
    assert files.catalogue.warning is None

    async def more() -> None:
        store = await SqliteStore.open(files.path_of(two))
        await store.record_prompt(text("a heron \ud800"))
        await store.aclose()

    asyncio.run(more())
    assert [hit.seq for hit in files.search("heron")] == [6]
    assert len(files.search("parser")) == 1
    assert files.reindex() == 2
    assert [hit.seq for hit in files.search("heron")] == [6]


def test_two_processes_may_use_one_catalogue(files: SessionFiles) -> None:
    make(files, "first")

    async def scenario() -> list[list[SessionInfo]]:
        others = [SessionFiles(files.directory, files.catalogue.path) for _ in range(8)]
        return await asyncio.gather(*(asyncio.to_thread(other.list) for other in others))

    assert all(len(found) == 1 for found in asyncio.run(scenario()))


def test_a_stored_catalogue_entry_comes_back_whole(files: SessionFiles) -> None:
    info = fresh_info(
        cwd=os.fsdecode(b"/\xff"),
        title="t\ud800",
        detail="why",
        status=SessionStatus.FAILED,
        cost_usd=0.5,
        parent_id="p",
    )
    files.catalogue.update({info.id: Entry("stamp", info)})
    assert files.catalogue.entries() == {info.id: Entry("stamp", info)}


def test_a_catalogue_of_another_version_is_replaced(files: SessionFiles) -> None:
    session_id = make(files, "first")
    files.list()
    with sqlite3.connect(files.catalogue.path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert [info.id for info in files.list()] == [session_id]
    assert files.catalogue.warning is None


def test_a_session_too_large_for_one_page_is_listed(files: SessionFiles) -> None:
    path = asyncio.run(finished_session(files.directory, turns=20))
    assert files.list()[0].id == path.stem


def test_a_copied_file_is_a_session_of_its_own(files: SessionFiles) -> None:
    session_id = make(files, "first")
    copy = files.path_of("copy")
    copy.write_bytes(files.path_of(session_id).read_bytes())
    for _ in range(2):
        assert {info.id for info in files.list()} == {session_id, "copy"}
    assert read_session(copy).info.id == "copy"
    assert set(files.catalogue.entries()) == {session_id, "copy"}


def test_reindexing_clears_away_what_killed_processes_left(files: SessionFiles) -> None:
    session_id = make(files, "first")
    old, young = files.directory / ".a.1.new", files.directory / ".b.2.new"
    workshop = files.directory / ".repair-x"
    workshop.mkdir()
    for path in (old, young, workshop / "damaged"):
        path.write_text("half")
    for path in (old, workshop):
        os.utime(path, (0, 0))
    files.reindex()
    assert {path.name for path in files.directory.iterdir()} == {f"{session_id}.db", ".b.2.new"}
