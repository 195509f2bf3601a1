"""``check`` proves a session; ``repair`` mends what it finds."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionLocked
from agentcli.domain.events import Outcome
from agentcli.domain.history import CRASHED_TEXT, check_request
from agentcli.domain.messages import ImagePart, TextPart, ToolResult, UserMessage
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import SessionStatus
from agentcli.store.check import check
from agentcli.store.files import read_session
from agentcli.store.repair import repair
from agentcli.store.sqlite import SqliteStore
from tests.store.sessions import PNG, answer, asking, call, finished_session, fresh, result, text


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return asyncio.run(finished_session(tmp_path / "sessions", turns=3))


@pytest.mark.spec("CLI-8")
def test_a_sound_session_has_no_problems_and_needs_no_repair(path: Path) -> None:
    before = path.read_bytes()
    assert check(path) == []
    report = repair(path)
    assert (report.copy, report.messages, report.lost) == (None, 15, ())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE blob SET data = zeroblob(size)", "its content has changed"),
        ("UPDATE blob SET size = 1", "wrong size"),
        ("DELETE FROM blob", "reference"),
        ("DELETE FROM message WHERE seq = 2", "reference"),
        ("DELETE FROM message WHERE seq = 3", "message 3 is not its result"),
        ("UPDATE message SET body = 'x' WHERE seq = 1", "message 1"),
        ("UPDATE session SET status = 'odd'", "session"),
        ("DELETE FROM tool_run WHERE call_id = 'a0'", "no row in tool_run"),
        ("UPDATE tool_run SET status = 'odd'", "unknown status"),
        ("UPDATE tool_run SET result_seq = NULL", "finished without a result"),
        ("UPDATE tool_run SET message_seq = 1", "has no such call"),
        ("UPDATE tool_run SET result = '{}'", "tool run"),
        (
            "INSERT INTO message VALUES (99, 'tool', (SELECT body FROM message WHERE seq = 3), 1, NULL)",
            "history",
        ),
        ("DELETE FROM message WHERE seq > 13", "calls without a result"),
    ],
)
def test_each_kind_of_damage_is_named_and_mended(path: Path, statement: str, problem: str) -> None:
    change(path, statement)
    problems = check(path)
    assert any(problem in line for line in problems), problems
    assert all("\n" not in line for line in problems)
    report = repair(path)
    assert report.copy is not None
    assert check(path) == []
    check_request([stored.message for stored in read_session(path).messages])


def test_pending_calls_are_lawful_while_the_turn_may_still_be_balanced(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = fresh(tmp_path)
        await store.record_prompt(text("hi"))
        await store.record_assistant(asking(call("a")), [call("a")], final=None)
        assert check(store.path) == []
        with pytest.raises(SessionLocked):
            repair(store.path)
        await store.aclose()
        assert check(store.path) == []
        change(store.path, "UPDATE session SET status = 'done'")
        assert "calls without a result: a" in check(store.path)[0]

    asyncio.run(scenario())


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
