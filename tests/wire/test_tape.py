"""A record of replies: its file, its order, its bounds (TT-4)."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentcli.domain.errors import ConfigError, UsageError
from agentcli.wire import tape
from agentcli.wire.tape import Recorder, Served

PLACE = ("anthropic", "https://user:pass@host.example/base?key=secret")


def same(value: Any) -> Any:
    return value


def body(*said: str, **more: Any) -> bytes:
    messages = [{"role": "user", "content": text} for text in said]
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


async def reply(*pieces: bytes, gate: asyncio.Event | None = None) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        if gate is not None:
            await gate.wait()
        yield piece


async def never() -> AsyncGenerator[bytes, None]:
    raise AssertionError("nothing may be sent")
    yield b""


class Played:
    """A record of a few requests, and the lines that were told."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "run.jsonl"
        self.told: list[str] = []

    def recorder(self, redact: tape.Redact = same) -> Recorder:
        return Recorder(self.path, Path("/then"), redact, self.told.append)

    def served(self) -> Served:
        return Served(self.path, Path("/now"), same, self.told.append)


async def taken(found: tape.Recorder | Served, said: bytes, sent: tape.Sent) -> list[bytes]:
    return [piece async for piece in found.exchange(PLACE, "p/m", said, sent)]


async def keep(recorder: Recorder, *said: bytes) -> None:
    for each in said:
        await taken(recorder, each, reply(b"re:", each))


@pytest.fixture
def played(tmp_path: Path) -> Played:
    return Played(tmp_path)


@pytest.mark.spec("TT-4")
def test_pieces_are_served_as_they_came_whatever_bytes_they_are(played: Played) -> None:
    pieces = [b"data: \xc3", b"\xa4\n\n", b"\x00\xff\xfe", b"", b"end"]

    async def work() -> Sequence[bytes]:
        await taken(played.recorder(), body("hello"), reply(*pieces))
        return await taken(played.served(), body("hello"), never())

    assert asyncio.run(work()) == pieces
    kept = played.path.read_text()
    assert "pass" not in kept and "secret" not in kept and "https://host.example/base" in kept
    assert played.served().place("p") == ("anthropic", "https://host.example/base")
    assert (played.served().model, played.served().place("other")) == ("p/m", None)


@pytest.mark.spec("TT-4")
def test_the_order_is_that_of_then_but_for_what_ran_side_by_side(played: Played) -> None:
    async def side_by_side() -> None:
        recorder, gate = played.recorder(), asyncio.Event()
        both = [
            asyncio.create_task(taken(recorder, body(text), reply(text.encode(), gate=gate)))
            for text in ("one", "two")
        ]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*both)
        await keep(recorder, body("three"))

    async def ask(*texts: str) -> list[list[bytes]]:
        served = played.served()
        return [await taken(served, body(text), never()) for text in texts]

    asyncio.run(side_by_side())
    assert asyncio.run(ask("two", "one", "three"))[0] == [b"two"]
    with pytest.raises(ConfigError, match="request 1 differs"):
        asyncio.run(ask("three"))
    with pytest.raises(ConfigError, match="ends after request 3"):
        asyncio.run(ask("one", "two", "three", "three"))


@pytest.mark.spec("TT-4")
def test_the_directory_and_times_are_no_difference_and_what_is_around_is_told_once(
    played: Played,
) -> None:
    async def work() -> None:
        then = body("in /then/src, 0.4 s, at 2026-01-31T10:00:00Z", system="/then")
        await keep(played.recorder(), then, body("next", system="old"))
        served = played.served()
        now = body("in /now/src, 12 s, at 2026-02-01T11:30:00Z", system="/now")
        await taken(served, now, never())
        assert not played.told
        await taken(served, body("next", system="new"), never())

    asyncio.run(work())
    assert played.told == [
        '--replay: around the conversation request 2 differs: system: recorded "old", now "new"'
    ]


