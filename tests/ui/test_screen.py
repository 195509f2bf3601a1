"""The screen: printed once, in order, sanitized, with few writes."""

from __future__ import annotations

import asyncio
import io

import pyte
import pytest

from agentcli.ui.screen import Screen, Size
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
        "Hello you", "", "● Run x", "  └ ok", "", "Thinking", "let me see", "", "Done", "", "end",
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
        screen.feed_text("first ")
        assert "first" in terminal.getvalue()
        for number in range(20_000):
            screen.feed_text(f"w{number} ")
        screen.finish()
        return terminal

    terminal = asyncio.run(main())
    assert terminal.writes < 50
    assert "w19999 " in terminal.getvalue()


@pytest.mark.spec("UI-1")
def test_waiting_text_is_shown_by_itself_and_then_no_timer_is_left() -> None:
    async def main() -> None:
        screen, terminal = make()
        screen.feed_text("a ")
        screen.feed_text("b ")
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
