"""Writing to a terminal that may take its time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest

from agentcli.ui.terminal_writer import BEHIND_BYTES, TerminalWriter


@pytest.fixture
def ends() -> Iterator[tuple[int, TextIO]]:
    reading, writing = os.pipe()
    with open(writing, "w", encoding="ascii") as stream:
        yield reading, stream
    os.close(reading)


@pytest.mark.spec("OPS-1")
def test_a_reader_that_does_not_read_holds_up_nothing_and_gets_all_in_order(
    ends: tuple[int, TextIO],
) -> None:
    reading, stream = ends
    writer = TerminalWriter(stream)
    caught_up = threading.Event()
    writer.on_ready = caught_up.set
    lines = "".join(f"{number}\n" for number in range(100_000))
    writer.write(lines[:300_000])
    writer.write(lines[300_000:])
    assert not writer.drain(0.01)
    assert writer.is_behind
    got = b""
    while len(got) < len(lines):
        got += os.read(reading, 65_536)
    assert got.decode() == lines
    assert caught_up.wait(10)
    assert writer.drain(10)
    assert not writer.is_behind


def test_little_that_waits_is_no_reason_to_hold_back(ends: tuple[int, TextIO]) -> None:
    _, stream = ends
    writer = TerminalWriter(stream)
    writer.write("x" * (BEHIND_BYTES - 1))
    assert not writer.is_behind


@pytest.mark.spec("CAN-13")
def test_a_reader_that_left_is_told_by_the_next_write(ends: tuple[int, TextIO]) -> None:
    reading, stream = ends
    writer = TerminalWriter(stream)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, reading)
    os.close(null)
    writer.write("one")
    assert writer.drain(10)
    with pytest.raises(BrokenPipeError):
        writer.write("two")


def test_what_the_encoding_lacks_is_an_error_of_the_write(ends: tuple[int, TextIO]) -> None:
    _, stream = ends
    with pytest.raises(UnicodeEncodeError):
        TerminalWriter(stream).write("é")


@pytest.mark.spec("OPS-1")
def test_as_a_stream_it_replaces_what_the_terminal_cannot_show_and_keeps_the_order(
    ends: tuple[int, TextIO],
) -> None:
    reading, stream = ends
    writer = TerminalWriter(stream)
    text = writer.as_stream()
    text.write("one · ")
    writer.write("two ")
    text.buffer.write(b"three")
    text.flush()
    assert writer.drain(10)
    assert os.read(reading, 100) == b"one ? two three"
    assert text.fileno() == stream.fileno()
    assert not text.isatty()
