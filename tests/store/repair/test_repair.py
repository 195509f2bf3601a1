"""``repair`` keeps what it can and says what it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import sqlite3
import struct
from pathlib import Path

import pytest

from agentcli.domain.errors import PersistenceError
from agentcli.domain.events import Outcome
from agentcli.domain.history import CRASHED_TEXT
from agentcli.domain.messages import ImagePart, TextPart, ToolResult, UserMessage
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import SessionStatus
from agentcli.store import schema
from agentcli.store.files import read_session
from agentcli.store.repair import repair as module
from agentcli.store.repair.check import check
from agentcli.store.repair.pages import read_tables
from agentcli.store.repair.repair import repair
from agentcli.store.sqlite import SqliteStore
from tests.store.repair.mutations import made, take_up
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
        await store._write(store._writes.note, "warning", "careful")
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
        assert await store.read("b") == b"raw"
        await store.record_prompt(text("on"))
        await store.record_assistant(answer(), (), final=Outcome.DONE)
        await store.aclose()

    asyncio.run(values())
    assert check(path) == []


@pytest.mark.slow
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


@pytest.mark.spec("REC-7")
def test_a_column_or_table_that_is_new_needs_nothing_of_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = schema.table_names()
    new = [f"ALTER TABLE {name} ADD COLUMN added TEXT NOT NULL DEFAULT ''" for name in tables]
    new.append("CREATE TABLE later (id INTEGER PRIMARY KEY, added TEXT)")
    monkeypatch.setattr(schema, "STATEMENTS", (*schema.STATEMENTS, *new))
    path = asyncio.run(finished_session(tmp_path, turns=2))
    change(
        path,
        "INSERT INTO blob (hash, size, data) VALUES"
        " ('6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d', 1, x'00')",
        "INSERT INTO note (after_seq, created_at, kind, text) VALUES (1, 1, 'warning', 'x')",
        "INSERT INTO kv (key, value) VALUES ('a', '1')",
        "INSERT INTO input_queue (kind, body, created_at, updated_at) VALUES"
        " ('follow_up', 'x', 1, 1)",
        "INSERT INTO task (run_id, tool, arguments, state, created_at, updated_at) VALUES"
        " ('r', 'bash', '{}', 'succeeded', 1, 1)",
        "INSERT INTO schedule (id, scheduled_at, run, state, created_at, updated_at) VALUES"
        " ('s', '2030-01-01', '{}', 'over', 1, 1)",
        "INSERT INTO rewind (created_at, newest_seq, messages) VALUES (1, 1, '[]')",
        "INSERT INTO file_change (seq, call_id, path, before_kind, created_at) VALUES"
        " (1, 'a', '/x', 'absent', 1)",
        "INSERT INTO event (created_at, type, data) VALUES (1, 'done', '{}')",
        "INSERT INTO later (id) VALUES (7)",
        *(f"UPDATE {name} SET added = 'kept'" for name in (*tables, "later")),
        "UPDATE message SET body = '{}' WHERE seq = 3",
    )
    before = {name: values_of(path, name) for name in (*tables, "later")}
    assert all(before.values())
    report = repair(path)
    assert report.copy is not None
    after = {name: values_of(path, name) for name in (*tables, "later")}
    assert set(after["message"]) == {"kept", ""}  # one was lost, and stands for itself no more
    assert {name: set(found) for name, found in after.items() if name != "message"} == {
        name: {"kept"} for name in before if name != "message"
    }


def values_of(path: Path, table: str) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute(f"SELECT added FROM {table}")]


@pytest.mark.spec("REC-7")
@pytest.mark.parametrize("steps", [0, 1])
def test_a_repair_that_is_killed_at_the_last_step_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    path = made(tmp_path / "sessions", in_log=True)
    log = path.with_name(path.name + "-wal")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 4
    log.write_bytes(data)
    done: list[Path] = []
    replace = Path.replace

    def die(source: Path, target: Path) -> Path:
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(target)
        return replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            repair(path)
    copies = [name for name in path.parent.iterdir() if ".damaged-" in name.name]
    assert len(copies) == 2
    assert (check(path) == []) == (steps == 1)  # damaged as it was, or repaired: never in between
    repair(path)
    said = take_up(path)
    assert all(f"hello{number}" in said for number in range(8))


@pytest.mark.spec("REC-7", "FAIL-1")
def test_a_repair_without_room_leaves_the_session_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "sessions", in_log=False)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE message", b"CREATE TABLE mfssage"))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(module, "_store", full)
    with pytest.raises(PersistenceError, match="the disk is full"):
        repair(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.spec("SEC-13")
def test_many_rows_that_lead_to_one_long_value_do_not_fill_the_memory(path: Path) -> None:
    """Pages of notes that no table leads to; each note goes on in the same chain of pages."""
    first, long = path.stat().st_size // 4096 + 1, 60_000
    body = b"\x09\x00\x01\x07" + varint(13 + 2 * 7) + varint(13 + 2 * long)
    body = bytes([len(body)]) + body[1:] + b"\x01" + bytes(8) + b"partial"
    size = len(body) + long
    local = 489 + (size - 489) % 4092
    local = local if local <= 4061 else 489
    count = -(-(size - local) // 4092)
    chain = [
        struct.pack(">I", first + at + 1 if at + 1 < count else 0) + b"x" * 4092
        for at in range(count)
    ]
    pages = []
    for number in range(60):
        start = varint(size) + varint(1_000 + number)
        cell = start + body + b"x" * (local - len(body)) + struct.pack(">I", first)
        at = 4096 - len(cell)
        head = struct.pack(">BHHHB", 13, 0, 1, at, 0) + struct.pack(">H", at)
        pages.append(head + bytes(at - len(head)) + cell)
    with path.open("ab") as file:
        file.writelines((*chain, *pages))
    tables, _ = read_tables(path)
    held = sum(len(str(row["text"])) for row in tables["note"])
    assert long <= held < 5 * path.stat().st_size


def varint(value: int) -> bytes:
    """A number as records of SQLite have it."""
    found = [value & 0x7F]
    while value := value >> 7:
        found.append(value & 0x7F | 0x80)
    return bytes(reversed(found))
