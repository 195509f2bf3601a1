"""Lines of stdin: what each means, and that none of them ends the run."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.messages import ImagePart, TextPart, UserMessage
from agentcli.headless.stream_input import (
    MAX_LINE_BYTES,
    Answered,
    Asked,
    Line,
    LineReader,
    Said,
    Unreadable,
    parse_line,
)


def user(content: Any, **more: Any) -> bytes:
    return json.dumps(
        {"type": "user", "message": {"role": "user", "content": content}, **more}
    ).encode()


PNG = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"\x89P").decode()}


@pytest.mark.spec("CLI-4")
@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        (user("hi"), Said(UserMessage((TextPart("hi"),)))),
        (user("hi", uuid="u1", session_id="x"), Said(UserMessage((TextPart("hi"),)), "u1")),
        (
            user([{"type": "text", "text": "see"}, {"type": "image", "source": PNG}]),
            Said(UserMessage((TextPart("see"), ImagePart("image/png", b"\x89P")))),
        ),
        (b'\xef\xbb\xbf{"type":"user","message":{"content":"x"}}', Said(UserMessage((TextPart("x"),)))),
        (
            b'{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}',
            Asked("1", "interrupt", {"subtype": "interrupt"}),
        ),
        (
            b'{"type":"control_response","response":{"request_id":"1","response":{"behavior":"allow"}}}',
            Answered("1", {"behavior": "allow"}),
        ),
        (
            b'{"type":"control_response","response":{"subtype":"error","request_id":"1","error":"no"}}',
            Answered("1", {}, "no"),
        ),
        (b"", None),
        (b"  \t", None),
        (b'{"type":"keep_alive"}', None),
    ],
)  # fmt: skip
def test_a_line_is_a_message_a_request_or_an_answer(line: bytes, meaning: Line | None) -> None:
    assert parse_line(line) == meaning


@pytest.mark.spec("CLI-4", "SEC-13")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "its type is null"),
        (b'{"type":"assistant"}', 'its type is "assistant"'),
        (b'{"type":"user"}', "no message object"),
        (b'{"type":"user","message":{"role":"assistant","content":"x"}}', "not user"),
        (user(""), "empty"),
        (user([]), "empty"),
        (user(7), "neither text nor a list"),
        (user(["x"]), "not an object"),
        (user([{"type": "tool_result", "tool_use_id": "x"}]), "tool_result cannot be sent"),
        (user([{"type": "image", "source": {"type": "url", "url": "x"}}]), "no base64 data"),
        (user([{"type": "image", "source": {**PNG, "data": "*"}}]), "not base64"),
        (b'{"type":"control_request","request":{}}', "needs a request_id"),
        (b'{"type":"control_response"}', "needs a response object"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"type": "user", "x": [%s1]}' % (b'{"":0},' * 400_000), "more than 500,000 values"),
        (b'{"type":' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: bytes, reason: str) -> None:
    found = parse_line(line)
    assert isinstance(found, Unreadable)
    assert reason in found.reason


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["type", "message", "content", "role", "source"]) , x)).map(lambda v: json.dumps(v).encode()))  # fmt: skip
@settings(max_examples=60)
def test_no_line_raises(line: bytes) -> None:
    parse_line(line)


async def read_all(data: bytes, sizes: list[int]) -> tuple[list[Line], int]:
    """What a reader makes of ``data`` that arrives in pieces of ``sizes``, through a pipe."""
    read_end, write_end = os.pipe()

    def write() -> None:
        rest = data
        for size in (*sizes, len(data)):
            os.write(write_end, rest[:size])
            rest = rest[size:]
        while rest:
            rest = rest[os.write(write_end, rest) :]
        os.close(write_end)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        reader = LineReader(read_end)
        found = [line async for line in reader.lines()]
        return found, reader.number
    finally:
        thread.join(10)
        os.close(read_end)


@pytest.mark.spec("CLI-4")
@given(st.lists(st.integers(1, 40), max_size=6))
@settings(max_examples=20, deadline=None)
def test_lines_are_the_same_wherever_the_pipe_cuts_them(sizes: list[int]) -> None:
    data = user("gr\u00fc\u00dfe") + b"\r\n\n" + b"oops\n" + user("last")
    found, number = asyncio.run(read_all(data, sizes))
    assert [type(line) for line in found] == [Said, Unreadable, Said]
    assert number == 4


@pytest.mark.spec("CLI-4", "SEC-13")
def test_a_line_that_is_too_long_is_skipped_and_not_kept() -> None:
    long_line = b"x" * (MAX_LINE_BYTES + 1)
    found, _ = asyncio.run(read_all(long_line + b"\n" + user("next") + b"\n" + long_line, []))
    assert [type(line) for line in found] == [Unreadable, Said, Unreadable]
    assert isinstance(found[0], Unreadable) and "10 MB" in found[0].reason


@pytest.mark.spec("CLI-4", "CLI-12")
def test_a_file_and_dev_null_can_be_read_as_well(tmp_path: Path) -> None:
    async def count(path: str) -> int:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return len([line async for line in LineReader(descriptor).lines()])
        finally:
            os.close(descriptor)

    (tmp_path / "in").write_bytes((user("x") + b"\n") * 5)
    assert asyncio.run(count(str(tmp_path / "in"))) == 5
    assert asyncio.run(count(os.devnull)) == 0
