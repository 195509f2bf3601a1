"""Bytes of a hostile peer: cut into lines and read within bounds (SEC-13)."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcli.rpc.messages import (
    LINES_TOGETHER,
    MAX_BATCH,
    MAX_DEPTH,
    MAX_MESSAGE_BYTES,
    LineCutter,
    MalformedMessage,
    OverlongLine,
    beginning_of,
    decode,
    encode,
    read_lines,
)

pytestmark = [pytest.mark.spec("ACP-3"), pytest.mark.spec("SEC-13")]


@given(
    st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b and b.strip() == b)),
    st.integers(1, 9),
    st.booleans(),
)
def test_lines_are_the_same_however_they_arrive(lines: list[bytes], size: int, crlf: bool) -> None:
    lines = [line for line in lines if line]
    data = (b"\r\n" if crlf else b"\n").join(lines)
    cutter = LineCutter()
    found = [
        line for start in range(0, len(data), size) for line in cutter.feed(data[start:][:size])
    ]
    assert [*found, *cutter.end()] == lines


def test_a_line_of_100_mb_costs_no_memory_and_the_next_one_is_read() -> None:
    chunk = b"x" * 65536
    pieces = [b'{"id":7,"result":"', *[chunk] * 1600, b'"}\n{"id":8}\n']

    async def read(size: int) -> bytes:
        del size
        return pieces.pop(0) if pieces else b""

    async def take() -> list[bytes | OverlongLine]:
        return [line async for line in read_lines(read)]

    tracemalloc.start()
    try:
        found = asyncio.run(take())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * MAX_MESSAGE_BYTES
    assert isinstance(found[0], OverlongLine)
    assert beginning_of(found[0].head) == (7, False)
    assert found[1:] == [b'{"id":8}']


def test_a_line_in_tiny_pieces_takes_the_room_of_its_text() -> None:
    cutter, piece = LineCutter(), bytearray(b"xy")
    tracemalloc.start()
    try:
        for _ in range(500_000):
            assert not list(cutter.feed(bytes(piece)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000
    assert [len(line) for line in cutter.feed(b"\n") if isinstance(line, bytes)] == [1_000_000]


DEEP: list[Callable[[], bytes]] = [
    lambda: b"[" * 100_000 + b"]" * 100_000,
    lambda: b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
    lambda: b"[" + b"{}," * 4_000_000 + b"{}]",
    lambda: b"[" + b"{}," * MAX_BATCH + b"{}]",
    lambda: b"{%s}" % b",".join(b'"%x":"%x"' % (each, each) for each in range(600_000)),
    lambda: b"1" * 100_000,
    lambda: b"\xff\xfe{}",
    lambda: b"",
    lambda: b" " * (MAX_MESSAGE_BYTES + 1),
]


@pytest.mark.parametrize(
    "make", DEEP, ids=["deep", "deeper", "many", "batch", "pairs", "digits", "bytes", "", "big"]
)
def test_what_is_too_much_is_malformed(make: Callable[[], bytes]) -> None:
    with pytest.raises(MalformedMessage):
        decode(make())


def test_what_is_within_bounds_is_read() -> None:
    assert decode(b'{"a":' * 150 + b"1" + b"}" * 150)
    assert decode(b'{"a": "%s"}' % (b"a: [1, 2], " * 400_000))
    assert decode('{"é": "\\ud800"}'.encode()) == {"é": "\ud800"}
    assert encode({"text": "\ud800\n"}) == b'{"jsonrpc":"2.0","text":"?\\n"}'


@pytest.mark.spec("SEC-13", "CAN-1")
@pytest.mark.parametrize("block", [b"x\n", b"x\n" * 20_000])
def test_a_peer_that_is_never_silent_lets_others_have_a_turn(block: bytes) -> None:
    together = most = turns = 0

    async def always(_: int) -> bytes:
        return block if turns < 20 else b""

    async def others() -> None:
        nonlocal together, turns
        while True:
            together, turns = 0, turns + 1
            await asyncio.sleep(0)

    async def read() -> None:
        nonlocal together, most
        task = asyncio.create_task(others())
        seen = 0
        async for _ in read_lines(always):
            seen, together = seen + 1, together + 1
            most = max(most, together)
            assert seen < 100_000
        task.cancel()

    asyncio.run(read())
    assert most <= 2 * LINES_TOGETHER
