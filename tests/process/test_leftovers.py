"""Processes that a killed app left behind are known by pid and start time, and killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from agentcli.process import leftovers as _leftovers
from agentcli.process.leftovers import (
    STATE_KEY,
    kill_leftovers,
    recorded,
    remove_tree,
    start_time,
)
from tests.support.deep import deep_directory
from tests.support.tool_context import MemoryState


@pytest.mark.spec("REC-8")
def test_a_running_command_is_recorded_and_forgotten_at_its_end() -> None:
    state = MemoryState()

    async def body() -> None:
        async with recorded(state) as on_start:
            await on_start(os.getpid())
            assert await state.get(STATE_KEY) == [
                {"group": os.getpid(), "started": start_time(os.getpid())}
            ]
        assert await state.get(STATE_KEY) == []

    asyncio.run(body())


@pytest.mark.spec("REC-8")
def test_what_is_left_is_killed_and_told_but_never_a_later_process_of_that_number() -> None:
    left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    rows = [
        {"group": left.pid, "started": start_time(left.pid)},
        {"group": other.pid, "started": "another time"},
        {"group": 1, "started": start_time(1)},
        {"group": 2**22 + 1, "started": ""},
        "nonsense",
    ]
    state = MemoryState()

    async def body() -> list[str]:
        await state.set(STATE_KEY, rows)
        told = await kill_leftovers(state)
        assert await kill_leftovers(state) == []
        return told

    try:
        told = asyncio.run(body())
        assert left.wait(timeout=10) == -9
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()
    assert len(told) == 1
    assert str(left.pid) in told[0]


def test_no_record_is_no_work() -> None:
    assert asyncio.run(kill_leftovers(MemoryState())) == []
    assert _leftovers.start_time(2**22 + 1) == ""


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
def test_a_tree_of_any_depth_is_removed_and_nothing_that_a_link_names(tmp_path: Path) -> None:
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    for place in (kept, tree / "shut" / "inner"):
        place.mkdir(parents=True)
        (place / "file").touch()
    (tree / "shut" / "inner" / "link").symlink_to(kept)
    (tree / "link").symlink_to(kept)
    with deep_directory(tree, 2_500):  # beyond the longest path
        for place in (tree / "shut" / "inner", tree / "shut"):
            place.chmod(0o000)
        remove_tree(tree, 0.0)
        assert tree.exists(), "the time is over"
        remove_tree(tree, 60.0)
        assert not tree.exists()
    assert (kept / "file").exists()
    remove_tree(tree, 60.0)
