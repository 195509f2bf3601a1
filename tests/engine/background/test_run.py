"""One background run while it is alive: who waits for its news misses none."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agentcli.app.session import Session
from agentcli.domain.background import BackgroundRefused, BackgroundTask, TaskState
from agentcli.domain.cancel import CancelToken
from agentcli.domain.tools import ToolOutput
from agentcli.engine.background import runs as background
from agentcli.engine.background.log import read_log
from agentcli.engine.background.run import ActiveRun
from agentcli.engine.background.runs import PROCESS_PLACES
from agentcli.store.disk import runs_directory
from tests.app.background import ended, in_session, options, settings_for, shell
from tests.support.model_server import ModelServer


@pytest.mark.spec("BG-1", "BG-4")
def test_a_run_that_ends_while_its_log_is_read_does_not_keep_its_reader_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_read, may_return = threading.Event(), threading.Event()

    def read_slowly(path: Path) -> str:
        text = read_log(path)
        has_read.set()
        assert may_return.wait(9)
        return text

    async def body(session: Session) -> None:
        assert session.background is not None
        run = await shell(session, "until [ -e go ]; do sleep 0.02; done; echo last")
        monkeypatch.setattr(background, "read_log", read_slowly)
        reader = asyncio.ensure_future(
            session.background.output(run.run_id, 0, 100, 600, CancelToken())
        )
        await asyncio.to_thread(has_read.wait, 9)
        (tmp_path / "go").touch()
        await ended(session, run.run_id)
        may_return.set()
        assert (await asyncio.wait_for(reader, 9)).text == "last\n"

    with ModelServer() as server:
        in_session(server, options(tmp_path), body)


@pytest.mark.spec("BG-4", "FAIL-2")
def test_a_log_that_cannot_be_written_does_not_keep_the_result_from_being(tmp_path: Path) -> None:
    place = tmp_path / "s.runs/bg_1"
    log, result = place / "output.log", place / "result.json"
    log.mkdir(parents=True)
    task = BackgroundTask("bg_1", "task_1", "bash", {}, "it", TaskState.RUNNING, 1.0, 1.0)
    task = replace(task, log_path=str(log), result_path=str(result))

    async def body() -> str:
        run = ActiveRun(task, str, lambda: None)
        await asyncio.to_thread(run.log.open)
        output = ToolOutput.text("done")
        return await asyncio.to_thread(run.close_files, run.ended(output), output)

    assert str(log) in asyncio.run(body())
    assert json.loads(result.read_text()) == {"status": "succeeded", "result": "done"}


@pytest.mark.spec("BG-2")
def test_a_run_whose_row_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        path = settings_for(server).paths.sessions_dir / f"{session.id}.db"
        counts = set()
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(
                "CREATE TRIGGER full BEFORE INSERT ON task"
                " BEGIN SELECT raise(ABORT, 'disk I/O error'); END"
            )
            for _ in range(6):
                with pytest.raises(BackgroundRefused, match="It was not started"):
                    await shell(session, "touch made")
                counts.add(len(os.listdir("/proc/self/fd")))
            db.execute("DROP TRIGGER full")
        assert PROCESS_PLACES.taken == 0
        assert not list(runs_directory(path).iterdir())
        assert len(counts) == 1
        run = await shell(session, "true")
        assert (await ended(session, run.run_id)).state is TaskState.SUCCEEDED

    with ModelServer() as server:
        in_session(server, options(tmp_path), body)
    assert not (tmp_path / "made").exists()
