"""Bodies unpacked within bounds, whatever they would unpack to; chunks joined that came at once."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import h11
import pytest
from h11._readers import READERS, ChunkedReader
from h11._receivebuffer import ReceiveBuffer
from hypothesis import given
from hypothesis import strategies as st

from agentcli.domain.errors import AgentError, ProviderError
from agentcli.wire.http import Endpoint, HttpClient, fetch
from agentcli.wire.unpack import (
    FREE_BYTES,
    SLICE_BYTES,
    BadCoding,
    JoiningReader,
    Unpacker,
    join_chunks,
    unpacker_for,
)
from tests.security.hostile_server import JSON, STREAM, bomb, hostile

TEXT = b"data: {}\n\n" * 1000
RAW = zlib.compressobj(9, zlib.DEFLATED, -15)
PACKED = {
    "gzip": gzip.compress(TEXT),
    "X-GZIP": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    " deflate , identity": RAW.compress(TEXT) + RAW.flush(),
}


def unpacked(unpacker: Unpacker | None, data: bytes, size: int) -> bytes:
    assert unpacker is not None
    starts = range(0, len(data), size)
    return b"".join(piece for at in starts for piece in unpacker.feed(data[at : at + size]))


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
@pytest.mark.parametrize("coding", PACKED)
def test_one_coding_is_unpacked_in_pieces_of_any_size(coding: str, size: int) -> None:
    unpacker = unpacker_for([coding])
    assert unpacked(unpacker, PACKED[coding], size) == TEXT
    assert unpacker is not None and unpacker.is_whole


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("lines", [[], [""], ["identity"], ["identity, ", "Identity"]])
def test_what_is_not_packed_needs_no_unpacker(lines: list[str]) -> None:
    assert unpacker_for(lines) is None


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    "lines",
    [["gzip, gzip"], ["gzip", "gzip"], ["br"], ["zstd"], ["gzip;q=1"], ["\x1b]0;x\x07é" * 99]],
)
def test_several_codings_or_an_unknown_one_are_refused_by_name(lines: list[str]) -> None:
    with pytest.raises(BadCoding) as caught:
        unpacker_for(lines)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 120


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
def test_a_bomb_is_given_up_beyond_a_ratio_and_held_in_slices_until_then() -> None:
    packed = bomb(b"", b"x", 5000)
    tracemalloc.start()
    given, largest = 0, 0
    unpacker = Unpacker("gzip")
    with pytest.raises(BadCoding, match="over 100 times its size"):
        for piece in unpacker.feed(packed):
            given, largest = given + len(piece), max(largest, len(piece))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert FREE_BYTES <= given + SLICE_BYTES
    assert largest <= SLICE_BYTES
    assert peak < 4 * len(packed) + 8 * SLICE_BYTES


@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize("damage", [b"no gzip", gzip.compress(TEXT)[:20] + b"\xff" * 90])
def test_what_cannot_be_unpacked_says_so(damage: bytes) -> None:
    with pytest.raises(BadCoding, match="cannot be unpacked"):
        list(Unpacker("gzip").feed(damage))


async def reply_of(url: str) -> bytes:
    client = HttpClient()
    try:
        stream = client.post_stream(Endpoint("test", url), {}, b"{}")
        return b"".join([piece async for piece in stream])
    finally:
        await client.aclose()


@pytest.mark.spec("SEC-13", "STR-9")
@pytest.mark.parametrize("headers", [STREAM, JSON], ids=["stream", "document"])
@pytest.mark.parametrize(
    "lines", [b"content-encoding: gzip, gzip\r\n", b"content-encoding: br\r\n"]
)
def test_a_reply_in_several_codings_is_one_clear_error(headers: bytes, lines: bytes) -> None:
    twice = gzip.compress(gzip.compress(TEXT))
    with hostile(lambda: [twice], headers=headers + lines) as server:
        with pytest.raises(ProviderError, match="packed in a way that is not accepted") as caught:
            asyncio.run(reply_of(server.url))
        assert not caught.value.retryable
        assert caught.value.advice
        with pytest.raises(AgentError, match="packed in a way that is not accepted"):
            fetch(Endpoint("test", server.url), {}, timeout_s=5)


@pytest.mark.spec("SEC-13")
def test_what_is_asked_for_is_what_is_accepted() -> None:
    body = gzip.compress(b'{"data": []}')
    with hostile(lambda: [body], headers=JSON + b"content-encoding: gzip\r\n") as server:
        assert fetch(Endpoint("test", server.url), {}, timeout_s=5) == b'{"data": []}'
        assert b"accept-encoding: gzip, deflate" in server.heads[0].lower()


# --- chunks -----------------------------------------------------------------------------------

JOINED = pytest.mark.skipif(not join_chunks(), reason="an h11 that is made in another way")
CHUNK = st.builds(
    lambda data, end, foot: b"%x%b\r\n%b%b" % (len(data), end, data, foot),
    st.binary(min_size=1, max_size=20),
    st.sampled_from([b"", b"", b"", b" ", b";a=b", b"\t"]),
    st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"xx"]),
)
END = st.sampled_from([b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"zz\r\n", b"", b"\r\n"])


def read(
    reader: Callable[[ReceiveBuffer], Any], pieces: Sequence[bytes]
) -> tuple[bytes, object, list[int]]:
    """The body, how it ended, and how much of it there was after each piece."""
    buf, body, so_far = ReceiveBuffer(), b"", []
    for piece in pieces:
        buf += piece
        while True:
            try:
                event = reader(buf)
            except h11.LocalProtocolError:
                return body, "error", so_far
            if event is None:
                break
            if isinstance(event, h11.EndOfMessage):
                return body, (list(event.headers), bytes(buf)), so_far
            body += bytes(event.data)
        so_far.append(len(body))
    return body, bytes(buf), so_far


@JOINED
@given(st.lists(CHUNK, max_size=8), END, st.lists(st.integers(0, 300), max_size=12))
@pytest.mark.spec("STR-1")
def test_any_body_in_any_pieces_is_what_h11_makes_of_it(
    chunks: list[bytes], end: bytes, cuts: list[int]
) -> None:
    whole = b"".join(chunks) + end
    places = sorted({0, *(cut for cut in cuts if cut < len(whole)), len(whole)})
    pieces = [whole[a:b] for a, b in itertools.pairwise(places)]
    assert read(JoiningReader(), pieces) == read(ChunkedReader(), pieces)


@JOINED
@pytest.mark.spec("STR-1")
def test_chunks_that_came_together_are_one_event() -> None:
    made = READERS[h11.SEND_BODY]
    assert isinstance(made, dict) and made["chunked"] is JoiningReader
    reader, buf = JoiningReader(), ReceiveBuffer()
    buf += b"5\r\nhello\r\n" * 100 + b"3\r\nha"
    whole, begun = reader(buf), reader(buf)
    assert isinstance(whole, h11.Data) and isinstance(begun, h11.Data)
    assert (bytes(whole.data), bytes(begun.data)) == (b"hello" * 100, b"ha")
    assert reader(buf) is None


@pytest.mark.spec("STR-1")
def test_an_h11_that_keeps_its_state_elsewhere_reads_its_chunks_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Other:
        __slots__ = ("bytes_in_chunk",)

    monkeypatch.setattr("h11._readers.ChunkedReader", Other)
    assert not join_chunks()
