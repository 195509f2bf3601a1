"""What is to start later, on a real session file, with real processes, in virtual time (BG-8)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from agentcli.app.session import Session
from agentcli.domain.background import (
    BackgroundRefused,
    BackgroundTask,
    Schedule,
    SpawnWish,
    TaskState,
)
from agentcli.domain.cancel import CancelToken
from agentcli.domain.events import Notice, Prompt
from agentcli.domain.messages import ToolResult, user_text
from agentcli.domain.ports import PermissionMode, Verdict
from agentcli.engine.background.runs import BackgroundRuns
from agentcli.engine.background.scheduler import RETRY_S, SessionScheduler
from agentcli.engine.jobs import SHELL
from agentcli.policy.decision import parse_rule
from agentcli.process.shell import ShellState, ShellStates
from agentcli.store.tasks import read_registry
from tests.app.background import User, ended, in_session, options, settings_for
from tests.support.cli import agent_env
from tests.support.model_server import ANTHROPIC, ModelServer
from tests.support.processes import until
from tests.support.replies import Call, Reply
from tests.support.sandboxes import needs

NOON = 1_795_262_400.0  # 2026-11-21T12:00:00Z
DAY = 86_400.0
MINUTELY = {"cron_expression": "* * * * *"}
HOURLY = {"cron_expression": "0 * * * *"}
AT_ONE = {"scheduled_at": "2026-11-21T13:00:00Z"}


class Clock:
    """Says what it is told to say."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def soon(kept: Kept) -> dict[str, str]:
    """A minute after the clock's time."""
    return {"scheduled_at": datetime.fromtimestamp(kept.clock.now + 60, UTC).isoformat()}


class Still(SessionScheduler):
    """Does nothing by itself."""

    def begin(self) -> None:
        pass


class Kept:
    """A session whose schedules live in virtual time."""

    def __init__(self, session: Session, clock: Clock, **more: Any) -> None:
        self.session, self.clock = session, clock
        self.background = cast("BackgroundRuns", session.background)
        self.runs = self.background
        self.notices: list[str] = []
        session.add_listener(
            lambda event: self.notices.append(event.text) if isinstance(event, Notice) else None
        )
        known = self.background.schedules()
        self.scheduler = self.runs.scheduler = Still(self.runs, known, now=clock, **more)

    async def put(self, command: str, schedule: Any, **more: Any) -> Schedule:
        """A schedule of ``command``; only ``tick`` makes time pass."""
        wish = SpawnWish("bash", {"command": command}, schedule=schedule, **more)
        spawned = await self.background.spawn(wish)
        assert spawned.schedule is not None and not spawned.run_id
        return spawned.schedule

    async def tick(self, at: float) -> float | None:
        self.clock.now = at
        return await self.scheduler.tick()

    async def begun(self) -> list[BackgroundTask]:
        """All runs, when they are over."""
        return [await ended(self.session, task.run_id) for task in self.background.tasks()]


def timed(
    server: ModelServer,
    tmp_path: Path,
    body: Callable[[Kept], Awaitable[Any]],
    **more: Any,
) -> Any:
    now = more.pop("now", NOON)

    async def run(session: Session) -> Any:
        return await body(Kept(session, Clock(now)))

    return in_session(server, options(tmp_path, **more), run)


