"""Figures of the store: run by hand, ``python -m tests.bench.bench_store [RUNS]``.

Ratios are against plain ``sqlite3`` (WAL, ``synchronous=FULL``) in the same run. The files are
made where temporary files go (``TMPDIR``).
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agentcli.domain.events import Outcome
from agentcli.domain.messages import AssistantMessage, TextPart, ToolCall, ToolResult, UserMessage
from agentcli.domain.ports import RecordedResult
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store.files import SessionFiles, new_session_id
from agentcli.store.sqlite import SqliteStore
from tests.bench.table import Row, show


def fresh(directory: Path) -> SqliteStore:
    name = new_session_id()
    now = time.time()
    info = SessionInfo(name, "", "/work", now, now, SessionStatus.NEW, 0, "m/m")
    return SqliteStore.new(directory / f"{name}.db", info)


def median_ms(run: Callable[[], float], rounds: int) -> float:
    return statistics.median(run() for _ in range(rounds)) * 1000


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def plain_first_prompt(directory: Path) -> float:
    def action() -> None:
        db = sqlite3.connect(directory / f"{new_session_id()}.sqlite", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE message (seq INTEGER PRIMARY KEY, body TEXT)")
        db.execute("INSERT INTO message (body) VALUES ('hello')")
        opened.append(db)

    opened: list[sqlite3.Connection] = []
    elapsed = timed(action)
    opened[0].close()
    return elapsed


def plain_commit(directory: Path) -> float:
    db = sqlite3.connect(directory / f"{new_session_id()}.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE message (seq INTEGER PRIMARY KEY, body TEXT)")
    elapsed = timed(lambda: db.execute("INSERT INTO message (body) VALUES ('hello')"))
    db.close()
    return elapsed


async def writes(directory: Path) -> dict[str, float]:
    times: dict[str, float] = {}

    async def measure(name: str, work: object) -> None:
        start = time.perf_counter()
        await work  # type: ignore[misc]
        times[name] = time.perf_counter() - start

    store = fresh(directory)
    call = ToolCall("a", "bash", {"command": "ls"})
    result = ToolResult("a", "bash", (TextPart("x" * 1000),))
    await measure("W0 of a new session", store.record_prompt(UserMessage((TextPart("hello"),))))
    await measure(
        "W1 (first, opens the file)",
        store.record_assistant(AssistantMessage((call,)), [call], final=None),
    )
    await measure("W2", store.record_running(call))
    await measure("W3", store.record_result(RecordedResult(result, b"raw"), [result]))
    await measure(
        "W1 (later)",
        store.record_assistant(AssistantMessage((TextPart("done"),)), (), final=Outcome.DONE),
    )
    await measure("close", store.aclose())
    return times


async def long_session(directory: Path, messages: int) -> Path:
    store = fresh(directory)
    await store.record_prompt(UserMessage((TextPart("hello"),)))

    def fill(db: sqlite3.Connection) -> None:
        for number in range(messages // 2):
            store._writes.assistant(
                db, AssistantMessage((TextPart("word " * 100),)), (), final=None
            )
            store._writes.prompt(db, UserMessage((TextPart(f"prompt {number}"),)))

    await store._write(fill)
    await store.aclose()
    return store.path


async def open_and_load(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.load()
    await store.aclose()


def rows(rounds: int) -> Iterator[Row]:
    """The figures of the store, in a directory of its own."""
    root = Path(tempfile.mkdtemp())
    try:
        base_new = median_ms(lambda: plain_first_prompt(root), rounds)
        base = median_ms(lambda: plain_commit(root), rounds)
        taken = [asyncio.run(writes(root / "writes")) for _ in range(rounds)]
        for name in taken[0]:
            value = statistics.median(times[name] for times in taken) * 1000
            against = base_new if name.startswith("W0") else base
            yield Row(f"store: {name} / plain sqlite3", value, "ms", against)
        path = asyncio.run(long_session(root / "long", 10_000))
        value = median_ms(lambda: timed(lambda: asyncio.run(open_and_load(path))), rounds)
        yield Row("open a session of 10,000 messages", value, "ms", target=500)
        template = asyncio.run(long_session(root / "short", 2)).read_bytes()
        files = SessionFiles(root / "many", root / "catalogue.db")

        def list_once() -> None:
            asyncio.run(files.list())

        files.directory.mkdir()
        for _ in range(5_000):
            files.path_of(new_session_id()).write_bytes(template)
        yield Row("list 5,000 sessions, catalogue lost", timed(list_once) * 1000, "ms")
        yield Row(
            "list 5,000 sessions", median_ms(lambda: timed(list_once), rounds), "ms", target=300
        )
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    show(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