@pytest.mark.spec("TT-4", "SEC-9")
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_key_that_is_spelled_in_events_is_in_no_event(played: Played, size: int) -> None:
    text = "before SECRET-KEY after"
    events = [
        {"type": "delta", "index": index, "delta": {"text": text[at : at + size]}}
        for at in range(0, len(text), size)
        for index in (0, 1)
    ]
    lines = [f"data: {json.dumps(event)}\r\n\r\n".encode() for event in events]

    def redact(value: Any) -> Any:
        return json.loads(json.dumps(value).replace("SECRET-KEY", "[redacted]"))

    async def work() -> bytes:
        await taken(played.recorder(redact), body("SECRET-KEY"), reply(*lines))
        return b"".join(await taken(played.served(), body("[redacted]"), never()))

    found = asyncio.run(work()).decode()
    parts = [json.loads(line) for line in re.findall("data: (.*)", found)]
    for index in (0, 1):
        said = "".join(each["delta"]["text"] for each in parts if each["index"] == index)
        assert said == "before [redacted] after"
    assert "SECRET-KEY" not in played.path.read_text()


@pytest.mark.spec("TT-4", "FAIL-1")
def test_a_full_record_and_a_full_disk_stop_the_recording_and_not_the_run(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tape, "MAX_BYTES", 1_000)

    async def work() -> list[bytes]:
        recorder = played.recorder()
        await keep(recorder, body("one"), body("x" * 2_000))
        return await taken(recorder, body("two"), reply(b"still"))

    assert asyncio.run(work()) == [b"still"]
    assert len(played.path.read_text().splitlines()) == 2
    assert len(played.told) == 1 and "full" in played.told[0]
    recorder = played.recorder()
    played.path.unlink()
    asyncio.run(keep(recorder, body("one"), body("two")))
    assert len(played.told) == 2 and "nothing more is recorded" in played.told[1]


@pytest.mark.spec("TT-4")
def test_of_a_killed_recording_what_is_whole_is_served(played: Played) -> None:
    async def work() -> list[bytes]:
        await keep(played.recorder(), body("one"), body("two"))
        played.path.write_bytes(played.path.read_bytes()[:-20])
        return await taken(played.served(), body("one"), never())

    assert asyncio.run(work()) == [b"re:", body("one")]


@pytest.mark.spec("TT-4", "SEC-13")
@pytest.mark.parametrize(
    "wrong",
    [
        '"number": 1e999',
        '"status": 1e300',
        '"status": "200"',
        '"end": "failed", "error": {"kind": "network"}',
        '"end": "refused", "headers": [1]',
        '"end": ["x"]',
        '"pieces": {"a": 1}',
    ],
)
def test_a_hostile_record_is_one_line(played: Played, wrong: str) -> None:
    asyncio.run(keep(played.recorder(), body("hello")))
    head, entry = played.path.read_text().splitlines()
    played.path.write_text(f"{head}\n{entry[:-1]},{wrong}}}\n")
    with pytest.raises(UsageError, match="line 2 is no part of a record"):
        played.served()


@pytest.mark.spec("TT-4", "SEC-13")
def test_a_record_that_is_nested_too_deeply_is_one_line(played: Played) -> None:
    asyncio.run(keep(played.recorder(), body("hello")))
    head, entry = played.path.read_text().splitlines()
    deep = "[" * 400 + "]" * 400
    played.path.write_text(f'{head}\n{entry[:-1]},"request":{{"messages":{deep}}}}}\n')

    async def ask(depth: int) -> None:
        if depth:
            await ask(depth - 1)
        else:
            await taken(played.served(), body("hello"), never())

    with pytest.raises(ConfigError, match=r"differs|nested too deeply"):
        asyncio.run(ask(100))


@pytest.mark.spec("TT-4", "SEC-9")
def test_a_pipe_or_a_device_is_no_place_for_a_record(played: Played) -> None:
    os.mkfifo(played.path, 0o644)
    with pytest.raises(UsageError, match="no plain file"):
        played.recorder()
    assert played.path.stat().st_mode & 0o777 == 0o644


@pytest.mark.spec("TT-4", "CTRL-1")
def test_a_reply_within_which_the_run_was_cancelled_says_so_when_it_is_served(
    played: Played,
) -> None:
    async def work() -> list[bytes]:
        found = played.recorder().exchange(PLACE, "p/m", body("hi"), reply(b"half", b"rest"))
        assert await anext(found) == b"half"
        await found.aclose()
        got = []
        with pytest.raises(ConfigError, match="was cancelled within this reply"):
            async for piece in played.served().exchange(PLACE, "p/m", body("hi"), never()):
                got.append(piece)
        return got

    assert asyncio.run(work()) == [b"half"]
