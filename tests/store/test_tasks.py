"""The registry of background runs in a real session file: fenced, durable, told once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentcli.domain.background import (
    BackgroundTask,
    Beat,
    Schedule,
    TaskEnd,
    TaskProgress,
    TaskState,
)
from agentcli.domain.errors import SessionNotFound
from agentcli.domain.messages import user_text
from agentcli.domain.ports import QueueKind, QueueSource
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.engine.background.runs import TaskStore
from agentcli.store.disk import runs_directory
from agentcli.store.files import SessionFiles
from agentcli.store.repair.check import check
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore
from agentcli.store.tasks import ask_to_cancel, read_registry
from tests.store.sessions import change

NAME = "0190a000-0000-7000-8000-000000000000"
RUN = BackgroundTask(
    "bg_1",
    "task_1",
    "bash",
    {"command": "make key"},
    "build",
    TaskState.RUNNING,
    10.0,
    10.0,
    log_path="/l",
    result_path="/r",
    is_repeatable=True,
)
PLAN = Schedule("sched_1", "bash", {"command": "true"}, "nightly", 5.0, cron_expression="* * * * *")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / f"{NAME}.db"


def in_session(path: Path, body: Callable[[SqliteStore, TaskStore], Awaitable[None]]) -> None:
    async def scenario() -> None:
        info = SessionInfo(NAME, "", "/w", 1.0, 1.0, SessionStatus.NEW, 0, "test/model")
        store = SqliteStore.new(path, info, redact=lambda text: text.replace("key", "*"))
        await store.record_prompt(user_text("go"))
        try:
            await body(store, store.tasks)
        finally:
            await store.aclose()

    asyncio.run(scenario())


@pytest.mark.spec("BG-3")
def test_a_run_is_kept_with_all_that_is_known_of_it(path: Path) -> None:
    progress = TaskProgress(3, 10, "files", "copying")

    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        plain = replace(RUN, run_id="bg_0", arguments={"command": "make"}, created_at=9.0)
        await tasks.add(RUN)
        await tasks.add(plain)
        await tasks.beat([Beat("bg_1", 1, "a key step", progress, 77, "99")], 12.0)
        first, second = await tasks.tasks()
        assert first == plain
        assert second == replace(
            RUN,
            arguments={"command": "make *"},
            is_repeatable=False,  # what is stored is not what was asked for
            detail="a * step",
            progress=progress,
            heartbeat_at=12.0,
            updated_at=12.0,
            pid=77,
            pid_started="99",
        )

    in_session(path, body)
    assert [task.run_id for task in read_registry(path)[0]] == ["bg_0", "bg_1"]
    assert check(path) == []


@pytest.mark.spec("BG-3")
def test_a_stale_attempt_changes_nothing(path: Path) -> None:
    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.add(RUN)
        assert await tasks.restart("bg_1", 1, 11.0) == 2
        before = await tasks.tasks()
        assert before[0].attempt == 2
        await tasks.beat([Beat("bg_1", 1, "late")], 12.0)
        stale = await tasks.end(TaskEnd("bg_1", 1, TaskState.FAILED, message="no"), 12.0)
        assert not stale.changed and stale.message is None
        assert await tasks.restart("bg_1", 1, 12.0) is None
        assert await tasks.tasks() == before
        assert await store.queue_waiting() == ()

    in_session(path, body)


@pytest.mark.spec("BG-3", "BG-5")
def test_an_end_is_for_ever_and_its_message_waits_in_the_same_commit(path: Path) -> None:
    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.add(RUN)
        commits = store.commits
        end = TaskEnd("bg_1", 1, TaskState.SUCCEEDED, "built with key", message="it is done")
        done = await tasks.end(end, 20.0)
        assert store.commits == commits + 1
        assert done.changed and done.message is not None
        assert done.message.kind is QueueKind.FOLLOW_UP
        assert done.message.source is QueueSource.BACKGROUND
        assert await store.queue_waiting() == (done.message,)
        again = TaskEnd("bg_1", 1, TaskState.FAILED, message="twice")
        assert not (await tasks.end(again, 21.0)).changed
        await tasks.beat([Beat("bg_1", 1, "still there")], 22.0)
        (task,) = await tasks.tasks()
        assert (task.state, task.summary) == (TaskState.SUCCEEDED, "built with *")
        assert (task.finished_at, task.announced_at, task.detail) == (20.0, 20.0, "")
        assert not await tasks.request_cancel("bg_1", 23.0)

    in_session(path, body)


@pytest.mark.spec("BG-5")
def test_what_ended_unannounced_is_told_once(path: Path) -> None:
    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.add(RUN)
        assert not (await tasks.announce(["bg_1"], "early", 11.0)).changed
        await tasks.end(TaskEnd("bg_1", 1, TaskState.INTERRUPTED), 12.0)
        assert await store.queue_waiting() == ()
        assert (await tasks.announce(["bg_1"], "now", 13.0)).message is not None
        assert not (await tasks.announce(["bg_1"], "again", 14.0)).changed
        assert [item.text for item in await store.queue_waiting()] == ["now"]

    in_session(path, body)


@pytest.mark.spec("BG-6")
def test_another_process_asks_for_a_cancel_while_the_session_is_open(path: Path) -> None:
    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.add(RUN)
        assert await tasks.cancel_requests(["bg_1"]) == []
        assert not ask_to_cancel(path, "bg_2")
        assert ask_to_cancel(path, "bg_1")
        assert await tasks.cancel_requests(["bg_0", "bg_1"]) == ["bg_1"]
        asked_at = (await tasks.tasks())[0].cancel_requested_at
        assert await tasks.request_cancel("bg_1", 99.0)
        assert (await tasks.tasks())[0].cancel_requested_at == asked_at
        await tasks.end(TaskEnd("bg_1", 1, TaskState.CANCELLED), 20.0)
        assert await tasks.cancel_requests(["bg_1"]) == []
        assert not ask_to_cancel(path, "bg_1")

    in_session(path, body)
    with pytest.raises(SessionNotFound):
        ask_to_cancel(path.with_name("none.db"), "bg_1")


@pytest.mark.spec("BG-8")
def test_a_schedule_and_the_run_that_it_starts_are_one_commit(path: Path) -> None:
    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.put_schedule(PLAN, 5.0)
        commits = store.commits
        later = replace(PLAN, next_at=99.0)
        await tasks.add(replace(RUN, schedule_id=PLAN.id), later)
        assert store.commits == commits + 1
        assert await tasks.schedules() == (later,)
        assert (await tasks.tasks())[0].schedule_id == PLAN.id
        await tasks.put_schedule(replace(PLAN, is_active=False), 7.0)
        assert [plan.is_active for plan in await tasks.schedules()] == [False]

    in_session(path, body)


@pytest.mark.spec("SEC-16")
def test_times_of_a_schedule_that_are_no_text_in_the_file_are_read_as_text(path: Path) -> None:
    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.put_schedule(PLAN, 5.0)

    in_session(path, body)
    change(path, "UPDATE schedule SET cron_expression = x'2a202a'")
    _, (plan,) = read_registry(path)
    assert plan.cron_expression == "* *"


@pytest.mark.spec("BG-7")
def test_a_copy_of_a_session_leaves_runs_and_schedules_to_the_original(path: Path) -> None:
    files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")

    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.add(RUN)
        await tasks.put_schedule(replace(PLAN, next_at=50.0), 5.0)

    in_session(path, body)
    copy = files.path_of(files.fork(NAME))
    (task,), (plan,) = read_registry(copy)
    assert task.state is TaskState.INTERRUPTED and "copy" in task.error_message
    assert task.announced_at is None
    assert not plan.is_active and plan.next_at is None
    (task,), (plan,) = read_registry(path)
    assert task.is_active and plan.is_active
    assert check(copy) == []


@pytest.mark.spec("BG-4")
def test_what_runs_have_made_goes_with_the_session(path: Path) -> None:
    files = SessionFiles(path.parent, path.parent.parent / "catalogue.db")

    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.add(RUN)

    in_session(path, body)
    made = runs_directory(path) / "bg_1"
    made.mkdir(parents=True)
    (made / "output.log").write_text("x")
    asyncio.run(files.delete(NAME))
    assert sorted(entry.name for entry in path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [("state", "'odd'", "odd"), ("arguments", "'[]'", "object"), ("progress", "'{\"a\":1}'", "'")],
)
def test_a_row_that_is_none_of_ours_is_a_problem(
    path: Path, column: str, value: str, says: str
) -> None:
    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await tasks.add(RUN)
        await tasks.add(replace(RUN, run_id="bg_2"))

    in_session(path, body)
    change(path, f"UPDATE task SET {column} = {value} WHERE run_id = 'bg_1'")
    (problem,) = check(path)
    assert problem.startswith("task bg_1: ") and says in problem
    report = repair(path)
    assert report is not None and problem in report.lost
    assert check(path) == [] and [task.run_id for task in read_registry(path)[0]] == ["bg_2"]


def test_a_version_before_background_runs_is_brought_up_to_date(path: Path) -> None:
    async def body(store: SqliteStore, tasks: TaskStore) -> None:
        await store.queue_add(QueueKind.STEERING, "wait")

    in_session(path, body)
    db = sqlite3.connect(path)
    new = "task_id finished_at signals announced_at schedule_id pid pid_started is_repeatable"
    new += " question answer wake"
    for column in new.split():
        db.execute(f"ALTER TABLE task DROP COLUMN {column}")
    db.execute("ALTER TABLE input_queue DROP COLUMN source")
    for table in ("file_change", "rewind"):
        db.execute(f"DROP TABLE {table}")
    db.execute("PRAGMA user_version = 3")
    db.commit()
    db.close()

    async def scenario() -> None:
        store = await SqliteStore.open(path)
        await store.tasks.add(RUN)
        assert [item.source for item in await store.queue_waiting()] == [QueueSource.USER]
        await store.aclose()

    asyncio.run(scenario())
    assert check(path) == []
