"""Damage by dice: a session with everything in it, hit in one of many ways, and taken up again."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from agentcli.domain.events import Outcome
from agentcli.domain.messages import TextPart, Usage, UserMessage
from agentcli.domain.ports import QueueKind, RecordedResult
from agentcli.domain.rewind import ABSENT, FileKind, FileState
from agentcli.engine.context.outgoing import check_request
from agentcli.store.files import SessionFiles, read_events, read_session
from agentcli.store.sqlite import SqliteStore, recover
from tests.store.sessions import answer, asking, call, fresh, one_turn, result, text

LONG = " ".join(f"long{number}" for number in range(3_000))
PAGE = 4096


async def _fill(store: SqliteStore, until_copied: Callable[[], None]) -> None:
    for turn in range(4):
        await one_turn(store, f"prompt number {turn} says hello{turn}", suffix=str(turn))
    made = call("big", command="cat everything")
    await store.record_prompt(text("show me everything"))
    await store.record_assistant(asking(made), [made], final=None)
    await store.record_running(made)
    ids = await store.rewinds.keep("big", {Path("/w/f"): FileState(FileKind.FILE, b"old", 0o644)})
    await store.rewinds.settle({ids[Path("/w/f")]: ABSENT})
    shown = result("big", LONG)
    await store.record_result(RecordedResult(shown, b"raw " + LONG.encode() * 3, "shown"), [shown])
    await store.record_end([], Outcome.CANCELLED, "stopped", "half of an answer")
    summary = UserMessage((TextPart("summary of the beginning"),), is_summary=True)
    await store.record_compaction(summary, range(5), len(await store.history()),
                                  usage=Usage(5, 6), model="scripted/m")  # fmt: skip
    await store.set("todos", [{"title": "one"}])
    await store.queue_add(QueueKind.FOLLOW_UP, "this one waits")
    for turn in range(4, 8):
        await one_turn(store, f"prompt number {turn} says hello{turn}", suffix=str(turn))
    until_copied()


def made(directory: Path, *, in_log: bool) -> Path:
    """A session's file; with ``in_log`` as a kill leaves it, all but the first page in its log."""
    target = directory / "0190a000-0000-7000-8000-000000000001.db"

    async def make() -> None:
        store = fresh(directory, id="0190a000-0000-7000-8000-000000000000")

        def copy() -> None:
            if in_log:
                shutil.copy(store.path, target)
                shutil.copy(f"{store.path}-wal", f"{target}-wal")

        await _fill(store, copy)
        await store.aclose()
        if in_log:
            store.path.unlink()
        else:
            store.path.rename(target)

    directory.mkdir(parents=True, exist_ok=True)
    asyncio.run(make())
    for other in directory.glob("*.lock"):
        other.unlink()
    return target


def texts_of(path: Path) -> set[str]:
    """Every text of the messages that SQLite can read of a file, whatever the columns are called."""
    found: set[str] = set()
    try:
        with closing(sqlite3.connect(path)) as db:
            db.text_factory = lambda data: data.decode(errors="replace")
            for row in db.execute("SELECT * FROM message"):
                found |= {part for value in row for part in _texts_in(value)}
    except (sqlite3.Error, OverflowError):
        pass
    return found


def _texts_in(value: object) -> list[str]:
    if not isinstance(value, str) or not value.startswith("{"):
        return []
    try:
        parts = json.loads(value)["parts"]
        return [part["text"] for part in parts if isinstance(part.get("text"), str)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return []


def hit(path: Path, dice: random.Random) -> str:
    """Change something of one of the session's files; what, in words."""
    log = path.with_name(path.name + "-wal")
    target = log if log.exists() and dice.random() < 0.6 else path
    data = bytearray(target.read_bytes())
    kind = dice.choice(
        [
            "bit",
            "bit",
            "bit",
            "byte",
            "schema",
            "head",
            "run",
            "zeros",
            "cut",
            "swap",
            "copy",
            "page",
        ]
    )
    at = dice.randrange(len(data))
    page = at // PAGE * PAGE
    if kind == "bit":
        for _ in range(dice.choice([1, 1, 3])):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif kind == "byte":
        data[at] = dice.randrange(256)
    elif kind == "schema":
        data[dice.randrange(100, min(PAGE, len(data)))] ^= 1 << dice.randrange(8)
    elif kind == "head":
        data[dice.randrange(100)] ^= 1 << dice.randrange(8)
    elif kind in {"run", "zeros"}:
        length = min(dice.choice([4, 64, 700, PAGE]), len(data) - at)
        data[at : at + length] = bytes(length) if kind == "zeros" else dice.randbytes(length)
    elif kind == "cut":
        del data[max(at, 1) :]
    elif kind in {"swap", "copy"}:
        other = dice.randrange(len(data)) // PAGE * PAGE
        one, two = bytes(data[page : page + PAGE]), bytes(data[other : other + PAGE])
        data[other : other + len(one)] = one
        if kind == "swap":
            data[page : page + len(two)] = two
    else:  # the header of a page of the tree
        data[min(page + dice.randrange(12), len(data) - 1)] ^= 1 << dice.randrange(8)
    target.write_bytes(data)
    return f"{kind} of {target.suffix}"


async def _taken_up(path: Path) -> None:
    store = await SqliteStore.open(path)
    try:
        await recover(store)
        await store.drop_foreign(Path("/work"))
        loaded = await store.load(hidden=True)
        await store.info()
        await store.queue_waiting()
        await store.tasks.tasks()
        await store.tasks.schedules()
        await store.rewinds.points()
        await store.rewinds.newest()
        for run in loaded.runs:
            await store.read(run)
        for key in await store._read(
            lambda db: [row[0] for row in db.execute("SELECT key FROM kv")]
        ):
            await store.get(key)
        if messages := await store.history():
            check_request(messages)
        await store.record_prompt(text("go on"))
        await store.record_assistant(asking(call("n1")), [call("n1")], final=None)
        await store.record_running(call("n1"))
        done = RecordedResult(result("n1"), b"out", "shown")
        await store.record_result(done, [result("n1")])
        await store.record_assistant(answer(), (), final=Outcome.DONE)
        await store.queue_add(QueueKind.STEERING, "later")
        await store.set_title("another name")
    finally:
        await store.aclose()


def take_up(path: Path) -> str:
    """Do what a resumed session does, with everything; all of its text before that."""
    before = read_session(path, hidden=True)
    list(read_events(path))
    asyncio.run(_taken_up(path))
    files = SessionFiles(path.parent, path.parent / "catalogue.db")
    assert [info.title for info in asyncio.run(files.list())] == ["another name"]
    said = [stored.message.text for stored in before.messages]
    return "\n".join([*said, *(note.text for note in before.notes)])


def copied(source: Path, directory: Path) -> Path:
    """The session's files in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal"):
        if (name := Path(f"{source}{suffix}")).exists():
            shutil.copy(name, directory)
    return directory / source.name
