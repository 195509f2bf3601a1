"""Sums over sessions: what is copied or passed on is counted once, what is unknown says so."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from agentcli.domain.messages import Usage
from agentcli.store.catalogue.statistics import statistics_of
from agentcli.store.files import SessionFiles
from tests.store.sessions import change, fresh, make, now, one_turn, text


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path / "sessions", tmp_path / "catalogue.db")


def all_of(files: SessionFiles) -> list[Path]:
    return sorted(files.directory.glob("*.db"))


@pytest.mark.spec("CLI-8", "CLI-9", "COST-1")
def test_requests_are_summed_by_model_day_tool_and_session(files: SessionFiles) -> None:
    ids = [make(files, "one"), make(files, "two")]
    change(files.path_of(ids[0]), "UPDATE usage SET created_at = 86400 * 400.5, cost_usd = 0.25")
    found = statistics_of(all_of(files))
    assert (found.turns, found.total.requests) == (2, 4)
    assert found.total.usage == Usage(40, 20)
    assert found.total.cost_usd is None
    assert (found.total.known_usd, found.total.unknown) == (0.5, 2)
    assert found.by_model["scripted/m"].requests == 4
    assert [found.by_day[day].requests for day in sorted(found.by_day)] == [2, 2]
    assert min(found.by_day).startswith("1971-02-0")
    assert {name: use.calls for name, use in found.by_tool.items()} == {"bash": 2, "read_file": 2}
    assert [one.spent.cost_usd for one in found.sessions] == [0.5, None]


@pytest.mark.spec("CLI-8", "COST-1")
def test_a_fork_counts_only_what_it_has_spent_itself(files: SessionFiles) -> None:
    original = make(files, "one")
    copy = files.fork(original)
    found = statistics_of(all_of(files))
    assert (found.turns, found.total.requests) == (1, 2)

    async def go_on() -> None:
        from agentcli.store.sqlite import SqliteStore

        store = await SqliteStore.open(files.path_of(copy))
        await one_turn(store, "more", suffix="x")
        await store.aclose()

    now(go_on())
    found = statistics_of(all_of(files))
    assert (found.turns, found.total.requests) == (2, 4)
    assert {one.info.id: one.spent.requests for one in found.sessions} == {original: 2, copy: 2}
    assert found.by_tool["bash"].calls == 2
    now(files.delete(original))
    found = statistics_of(all_of(files))
    assert found.total.requests == 4


@pytest.mark.spec("TT-3", "COST-1")
def test_a_fork_within_a_step_runs_no_call_of_its_own(files: SessionFiles) -> None:
    original = make(files, "one")
    calls = {name: use.calls for name, use in statistics_of(all_of(files)).by_tool.items()}
    files.fork(original, at=2)
    found = statistics_of(all_of(files))
    assert {name: use.calls for name, use in found.by_tool.items()} == calls
    assert (found.turns, found.total.requests) == (1, 2)


@pytest.mark.spec("CLI-8", "COST-1")
def test_what_a_sub_agent_spent_counts_in_its_own_session_only(files: SessionFiles) -> None:
    async def parent() -> None:
        store = fresh(files.directory)
        await store.record_prompt(text("go"))
        await store.add_usage("scripted/m", Usage(999, 999), 9.0, kind="subagent")
        await store.aclose()

    asyncio.run(parent())
    make(files, "the part of it")
    found = statistics_of(all_of(files))
    assert found.total.usage == Usage(20, 10)


@pytest.mark.spec("CLI-8", "REC-7")
def test_a_damaged_session_hides_no_other_and_old_ones_can_be_left_out(files: SessionFiles) -> None:
    make(files, "one")
    (files.directory / "bad.db").write_bytes(b"garbage" * 1000)
    found = statistics_of(all_of(files))
    assert (found.unreadable, found.total.requests) == (["bad"], 2)
    assert statistics_of(all_of(files), since=time.time() + 60).total.requests == 0
