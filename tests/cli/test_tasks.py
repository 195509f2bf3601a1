"""``agent tasks``: another process sees, follows and ends what a session runs (CLI-9, BG-6)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.session import Session
from agentcli.domain.background import SpawnWish, TaskState
from agentcli.domain.ports import PermissionMode
from tests.app.background import ended, in_session, options, printed, settings_for, shell, task_of
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ANTHROPIC, ModelServer, Recorded
from tests.support.processes import until
from tests.support.replies import Reply, call, say

LOOP = "echo begun; until [ -e go ]; do sleep 0.02; done; echo done"


def beside(
    server: ModelServer, cwd: Path, body: Callable[[Session, Tasks], Awaitable[Any]], **more: Any
) -> Any:
    """``body`` with an open session and the command of another process."""

    async def run(session: Session) -> Any:
        return await body(session, Tasks(server, cwd))

    return in_session(server, options(cwd, **more), run)


class Tasks:
    """``agent tasks`` in another process."""

    def __init__(self, server: ModelServer, cwd: Path) -> None:
        self.cwd = cwd
        self.env = agent_env(server, ANTHROPIC)

    async def __call__(self, *arguments: str) -> Any:
        return await asyncio.to_thread(
            run_agent, "tasks", *arguments, env=self.env, cwd=self.cwd, timeout=20
        )

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """One that goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "agentcli", "tasks", *arguments],
            env=self.env,
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.mark.slow
@pytest.mark.spec("CLI-9", "REC-6")
def test_runs_and_schedules_of_an_open_session_are_listed_and_shown(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session, tasks: Tasks) -> None:
        assert session.background is not None
        spawned = await shell(session, LOOP, title="the build")
        when = {"cron_expression": "0 9 * * 1-5", "time_zone": "Europe/Oslo"}
        wish = SpawnWish("bash", {"command": "true"}, title="nightly", schedule=when)
        planned = await session.background.spawn(wish)
        assert planned.schedule is not None
        await printed(session, spawned.run_id, "begun")

        listed = await tasks()
        assert listed.code == 0
        for part in (spawned.run_id, "running", "the build", planned.schedule.id, "Europe/Oslo"):
            assert part in listed.stdout
        objects = json.loads((await tasks("list", "--format", "json")).stdout)
        assert [each["kind"] for each in objects] == ["run", "schedule"]
        assert objects[0]["run_id"] == spawned.run_id and objects[0]["state"] == "running"
        assert objects[0]["session_id"] == session.id
        assert objects[1]["next_at"].endswith("Z") and objects[1]["time_zone"] == "Europe/Oslo"

        shown = await tasks("show", spawned.run_id[-8:])
        assert "the build" in shown.stdout and "begun" in shown.stdout
        assert (await tasks("logs", spawned.run_id)).stdout == "begun\n"
        one = json.loads((await tasks("show", spawned.run_id, "--format", "json")).stdout)
        assert one["log_path"] == task_of(session, spawned.run_id).log_path

        over = await tasks("cancel", planned.schedule.id)
        assert over.code == 0 and "ended" in over.stderr
        assert (await tasks("cancel", planned.schedule.id)).code != 0
        wrong = await tasks("show", "bg_nothing")
        assert wrong.code == 2 and "no background run" in wrong.stderr
        everything = await tasks("list", "--all")
        assert spawned.run_id in everything.stdout

    beside(model_server, tmp_path, body)


