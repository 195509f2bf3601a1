"""Where there are very many sessions, not every file is looked at, and every answer is true."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionNotFound
from agentcli.domain.session import AFTER_ALL, NewestUnreadable, SessionInfo, SessionStatus
from agentcli.store import disk
from agentcli.store import files as module
from agentcli.store.catalogue.catalogue import VERSION
from agentcli.store.files import SessionFiles
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import change, make, now, text


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionFiles:
    """Eight sessions, known to the catalogue, which counts as very many."""
    files = SessionFiles(tmp_path / "sessions", tmp_path / "catalogue.db")
    for number in range(8):
        make(files, f"question {number}", cwd=f"/work/{number % 2}")
    now(files.list())
    monkeypatch.setattr(module, "VERY_MANY", 5)
    return files


@pytest.fixture(params=[5, 50])
def any_files(
    files: SessionFiles, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> SessionFiles:
    """The same, which count as very many or do not."""
    monkeypatch.setattr(module, "VERY_MANY", request.param)
    return files


def titles(infos: Sequence[SessionInfo]) -> list[str]:
    return [info.title for info in infos]


@pytest.mark.spec("SCALE-6")
def test_the_newest_are_told_by_the_catalogue_and_their_files_alone(
    files: SessionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    real = module.stamp_of

    def spy(path: Path) -> str:
        looked_at.append(path.stem)
        return real(path)

    def refuse(*_: object) -> object:
        raise AssertionError("every file is looked at")

    monkeypatch.setattr(module, "stamp_of", spy)
    monkeypatch.setattr(module, "stamps_in", refuse)
    monkeypatch.setattr(module, "read_info", refuse)
    assert titles(now(files.newest(2))) == ["question 7", "question 6"]
    assert len(looked_at) == 2
    assert titles(now(files.newest(9, ["/work/1"]))) == [f"question {n}" for n in (7, 5, 3, 1)]
    latest = now(files.latest("/work/0"))
    assert latest is not None and latest.title == "question 6"
    assert now(files.latest("/nowhere")) is None
    assert now(files.resolve("QUESTION 3")) == now(files.resolve("question 3"))
    with pytest.raises(SessionNotFound):
        now(files.resolve("question 9"))


@pytest.mark.spec("SCALE-6")
def test_a_name_means_the_same_however_many_there_are(any_files: SessionFiles) -> None:
    named = make(any_files, "Straße", session_id="0298aaaa-0000-7000-8000-00000000abcd")
    for name in ("Straße", "strasse", "0298A", "ABCD", named):
        assert now(any_files.resolve(f" {name} ")) == named
    with pytest.raises(SessionNotFound, match="fits 8 sessions"):
        now(any_files.resolve("01"))
    for name in ("", "bcd", "\ud800", "\0", "strass", "%", "0298a*"):
        with pytest.raises(SessionNotFound, match="no session"):
            now(any_files.resolve(name))
    assert any_files.catalogue.losses == 0


@pytest.mark.spec("SCALE-6")
def test_names_are_not_even_read_while_the_directory_is_as_it_was(
    files: SessionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(files.directory, (1, 1))
    now(files.newest(2))

    def refuse(*_: object) -> object:
        raise AssertionError("the directory is read")

    monkeypatch.setattr(disk, "names_in", refuse)
    assert len(now(files.newest(2))) == 2
    os.utime(files.directory, (2, 2))
    with pytest.raises(AssertionError):
        now(files.newest(2))


@pytest.mark.spec("SCALE-6")
def test_what_others_do_to_the_files_is_seen(files: SessionFiles) -> None:
    newest = now(files.newest(1))[0]
    change(files.path_of(newest.id), "UPDATE session SET title = 'by another'")
    assert titles(now(files.newest(1))) == ["by another"]
    files.path_of(newest.id).unlink()
    assert titles(now(files.newest(1))) == ["question 6"]
    copy = files.path_of("copy")
    shutil.copy(files.path_of(now(files.newest(1))[0].id), copy)
    assert {info.id for info in now(files.newest(2))} >= {"copy"}


@pytest.mark.spec("SCALE-6", "REC-4")
def test_a_session_that_is_open_or_was_killed_is_read_again(files: SessionFiles) -> None:
    oldest = now(files.list())[-1]

    async def scenario() -> None:
        store = await SqliteStore.open(files.path_of(oldest.id))
        assert titles(await files.newest(1)) == ["question 7"]
        await store.record_prompt(text("again"))
        latest = await files.latest(oldest.cwd)
        assert latest is not None and latest.id == oldest.id
        assert latest.status is SessionStatus.RUNNING
        await store.aclose()

    asyncio.run(scenario())
    assert now(files.newest(1))[0].id == oldest.id


@pytest.mark.spec("REC-7", "SCALE-6")
def test_a_damaged_newest_one_stops_here_too(files: SessionFiles) -> None:
    newest = now(files.newest(1))[0]
    files.path_of(newest.id).write_bytes(b"garbage" * 100)
    with pytest.raises(NewestUnreadable) as caught:
        now(files.latest(newest.cwd))
    assert caught.value.older is not None and caught.value.older.title == "question 5"


@pytest.mark.spec("SCALE-6")
@pytest.mark.parametrize("damage", ["gone", "garbage", "row", "index"])
def test_a_lost_or_damaged_catalogue_changes_no_answer(files: SessionFiles, damage: str) -> None:
    wanted = titles(now(files.newest(3)))
    path = files.catalogue.path
    if damage == "gone":
        path.unlink()
    elif damage == "garbage":
        path.write_bytes(b"x" * 5000)
    elif damage == "row":
        change(path, "UPDATE session SET title = 'another' WHERE title = 'question 7'")
    else:  # rows that no index leads to any more
        change(path, "PRAGMA writable_schema = ON",
               "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE"
               " name = 'session_place') WHERE name = 'session_newest'")  # fmt: skip
    assert titles(now(files.newest(3))) == wanted
    assert files.catalogue.warning is None


@pytest.mark.spec("SCALE-6")
def test_without_a_catalogue_no_more_files_are_read_than_it_takes(
    files: SessionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILES_PER_JOB", 1)
    now(files.catalogue.clear())
    assert titles(now(files.newest(2))) == ["question 7", "question 6"]
    assert len(now(files.catalogue.entries())) < 5
    assert len(now(files.newest(99))) == 8


@pytest.mark.spec("SCALE-6")
def test_a_catalogue_that_was_made_again_is_not_proved_again(
    files: SessionFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(files.catalogue.path, "PRAGMA user_version = 99")
    now(files.list())
    assert files.catalogue.losses == 0

    async def refuse(*_: object) -> None:
        raise AssertionError("it is proved again")

    monkeypatch.setattr("agentcli.store.catalogue.catalogue._prove_schema", refuse)
    assert len(now(files.newest(3))) == 3


@pytest.mark.spec("SCALE-6")
def test_a_search_indexes_what_is_new_only(files: SessionFiles) -> None:
    told: list[tuple[int, int]] = []
    assert len(now(files.search("question", on_progress=lambda *step: told.append(step)))) == 8
    assert told[-1] == (7, 8)
    make(files, "a heron")
    told.clear()
    assert len(now(files.search("heron", on_progress=lambda *step: told.append(step)))) == 1
    assert told == [(0, 1)]


@pytest.mark.spec("SCALE-6")
def test_a_catalogue_of_the_version_before_is_kept_and_gets_what_it_lacks(
    files: SessionFiles,
) -> None:
    assert len(now(files.search("question"))) == 8
    with contextlib.closing(sqlite3.connect(files.catalogue.path)) as db:
        db.execute("DROP INDEX session_stamp")
        db.execute("PRAGMA user_version = 5")
        db.commit()
    assert len(now(files.search("question"))) == 8
    assert files.catalogue.losses == 0
    with contextlib.closing(sqlite3.connect(files.catalogue.path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert db.execute("SELECT count(*) FROM indexed").fetchone() == (8,)


@pytest.mark.spec("SCALE-6")
def test_pages_go_on_where_the_one_before_ended(any_files: SessionFiles) -> None:
    for places in ((), ("/work/1",), ("/work/0", "/work/1", "/none")):
        everything = now(any_files.newest(99, places))
        last, seen = AFTER_ALL, list[SessionInfo]()
        while page := now(any_files.newest(3, places, before=last)):
            seen += page
            last = page[-1].updated_at, page[-1].id
        assert seen == everything


@pytest.mark.spec("SCALE-6")
def test_sessions_of_sub_agents_are_found_with_those_of_theirs(any_files: SessionFiles) -> None:
    (first, second, *_) = (info.id for info in now(any_files.list()))
    mark = "INSERT INTO kv (key, value) VALUES ('subagent', '{}')"
    child, other = make(any_files, "a", parent_id=first), make(any_files, "b", parent_id=second)
    grandchild = make(any_files, "c", parent_id=child)
    fork = make(any_files, "d", parent_id=first)  # the user's own
    for session_id in (child, other, grandchild):
        change(any_files.path_of(session_id), mark)
    change(any_files.path_of(other), f"UPDATE session SET parent_id = '{other}'")
    assert [info.id for info in now(any_files.agents_of([first]))] == [child, grandchild]
    assert [info.id for info in now(any_files.agents_of([second, fork]))] == []
    assert [info.id for info in now(any_files.agents_of([first, child]))] == [grandchild]
    # what a cache says wrongly of one takes nobody else's with it
    line = f"UPDATE session SET parent_id = '{second}' WHERE id = '{child}'"
    change(any_files.catalogue.path, line)
    assert [info.id for info in now(any_files.agents_of([second]))] == []
