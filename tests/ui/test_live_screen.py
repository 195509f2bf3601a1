"""The region below the scrollback: nothing is lost, drawn twice or left behind, and little is written."""

from __future__ import annotations

import asyncio
import io

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui.frame import Place
from agentcli.ui.live_screen import MAX_TAIL, Below, LiveScreen
from agentcli.ui.rows import Row
from agentcli.ui.screen import Screen, Size
from agentcli.ui.theme import Theme

LIVE = Theme(color=True, attributes=True, live=True)
PROMPT = ["> typed", "status"]


class Terminal(io.StringIO):
    """A stream, and what an emulator makes of it."""

    def __init__(self, columns: int = 40, lines: int = 24) -> None:
        super().__init__()
        self.size = Size(columns, lines)
        self.screen = pyte.HistoryScreen(columns, lines, history=50_000)
        self._emulator = pyte.Stream(self.screen)
        self.written = 0
        self.writes: list[str] = []

    def write(self, text: str, /) -> int:
        self._emulator.feed(text.replace("\n", "\r\n"))
        self.written += len(text.encode())
        self.writes.append(text)
        return len(text)

    def resize(self, columns: int, lines: int) -> None:
        self.size = Size(columns, lines)
        self.screen.resize(lines, columns)

    def lines(self) -> list[str]:
        width = self.screen.columns
        top = ["".join(line[x].data for x in range(width)) for line in self.screen.history.top]
        lines = [line.rstrip() for line in [*top, *self.screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def compose(size: Size, needs_gap: bool) -> Below:
    rows = [Row(text[: size.columns], min(len(text), size.columns)) for text in PROMPT]
    if needs_gap:
        rows = [Row(""), *rows]
    rows = rows[-size.lines :]
    return Below(rows, Place(max(0, len(rows) - 2), 7))


def make(columns: int = 40, lines: int = 24) -> tuple[LiveScreen, Terminal]:
    terminal = Terminal(columns, lines)
    return LiveScreen(terminal, LIVE, lambda: terminal.size), terminal


@pytest.mark.spec("UI-1")
def test_text_and_blocks_stand_above_the_region_set_apart_by_one_empty_line() -> None:
    screen, terminal = make()
    screen.print_block(["header"])
    screen.show(compose)
    screen.feed_text("\n\nHello **you**\n\n\n")
    assert terminal.lines() == ["header", "", "Hello you", "", *PROMPT]
    screen.print_block(["● Run x", "  └ ok"])
    screen.feed_thinking("let me see\n")
    screen.feed_text("Done")
    assert terminal.lines()[-6:] == ["let me see", "", "Done", "", *PROMPT]
    screen.finish()
    screen.gap()
    screen.gap()
    assert terminal.lines()[-4:] == ["Done", "", *PROMPT]
    screen.print_block(["end"], gap=False)
    screen.hide()
    assert terminal.lines() == [
        "header", "", "Hello you", "", "● Run x", "  └ ok", "", "Thinking", "let me see", "",
        "Done", "", "end",
    ]  # fmt: skip


@pytest.mark.spec("UI-1")
def test_a_region_that_is_hidden_leaves_no_trace_and_comes_back() -> None:
    screen, terminal = make()
    screen.show(compose)
    screen.feed_text("half a li")
    screen.hide()
    assert terminal.lines() == ["half a li"]
    screen.print_block(["from outside"], gap=False)
    screen.show(compose)
    assert terminal.lines() == ["half a li", "", "from outside", "", *PROMPT]


def paragraphs(number: int, seed: int = 7) -> str:
    words = [
        "the",
        "agent",
        "reads",
        "a",
        "file",
        "and",
        "mends",
        "whatever",
        "parser",
        "it",
        "finds",
    ]
    out = []
    for at in range(number):
        out.append(" ".join(words[(seed * at + n * n) % len(words)] for n in range(30 + at % 60)))
    return "\n\n".join(out)


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize("piece", [7, 1, 400])
def test_a_long_answer_costs_less_than_three_times_its_bytes_and_never_clears(piece: int) -> None:
    text = paragraphs(60)
    screen, terminal = make(80, 24)
    screen.show(compose)
    begun = terminal.written
    for at in range(0, len(text), piece):
        screen.feed_text(text[at : at + piece])  # without a loop every piece is a frame
    screen.finish()
    plain, whole = Terminal(80, 24), Screen
    reference = whole(plain, LIVE, lambda: plain.size)
    reference.feed_text(text)
    reference.finish()
    assert terminal.lines()[: -3 if piece else 0] == plain.lines()
    if piece > 1:  # a frame for each letter is 1,000 frames a second
        assert terminal.written - begun < 6 * plain.written
    clears = sum(write.count("\x1b[J") + write.count("\x1b[2J") for write in terminal.writes[1:])
    assert clears <= 2


@pytest.mark.spec("UI-1")
def test_at_thirty_frames_a_second_the_bytes_are_near_those_of_the_text() -> None:
    """Chunks of 5 characters, 200 a second: 33 characters in a frame."""
    text = paragraphs(60)
    screen, terminal = make(80, 24)
    screen.show(compose)
    begun = terminal.written
    for at in range(0, len(text), 33):
        screen.feed_text(text[at : at + 33])
    screen.finish()
    assert terminal.written - begun < 2.5 * len(text)


@pytest.mark.spec("UI-1")
def test_a_line_without_end_neither_fills_the_region_nor_the_memory() -> None:
    screen, terminal = make(40, 24)
    screen.show(compose)
    for number in range(3000):
        screen.feed_text(f"word{number} ")
        assert len(screen._tail.rows) <= MAX_TAIL + 1
    screen.finish()
    screen.hide()
    assert "".join(terminal.lines()).count("word") == 3000
    assert terminal.written < 4 * 3000 * 9


CHUNKS = st.lists(st.text("ab \n*`#-|é日🎉\x1b[1m", max_size=40), min_size=1, max_size=12)


@pytest.mark.spec("UI-1", "OPS-1")
@settings(max_examples=60, deadline=None)
@given(CHUNKS, st.sampled_from([(1, 1), (2, 3), (20, 5), (40, 12), (200, 50)]))
def test_any_text_in_any_pieces_at_any_size_is_no_error(
    chunks: list[str], size: tuple[int, int]
) -> None:
    screen, terminal = make(*size)
    screen.show(compose)
    for chunk in chunks:
        screen.feed_text(chunk)
        assert screen._frame.height <= max(size[1], 1)
    screen.print_block(["block"])
    screen.hide()
    assert "k" in terminal.lines()[-1]


PLAIN_CHUNKS = st.lists(st.text("abc \n", max_size=60), min_size=1, max_size=12)


@pytest.mark.spec("UI-1")
@settings(max_examples=60, deadline=None)
@given(PLAIN_CHUNKS, st.booleans())
def test_what_is_above_the_region_is_what_plain_printing_gives(
    chunks: list[str], blocks: bool
) -> None:
    screen, terminal = make(20, 14)
    screen.show(compose)
    plain = Terminal(20, 14)
    reference = Screen(plain, LIVE, lambda: plain.size)
    for at, chunk in enumerate(chunks):
        for each in (screen, reference):
            each.feed_text(chunk)
            if blocks and at % 3 == 2:
                each.print_block(["● block", "  second"])
    screen.finish()
    reference.finish()
    screen.hide()
    assert terminal.lines() == plain.lines()


@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize("to", [(30, 24), (120, 40), (20, 10), (1, 1), (500, 200)])
def test_a_resize_in_mid_stream_loses_and_repeats_nothing(to: tuple[int, int]) -> None:
    screen, terminal = make(60, 24)
    screen.show(compose)
    words = [f"w{number:03d}" for number in range(120)]
    for at, word in enumerate(words):
        screen.feed_text(f"{word} " + ("\n" if at % 11 == 10 else ""))
        if at == 60:
            terminal.resize(*to)
            screen.paint()
    screen.finish()
    screen.hide()
    terminal.resize(max(60, to[0]), max(24, to[1]))
    found = "".join(terminal.lines()).replace(" ", "")
    if to[0] >= 20:  # narrower: the emulator drops what does not fit
        assert found == "".join(words)


@pytest.mark.spec("UI-1")
def test_many_chunks_make_few_frames_and_the_first_comes_at_once() -> None:
    async def main() -> Terminal:
        screen, terminal = make()
        screen.show(compose)
        screen.feed_text("first ")
        await asyncio.sleep(0)
        assert "first" in terminal.writes[-1]
        for number in range(20_000):
            screen.feed_text(f"w{number} ")
        screen.finish()
        while screen._timer is not None:
            await asyncio.sleep(0.001)
        return terminal

    terminal = asyncio.run(asyncio.wait_for(main(), 20))
    assert len(terminal.writes) < 50
    assert "".join(terminal.lines()).count("w") >= 20_000


@pytest.mark.spec("UI-1")
def test_when_nothing_waits_there_is_no_timer() -> None:
    async def main() -> None:
        screen, terminal = make()
        screen.show(compose)
        screen.feed_text("a ")
        screen.end_text()
        screen.print_block(["b"])
        while screen._timer is not None:
            await asyncio.sleep(0.001)
        assert terminal.lines() == ["a", "", "b", "", *PROMPT]
        seen = len(terminal.writes)
        screen.end_text()
        await asyncio.sleep(0)
        screen.paint()
        assert len(terminal.writes) == seen
        assert screen._timer is None

    asyncio.run(asyncio.wait_for(main(), 5))


@pytest.mark.spec("OPS-1")
def test_a_terminal_that_went_away_is_no_error() -> None:
    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OSError(5, "Input/output error")

    screen = LiveScreen(Gone(), LIVE, lambda: Size(80, 24))
    screen.show(compose)
    screen.print_block(["x"])
    assert screen.is_gone
