"""The event-stream decoder against the standard, other projects' cases and its own bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.errors import ProviderError
from agentcli.wire.sse import LineSplitter, SseDecoder, SseEvent
from tests.providers.streams import SUITES, cuts

SSE = SUITES / "sse"
pytestmark = pytest.mark.spec("STR-8")


def cases(name: str) -> list[Any]:
    path = SSE / f"{name}.json"
    if not path.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{path} is not here"))]
    return [pytest.param(case, id=case["name"]) for case in json.loads(path.read_text())]


def events_of(chunks: list[bytes], **options: Any) -> list[SseEvent]:
    decoder = SseDecoder(**options)
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def bytes_of(case: dict[str, Any], chunk: str) -> bytes:
    # The suite spells raw BOM bytes as three Latin-1 characters.
    return chunk.encode().replace("\u00ef\u00bb\u00bf".encode(), b"\xef\xbb\xbf")


@pytest.mark.parametrize("case", cases("eventsource_parser"))
def test_the_eventsource_parser_cases_hold_for_every_chunking(case: dict[str, Any]) -> None:
    chunks = [bytes_of(case, chunk) for chunk in case["chunks"]]
    limit = case["maxBufferSize"]
    if limit and any(error["type"].startswith("max") for error in case["errors"]):
        with pytest.raises(ProviderError):
            events_of([*chunks, b"data: more\n"], max_event_bytes=limit)
        return
    expected = [(e["event"] or "message", e["data"], e["id"]) for e in case["events"]]
    for chunking in [chunks, *cuts(b"".join(chunks)).values()]:
        assert [event[:3] for event in events_of(chunking)] == expected
    if limit:
        # Ours counts a few bytes for each line beside its text.
        assert [e[:3] for e in events_of(chunks, max_event_bytes=limit + 16)] == expected


@pytest.mark.parametrize("case", cases("httpx_sse_events"))
def test_the_httpx_sse_cases_hold_for_every_chunking(case: dict[str, Any]) -> None:
    data = "".join(case["chunks"]).encode()
    # That library reports a block without data; the standard dispatches nothing for it.
    expected = [e for e in case["events"] if e["data"] or b"data" in data]
    for chunking in cuts(data).values():
        found = events_of(chunking)
        assert [(e.event, e.data, e.retry_ms) for e in found] == [
            (e["event"], e["data"], e["retry"]) for e in expected
        ]
        last_id = ""
        for event, wanted in zip(found, expected, strict=True):
            last_id = event.id if event.id is not None else last_id
            assert last_id == wanted["id"]


@pytest.mark.parametrize("case", cases("httpx_sse_lines"))
def test_the_httpx_sse_line_cases_hold_for_every_chunking(case: dict[str, Any]) -> None:
    chunks = [chunk.encode() for chunk in case["chunks"]]
    for chunking in [chunks, *cuts(b"".join(chunks)).values()]:
        splitter = LineSplitter()
        lines = [line for chunk in chunking for line in splitter.feed(chunk)] + splitter.close()
        assert [line.decode() for line in lines] == case["lines"]


def test_a_retry_alone_dispatches_nothing_but_is_remembered() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"retry: 10000\nid: 7\n\n") == []
    assert decoder.retry_ms == 10000
    assert decoder.last_event_id == "7"


def test_invalid_utf8_is_replaced_and_characters_split_over_chunks_are_kept() -> None:
    data = "data: \u20ac\U0001f642".encode() + b"\xff\xe2\x82\n\n"
    for chunking in cuts(data).values():
        [event] = events_of(chunking)
        assert event.data == "\u20ac\U0001f642\ufffd\ufffd"


def test_a_ten_megabyte_event_is_accepted_whole_and_in_small_pieces() -> None:
    text = "x" * 10_000_000
    data = f"data: {text}\n\n".encode()
    pieces = [data[i : i + 1_000] for i in range(0, len(data), 1_000)]
    for chunking in ([data], pieces):
        [event] = events_of(chunking)
        assert event.data == text


def test_the_cost_of_one_byte_chunks_grows_linearly() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: ") == []
    for _ in range(300_000):
        decoder.feed(b"x")
    [event] = decoder.feed(b"\n\n")
    assert len(event.data) == 300_000


@pytest.mark.spec("SEC-13")
def test_a_giant_event_is_a_typed_error_after_the_events_before_it() -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    [first] = decoder.feed(b"data: ok\n\ndata: " + b"x" * 2000)
    assert first.data == "ok"
    with pytest.raises(ProviderError, match="one event of more than"):
        decoder.feed(b"y")
    many_lines = SseDecoder(max_event_bytes=1000)
    with pytest.raises(ProviderError):
        many_lines.feed(b"data:\n" * 1000)


@pytest.mark.spec("SEC-13")
def test_an_endless_comment_takes_no_memory_and_ends_nothing() -> None:
    decoder = SseDecoder(max_event_bytes=1000)
    assert decoder.feed(b"data: kept\n:") == []
    for _ in range(100):
        assert decoder.feed(b"c" * 500) == []
    [event] = decoder.feed(b"\n\n")
    assert event.data == "kept"


def test_an_unfinished_last_event_is_not_dispatched_but_can_be_asked_for() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"event: end\ndata: {}") == []
    assert decoder.close() == SseEvent("end", "{}")
    assert SseDecoder().close() is None


_LINE = st.sampled_from(
    [b"data: a", b"data:", b"data", b"data:  b\xff", b": note", b"id: 1", b"id: 2\0", b"event: e",
     b"retry: 5", b"retry: x", b"", b"", b"odd: field", "data: \u00e9\u4e16".encode()]
)  # fmt: skip
_END = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(
    st.lists(st.tuples(_LINE, _END), max_size=30),
    st.booleans(),
    st.lists(st.integers(1, 9), min_size=1, max_size=20),
)
@settings(max_examples=75, deadline=None)
def test_chunking_never_changes_the_events(
    lines: list[tuple[bytes, bytes]], bom: bool, sizes: list[int]
) -> None:
    data = (b"\xef\xbb\xbf" if bom else b"") + b"".join(line + end for line, end in lines)
    pieces, start, turn = [], 0, 0
    while start < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[start : start + size])
        start, turn = start + size, turn + 1
    assert events_of(pieces) == events_of([data]) == events_of([bytes([b]) for b in data])


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_no_bytes_whatever_crash_the_decoder(data: bytes) -> None:
    assert events_of([data]) == events_of([bytes([b]) for b in data])