@pytest.mark.spec("BG-8")
def test_what_is_due_starts_once_and_the_rest_waits(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        schedule = await kept.put("echo hello", AT_ONE, title="greet")
        assert await kept.tick(NOON) == 3600
        assert not kept.background.tasks()
        assert await kept.tick(NOON + 3599) == 1
        assert await kept.tick(NOON + 3600) is None
        (run,) = await kept.begun()
        assert (run.state, run.title, run.schedule_id) == (
            TaskState.SUCCEEDED,
            "greet",
            schedule.id,
        )
        assert run.task_id == schedule.id
        assert "hello" in Path(run.log_path).read_text()
        assert kept.scheduler.schedules() == ()
        assert await kept.tick(NOON + DAY) is None
        assert len(kept.background.tasks()) == 1
        waiting = kept.session.queued()
        assert len(waiting) == 1 and run.run_id in waiting[0].text

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8", "OPS-1")
def test_a_clock_that_jumps_by_400_days_starts_one_run(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        await kept.put("true", MINUTELY)
        assert await kept.tick(NOON + 1) == 59
        later = NOON + 400 * DAY
        assert await kept.tick(later + 1) == 59
        assert len(await kept.begun()) == 1
        back = NOON + 130
        assert await kept.tick(back) == 50
        assert len(await kept.begun()) == 1
        assert await kept.tick(back + 50) == 60
        assert len(await kept.begun()) == 2

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8")
def test_missed_ones_run_once_on_resume(model_server: ModelServer, tmp_path: Path) -> None:
    async def put(kept: Kept) -> tuple[str, str, str]:
        hourly = await kept.put("true", HOURLY, title="hourly")
        once = await kept.put("true", soon(kept), title="once")
        return kept.session.id, hourly.id, once.id

    session_id, hourly, once = timed(model_server, tmp_path, put, now=time.time() - 3 * DAY)

    async def resumed(session: Session) -> None:
        background = cast("BackgroundRuns", session.background)
        runs = [await ended(session, task.run_id) for task in await until_begun(session, 2)]
        assert sorted(run.schedule_id for run in runs) == sorted((hourly, once))
        assert all(run.state is TaskState.SUCCEEDED for run in runs)
        (left,) = background.schedules()
        assert left.id == hourly and left.next_at is not None
        path = settings_for(model_server).paths.sessions_dir / f"{session.id}.db"
        _, rows = read_registry(path)
        assert {row.id: row.is_active for row in rows} == {hourly: True, once: False}

    missed = options(tmp_path, new=False, resume=session_id)
    in_session(model_server, missed, resumed)


@pytest.mark.spec("BG-8", "SEC-3")
@pytest.mark.parametrize(
    ("changed", "starts"),
    [
        ("", True),
        (
            "UPDATE schedule SET run = json_set(run, '$.arguments.command', 'touch made; true')",
            False,
        ),
        ("UPDATE schedule SET run = json_set(run, '$.seal', '')", False),
        ("UPDATE schedule SET scheduled_at = '2026-01-01T00:00:00Z'", False),
    ],
)
def test_an_approval_that_only_a_session_file_speaks_of_does_not_count(
    model_server: ModelServer, tmp_path: Path, changed: str, *, starts: bool
) -> None:
    async def put(kept: Kept) -> str:
        kept.session.set_mode(PermissionMode.DEFAULT)
        await kept.put("touch made", soon(kept))
        return kept.session.id

    session_id = timed(model_server, tmp_path, put, now=time.time() - 3 * DAY)
    path = settings_for(model_server).paths.sessions_dir / f"{session_id}.db"
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(changed)

    async def resumed(session: Session) -> None:
        if starts:
            (task,) = await until_begun(session, 1)
            await ended(session, task.run_id)
            return
        background = cast("BackgroundRuns", session.background)
        while background.schedules():
            await cast("SessionScheduler", background.scheduler).tick()
        assert not background.tasks()

    wanted = options(tmp_path, new=False, resume=session_id, mode=PermissionMode.DEFAULT)
    in_session(model_server, wanted, resumed)
    assert (tmp_path / "made").exists() is starts


async def until_begun(session: Session, count: int) -> list[BackgroundTask]:
    """The runs, as soon as there are ``count``."""
    news = asyncio.Event()
    remove = session.add_listener(lambda _: news.set())
    try:
        assert session.background is not None
        while len(session.background.tasks()) < count:
            await asyncio.wait_for(news.wait(), 9)
            news.clear()
        return list(session.background.tasks())
    finally:
        remove()


def test_one_prompt_starts_nothing_that_was_missed(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def put(kept: Kept) -> str:
        await kept.put("true", soon(kept))
        return kept.session.id

    session_id = timed(model_server, tmp_path, put, now=time.time() - 3 * DAY)

    async def resumed(session: Session) -> None:
        background = cast("BackgroundRuns", session.background)
        assert len(background.schedules()) == 1
        scheduler = cast("SessionScheduler", background.scheduler)
        assert await scheduler.tick() is None
        assert not background.tasks()

    short = options(tmp_path, new=False, resume=session_id, interactive=False)
    in_session(model_server, short, resumed)


@pytest.mark.spec("BG-8", "SEC-3")
def test_what_is_denied_by_now_does_not_start(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(kept: Kept) -> None:
        await kept.put("touch made", MINUTELY)
        kept.session.policy.add_rules("deny", ["bash(touch *)"], "test")
        assert await kept.tick(NOON + 60) == 60
        assert await kept.tick(NOON + 120) == 60
        assert not kept.background.tasks() and not (tmp_path / "made").exists()
        (notice,) = kept.notices
        assert "did not start: denied by the rule bash(touch *)" in notice
        assert kept.session.policy.remove_rule("bash(touch *)")
        await kept.tick(NOON + 180)
        (run,) = await kept.begun()
        assert run.state is TaskState.SUCCEEDED and (tmp_path / "made").exists()

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8", "SEC-3")
def test_a_reason_to_ask_that_nobody_has_said_yes_to_keeps_it_from_starting(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        plain = await kept.put("echo one", MINUTELY)
        kept.session.set_mode(PermissionMode.DEFAULT)
        await kept.tick(NOON + 60)
        assert len(await kept.begun()) == 1, "that it runs was allowed when it was put down"
        kept.session.policy.add_rules("ask", ["bash(echo *)"], "test")
        await kept.tick(NOON + 120)
        assert len(await kept.begun()) == 1
        assert "would need an approval" in kept.notices[-1]
        assert (await kept.scheduler.cancel(plain.id)) is not None
        approved = await kept.put("echo two", MINUTELY)
        assert approved.approved
        await kept.tick(NOON + 180)
        assert len(await kept.begun()) == 2

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8", "SEC-3")
@pytest.mark.parametrize("mode", [PermissionMode.AUTO, PermissionMode.YOLO])
def test_what_a_mode_let_pass_does_not_start_in_one_that_asks(
    model_server: ModelServer, tmp_path: Path, mode: PermissionMode
) -> None:
    async def body(kept: Kept) -> None:
        if mode is PermissionMode.AUTO:
            needs("bwrap")
            assert kept.session.sandbox is not None
            kept.session.sandbox.switch(on=True)
        kept.session.set_mode(mode)
        await kept.put("touch made", MINUTELY)
        kept.session.set_mode(PermissionMode.DEFAULT)
        await kept.tick(NOON + 60)
        assert not kept.background.tasks() and not (tmp_path / "made").exists()
        assert "would need an approval (nobody was asked" in kept.notices[-1]
        kept.session.set_mode(mode)
        await kept.tick(NOON + 120)
        (run,) = await kept.begun()
        assert run.state is TaskState.SUCCEEDED and (tmp_path / "made").exists()

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8", "SEC-3")
def test_what_a_command_allows_in_its_turn_starts_nothing_that_falls_due_then(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        await kept.put("touch made", MINUTELY)
        kept.session.set_mode(PermissionMode.DEFAULT)
        rules = kept.session.policy.command_rules
        rules.append(parse_rule("bash(touch *)"))
        await kept.tick(NOON + 60)
        assert not kept.background.tasks() and not (tmp_path / "made").exists()
        assert "would need an approval (nobody was asked" in kept.notices[-1]
        assert len(rules) == 1

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8", "SEC-3")
@pytest.mark.parametrize("is_asked", [False, True])
def test_what_a_yes_to_another_call_let_pass_starts_while_that_yes_holds(
    model_server: ModelServer, tmp_path: Path, *, is_asked: bool
) -> None:
    command = {"command": "touch made"}
    planned = Call("spawn_background", {"tool": "bash", "args": command, "schedule": HOURLY})

    async def body(kept: Kept) -> None:
        model_server.add(*([] if is_asked else [Reply((Call("bash", command),))]))
        model_server.add(Reply((planned,)), "Planned.")
        await kept.session.run(Prompt(user_text("plan it")), CancelToken())
        (tmp_path / "made").unlink(missing_ok=True)
        kept.session.policy.granted.clear()  # as in the next chat
        (schedule,) = kept.scheduler.schedules()
        await kept.tick(schedule.next_at or 0.0)
        assert len(await kept.begun()) == is_asked and (tmp_path / "made").exists() == is_asked
        assert is_asked or "nobody was asked" in kept.notices[-1]

    user = User(Verdict.SESSION)
    in_session(
        model_server,
        options(tmp_path, mode=PermissionMode.DEFAULT),
        lambda session: body(Kept(session, Clock())),
        user,
    )
    assert len(user.asked) == 1


@pytest.mark.spec("BG-8", "SEC-3")
def test_what_was_to_run_in_the_sandbox_does_not_start_without_one(
    model_server: ModelServer, tmp_path: Path
) -> None:
    needs("bwrap")

    async def body(kept: Kept) -> None:
        sandbox, made = kept.session.sandbox, tmp_path / "made"
        assert sandbox is not None
        sandbox.switch(on=True)
        kept.session.set_mode(PermissionMode.DEFAULT)
        await kept.put(f"touch {made}", MINUTELY)
        sandbox.switch(on=False)
        for mode in (PermissionMode.AUTO, PermissionMode.DEFAULT):
            kept.session.set_mode(mode)
            await kept.tick(kept.clock.now + 60)
            assert not kept.background.tasks() and not made.exists()
            assert "would need an approval (it was to run in the sandbox)" in kept.notices[-1]
        sandbox.switch(on=True)
        await kept.tick(kept.clock.now + 60)
        (run,) = await kept.begun()
        assert run.state is TaskState.SUCCEEDED and made.exists()

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8", "SEC-15")
def test_what_is_to_leave_the_sandbox_later_has_nothing_that_was_set_inside_since(
    model_server: ModelServer, tmp_path: Path
) -> None:
    needs("bwrap")

    async def body(kept: Kept) -> None:
        assert kept.session.sandbox is not None
        kept.session.sandbox.switch(on=True)
        kept.session.set_mode(PermissionMode.AUTO)
        for access in (None, "network", "outside"):
            arguments = {"command": f"echo $BY > by-{access}", "access": access}
            wish = SpawnWish("bash", arguments, schedule=MINUTELY)
            await kept.background.spawn(wish)
        inside, outside = (ShellState(variables={"BY": by}) for by in ("inside", "user"))
        state = kept.background.services.parts.state
        await state.set(SHELL, ShellStates(inside, outside).to_json())
        await kept.tick(kept.clock.now + 60)
        await kept.begun()

    timed(model_server, tmp_path, body)
    said = {each.name: each.read_text() for each in tmp_path.glob("by-*")}
    assert said == {"by-None": "inside\n", "by-network": "\n", "by-outside": "user\n"}


@pytest.mark.spec("BG-8", "SEC-5")
def test_what_is_to_run_outside_does_not_start_where_its_directory_has_become_a_link(
    model_server: ModelServer, tmp_path: Path
) -> None:
    needs("bwrap")

    async def body(kept: Kept) -> None:
        planned = tmp_path / "planned"
        planned.mkdir()
        assert kept.session.sandbox is not None
        kept.session.sandbox.switch(on=True)
        kept.session.set_mode(PermissionMode.AUTO)
        await kept.session.run_command("cd planned", CancelToken(), lambda _: None)
        arguments = {"command": "touch here", "access": "outside"}
        await kept.background.spawn(SpawnWish("bash", arguments, schedule=MINUTELY))
        await kept.tick(NOON + 60)
        await kept.begun()
        assert (planned / "here").exists()
        planned.rename(tmp_path / "moved")
        planned.symlink_to("moved")
        await kept.tick(NOON + 120)
        assert len(kept.background.tasks()) == 1 and "is gone" in kept.notices[-1]

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8")
def test_a_wrong_schedule_is_refused_before_anybody_is_asked(
    model_server: ModelServer, tmp_path: Path
) -> None:
    user = User(Verdict.ONCE)

    async def body(session: Session) -> ToolResult:
        arguments = {"tool": "bash", "args": {"command": "true"}, "schedule": {"cron": "@daily"}}
        call = Call("spawn_background", arguments)
        model_server.add(Reply(blocks=(call,)), "so it is")
        await session.run(Prompt(user_text("go")))
        return next(m for m in session.history.messages if isinstance(m, ToolResult))

    wanted = options(tmp_path, mode=PermissionMode.DEFAULT)
    result = in_session(model_server, wanted, body, user)
    assert "schedule has no cron" in result.text and not user.asked


@pytest.mark.spec("BG-8", "SEC-3")
def test_a_schedule_is_asked_about_with_its_command_and_its_time(
    model_server: ModelServer, tmp_path: Path
) -> None:
    user = User(Verdict.ONCE)

    async def body(session: Session) -> ToolResult:
        arguments = {
            "tool": "bash",
            "args": {"command": "make nightly"},
            "schedule": {"cron_expression": "15 3 * * *", "time_zone": "Europe/Oslo"},
        }
        call = Call("spawn_background", arguments)
        model_server.add(Reply(blocks=(call,)), "so it is")
        await session.run(Prompt(user_text("go")))
        return next(m for m in session.history.messages if isinstance(m, ToolResult))

    wanted = options(tmp_path, mode=PermissionMode.DEFAULT)
    told = json.loads(in_session(model_server, wanted, body, user).text)
    assert told["schedule_id"].startswith("sch_") and told["time_zone"] == "Europe/Oslo"
    (request,) = user.asked
    shown = f"{request.summary}\n{request.detail}"
    assert "make nightly" in shown
    assert "15 3 * * *" in shown and "Europe/Oslo" in shown


@pytest.mark.spec("BG-8", "SEC-3")
def test_a_command_runs_where_it_was_planned_or_not_at_all(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        session, planned, later = kept.session, tmp_path / "planned", tmp_path / "later"
        planned.mkdir()
        later.mkdir()
        await session.run_command("cd planned", CancelToken(), lambda _: None)
        await kept.put("touch here", MINUTELY)
        await session.run_command("cd ../later", CancelToken(), lambda _: None)
        await kept.tick(NOON + 60)
        await kept.begun()
        assert (planned / "here").exists() and not list(later.iterdir())
        shell = await session.run_command("pwd", CancelToken(), lambda _: None)
        assert str(later) in str(shell.parts[0]), "the session's shell has not moved"
        (planned / "here").unlink()
        planned.rmdir()
        await kept.tick(NOON + 120)
        assert len(kept.background.tasks()) == 1
        assert "is gone" in kept.notices[-1]

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8")
def test_without_schedules_nothing_waits_for_a_time(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        background = cast("BackgroundRuns", session.background)
        assert not background.schedules()
        quiet = asyncio.all_tasks()
        later = {"scheduled_at": "2190-01-01T00:00:00Z"}
        wish = SpawnWish("bash", {"command": "true"}, schedule=later)
        spawned = await background.spawn(wish)
        assert spawned.schedule is not None
        assert len(asyncio.all_tasks()) == len(quiet) + 1, "one timer, whatever there is to start"
        await background.spawn(wish)
        assert len(asyncio.all_tasks()) == len(quiet) + 1
        for schedule in background.schedules():
            await background.cancel(schedule.id)
        await until(lambda: asyncio.all_tasks() == quiet, "the timer has ended")

    in_session(model_server, options(tmp_path), body)


@pytest.mark.spec("BG-8")
def test_twenty_schedules_are_the_most_and_the_text_says_so(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        put = [await kept.put("true", AT_ONE) for _ in range(20)]
        with pytest.raises(BackgroundRefused, match="20 schedules are active"):
            await kept.put("true", AT_ONE)
        ended_one = await kept.background.cancel(put[0].id)
        assert isinstance(ended_one, Schedule) and not ended_one.is_active
        await kept.put("true", AT_ONE)

    timed(model_server, tmp_path, body)


def test_what_finds_no_place_waits_for_one(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(kept: Kept) -> None:
        wish = SpawnWish("bash", {"command": "sleep 60"})
        busy = [(await kept.background.spawn(wish)).run_id for _ in range(5)]
        schedule = await kept.put("true", AT_ONE)
        assert await kept.tick(NOON + 3600) == RETRY_S
        assert kept.scheduler.schedules() == (schedule,)
        await kept.background.cancel(busy[0])
        assert await kept.tick(NOON + 3600 + RETRY_S) is None
        assert kept.background.tasks()[-1].schedule_id == schedule.id
        for run_id in busy[1:]:
            await kept.background.cancel(run_id)

    timed(model_server, tmp_path, body)


def test_another_process_ends_a_schedule_through_the_file(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        from agentcli.store.tasks import end_schedule

        schedule = await kept.put("true", AT_ONE)
        path = settings_for(model_server).paths.sessions_dir / f"{kept.session.id}.db"
        assert await asyncio.to_thread(end_schedule, path, schedule.id)
        assert not await asyncio.to_thread(end_schedule, path, schedule.id)
        assert await kept.tick(NOON + 3600) is None
        assert not kept.background.tasks() and not kept.background.schedules()
        assert kept.notices == [
            f"the schedule {schedule.id} (Run `true`) was ended by another process"
        ]
        await kept.tick(NOON + 7200)
        assert len(kept.notices) == 1

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8", "BG-6")
def test_a_schedule_that_is_ended_while_it_starts_a_run_does_not_come_back(
    model_server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(kept: Kept) -> None:
        schedule = await kept.put("true", HOURLY)
        start, ends = kept.runs.start, []

        async def slow(*given: Any) -> Any:
            ends.append(asyncio.create_task(kept.scheduler.cancel(schedule.id)))
            await asyncio.wait({ends[0]}, timeout=0.3)
            return await start(*given)

        monkeypatch.setattr(kept.runs, "start", slow)
        await kept.tick(NOON + 3600)
        ended_by = await ends[0]
        assert ended_by is not None and not ended_by.is_active
        assert not kept.scheduler.schedules()
        path = settings_for(model_server).paths.sessions_dir / f"{kept.session.id}.db"
        (row,) = read_registry(path)[1]
        assert not row.is_active and row.next_at is None
        await kept.begun()

    timed(model_server, tmp_path, body)


@pytest.mark.spec("BG-8", "LOOP-4")
def test_twenty_are_the_most_also_where_more_come_at_once(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        puts = (kept.put("true", HOURLY) for _ in range(24))
        told = await asyncio.gather(*puts, return_exceptions=True)
        refused = [each for each in told if isinstance(each, BackgroundRefused)]
        assert len(refused) == 4 and "20 schedules are active" in str(refused[0])
        assert len(kept.background.schedules()) == 20

    timed(model_server, tmp_path, body)


@pytest.mark.spec("SEC-9")
def test_arguments_that_hold_a_secret_cannot_wait_in_the_file(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(kept: Kept) -> None:
        secret = agent_env(model_server, ANTHROPIC)["ANTHROPIC_API_KEY"]
        with pytest.raises(BackgroundRefused, match="secret"):
            await kept.put(f"deploy --key {secret}", AT_ONE)

    timed(model_server, tmp_path, body)


def test_the_time_is_kept_without_anybody_looking(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session) -> None:
        background = cast("BackgroundRuns", session.background)
        now = datetime.now(UTC).isoformat()
        wish = SpawnWish("bash", {"command": "echo now"}, schedule={"scheduled_at": now})
        await background.spawn(wish)
        (task,) = await until_begun(session, 1)
        assert (await ended(session, task.run_id)).state is TaskState.SUCCEEDED

    in_session(model_server, options(tmp_path), body)
