"""A fork of what a session was right after any of its messages (TT-3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import SessionDamaged, UsageError
from agentcli.domain.events import Outcome
from agentcli.domain.history import CANCELLED_TEXT
from agentcli.domain.messages import ToolResult, Usage, UserMessage, user_text
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import LoadedSession, SessionStatus
from agentcli.engine.context.outgoing import check_request, prepare
from agentcli.store.codec import MalformedBody
from agentcli.store.files import SessionFiles, read_session
from agentcli.store.repair.check import check
from agentcli.store.rewinds import newest
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import (
    answer,
    asking,
    call,
    finished_session,
    fresh,
    one_turn,
    result,
    text,
)
from tests.support.databases import opened


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(
        tmp_path / "sessions", tmp_path / "catalogue.db", lambda text: f"s{len(text)}"
    )


def forked(files: SessionFiles, source: str, at: int, *, hidden: bool = False) -> LoadedSession:
    copy = files.path_of(files.fork(source, at))
    assert check(copy) == []
    loaded = read_session(copy)
    messages = [*loaded.history().messages, user_text("go on")]
    check_request(prepare(messages, "anthropic", "claude-opus-4-5"))
    return read_session(copy, hidden=hidden)


def texts(loaded: LoadedSession) -> list[str]:
    return [getattr(each.message, "text", "").split("\n")[0] for each in loaded.messages]


@pytest.mark.spec("TT-3", "REC-1")
def test_inside_a_tool_exchange_what_came_later_is_as_after_a_cancel(files: SessionFiles) -> None:
    path = asyncio.run(finished_session(files.directory, turns=2))
    before = path.read_bytes()
    expected = {
        1: ["prompt 0"],
        2: ["prompt 0", "I look.", CANCELLED_TEXT, CANCELLED_TEXT],
        3: ["prompt 0", "I look.", "file.txt", CANCELLED_TEXT],
        4: ["prompt 0", "I look.", "file.txt", "x.png"],
        5: ["prompt 0", "I look.", "file.txt", "x.png", "Done."],
    }
    for at, wanted in expected.items():
        loaded = forked(files, path.stem, at)
        assert texts(loaded) == wanted
        assert loaded.info.parent_id == path.stem
        assert (loaded.info.status, loaded.info.turns) == (SessionStatus.DONE, 1)
    results = [m.message for m in forked(files, path.stem, 2).messages]
    assert isinstance(results[-1], ToolResult)
    assert "side effects are possible" in results[-1].text
    assert path.read_bytes() == before
    whole = forked(files, path.stem, 10)
    assert [m.message for m in whole.messages] == [m.message for m in read_session(path).messages]
    assert whole.info.usage == read_session(path).info.usage
    assert forked(files, path.stem, 5).info.usage == Usage(20, 10)


@pytest.mark.spec("TT-3")
@pytest.mark.parametrize("at", [0, -1, 6, 10**30])
def test_a_message_that_is_not_there_is_said(files: SessionFiles, at: int) -> None:
    path = asyncio.run(finished_session(files.directory))
    with pytest.raises(UsageError, match=f"no message {at}"):
        files.fork(path.stem, at)
    assert [item.name for item in path.parent.glob("*.db")] == [path.name]


@pytest.mark.spec("TT-3", "TT-2")
def test_what_was_taken_back_later_is_there_again(files: SessionFiles) -> None:
    async def scenario() -> Path:
        store = fresh(files.directory)
        for turn in range(3):
            await store.record_prompt(text(f"prompt {turn}"))
            await store.record_assistant(answer(f"answer {turn}"), (), final=Outcome.DONE)
        await store.rewinds.take_back(5, "prompt 2", (), chat=True)
        await store.rewinds.take_back(3, "prompt 1", (), chat=True)
        await store.record_prompt(text("another way"))
        await store.record_assistant(answer("another answer"), (), final=Outcome.DONE)
        await store.aclose()
        return store.path

    path = asyncio.run(scenario())
    assert texts(read_session(path)) == ["prompt 0", "answer 0", "another way", "another answer"]
    first = ["prompt 0", "answer 0"]
    middle = [*first, "prompt 1", "answer 1"]
    assert texts(forked(files, path.stem, 4)) == middle
    assert texts(forked(files, path.stem, 6)) == [*middle, "prompt 2", "answer 2"]
    assert texts(forked(files, path.stem, 7)) == [*first, "another way"]


@pytest.mark.spec("TT-3", "CMP-3")
def test_what_was_folded_later_is_sent_again(files: SessionFiles) -> None:
    async def scenario() -> Path:
        store = fresh(files.directory)
        await one_turn(store, "first")
        summary = UserMessage(user_text("what was").parts, is_summary=True)
        await store.record_compaction(summary, [0, 1, 2, 3], 5, usage=Usage(1, 1), model="x/y")
        await store.record_prompt(text("then"))
        await store.aclose()
        return store.path

    path = asyncio.run(scenario())
    assert texts(forked(files, path.stem, 5)) == ["first", "I look.", "file.txt", "x.png", "Done."]
    assert texts(forked(files, path.stem, 6)) == ["what was", "Done."]
    assert texts(forked(files, path.stem, 7)) == ["what was", "Done.", "then"]


@pytest.mark.spec("TT-3")
def test_what_waits_and_what_is_of_later_stays_with_the_original(files: SessionFiles) -> None:
    async def scenario() -> Path:
        store = await SqliteStore.open(await finished_session(files.directory), seal=files.seal)
        await store.set("todos", ["later"])
        await store.set("memory", {"a": 1})
        await store.record_prompt(text("more"))
        calls = (call("z"),)
        await store.record_assistant(asking(*calls), calls, final=None)
        await store.record_running(calls[0])
        await store.record_result(RecordedResult(result("z"), b"raw", "display"), [result("z")])
        await store.aclose()
        return store.path

    path = asyncio.run(scenario())
    copy = files.path_of(files.fork(path.stem, 7))
    with opened(copy) as db:
        assert db.execute("SELECT key FROM kv").fetchall() == [("memory",)]
        row = db.execute("SELECT status, raw, display FROM tool_run WHERE call_id = 'z'").fetchone()
    assert row == ("cancelled", None, "")


@pytest.mark.slow
@pytest.mark.spec("TT-3")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["turn", "undo", "fold", "unfold"]), max_size=8))
def test_any_message_of_any_session_can_be_gone_on_from(steps: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        files = SessionFiles(Path(directory) / "s", Path(directory) / "c.db")

        async def scenario() -> Path:
            store = fresh(files.directory)
            await one_turn(store, "start")
            for number, step in enumerate(steps):
                sent = [each.seq for each in (await store.load()).messages]
                points = await store.rewinds.points()
                if step == "turn":
                    await one_turn(store, f"p{number}", suffix=f"-{number}")
                elif step == "undo" and points:
                    await store.rewinds.take_back(points[-1].seq, "", (), chat=True)
                elif step == "fold" and len(sent) >= 5:
                    summary = UserMessage(user_text(f"s{number}").parts, is_summary=True)
                    folded = list(range(len(sent) - 5))
                    if folded:
                        await store.record_compaction(
                            summary, folded, len(sent), usage=Usage(), model=""
                        )
                elif step == "unfold":
                    await store.undo_compaction()
            await store.aclose()
            return store.path

        path = asyncio.run(scenario())
        for stored in read_session(path, hidden=True).messages:
            forked(files, path.stem, stored.seq)


@pytest.mark.spec("TT-3", "REC-7")
@pytest.mark.parametrize(
    "moves",
    ["[[1]]", "null", '[["x", 1, 2]]', "[[1, [], 2]]", f"[[{10**30}, 1, 2]]", "[" * 100_000,
     "[" + ", ".join(["[9, 1, 1]"] * 50_000) + "]"],
)  # fmt: skip
def test_moves_of_a_rewind_that_are_none_are_damage(files: SessionFiles, moves: str) -> None:
    path = asyncio.run(finished_session(files.directory, turns=2))
    with opened(path) as db:
        db.execute(
            "INSERT INTO rewind (created_at, newest_seq, messages)"
            " VALUES (1, (SELECT max(seq) FROM message), ?)",
            (moves,),
        )
    with pytest.raises(SessionDamaged, match="rewind"):
        files.fork(path.stem, 1)
    with opened(path) as db, pytest.raises(MalformedBody, match="rewind"):
        newest(db)
