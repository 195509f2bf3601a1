"""The session store: what each write does, how many commits it takes, what a failure leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import threading
import time
from pathlib import Path

import pytest

from agentcli.domain.errors import PersistenceError, SessionDamaged, StoreError
from agentcli.domain.events import Outcome
from agentcli.domain.history import History
from agentcli.domain.messages import AssistantMessage, TextPart, ToolResult, Usage, UserMessage
from agentcli.domain.ports import RecordedResult, RunStatus, SessionStore
from agentcli.domain.session import SessionStatus
from agentcli.domain.tool_ports import RawOutputs, SessionState
from agentcli.store.files import read_session
from agentcli.store.repair.check import check
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import (
    PNG,
    answer,
    asking,
    call,
    finished_session,
    fresh,
    one_turn,
    result,
    run_child,
    text,
)
from tests.support.databases import opened


def test_it_is_what_the_ports_ask_for(tmp_path: Path) -> None:
    store = fresh(tmp_path)
    engine_side: SessionStore = store
    tool_side: SessionState = store
    raw_side: RawOutputs = store
    assert engine_side is tool_side is raw_side


def test_a_new_session_touches_no_disk_before_its_first_prompt(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path / "sessions")
        await store.set_title("named early")
        await store.set_model("other/m")
        await store.set("todos", [1])
        assert await store.get("todos") == [1]
        assert (await store.load()).messages == ()
        assert await store.tool_runs() == {}
        assert not (tmp_path / "sessions").exists()
        await store.record_prompt(text("go"))
        assert (await store.info()).title == "named early"
        assert (await store.info()).model == "other/m"
        assert await store.get("todos") == [1]
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("CAN-8", "REC-3")
def test_a_turn_is_read_back_message_by_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await one_turn(store)
        here = await store.load()
        await store.aclose()
        again = await SqliteStore.open(store.path)
        there = await again.load()
        await again.aclose()
        assert here.messages == there.messages
        assert [stored.seq for stored in there.messages] == [1, 2, 3, 4, 5]
        assert there.messages[3].message.parts[1].data == PNG
        assert there.info.status is SessionStatus.DONE
        assert there.info.turns == 1
        assert there.info.title == "Look around"
        assert there.info.usage == Usage(20, 10)
        assert there.runs["a"].status is RunStatus.FINISHED
        assert there.runs["a"].display == "display"
        assert there.runs["a"].started_at <= there.runs["a"].finished_at
        History(stored.message for stored in there.messages)

    asyncio.run(scenario())


@pytest.mark.spec("FAIL-5")
def test_every_write_of_a_step_is_one_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        counts = []

        async def count(write: object) -> None:
            before = store.commits
            await write
            counts.append(store.commits - before)

        calls = (call("a"), call("b"))
        await count(store.record_prompt(text("hi")))
        await count(store.record_assistant(asking(*calls), calls, final=None))
        await count(store.record_running(calls[0]))
        await count(store.record_running(calls[1]))
        await count(store.record_result(RecordedResult(result("b"), b"raw"), []))
        await count(store.record_result(RecordedResult(result("a")), [result("a"), result("b")]))
        await count(store.record_assistant(answer(), (), final=Outcome.DONE))
        await count(store.record_prompt(text("more")))
        spent = Usage(7)
        await count(
            store.record_end((), Outcome.CANCELLED, "by user", "half", usage=spent, model="a/b")
        )
        await store.aclose()
        assert counts == [1] * 9

    asyncio.run(scenario())


def test_a_result_out_of_order_is_parked_until_its_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        calls = (call("a"), call("b"))
        await store.record_prompt(text("hi"))
        await store.record_assistant(asking(*calls), calls, final=None)
        await store.record_running(calls[1])
        await store.record_result(RecordedResult(result("b", "second")), [])
        runs = await store.tool_runs()
        assert runs["a"].status is RunStatus.PENDING
        assert runs["b"].result == result("b", "second")
        assert len((await store.load()).messages) == 2
        await store.record_running(calls[0])
        both = [result("a"), result("b", "second")]
        await store.record_result(RecordedResult(both[0]), both)
        assert await store.tool_runs() == {}
        assert [m.message for m in (await store.load()).messages[2:]] == both
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("CAN-6", "FAIL-4")
def test_a_call_cannot_have_two_results(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        await store.record_assistant(asking(call("a")), [call("a")], final=None)
        await store.record_running(call("a"))
        await store.record_result(RecordedResult(result("a")), [result("a")])
        with pytest.raises(PersistenceError, match="has a result already"):
            await store.record_result(RecordedResult(result("a")), [result("a")])
        with pytest.raises(PersistenceError, match="has a result already"):
            await store.record_end([result("a")], Outcome.CANCELLED, "", "")
        with pytest.raises(PersistenceError, match="is not pending"):
            await store.record_running(call("a"))
        with pytest.raises(PersistenceError, match="unknown"):
            await store.record_result(RecordedResult(result("never")), [result("never")])
        assert len((await store.load()).messages) == 3
        assert (await store.load()).info.status is SessionStatus.RUNNING
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("CAN-1", "CAN-5")
def test_an_end_balances_and_keeps_the_partial_answer_for_display_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        calls = (call("a"), call("b"))
        await store.record_prompt(text("hi"))
        await store.record_assistant(asking(*calls), calls, final=None)
        await store.record_running(calls[0])
        from agentcli.domain.history import RepairReason, repair_results

        results = repair_results(calls, await store.tool_runs(), RepairReason.CANCELLED)
        await store.record_end(results, Outcome.CANCELLED, "cancelled by the user", "half \ud800")
        await store.aclose()
        loaded = read_session(store.path)
        assert [m.message for m in loaded.messages[2:]] == list(results)
        assert {run.status for run in loaded.runs.values()} == {RunStatus.CANCELLED}
        assert loaded.info.status is SessionStatus.CANCELLED
        assert loaded.info.detail == "cancelled by the user"
        assert [(n.after_seq, n.kind, n.text) for n in loaded.notes] == [
            (4, "partial", "half \ud800")
        ]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.DONE, "done"),
        (Outcome.WRAPPED_UP, "done"),
        (Outcome.MAX_STEPS, "limit"),
        (Outcome.CANCELLED, "cancelled"),
        (Outcome.ERROR, "failed"),
    ],
)
def test_the_state_says_how_the_turn_ended(tmp_path: Path, outcome: Outcome, status: str) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        assert (await store.info()).status is SessionStatus.RUNNING
        await store.record_end((), outcome, "why", "")
        assert (await store.info()).status == status
        await store.record_prompt(text("on"))
        assert (await store.info()).status is SessionStatus.RUNNING
        assert (await store.info()).detail == ""
        await store.aclose()

    asyncio.run(scenario())


def test_the_title_is_the_first_line_of_the_first_prompt_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text(f"\n  \n fix \x1b[31m the\tbug {'x' * 200}\nsecond line"))
        await store.record_prompt(text("another"))
        title = (await store.info()).title
        await store.aclose()
        assert title.startswith("fix [31m the bug xxx")
        assert len(title) == 80

    asyncio.run(scenario())


def test_continuing_without_a_message_is_no_new_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        await store.record_end((), Outcome.ERROR, "dropped", "")
        assert await store.record_prompt(None) == 1
        info = await store.info()
        await store.aclose()
        assert (info.turns, info.status) == (1, SessionStatus.RUNNING)

    asyncio.run(scenario())


@pytest.mark.spec("LOOP-6", "COST-1")
def test_usage_adds_up_and_an_unknown_part_makes_the_cost_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        prices = iter([0.25, 0.5, None])
        store = SqliteStore.new(
            tmp_path / "s.db", (await fresh(tmp_path).info()), price=lambda _: next(prices)
        )
        await store.record_prompt(text("hi"))
        assert (await store.info()).cost_usd == 0  # nothing was used, as after a refused request
        await store.record_assistant(answer(), (), final=None)
        await store.record_assistant(answer(), (), final=None)
        assert (await store.info()).cost_usd == 0.75
        await store.add_usage("scripted/m", Usage(reasoning_tokens=3), 0.25, kind="compaction")
        info = await store.info()
        assert info.cost_usd == 1.0
        assert info.usage == Usage(20, 10, None, None, 3)
        await store.record_assistant(answer(), (), final=None)
        assert (await store.info()).cost_usd is None
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("LOOP-6", "COST-1")
def test_what_a_cut_reply_cost_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        priced: list[AssistantMessage] = []

        def price(message: AssistantMessage) -> float | None:
            priced.append(message)
            return 0.25 if message.usage.output_tokens is not None else None

        store = SqliteStore.new(tmp_path / "s.db", await fresh(tmp_path).info(), price=price)
        await store.record_prompt(text("hi"))
        await store.record_assistant(answer(), (), final=None)
        spent = Usage(100, 7, reasoning_tokens=2)
        await store.record_end((), Outcome.ERROR, "dropped", "half", usage=spent, model="p/m/x")
        assert (priced[-1].provider, priced[-1].model, priced[-1].usage) == ("p", "m/x", spent)
        info = await store.info()
        assert (info.usage, info.cost_usd) == (answer().usage + spent, 0.5)
        rows = await store._read(
            lambda db: db.execute("SELECT kind, model, message_seq FROM usage").fetchall()
        )
        assert rows == [("step", "scripted/m", 2), ("partial", "p/m/x", None)]
        await store.record_end((), Outcome.CANCELLED, "", "")
        assert (await store.info()).cost_usd == 0.5
        await store.record_end((), Outcome.CANCELLED, "", "", usage=Usage(1), model="p/m")
        assert ((await store.info()).usage.input_tokens, (await store.info()).cost_usd) == (
            111,
            None,
        )
        await store.aclose()
        assert check(store.path) == []

    asyncio.run(scenario())


@pytest.mark.spec("COST-1")
def test_what_an_unnamed_model_cost_is_unknown(tmp_path: Path) -> None:
    async def scenario() -> None:
        info = await fresh(tmp_path).info()
        store = SqliteStore.new(tmp_path / "s.db", info, price=lambda _: 1.0)
        await store.record_prompt(text("hi"))
        await store.record_end((), Outcome.ERROR, "", "", usage=Usage(5, 5))
        assert (await store.info()).cost_usd is None
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("TOOL-3", "TOOL-6")
def test_raw_output_is_kept_beside_the_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await one_turn(store)
        assert await store.read("a") == b"raw"
        assert await store.read("b") == b"raw"
        assert await store.read("unknown") is None
        await store.aclose()
        with contextlib.closing(sqlite3.connect(store.path)) as db:
            assert db.execute("SELECT count(*) FROM blob").fetchone() == (2,)  # once each

    asyncio.run(scenario())


def test_small_values_come_back_and_none_removes_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        await store.set("key", {"list": [1, "\ud800"]})
        assert await store.get("key") == {"list": [1, "\ud800"]}
        await store.set("key", None)
        assert await store.get("key") is None
        await store._write(store._writes.note, "warning", "careful")
        assert (await store.load()).notes[0].text == "careful"
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("SEC-9")
def test_known_secrets_never_reach_the_file(tmp_path: Path) -> None:
    secret = "sk-canary-0123456789"

    async def scenario() -> Path:
        store = SqliteStore.new(
            tmp_path / "s.db",
            await fresh(tmp_path).info(),
            redact=lambda value: value.replace(secret, "[redacted]"),
        )
        await store.set("early", secret)  # what is told back is what will be stored
        assert await store.get("early") == "[redacted]"
        await store.record_prompt(text(f"my key is {secret}"))
        await store.record_assistant(asking(call("a", x=secret)), [call("a")], final=None)
        done = RecordedResult(result("a", secret), secret.encode(), secret, secret, secret)
        await store.record_result(done, [])
        await store.record_end([result("a", secret)], Outcome.ERROR, secret, secret)
        await store.set_title(secret)
        await store.set("k", {"v": secret})
        await store.aclose()
        return store.path

    path = asyncio.run(scenario())
    assert secret.encode() not in path.read_bytes()
    assert read_session(path).info.title == "[redacted]"


@pytest.mark.spec("SEC-9")
def test_files_and_directories_are_private_under_a_careless_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:

        async def scenario() -> None:
            store = fresh(tmp_path / "home" / "sessions")
            await one_turn(store)
            assert await store.rescue("text") is not None
            modes = {
                path.name.split(".", 1)[1]: stat.S_IMODE(path.stat().st_mode)
                for path in store.path.parent.iterdir()
            }
            assert modes == dict.fromkeys(["db", "db-wal", "db-shm", "lock", "recovery.txt"], 0o600)
            await store.aclose()

        asyncio.run(scenario())
    finally:
        os.umask(old)
    for directory in (tmp_path / "home", tmp_path / "home" / "sessions"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_closing_leaves_one_file_and_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    path = asyncio.run(finished_session(tmp_path))
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    assert threading.active_count() == before


@pytest.mark.spec("REC-6")
def test_a_closed_store_no_longer_writes_since_another_may_own_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("go"))
        await store.aclose()
        owner = await SqliteStore.open(store.path)
        with pytest.raises(PersistenceError, match="closed"):
            await store.set("shell", {"cwd": "/"})
        assert await owner.get("shell") is None
        await store.aclose()
        await owner.aclose()

    asyncio.run(scenario())


def test_a_store_that_was_never_closed_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    child = run_child(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.store.sessions import fresh, text\n"
        "store = fresh(Path(sys.argv[1]))\n"
        "asyncio.run(store.record_prompt(text('hi')))\n",
        tmp_path,
        PYTHONWARNINGS="error",
    )
    assert (child.returncode, child.stderr) == (0, "")


@pytest.mark.spec("REC-6")
def test_reading_works_while_the_owner_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        writer = fresh(tmp_path)
        await one_turn(writer, suffix="1")
        reader = await SqliteStore.open(writer.path, writable=False)
        assert len((await reader.load()).messages) == 5
        await one_turn(writer, suffix="2")
        assert len((await reader.load()).messages) == 10
        await writer.record_prompt(text("third"))
        loaded = await reader.load()
        assert loaded.info.status is SessionStatus.RUNNING
        with pytest.raises(StoreError):
            await reader.record_prompt(text("no"))
        await writer.aclose()
        assert len((await reader.load()).messages) == 11
        await reader.aclose()

    asyncio.run(scenario())


def test_a_reader_of_a_closed_session_sees_what_a_later_owner_writes(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = await finished_session(tmp_path)
        reader = await SqliteStore.open(path, writable=False)
        assert len((await reader.load()).messages) == 5
        assert [item.name for item in tmp_path.iterdir()] == [path.name]
        writer = await SqliteStore.open(path)
        await writer.record_prompt(text("more"))
        assert len((await reader.load()).messages) == 6
        await writer.aclose()
        await reader.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("FAIL-1")
@pytest.mark.parametrize("limit", [0, 8_000, 40_000])
def test_a_full_disk_at_the_first_prompt_leaves_no_file_and_one_clear_error(
    tmp_path: Path, limit: int
) -> None:
    child = run_child(
        "import asyncio, resource, sys\n"
        "from pathlib import Path\n"
        "from tests.store.sessions import fresh, text\n"
        "from agentcli.domain.errors import PersistenceError\n"
        "async def main():\n"
        "    store = fresh(Path(sys.argv[1]) / 'sessions')\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))\n"
        "    try:\n"
        "        await store.record_prompt(text('hi'))\n"
        "    except PersistenceError as error:\n"
        "        print(error)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "    print(list((Path(sys.argv[1]) / 'sessions').iterdir()))\n"
        "    await store.record_prompt(text('again'))\n"
        "    print(len((await store.load()).messages))\n"
        "    await store.aclose()\n"
        "asyncio.run(main())\n",
        tmp_path,
        limit,
    )
    assert child.stderr == ""
    error, files, count = child.stdout.splitlines()
    assert error.startswith(f"cannot write session file {tmp_path}")
    assert (files, count) == ("[]", "1")


@pytest.mark.spec("FAIL-1", "OPS-1")
def test_a_disk_that_fills_up_fails_the_write_and_nothing_before_it(tmp_path: Path) -> None:
    child = run_child(
        "import asyncio, resource, sys\n"
        "from pathlib import Path\n"
        "from tests.store.sessions import fresh, text, one_turn\n"
        "from agentcli.domain.errors import PersistenceError\n"
        "async def main():\n"
        "    store = fresh(Path(sys.argv[1]))\n"
        "    await one_turn(store)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))\n"
        "    try:\n"
        "        await store.record_prompt(text('x' * 1_000_000))\n"
        "    except PersistenceError as error:\n"
        "        print(error.message)\n"
        "    print(len((await store.load()).messages))\n"
        "    print(await store.rescue('y' * 1_000_000))\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "    print(await store.record_prompt(text('fits again')))\n"
        "    await store.aclose()\n"
        "    print(sorted(p.suffix for p in Path(sys.argv[1]).iterdir()))\n"
        "asyncio.run(main())\n",
        tmp_path,
    )
    assert child.stderr == ""
    error, count, rescued, seq, left = child.stdout.splitlines()
    assert error.startswith(f"cannot write session file {tmp_path}")
    assert (count, rescued, seq, left) == ("5", "None", "6", "['.db']")


@pytest.mark.spec("FAIL-1")
def test_sqlite_saying_full_is_told_as_a_full_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        await store._write(lambda db: db.execute("INSERT INTO kv (key, value) VALUES ('a', '1')"))
        db = store._file._db
        await store._run(lambda: db.execute("PRAGMA max_page_count = 1"), writing=False)
        with pytest.raises(PersistenceError, match="the disk is full - free some disk space"):
            await store.record_prompt(text("x" * 1_000_000))
        await store._run(lambda: db.execute("PRAGMA max_page_count = 100000"), writing=False)
        assert await store.record_prompt(text("x" * 1_000_000)) == 2
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("FAIL-1")
def test_a_file_that_disappeared_is_not_written_into_nowhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        store.path.unlink()
        with pytest.raises(PersistenceError, match="the file is gone"):
            await store.record_prompt(text("more"))
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("FAIL-1")
def test_a_directory_that_cannot_be_made_is_a_persistence_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def scenario() -> None:
        store = fresh(tmp_path / "file" / "sessions")
        with pytest.raises(PersistenceError, match="cannot write session file"):
            await store.record_prompt(text("hi"))
        with pytest.raises(PersistenceError, match="never created"):
            await store.record_end((), Outcome.ERROR, "", "")
        assert await store.rescue("lost?") is None
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("FAIL-4")
def test_whatever_is_raised_inside_comes_out_as_one_of_our_errors(tmp_path: Path) -> None:
    def explode(_: str) -> str:
        raise ZeroDivisionError("inside")

    async def scenario() -> None:
        store = SqliteStore.new(tmp_path / "s.db", await fresh(tmp_path).info(), redact=explode)
        with pytest.raises(PersistenceError, match="ZeroDivisionError: inside"):
            await store.record_prompt(text("hi"))
        await store.aclose()

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("FAIL-1")
def test_rescued_texts_pile_up_in_one_private_file(tmp_path: Path) -> None:
    async def scenario() -> str:
        store = fresh(tmp_path)
        await store.rescue("first")
        path = await store.rescue("second \ud800")
        await store.aclose()
        assert path is not None
        return path

    path = Path(asyncio.run(scenario()))
    assert path.read_text() == "first\nsecond \\ud800\n"
    assert path.name.endswith(".recovery.txt")


@pytest.mark.spec("CAN-7", "CAN-8")
def test_a_cancelled_writer_is_cancelled_only_after_its_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        for number in range(20):
            writing = asyncio.ensure_future(store.set("n", number))
            await asyncio.sleep(0)  # it is under way
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
            assert await store.get("n") == number
        await store.aclose()

    asyncio.run(scenario())


def test_the_write_ahead_log_stays_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        log = store.path.with_name(store.path.name + "-wal")
        for number in range(40):
            await store.set("big", "x" * 1_000_000 + str(number))
        assert log.stat().st_size < 8_000_000
        await store.aclose()
        assert not log.exists()

    asyncio.run(scenario())


@pytest.mark.spec("FAIL-3", "REC-7")
def test_a_malformed_message_is_an_error_and_not_a_shorter_session(tmp_path: Path) -> None:
    path = asyncio.run(finished_session(tmp_path))
    with opened(path) as db:
        db.execute("UPDATE message SET body = '{}' WHERE seq = 3")

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        with pytest.raises(SessionDamaged, match=f"{path.name} is damaged: message 3") as caught:
            await store.load()
        assert caught.value.advice == f"run: agent sessions repair {path.stem}"
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("REC-7", "OPS-1")
def test_times_beyond_any_clock_are_read_as_the_nearest_it_can_show(tmp_path: Path) -> None:
    path = asyncio.run(finished_session(tmp_path))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE session SET created_at = -1e300, updated_at = 9e999")
        db.execute("UPDATE message SET created_at = 9e18")
        db.execute(
            "INSERT INTO note (after_seq, created_at, kind, text) VALUES (1, 9e18, 'x', 'x')"
        )
    loaded = read_session(path)
    times = [loaded.info.created_at, loaded.info.updated_at]
    times += [stored.created_at for stored in loaded.messages]
    times += [note.created_at for note in loaded.notes]
    assert [time.gmtime(moment).tm_year for moment in times] == [1970, *[9999] * (len(times) - 1)]


def test_two_sessions_share_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        one, two = fresh(tmp_path), fresh(tmp_path)
        await asyncio.gather(one_turn(one, "one"), one_turn(two, "two"))
        assert (await one.load()).messages[0].message == text("one")
        assert (await two.load()).messages[0].message == text("two")
        await one.aclose()
        await one_turn(two, "again", suffix="2")
        await two.aclose()

    asyncio.run(scenario())


def test_an_odd_directory_name_survives(tmp_path: Path) -> None:
    odd = os.fsdecode(b"/tmp/\xff\xfe")
    place = tmp_path / "50% #1?"

    async def scenario() -> None:
        store = fresh(place, cwd=odd)
        await store.record_prompt(UserMessage((TextPart("hi"),)))
        await store.aclose()
        assert read_session(store.path).info.cwd == odd

    asyncio.run(scenario())


def test_results_of_imported_sessions_need_no_row(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        await store.record_assistant(asking(call("a")), (), final=None)
        await store.record_end([result("a")], Outcome.CANCELLED, "", "")
        loaded = await store.load()
        await store.aclose()
        assert isinstance(loaded.messages[-1].message, ToolResult)
        assert loaded.runs["a"].status is RunStatus.FINISHED

    asyncio.run(scenario())


@pytest.mark.spec("CAN-8", "FAIL-5")
def test_commits_are_durable_and_references_are_kept(tmp_path: Path) -> None:
    async def scenario() -> list[object]:
        path = await finished_session(tmp_path)
        store = await SqliteStore.open(path)
        names = ("journal_mode", "synchronous", "foreign_keys")
        values = [
            await store._read(lambda db, n=name: db.execute(f"PRAGMA {n}").fetchone()[0])
            for name in names
        ]
        await store.aclose()
        return values

    assert asyncio.run(scenario()) == ["wal", 2, 1]
