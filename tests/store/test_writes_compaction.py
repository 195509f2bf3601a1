"""A compaction in the session file: one transaction, nothing deleted, and the way back (CMP-3)."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentcli.domain.errors import PersistenceError
from agentcli.domain.events import Outcome
from agentcli.domain.history import CRASHED_TEXT, History
from agentcli.domain.messages import Message, TextPart, ToolResult, Usage, UserMessage
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import LoadedSession, StoredMessage
from agentcli.engine.context.outgoing import check_request
from agentcli.store.files import SessionFiles, read_session
from agentcli.store.repair.check import check
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore, recover
from tests.store.sessions import (
    answer,
    asking,
    call,
    change,
    finished_session,
    fresh,
    now,
    result,
    run_child,
    text,
)

pytestmark = pytest.mark.spec("CMP-3")


def summary(value: str) -> UserMessage:
    return UserMessage((TextPart(value),), is_summary=True)


async def compact(store: SqliteStore, folded: Sequence[int], value: str = "short") -> int:
    total = len((await store.load()).messages)
    return await store.record_compaction(
        summary(value), folded, total, usage=Usage(900, 90), model="a/b"
    )


def seqs(loaded: LoadedSession) -> list[int]:
    return [stored.seq for stored in loaded.messages]


def messages(loaded: LoadedSession) -> list[Message]:
    return [stored.message for stored in loaded.messages]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three turns of five messages each."""
    return asyncio.run(finished_session(tmp_path / "sessions", turns=3))


def test_the_summary_stands_before_what_was_kept_and_everything_stays_readable(path: Path) -> None:
    before = read_session(path)

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        commits = store.commits
        assert await compact(store, range(10)) == 16
        assert store.commits == commits + 1
        sent = await store.load()
        assert seqs(sent) == [16, 11, 12, 13, 14, 15]
        assert sent.messages[0].message == summary("short")
        check_request(messages(sent))
        whole = await store.load(hidden=True)
        assert seqs(whole) == list(range(1, 17))
        assert [stored.hidden_by for stored in whole.messages] == [16] * 10 + [None] * 6
        assert messages(whole)[:15] == messages(before)
        assert await store.record_prompt(text("on")) == 17
        assert seqs(await store.load()) == [16, 11, 12, 13, 14, 15, 17]
        await store.record_end((), Outcome.DONE, "", "")
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []


