"""The screen: printed once, in order, sanitized, with few writes."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import Iterator
from typing import TextIO

import pyte
import pytest

from agentcli.ui.markdown_stream import MarkdownStream
from agentcli.ui.screen import BEHIND_BYTES, Screen, Size, TerminalWriter, TextStream
from agentcli.ui.theme import PLAIN, Theme

LIVE = Theme(color=True, attributes=True, live=True)


class Terminal(io.StringIO):
    """A stream that counts writes and shows what an emulator makes of them."""

    writes = 0

    def write(self, text: str, /) -> int:
        self.writes += 1
        return super().write(text)

    def lines(self, columns: int = 40) -> list[str]:
        screen = pyte.HistoryScreen(columns, 50)
        stream = pyte.Stream(screen)
        stream.feed(self.getvalue().replace("\n", "\r\n"))
        lines = [line.rstrip() for line in screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def make(theme: Theme = LIVE, columns: int = 40) -> tuple[Screen, Terminal]:
    terminal = Terminal()
    return Screen(terminal, theme, lambda: Size(columns, 24)), terminal


@pytest.mark.spec("UI-1")
def test_text_and_blocks_are_set_apart_by_one_empty_line() -> None:
    screen, terminal = make()
    screen.feed_text("\n\nHello **you**\n\n\n")
    screen.print_block(["● Run x", "  └ ok"])
    screen.feed_thinking("let me see\n")
    screen.feed_text("Done")
    screen.finish()
    screen.gap()
    screen.gap()
    screen.print_block(["end"], gap=False)
    assert terminal.lines() == [
        "◆ Hello you", "", "● Run x", "  └ ok", "", "◇ Thinking", "  let me see", "", "◆ Done", "",
        "end",
    ]  # fmt: skip


@pytest.mark.spec("SEC-10")
def test_streamed_text_is_sanitized_across_chunks() -> None:
    screen, terminal = make(PLAIN)
    for piece in ("a\x1b", "]52;c;", "eA==", "\x07b\x1b[3", "1mc\r", "\nd"):
        screen.feed_text(piece)
    screen.finish()
    assert terminal.getvalue() == "abc\nd\n"


@pytest.mark.spec("UI-1")
def test_many_chunks_make_few_writes_and_the_first_comes_at_once() -> None:
    async def main() -> Terminal:
        screen, terminal = make()
        screen.feed_text("first\n\n")
        assert "first" in terminal.getvalue()
        for number in range(20_000):
            screen.feed_text(f"w{number} ")
        screen.finish()
        return terminal

    terminal = asyncio.run(main())
    assert terminal.writes < 50
    assert "w19999" in terminal.getvalue()


@pytest.mark.spec("UI-1")
def test_waiting_text_is_shown_by_itself_and_then_no_timer_is_left() -> None:
    async def main() -> None:
        screen, terminal = make()
        screen.feed_text("a\n\n")
        screen.feed_text("b\n\n")
        assert "b" not in terminal.getvalue()
        while "b" not in terminal.getvalue():
            await asyncio.sleep(0.001)
        assert screen._timer is None

    asyncio.run(asyncio.wait_for(main(), 5))


@pytest.mark.spec("OPS-1")
def test_a_terminal_that_went_away_is_no_error() -> None:
    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OSError(5, "Input/output error")

    screen = Screen(Gone(), LIVE, lambda: Size(80, 24))
    screen.print_block(["x"])
    assert screen.is_gone


@pytest.mark.spec("CLI-12")
def test_an_encoding_without_the_signs_gets_replacements() -> None:
    raw = io.BytesIO()
    screen = Screen(io.TextIOWrapper(raw, "latin-1", newline=""), PLAIN, lambda: Size(80, 24))
    screen.print_block(["● é"], gap=False)
    assert raw.getvalue() == b"? \xe9\n"


# --- Writing to a terminal that may take its time


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


# --- Streamed text, rendered or plain


UNCOLORED = Theme(color=False, attributes=True, live=True)


@pytest.mark.spec("UI-1", "SEC-10")
def test_the_answer_is_rendered_and_sanitized() -> None:
    live, plain = (TextStream(theme, lambda: 80, thinking=False) for theme in (UNCOLORED, PLAIN))
    pieces = ("a **b", "** c\x1b[3", "1md\n")
    assert "".join(map(live.feed, pieces)) + live.finish() == (
        "\x1b[2m◆ \x1b[0ma \x1b[1mb\x1b[0m cd\n"
    )
    assert "".join(map(plain.feed, pieces)) + plain.finish() == "a b cd\n"


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize("method", ["feed", "finish"])
def test_a_fault_in_the_rendering_leaves_the_text_plain(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fail(*_: object) -> list[str]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(MarkdownStream, method, fail)
    stream = TextStream(UNCOLORED, lambda: 80, thinking=False)
    shown = stream.feed("one\n") + stream.feed("two\n") + stream.finish()
    assert "one" in shown
    assert "two" in shown


@pytest.mark.spec("UI-1", "UI-10")
def test_where_nothing_is_redrawn_text_has_words_in_place_of_signs_and_breaks_between_words() -> (
    None
):
    screen, terminal = make(PLAIN, columns=24)
    screen.feed_text(
        "# Plan\n\n> see [the page](https://x.y)\n\n- [x] one\n- two **or** more words\n\n"
    )
    screen.feed_text("| a | b |\n|---|---|\n| 1 | `2` |\n\n---\n\n```py\nx = 1\n```\n")
    screen.print_block(["  a notice that is longer than the window"])
    assert [line for line in terminal.getvalue().split("\n") if line] == [
        "Plan", "> see the page", "> (https://x.y)", "done: one",
        "- two or more words", "a: 1", "b: 2", "py", "x = 1",
        "  a notice that is", "  longer than the window",
    ]  # fmt: skip
