"""What goes on beside background runs: an end that could not be written is not lost (FAIL-2)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agentcli.app.session import Session
from agentcli.domain.background import TaskState
from agentcli.engine.background import runs as background_runs
from agentcli.store.tasks import read_registry
from tests.app.background import ended, in_session, options, settings_for, shell
from tests.support.model_server import ModelServer
from tests.support.processes import until


@contextmanager
def rows_that_take_nothing(path: Path) -> Iterator[None]:
    """While it lasts, no row of a run can be changed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(
            "CREATE TRIGGER no_change BEFORE UPDATE OF state ON task"
            " BEGIN SELECT raise(ABORT, 'disk I/O error'); END"
        )
        try:
            yield
        finally:
            db.execute("DROP TRIGGER no_change")


@pytest.mark.spec("FAIL-2", "BG-5")
def test_an_end_that_could_not_be_written_is_written_and_told_when_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_runs, "HEARTBEAT_S", 0.05)

    async def body(session: Session) -> None:
        path = settings_for(server).paths.sessions_dir / f"{session.id}.db"
        with rows_that_take_nothing(path):
            runs = [await shell(session, "true", title=f"run {number}") for number in range(2)]
            for run in runs:
                assert (await ended(session, run.run_id)).state is TaskState.SUCCEEDED
            assert session.queued() == ()
        await until(lambda: len(session.queued()) == 2, "both messages")
        assert all(task.state is TaskState.SUCCEEDED for task in read_registry(path)[0])
        tasks = len(asyncio.all_tasks())
        await until(lambda: len(asyncio.all_tasks()) <= tasks, "an end of the trying")

    with ModelServer() as server:
        in_session(server, options(tmp_path), body)