@pytest.mark.spec("CLI-9", "BG-6")
def test_a_run_is_cancelled_from_another_process(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(session: Session, tasks: Tasks) -> None:
        spawned = await shell(session, "sleep 60")
        done = await tasks("cancel", spawned.run_id)
        assert (done.code, "cancelled" in done.stderr) == (0, True)
        assert (await ended(session, spawned.run_id)).state is TaskState.CANCELLED
        again = await tasks("cancel", spawned.run_id)
        assert again.code == 1 and "has ended already: cancelled" in again.stderr

    beside(model_server, tmp_path, body)


@pytest.mark.slow
@pytest.mark.spec("CLI-9", "BG-9")
def test_a_run_is_answered_from_another_process(model_server: ModelServer, tmp_path: Path) -> None:
    def reply(request: Recorded) -> Reply:
        body = json.dumps(request.body)
        question = {"question": "Which port?", "options": ["80", "8080"]}
        asks = "You are a sub-agent" in body and "tool_result" not in body
        return call("ask_user", question) if asks else say("ok")

    model_server.default = reply

    async def body(session: Session, tasks: Tasks) -> None:
        assert session.background is not None
        wish = SpawnWish("task", {"description": "d", "prompt": "p"}, "open it")
        run_id = (await session.background.spawn(wish)).run_id
        await until(lambda: task_of(session, run_id).asks is not None, "the question")
        listed = await tasks("list")
        assert "needs input" in listed.stdout and "? Which port?" in listed.stdout
        (row,) = json.loads((await tasks("list", "--format", "json")).stdout)
        assert row["state"] == "needs_input" and row["options"] == ["80", "8080"]
        key = await tasks("answer", run_id, "sk-ant-api03-" + "k3Y" * 20)
        assert key.code == 2 and "key" in key.stderr
        assert (await tasks("answer", run_id, " ")).code == 2
        done = await tasks("answer", run_id[-8:], "my own")
        assert (done.code, "answered" in done.stderr) == (0, True)
        found = await ended(session, run_id)
        assert found.question is not None and found.question.answer == "my own"
        again = await tasks("answer", run_id, "later")
        assert again.code == 1 and "asks nothing" in again.stderr

    beside(model_server, tmp_path, body)


@pytest.mark.spec("CLI-9")
def test_a_log_is_followed_until_the_run_ends(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(session: Session, tasks: Tasks) -> None:
        spawned = await shell(session, LOOP)
        follower = tasks.begin("logs", "-f", spawned.run_id)
        assert follower.stdout is not None
        assert await asyncio.to_thread(follower.stdout.readline) == "begun\n"
        (tmp_path / "go").touch()
        rest, _ = await asyncio.to_thread(follower.communicate, None, 20)
        assert (rest, follower.returncode) == ("done\n", 0)

    beside(model_server, tmp_path, body)


@pytest.mark.slow
@pytest.mark.spec("CLI-9", "CLI-6")
def test_ctrl_c_ends_the_following_and_not_the_run(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session, tasks: Tasks) -> None:
        spawned = await shell(session, LOOP)
        follower = tasks.begin("logs", "-f", spawned.run_id)
        assert follower.stdout is not None
        assert await asyncio.to_thread(follower.stdout.readline) == "begun\n"
        follower.send_signal(signal.SIGINT)
        await asyncio.to_thread(follower.communicate, None, 20)
        assert follower.returncode == 130
        assert task_of(session, spawned.run_id).is_active

    beside(model_server, tmp_path, body)


@pytest.mark.slow
@pytest.mark.spec("CLI-9", "CLI-12")
def test_following_ends_when_the_reader_is_gone_though_nothing_more_comes(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session, tasks: Tasks) -> None:
        spawned = await shell(session, LOOP)
        await printed(session, spawned.run_id, "begun")
        follower = tasks.begin("logs", "-f", spawned.run_id)
        assert follower.stdout is not None
        assert await asyncio.to_thread(follower.stdout.readline) == "begun\n"
        follower.stdout.close()
        await asyncio.to_thread(follower.wait, 20)
        assert task_of(session, spawned.run_id).is_active

    beside(model_server, tmp_path, body)


@pytest.mark.slow
@pytest.mark.spec("CLI-9", "REC-7")
def test_a_damaged_session_is_an_error_where_it_is_named_and_a_warning_among_others(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session, _: Tasks) -> str:
        return session.id

    session_id = beside(model_server, tmp_path, body)
    (path,) = (Path(os.environ["AGENTCLI_HOME"]) / "sessions").glob("*.db")
    path.write_bytes(b"no database")
    tasks = Tasks(model_server, tmp_path)
    for named in (("list",), ("show", "bg_1"), ("cancel", "bg_1")):
        wrong = asyncio.run(tasks(*named, "--session", session_id))
        assert (wrong.code, wrong.stdout) == (74, "") and "is damaged" in wrong.stderr
    among = asyncio.run(tasks("list", "--all"))
    assert among.code == 0 and "warning: session file" in among.stderr


@pytest.mark.spec("BG-8", "REC-6")
def test_a_daemon_refuses_a_session_that_is_open(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(session: Session, tasks: Tasks) -> None:
        refused = await tasks("daemon", "--session", session.id)
        assert refused.code == 74
        assert "is open in another agent" in refused.stderr
        assert "schedules start there" in refused.stderr

    beside(model_server, tmp_path, body)


def in_a_moment(seconds: float) -> dict[str, str]:
    return {"scheduled_at": datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()}


@pytest.mark.slow
@pytest.mark.spec("BG-8")
def test_a_daemon_starts_what_is_due_and_ends_when_nothing_is_left(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def put(session: Session, _: Tasks) -> str:
        assert session.background is not None
        wish = SpawnWish(
            "bash", {"command": "echo made > made"}, title="make", schedule=in_a_moment(-5)
        )
        session.set_mode(PermissionMode.DEFAULT)  # what yolo lets pass needs it later, too
        # what is due at once must not start here
        await session.background.scheduler.aclose()  # type: ignore[attr-defined] # the real one has them
        await session.background.spawn(wish)
        return session.id

    session_id = beside(model_server, tmp_path, put)
    tasks = Tasks(model_server, tmp_path)
    asked = len(model_server.requests)
    done = asyncio.run(tasks("daemon", "--session", session_id))
    assert done.code == 0, done.stderr
    assert (tmp_path / "made").read_text() == "made\n"
    assert "Background run began: make" in done.stderr
    assert "Background run succeeded: make" in done.stderr
    assert "nothing is left to start" in done.stderr
    assert len(model_server.requests) == asked, "no model speaks"
    (run,) = json.loads(
        asyncio.run(tasks("list", "--session", session_id, "--format", "json")).stdout
    )
    assert run["state"] == "succeeded" and run["schedule_id"]

    async def resumed(session: Session) -> None:
        (waiting,) = session.queued()
        assert run["run_id"] in waiting.text

    in_session(model_server, options(tmp_path, new=False, resume=session_id), resumed)


@pytest.mark.slow
@pytest.mark.spec("BG-8", "SEC-3")
def test_a_daemon_does_not_start_what_nobody_was_asked_about_and_ends(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def put(session: Session, _: Tasks) -> str:
        assert session.background is not None
        session.set_mode(PermissionMode.YOLO)
        wish = SpawnWish("bash", {"command": "echo made > made"}, schedule=in_a_moment(-5))
        await session.background.scheduler.aclose()  # type: ignore[attr-defined] # the real one has them
        await session.background.spawn(wish)
        return session.id

    session_id = beside(model_server, tmp_path, put)
    done = asyncio.run(Tasks(model_server, tmp_path)("daemon", "--session", session_id))
    assert (done.code, (tmp_path / "made").exists()) == (0, False)
    assert "did not start: it would need an approval (nobody was asked" in done.stderr
    session_id = beside(model_server, tmp_path, put)
    named = ("--session", session_id, "--permission-mode", "yolo")
    done = asyncio.run(Tasks(model_server, tmp_path)("daemon", *named))
    assert (done.code, (tmp_path / "made").exists()) == (0, True), done.stderr


@pytest.mark.spec("BG-8", "CLI-6")
def test_a_daemon_waits_until_a_signal_comes(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(session: Session, _: Tasks) -> str:
        assert session.background is not None
        wish = SpawnWish("bash", {"command": "true"}, title="later", schedule=in_a_moment(3600))
        await session.background.spawn(wish)
        return session.id

    session_id = beside(model_server, tmp_path, body)
    daemon = Tasks(model_server, tmp_path).begin("daemon", "--session", session_id)
    assert daemon.stdout is not None
    while "next:" not in (line := daemon.stdout.readline()):
        assert line, "it has ended"
    assert "later" in line
    os.kill(daemon.pid, signal.SIGTERM)
    daemon.communicate(timeout=20)
    assert daemon.returncode == 143


@pytest.mark.slow
@pytest.mark.spec("BG-6", "BG-7")
def test_what_is_cancelled_while_nobody_runs_it_does_not_start_again(
    model_server: ModelServer, tmp_path: Path
) -> None:
    async def body(session: Session, _: Tasks) -> tuple[str, str]:
        spawned = await shell(session, "sleep 60")
        return session.id, spawned.run_id

    session_id, run_id = beside(model_server, tmp_path, body)
    tasks = Tasks(model_server, tmp_path)
    again = asyncio.run(tasks("cancel", run_id))
    assert again.code == 1 and "interrupted" in again.stderr
    assert session_id in asyncio.run(tasks("list", "--format", "json")).stdout


@pytest.mark.slow
@pytest.mark.spec("CLI-9", "SEC-5")
def test_a_row_does_not_say_which_file_is_shown_and_a_pipe_is_not_waited_for(
    model_server: ModelServer, tmp_path: Path
) -> None:
    private = tmp_path / "key"
    private.write_text("PRIVATE\n")

    async def body(session: Session, tasks: Tasks) -> None:
        runs = [await shell(session, "echo printed") for _ in range(2)]
        for run in runs:
            await ended(session, run.run_id)
        first, second = runs
        Path(second.log_path).unlink()
        os.mkfifo(second.log_path)
        path = settings_for(model_server).paths.sessions_dir / f"{session.id}.db"
        with closing(sqlite3.connect(path)) as db, db:
            planted = (str(private), first.run_id)
            db.execute("UPDATE task SET log_path = ? WHERE run_id = ?", planted)
        for what in ("show", "logs"):
            done = await tasks(what, first.run_id)
            assert done.code == 0 and "printed" in done.stdout and "PRIVATE" not in done.stdout
            assert (await tasks(what, second.run_id)).code == 0

    beside(model_server, tmp_path, body)
