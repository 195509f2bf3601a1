"""A damaged session keeps its snapshots and what was taken back in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentcli.domain.events import Outcome
from agentcli.domain.ports import RecordedResult
from agentcli.domain.rewind import ABSENT, FileKind, FileState
from agentcli.store.repair.check import check
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import answer, asking, call, change, fresh, result, text

OLD = FileState(FileKind.FILE, b"old content", 0o644)


async def _made(directory: Path) -> Path:
    store = fresh(directory)
    for number in (1, 2):
        made = call(f"c{number}")
        await store.record_prompt(text(f"prompt {number}"))
        await store.record_assistant(asking(made), [made], final=None)
        await store.record_running(made)
        path = Path(f"/w/f{number}")
        ids = await store.rewinds.keep(made.id, {path: OLD})
        await store.rewinds.settle({ids[path]: ABSENT})
        await store.record_result(RecordedResult(result(made.id)), [result(made.id)])
        await store.record_assistant(answer(), (), final=Outcome.DONE)
    points = await store.rewinds.points()
    changes = await store.rewinds.changes_since(points[1].seq)
    await store.rewinds.take_back(points[1].seq, "prompt 2", [changes[0].id], chat=True)
    await store.aclose()
    return store.path


async def _looked_at(path: Path) -> tuple[list[str], list[str], int]:
    store = await SqliteStore.open(path)
    points = [f"{p.text}: {p.files}" for p in await store.rewinds.points()]
    record = await store.rewinds.newest()
    assert record is not None
    undone = [f"{c.path} {c.before.kind} {c.before.data!r}" for c in record.changes]
    await store.rewinds.bring_back(record)
    visible = len((await store.load()).messages)
    await store.aclose()
    return points, undone, visible


@pytest.mark.spec("REC-7", "TT-1", "TT-2")
def test_repair_keeps_what_was_taken_back_and_what_files_were(tmp_path: Path) -> None:
    path = asyncio.run(_made(tmp_path))
    assert check(path) == []
    change(path, "UPDATE message SET body = 'x' WHERE seq = 1")
    assert check(path) != []
    report = repair(path)
    assert check(path) == []
    assert not any("rewind" in line or "file_change" in line for line in report.lost)
    points, undone, visible = asyncio.run(_looked_at(path))
    assert points == [] and undone == ["/w/f2 file b'old content'"]
    assert visible == 7


@pytest.mark.spec("REC-7", "TT-1")
def test_a_snapshot_whose_content_is_lost_says_so(tmp_path: Path) -> None:
    path = asyncio.run(_made(tmp_path))
    change(path, "UPDATE blob SET data = x'00'")
    repair(path)
    assert check(path) == []
    points, undone, _ = asyncio.run(_looked_at(path))
    assert points == ["prompt 1: 1"] and undone == ["/w/f2 unkept b''"]
