"""``check`` proves a session; ``repair`` mends what it finds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentcli.domain.errors import SessionLocked
from agentcli.engine.context.outgoing import check_request
from agentcli.store.files import read_session
from agentcli.store.repair.check import check
from agentcli.store.repair.repair import repair
from tests.store.sessions import asking, call, change, finished_session, fresh, text


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
            "INSERT INTO message VALUES (99, 'tool', (SELECT body FROM message WHERE seq = 3), 1, NULL, NULL, NULL)",
            "history",
        ),
        ("DELETE FROM message WHERE seq > 13", "calls without a result"),
        ("UPDATE tool_run SET name = CAST(x'e2617368' AS TEXT)", "not UTF-8"),
        ("UPDATE session SET title = x'ff'", "not UTF-8"),
        ("UPDATE tool_run SET started_at = x'ff'", "not UTF-8"),
        ("UPDATE session SET turns = 1e308", "no count"),
        ("UPDATE tool_run SET started_at = 'then'", "not a number"),
        (
            "INSERT INTO note (after_seq, created_at, kind, text) VALUES ('x', 1, 'n', '')",
            "no count",
        ),
        ("UPDATE message SET place = 'x', hidden_by = 1e9 WHERE seq = 1", "no summary"),
        ("UPDATE usage SET input_tokens = 1 << 62", "damaged"),
        ("INSERT INTO kv VALUES (x'74', '1', '')", "no name"),
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
