"""Output is bounded however it comes, and the live view is not a flood."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.process.capture import LIVE_BYTES, Capture, LiveOutput


@pytest.mark.spec("TOOL-11", "SEC-13")
@settings(max_examples=80)
@given(st.lists(st.binary(max_size=30)), st.integers(1, 40), st.integers(1, 40))
def test_both_ends_are_kept_and_the_middle_is_counted(
    pieces: list[bytes], head: int, tail: int
) -> None:
    capture = Capture(head, tail)
    for piece in pieces:
        capture.feed(piece)
    whole = b"".join(pieces)
    assert capture.size_bytes == len(whole)
    if len(whole) <= head + tail:
        assert capture.data() == whole
    else:
        missing = b"\n[... %d bytes of output were not kept ...]\n" % (len(whole) - head - tail)
        assert capture.data() == whole[:head] + missing + whole[-tail:]


@pytest.mark.spec("TOOL-11")
def test_live_output_joins_what_comes_together_and_decodes_across_pieces() -> None:
    told: list[str] = []

    async def body() -> None:
        live = LiveOutput(told.append)
        for byte in "h\u00e9llo".encode():
            live.feed(bytes([byte]))
        live.close()

    asyncio.run(body())
    assert told == ["h\u00e9llo"]


@pytest.mark.spec("SEC-13")
def test_a_flood_is_reported_as_its_newest_part_and_a_size() -> None:
    told: list[str] = []

    async def body() -> None:
        live = LiveOutput(told.append)
        for _ in range(100):
            live.feed(b"x" * 100_000)
        live.feed(b"the end")
        live.close()

    asyncio.run(body())
    text = "".join(told)
    assert text.endswith("xthe end")
    assert f"[... {100 * 100_000 + 7 - LIVE_BYTES} bytes ...]" in text
    assert len(text) < 2 * LIVE_BYTES
