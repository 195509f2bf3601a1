"""Sessions for the store's tests: real files, made through the store itself."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from agentcli.domain.messages import (
    AssistantMessage,
    ImagePart,
    StopReason,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from agentcli.domain.session import SessionInfo, SessionStatus
from agentcli.store.files import SessionFiles, new_session_id
from agentcli.store.sqlite import SqliteStore

T = TypeVar("T")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def text(value: str) -> UserMessage:
    return UserMessage((TextPart(value),))


def answer(value: str = "Done.") -> AssistantMessage:
    return AssistantMessage((TextPart(value),), "scripted", "m", usage=Usage(10, 5))


def asking(*calls: ToolCall) -> AssistantMessage:
    return AssistantMessage(
        (TextPart("I look."), *calls), "scripted", "m", StopReason.TOOL_USE, Usage(10, 5)
    )


def call(call_id: str, name: str = "bash", **arguments: object) -> ToolCall:
    return ToolCall(call_id, name, dict(arguments))


def result(call_id: str, value: str = "ok", name: str = "bash") -> ToolResult:
    return ToolResult(call_id, name, (TextPart(value),))


def fresh_info(session_id: str | None = None, **fields: object) -> SessionInfo:
    now = time.time()
    values = {
        "id": session_id or new_session_id(),
        "title": "",
        "cwd": "/work",
        "created_at": now,
        "updated_at": now,
        "status": SessionStatus.NEW,
        "turns": 0,
        "model": "scripted/m",
    }
    return SessionInfo(**{**values, **fields})


def fresh(directory: Path, **fields: object) -> SqliteStore:
    info = fresh_info(**fields)
    return SqliteStore.new(directory / f"{info.id}.db", info)


async def one_turn(store: SqliteStore, prompt: str = "Look around", *, suffix: str = "") -> None:
    """A whole turn with two calls, one of them with raw output, and an image."""
    from agentcli.domain.events import Outcome
    from agentcli.domain.ports import RecordedResult

    calls = (call(f"a{suffix}", command="ls"), call(f"b{suffix}", "read_file", path="x.png"))
    results = (
        result(f"a{suffix}", "file.txt"),
        ToolResult(f"b{suffix}", "read_file", (TextPart("x.png"), ImagePart("image/png", PNG))),
    )
    await store.record_prompt(text(prompt))
    await store.record_assistant(asking(*calls), calls, final=None)
    for one, its_result in zip(calls, results, strict=True):
        await store.record_running(one)
        await store.record_result(RecordedResult(its_result, b"raw", "display"), [its_result])
    await store.record_assistant(answer(), (), final=Outcome.DONE)


async def finished_session(directory: Path, *, turns: int = 1) -> Path:
    store = fresh(directory)
    for turn in range(turns):
        await one_turn(store, f"prompt {turn}", suffix=str(turn))
    await store.aclose()
    return store.path


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which has an event loop to itself."""
    return asyncio.run(work)


def make(files: SessionFiles, prompt: str, **fields: object) -> str:
    """The id of a finished session of one turn."""

    async def scenario() -> str:
        store = fresh(files.directory, **fields)
        await one_turn(store, prompt)
        await store.aclose()
        return store.path.stem

    return asyncio.run(scenario())


def change(path: Path, *statements: str) -> None:
    """Run SQL on a file that nobody has open."""
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def run_child(
    source: str, *arguments: object, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python source in a process of its own, with the tests importable."""
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(root), **variables},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
