"""``repair`` keeps what it can and says what it cannot."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from agentcli.domain.events import Outcome
from agentcli.domain.history import CRASHED_TEXT
from agentcli.domain.messages import ImagePart, TextPart, ToolResult, UserMessage
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import SessionStatus
from agentcli.store.files import read_session
from agentcli.store.repair.check import check
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import (
    PNG,
    answer,
    asking,
    call,
    change,
    finished_session,
    fresh,
    result,
    text,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return asyncio.run(finished_session(tmp_path / "sessions", turns=3))


@pytest.mark.spec("REC-7", "REC-1")
def test_repair_keeps_what_it_can_and_says_what_it_cannot(tmp_path: Path) -> None:
    async def scenario() -> Path:
        store = fresh(tmp_path)
        await store.record_prompt(UserMessage((TextPart("see"), ImagePart("image/png", PNG))))
        calls = [call("a"), call("b")]
        await store.record_assistant(asking(*calls), calls, final=None)
        await store.record_running(calls[0])
        await store.record_result(RecordedResult(result("b", "B"), b"raw"), [])
        await store.record_result(RecordedResult(result("a", "A")), [result("a", "A")])
        await store.set("todos", ["one"])
        await store.add_note("warning", "careful")
        await store.record_end([result("b", "B")], Outcome.DONE, "", "")
        await store.record_prompt(text("and"))
        await store.record_assistant(asking(call("c")), [call("c")], final=None)
        await store.record_end([result("c", "C")], Outcome.CANCELLED, "why", "partial")
        await store.aclose()
        return store.path

    path = asyncio.run(scenario())
    change(
        path,
        "UPDATE blob SET data = x'00' WHERE size > 100",
        "UPDATE message SET body = '{}' WHERE seq IN (3, 6)",
    )
    report = repair(path)
    assert check(path) == []
    loaded = read_session(path)
    messages = [stored.message for stored in loaded.messages]
    assert "lost" in messages[0].parts[1].text
    results = {m.call_id: m for m in messages if isinstance(m, ToolResult)}
    assert results["b"].text == "B"
    assert results["a"].parts[0].text == CRASHED_TEXT
    assert [(note.kind, note.after_seq) for note in loaded.notes] == [
        ("warning", 2),
        ("partial", 5),
        ("lost_result", 5),
    ]
    assert "C" in loaded.notes[2].text
    assert loaded.info.status is SessionStatus.CRASHED
    assert loaded.info.turns == 2
    assert any("message 3" in line for line in report.lost)
    assert any("message 6" in line for line in report.lost)

    async def values() -> None:
        store = await SqliteStore.open(path)
        assert await store.get("todos") == ["one"]
        assert await store.raw("b") == b"raw"
        await store.record_prompt(text("on"))
        await store.record_assistant(answer(), (), final=Outcome.DONE)
        await store.aclose()

    asyncio.run(values())
    assert check(path) == []


@pytest.mark.spec("REC-7")
@pytest.mark.parametrize("seed", range(25))
def test_whatever_bytes_were_hit_the_repaired_session_is_sound(path: Path, seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(dice.randrange(1, 6)):
        start = dice.randrange(len(data))
        length = min(dice.choice([1, 16, 512, 4096]), len(data) - start)
        data[start : start + length] = dice.randbytes(length)
    path.write_bytes(data)
    sound_before = check(path) == []
    report = repair(path)
    assert check(path) == []
    assert (report.copy is None) == sound_before
