"""Balancing what a crash left, once, at the next open (REC-1)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionDamaged
from agentcli.domain.events import Outcome
from agentcli.domain.history import CRASHED_TEXT
from agentcli.domain.messages import ResultStatus, ToolResult
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import LoadedSession, SessionStatus
from agentcli.engine.context.outgoing import check_request
from agentcli.store.catalogue.statistics import statistics_of
from agentcli.store.reads import CRASH_DETAIL
from agentcli.store.sqlite import SqliteStore, recover
from tests.store.sessions import asking, call, change, finished_session, fresh, now, result, text

Recovered = tuple[LoadedSession, tuple[ToolResult, ...], int]


async def recovered(path: Path) -> Recovered:
    """What ``recover`` says, and how many commits it took."""
    store = await SqliteStore.open(path)
    try:
        loaded, results = await recover(store)
        assert await recover(store) == (loaded, ())
        return loaded, results, store.commits
    finally:
        await store.aclose()


async def stopped_with_three_calls(directory: Path) -> Path:
    """One call has not started, one runs, one has finished out of order."""
    store = fresh(directory)
    calls = (call("waits"), call("runs"), call("ended"))
    await store.record_prompt(text("hi"))
    await store.record_assistant(asking(*calls), calls, final=None)
    await store.record_running(calls[1])
    await store.record_running(calls[2])
    await store.record_result(RecordedResult(result("ended", "true result")), [])
    await store.aclose()
    return store.path


@pytest.mark.spec("REC-1", "REC-2")
def test_each_call_gets_one_result_that_tells_what_is_known_of_it(tmp_path: Path) -> None:
    path = now(stopped_with_three_calls(tmp_path))
    loaded, results, commits = now(recovered(path))
    assert commits == 1
    assert [item.call_id for item in results] == ["waits", "runs", "ended"]
    assert [item.parts[0].text for item in results] == [CRASHED_TEXT, CRASHED_TEXT, "true result"]
    assert "not started" in results[0].parts[1].text
    assert "outcome is unknown" in results[1].parts[1].text
    assert [item.status for item in results[:2]] == [ResultStatus.INTERRUPTED] * 2
    messages = [stored.message for stored in loaded.messages]
    assert messages[2:] == list(results)
    check_request([*messages, text("on")])
    assert (loaded.info.status, loaded.info.detail) == (SessionStatus.CRASHED, CRASH_DETAIL)


@pytest.mark.spec("REC-1", "CLI-8")
def test_how_long_an_interrupted_call_took_is_unknown_however_late_the_next_start(
    tmp_path: Path,
) -> None:
    path = now(stopped_with_three_calls(tmp_path))
    change(path, "UPDATE tool_run SET started_at = started_at - 86400 WHERE call_id = 'runs'")
    runs = now(recovered(path))[0].runs
    assert runs["runs"].took_s is None and runs["waits"].took_s is None
    assert runs["ended"].took_s is not None
    assert sum(use.seconds for use in statistics_of([path]).by_tool.values()) < 3600


@pytest.mark.spec("REC-1")
def test_what_is_balanced_stays_as_it_is_for_every_later_reader(tmp_path: Path) -> None:
    path = now(stopped_with_three_calls(tmp_path))
    first, _, _ = now(recovered(path))
    again, results, commits = now(recovered(path))
    assert (again, results, commits) == (first, (), 0)


@pytest.mark.spec("REC-1")
def test_a_turn_that_died_without_calls_is_noted_as_crashed(tmp_path: Path) -> None:
    async def scenario() -> Path:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        await store.aclose()
        return store.path

    path = now(scenario())
    loaded, results, commits = now(recovered(path))
    assert (results, commits) == ((), 1)
    assert loaded.info.status is SessionStatus.CRASHED
    assert now(recovered(path))[2] == 0


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.CANCELLED, Outcome.ERROR])
def test_a_turn_that_ended_is_left_alone(tmp_path: Path, outcome: Outcome) -> None:
    async def scenario() -> Path:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        await store.record_end((), outcome, "why", "")
        await store.aclose()
        return store.path

    path = now(scenario())
    before = path.read_bytes()
    loaded, results, commits = now(recovered(path))
    assert (loaded.info.detail, results, commits) == ("why", (), 0)
    assert path.read_bytes() == before


@pytest.mark.spec("REC-7")
def test_a_history_that_no_crash_can_cause_is_damage(tmp_path: Path) -> None:
    path = asyncio.run(finished_session(tmp_path))
    change(path, "PRAGMA foreign_keys = OFF", "DELETE FROM message WHERE seq = 2")
    with pytest.raises(SessionDamaged) as caught:
        now(recovered(path))
    assert str(path) in caught.value.message
    assert caught.value.advice == f"run: agent sessions repair {path.stem}"