def test_a_prompt_in_the_middle_of_what_is_folded_can_be_kept(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await compact(store, [*range(10), 11, 12, 13])
        loaded = await store.load()
        assert seqs(loaded) == [16, 11, 15]
        check_request(messages(loaded))
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []


def test_its_tokens_count_and_are_told_apart(path: Path) -> None:
    before = read_session(path).info.usage

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        seq = await compact(store, range(10))
        total = (await store.load()).info.usage
        assert total.input_tokens == (before.input_tokens or 0) + 900
        db = sqlite3.connect(path)
        rows = db.execute("SELECT message_seq, model, kind FROM usage ORDER BY id").fetchall()
        db.close()
        assert rows[-1] == (seq, "a/b", "compaction")
        assert {kind for *_, kind in rows[:-1]} == {"step"}
        await store.aclose()

    asyncio.run(scenario())


def test_it_can_be_taken_back_level_by_level_and_what_came_later_stays(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        original = messages(await store.load())
        await compact(store, range(5), "first")
        await store.record_prompt(text("later"))
        await store.record_assistant(answer(), (), final=Outcome.DONE)
        once = await store.load()
        await compact(store, range(len(once.messages) - 2), "second")
        assert [m.text for m in messages(await store.load())][:2] == ["second", "later"]
        assert await store.undo_compaction()
        assert messages(await store.load()) == messages(once)
        assert await store.undo_compaction()
        assert messages(await store.load()) == [*original, text("later"), answer()]
        assert not await store.undo_compaction()
        await compact(store, range(5), "third")
        assert messages(await store.load())[0].text == "third"
        whole = await store.load(hidden=True)
        hidden = {s.seq: s.hidden_by for s in whole.messages if is_summary(s)}
        assert sorted(hidden.values(), key=str) == [16, 19, None]
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []


def is_summary(stored: StoredMessage) -> bool:
    return isinstance(stored.message, UserMessage) and stored.message.is_summary


def test_a_history_that_is_not_the_one_on_disk_is_not_folded(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        before = await store.load()
        with pytest.raises(PersistenceError, match="14 messages"):
            await store.record_compaction(summary("x"), [0], 14, usage=Usage(), model="")
        assert await store.load() == before
        await store.aclose()

    asyncio.run(scenario())


def test_a_new_session_has_nothing_to_take_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        assert not await store.undo_compaction()
        await store.aclose()

    asyncio.run(scenario())


def test_a_fork_of_a_compacted_session_is_compacted_and_can_be_unfolded(path: Path) -> None:
    async def scenario() -> SqliteStore:
        store = await SqliteStore.open(path)
        await compact(store, range(10))
        await store.aclose()
        files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")
        return await SqliteStore.open(files.path_of(files.fork(path.stem)))

    async def in_copy() -> None:
        copy = await scenario()
        assert seqs(await copy.load()) == [16, 11, 12, 13, 14, 15]
        assert await copy.undo_compaction()
        assert seqs(await copy.load()) == list(range(1, 16))
        await copy.aclose()
        assert check(copy.path) == []

    asyncio.run(in_copy())
    assert seqs(read_session(path)) == [16, 11, 12, 13, 14, 15]


def test_folded_text_and_the_summary_are_found_by_search(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await store.record_prompt(text("the word xylophone"))
        await store.record_assistant(answer(), (), final=Outcome.DONE)
        await compact(store, range(17), "we spoke of a zeppelin")
        await store.aclose()

    asyncio.run(scenario())
    files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")
    assert [hit.seq for hit in now(files.search("xylophone"))] == [16]
    assert [hit.seq for hit in now(files.search("zeppelin"))] == [18]


def test_a_reference_to_what_is_no_summary_is_found_and_mended(path: Path) -> None:
    change(path, "UPDATE message SET hidden_by = 3 WHERE seq = 1")
    assert any("no summary" in problem for problem in check(path))
    repair(path)
    assert check(path) == []
    assert len(read_session(path).messages) == 15


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_compacted_session_is_repaired_into_a_lawful_one(path: Path, seed: int) -> None:
    rng = random.Random(seed)

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await compact(store, range(5), "first")
        await compact(store, [*range(6), 7, 8, 9], "second")
        await store.aclose()

    asyncio.run(scenario())
    for seq in rng.sample(range(1, 18), 4):
        change(path, f"UPDATE message SET body = '{{' WHERE seq = {seq}")
    repair(path)
    assert check(path) == []
    history = History(messages(read_session(path)))
    assert not history.pending
    whole = messages(read_session(path, hidden=True))
    assert not History(whole).pending


# Says on stdout what the store has acknowledged, then goes on.
CHILD = """
import asyncio, sys
from pathlib import Path
from agentcli.domain.events import Outcome
from agentcli.domain.messages import TextPart, Usage, UserMessage
from tests.store.sessions import answer, asking, call, fresh, one_turn, text

async def main():
    store = fresh(Path(sys.argv[1]))
    await one_turn(store, suffix="1")
    await one_turn(store, suffix="2")
    await store.record_prompt(text("third"))
    calls = (call("z"),)
    print("ready", flush=True)
    summary = UserMessage((TextPart("short"),), is_summary=True)
    await store.record_compaction(summary, range(10), 11, usage=Usage(9, 9), model="a/b")
    print("compacted", flush=True)
    await store.record_assistant(asking(*calls), calls, final=None)
    print("asked", flush=True)
    await store.undo_compaction()
    print("undone", flush=True)
    await store.aclose()
asyncio.run(main())
"""


def writes_before() -> int:
    async def scenario(directory: Path) -> int:
        from tests.store.sessions import one_turn

        store = fresh(directory)
        await one_turn(store, suffix="1")
        await one_turn(store, suffix="2")
        await store.record_prompt(text("third"))
        await store.aclose()
        return store.commits

    import tempfile

    with tempfile.TemporaryDirectory() as name:
        return asyncio.run(scenario(Path(name)))


@pytest.mark.slow
@pytest.mark.spec("REC-3", "CMP-3")
def test_killed_at_any_point_around_a_compaction_all_or_nothing_of_it_is_there(
    tmp_path: Path,
) -> None:
    before = writes_before()
    for point in range(3 * before + 1, 3 * (before + 3) + 1):
        directory = tmp_path / str(point)
        child = run_child(CHILD, directory, AGENTCLI_TEST_KILL_AT_WRITE=str(point))
        assert (child.returncode, child.stderr) == (-signal.SIGKILL, "")
        said = child.stdout.split()
        (path,) = directory.glob("*.db")
        assert check(path) == []
        assert_sound(path, said)


def assert_sound(path: Path, said: list[str]) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        loaded, _ = await recover(store)
        await store.record_prompt(text("on"))
        sent = await store.load()
        check_request(messages(sent))
        whole = await store.load(hidden=True)
        assert [m.text for m in messages(whole)].count("Look around") == 2
        is_compacted = is_summary(loaded.messages[0])
        if is_compacted:
            assert len(loaded.messages) in {2, 4}
            assert [s.hidden_by for s in whole.messages[:10]] == [12] * 10
        else:
            assert [s.hidden_by for s in whole.messages[:10]] == [None] * 10
        if "undone" in said:
            assert not is_compacted
        elif "asked" in said:
            assert [m.parts[0].text for m in results_of(loaded)][-1] == CRASHED_TEXT
        elif "compacted" in said:
            assert is_compacted
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []


def results_of(loaded: LoadedSession) -> list[ToolResult]:
    return [m for m in messages(loaded) if isinstance(m, ToolResult)]


def test_a_call_id_of_a_folded_message_stays_taken(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await compact(store, range(10))
        loaded = await store.load()
        folded = {run for run in loaded.runs if run.endswith(("0", "1"))}
        history = History(messages(loaded), used_ids=loaded.runs)
        assert folded and folded <= history.call_ids
        await store.aclose()

    asyncio.run(scenario())


def test_a_turn_goes_on_after_it(path: Path) -> None:
    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await store.record_prompt(text("next"))
        await compact(store, range(15))
        asked = call("n1")
        await store.record_assistant(asking(asked), (asked,), final=None)
        await store.record_running(asked)
        done = result("n1")
        await store.record_result(RecordedResult(done), [done])
        await store.record_assistant(answer(), (), final=Outcome.DONE)
        loaded = await store.load()
        assert [m.text for m in messages(loaded)][:2] == ["short", "next"]
        check_request(messages(loaded)[:-1])
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []
