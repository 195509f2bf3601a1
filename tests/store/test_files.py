"""The list of sessions: true, newest first, found by any part of a name."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionNotFound
from agentcli.store import files as module
from agentcli.store.catalogue.catalogue import CatalogueEntry
from agentcli.store.files import SessionFiles, new_session_id, read_session
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import change, finished_session, make, now, one_turn


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path / "sessions", tmp_path / "catalogue.db")


def test_ids_are_uuids_of_version_7_in_the_order_of_their_creation() -> None:
    before = time.time_ns() // 1_000_000
    ids = [uuid.UUID(new_session_id()) for _ in range(50)]
    after = time.time_ns() // 1_000_000
    assert {(value.version, value.variant) for value in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == 50
    assert all(before <= value.int >> 80 <= after for value in ids)


def test_a_home_without_sessions_is_an_empty_list(files: SessionFiles) -> None:
    assert list(now(files.list())) == []
    assert now(files.latest("/work")) is None
    with pytest.raises(SessionNotFound):
        now(files.resolve("any"))


@pytest.mark.spec("CLI-8")
def test_sessions_are_listed_most_recently_used_first(files: SessionFiles) -> None:
    first, second = make(files, "first"), make(files, "second")
    assert [info.id for info in now(files.list())] == [second, first]

    async def touch() -> None:
        store = await SqliteStore.open(files.path_of(first))
        await one_turn(store, "more", suffix="2")
        await store.aclose()

    asyncio.run(touch())
    assert [(info.id, info.turns) for info in now(files.list())] == [(first, 2), (second, 1)]


@pytest.mark.spec("REC-4")
def test_the_latest_of_a_directory(files: SessionFiles, tmp_path: Path) -> None:
    make(files, "elsewhere", cwd="/elsewhere")
    mine = make(files, "mine", cwd=str(tmp_path))
    make(files, "elsewhere", cwd="/elsewhere")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert now(files.latest(str(tmp_path))).id == mine
    assert now(files.latest(str(link))).id == mine
    assert now(files.latest("/nowhere")) is None


def test_a_list_follows_what_others_do_to_the_files(files: SessionFiles) -> None:
    session_id = make(files, "first")
    assert now(files.list())[0].title == "first"

    async def rename() -> None:
        store = await SqliteStore.open(files.path_of(session_id))
        await store.set_title("renamed")
        assert (await files.list())[0].title == "renamed"
        await store.aclose()

    asyncio.run(rename())
    assert now(files.list())[0].title == "renamed"
    files.path_of(session_id).unlink()
    assert list(now(files.list())) == []
    assert now(files.catalogue.entries()) == {}


def test_a_list_of_unchanged_files_reads_none_of_them(files: SessionFiles) -> None:
    session_id = make(files, "first")
    now(files.list())
    entry = now(files.catalogue.entries())[session_id]
    cached = CatalogueEntry(entry.stamp, replace(entry.info, title="cached"))
    now(files.catalogue.update({session_id: cached}))
    assert now(files.list())[0].title == "cached"
    os.utime(files.path_of(session_id))
    assert now(files.list())[0].title == "first"


def test_a_session_is_found_by_id_start_end_and_title(files: SessionFiles) -> None:
    one = make(files, "Fix the parser", session_id="0198aaaa-0000-7000-8000-00000000abcd")
    two = make(files, "Write docs", session_id="0198bbbb-0000-7000-8000-00000000ef01")
    for name in (one, "0198a", "abcd", "Fix the parser", "fix THE parser", " 0198a "):
        assert now(files.resolve(name)) == one
    assert now(files.resolve("ef01")) == two


@pytest.mark.parametrize("name", ["", "nothing", "01", "../../etc/passwd", "a/b", "\ud800", "\0"])
def test_an_unknown_name_is_not_found_in_one_line(files: SessionFiles, name: str) -> None:
    make(files, "one", session_id="0298aaaa-0000-7000-8000-000000000001")
    with pytest.raises(SessionNotFound) as caught:
        now(files.resolve(name))
    assert "\n" not in str(caught.value)
    if name:
        assert repr(name) in caught.value.message


def test_an_ambiguous_name_lists_the_candidates(files: SessionFiles) -> None:
    ids = {make(files, f"session {n}") for n in range(3)}
    with pytest.raises(SessionNotFound) as caught:
        now(files.resolve("0"))
    assert "fits 3 sessions" in str(caught.value)
    assert all(session_id in str(caught.value) for session_id in ids)
    make(files, "same")
    make(files, "same")
    with pytest.raises(SessionNotFound, match="fits 2 sessions"):
        now(files.resolve("same"))


def test_a_path_is_never_outside_the_directory(files: SessionFiles) -> None:
    for bad in ("../x", "a/b", "", ".", "x\0", "é"):
        with pytest.raises(SessionNotFound):
            files.path_of(bad)


def test_deleting_removes_everything_of_a_session_and_nothing_else(files: SessionFiles) -> None:
    doomed, kept = make(files, "doomed"), make(files, "kept")
    now(files.search("doomed"))
    for name in (".recovery.txt", ".v1.backup", ".damaged-20260101-000000-abcd", ".db-wal"):
        (files.directory / (doomed + name)).write_text("")
    now(files.delete(doomed))
    assert {item.name for item in files.directory.iterdir()} == {f"{kept}.db"}
    assert [info.id for info in now(files.list())] == [kept]
    assert now(files.search("doomed")) == []
    with pytest.raises(SessionNotFound):
        now(files.delete(doomed))


def test_a_session_too_large_for_one_page_is_listed(files: SessionFiles) -> None:
    path = asyncio.run(finished_session(files.directory, turns=20))
    assert now(files.list())[0].id == path.stem


def test_a_copied_file_is_a_session_of_its_own(files: SessionFiles) -> None:
    session_id = make(files, "first")
    copy = files.path_of("copy")
    copy.write_bytes(files.path_of(session_id).read_bytes())
    for _ in range(2):
        assert {info.id for info in now(files.list())} == {session_id, "copy"}
    assert read_session(copy).info.id == "copy"
    assert set(now(files.catalogue.entries())) == {session_id, "copy"}


def test_reindexing_clears_away_what_killed_processes_left(files: SessionFiles) -> None:
    session_id = make(files, "first")
    old, young = files.directory / ".a.1.new", files.directory / ".b.2.new"
    workshop = files.directory / ".repair-x"
    workshop.mkdir()
    for path in (old, young, workshop / "damaged"):
        path.write_text("half")
    for path in (old, workshop):
        os.utime(path, (0, 0))
    now(files.reindex())
    assert {path.name for path in files.directory.iterdir()} == {f"{session_id}.db", ".b.2.new"}


def test_hits_of_a_session_whose_file_is_gone_are_forgotten(files: SessionFiles) -> None:
    session_id = make(files, "a heron")
    assert len(now(files.search("heron"))) == 1
    files.path_of(session_id).unlink()
    assert now(files.search("heron")) == []


def test_a_cancelled_list_of_many_files_stops_between_two_of_them(
    files: SessionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = make(files, "first")
    template = files.path_of(session_id).read_bytes()
    for number in range(20):
        files.path_of(f"copy{number}").write_bytes(template)
    monkeypatch.setattr("agentcli.store.files.FILES_PER_JOB", 1)
    read: list[str] = []
    real = files._read_entry

    async def scenario() -> None:
        def spy(session_id: str, stamp: str, known: CatalogueEntry | None) -> CatalogueEntry:
            read.append(session_id)
            loop.call_soon_threadsafe(listing.cancel)
            return real(session_id, stamp, known)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(files, "_read_entry", spy)
        listing = asyncio.ensure_future(files.list())
        with pytest.raises(asyncio.CancelledError):
            await listing

    asyncio.run(scenario())
    assert len(read) < 20
    monkeypatch.undo()
    assert len(now(files.list())) == 21


@pytest.mark.spec("REC-4")
def test_the_latest_is_found_without_reading_what_is_older(
    files: SessionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILES_PER_JOB", 1)
    for number in range(4):
        make(files, f"older {number}", cwd="/work")
    mine, elsewhere = make(files, "mine", cwd="/work"), make(files, "x", cwd="/elsewhere")
    now(files.catalogue.clear())
    latest = now(files.latest("/work"))
    assert latest is not None
    assert latest.id == mine
    assert set(now(files.catalogue.entries())) == {mine}
    assert now(files.latest("/nowhere")) is None
    assert set(now(files.catalogue.entries())) == {mine}
    older = now(files.latest("/elsewhere"))
    assert older is not None and older.id == elsewhere


@pytest.mark.spec("REC-4", "SCALE-6")
@pytest.mark.parametrize("title", ["short", "t" * 3_900, "t" * 5_000, "t" * 40_000])
def test_the_latest_is_found_by_a_directory_of_any_name_beside_a_title_of_any_length(
    files: SessionFiles, title: str
) -> None:
    place = "/work/caf\udce9/" + "d" * 300
    mine = make(files, "x", cwd=place)
    make(files, "y", cwd="/elsewhere")
    change(files.path_of(mine), f"UPDATE session SET title = '{title}'")
    latest = now(files.latest(place))
    assert latest is not None and latest.id == mine
