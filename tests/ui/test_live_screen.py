"""The region below the scrollback: nothing is lost, drawn twice or left behind, and little is written."""

from __future__ import annotations

import asyncio
import io

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui.frame import SYNC_BEGIN, SYNC_END, Below, Frame
from agentcli.ui.live_screen import MAX_TAIL, LiveScreen
from agentcli.ui.rows import Place, Row, Rows, fit_row, plain, reflowed, text_of
from agentcli.ui.screen import PIECE_CHARS, Screen, Size, TextStream
from agentcli.ui.theme import RESET, Theme

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
    assert terminal.lines() == ["header", "", "◆ Hello you", "", *PROMPT]
    screen.print_block(["● Run x", "  └ ok"])
    screen.feed_thinking("let me see\n")
    screen.feed_text("Done")
    assert terminal.lines()[-6:] == ["  let me see", "", "◆ Done", "", *PROMPT]
    screen.finish()
    screen.gap()
    screen.gap()
    assert terminal.lines()[-4:] == ["◆ Done", "", *PROMPT]
    screen.print_block(["end"], gap=False)
    screen.hide()
    assert terminal.lines() == [
        "header", "", "◆ Hello you", "", "● Run x", "  └ ok", "", "◇ Thinking", "  let me see", "",
        "◆ Done", "", "end",
    ]  # fmt: skip


@pytest.mark.spec("UI-1")
def test_a_region_that_is_hidden_leaves_no_trace_and_comes_back() -> None:
    screen, terminal = make()
    screen.show(compose)
    screen.feed_text("half a li")
    screen.hide()
    assert terminal.lines() == []
    screen.print_block(["from outside"], gap=False)
    screen.show(compose)
    assert terminal.lines() == ["◆ half a li", "from outside", "", *PROMPT]


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    found = "".join(terminal.lines()).replace(" ", "").removeprefix("◆")
    if to[0] >= 20:  # narrower: the emulator drops what does not fit
        assert found == "".join(words)


@pytest.mark.slow
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


@pytest.mark.spec("SEC-13", "CAN-1", "UI-1")
def test_text_that_comes_too_fast_is_shown_a_piece_a_frame_and_what_follows_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed: list[int] = []
    feed = TextStream.feed
    monkeypatch.setattr(
        TextStream, "feed", lambda s, text: (fed.append(len(text)), feed(s, text))[1]
    )
    monkeypatch.setattr("agentcli.ui.screen.FRAME_S", 0.0)  # it is over when one piece is shown

    async def main() -> list[str]:
        screen, terminal = make(40, 12)
        screen.show(compose)
        for number in range(4_000):
            screen.feed_text(f"line {number}\n\n")
        screen.feed_thinking("a thought\n")
        screen.feed_thinking("and more\n")
        screen.feed_text("after it")
        screen.print_block(["a block"])
        assert not fed  # nothing of that has taken time yet
        while screen._behind or screen._waiting:
            before = len(fed)
            await asyncio.sleep(0)
            assert sum(fed[before:]) <= 2 * PIECE_CHARS
        await asyncio.sleep(0)
        screen.hide()
        return terminal.lines()

    lines = asyncio.run(asyncio.wait_for(main(), 30))
    shown = [line.strip("◆ ") for line in lines if line.strip()]
    assert [line for line in shown if line.startswith("line ")] == [
        f"line {n}" for n in range(4_000)
    ]
    order = [shown.index(next(x for x in shown if mark in x)) for mark in
             ("line 3999", "a thought", "and more", "after it", "a block")]  # fmt: skip
    assert order == sorted(order)
    assert max(fed) <= PIECE_CHARS


@pytest.mark.spec("SEC-13", "CAN-1")
def test_of_an_answer_that_is_broken_off_what_is_far_behind_is_left_out_and_told() -> None:
    async def main() -> list[str]:
        screen, terminal = make(80, 12)
        screen.show(compose)
        screen.feed_text("begun\n\n")
        await asyncio.sleep(0.05)
        screen.feed_text("*a **b " * 100_000)
        screen.print_block(["a block of it"])
        screen.feed_thinking("x" * 50_000)
        screen.cut()
        screen.end_text()
        screen.print_block(["Interrupted"])
        while screen._behind or screen._waiting:
            await asyncio.sleep(0.01)
        screen.hide()
        return terminal.lines()

    text = "\n".join(asyncio.run(asyncio.wait_for(main(), 30)))
    assert "begun" in text and "Interrupted" in text and "a block of it" in text
    assert "750,000 more characters came in and are not shown; Ctrl-O shows them" in text


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
        assert terminal.lines() == ["◆ a", "", "b", "", *PROMPT]
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


# --- The region: whatever is drawn, printed and released, the screen shows it, a


class Emulator:
    def __init__(self, columns: int = 20, lines: int = 12) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=5000)
        self.stream = pyte.Stream(self.screen)

    def feed(self, text: str) -> None:
        self.stream.feed(text.replace("\n", "\r\n"))

    def text(self) -> list[str]:
        width = self.screen.columns
        top = ["".join(line[x].data for x in range(width)) for line in self.screen.history.top]
        lines = [line.rstrip() for line in [*top, *self.screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def rows(*lines: str, columns: int = 20) -> list[Row]:
    layout = Rows(columns)
    for line in lines:
        layout.feed(f"{line}\n")
    return layout.rows


def test_rows_break_where_the_terminal_breaks_and_give_the_text_back() -> None:
    layout = Rows(5)
    for piece in ("ab\x1b[1mcd", "efgh\x1b[0m\n", "日本語\n\nx\ty"):
        layout.feed(piece)
    found = layout.rows
    assert [plain(row.text) for row in found] == ["abcde", "fgh", "日本", "語", "", "x    ", "y"]
    assert [row.soft for row in found] == [False, True, False, True, False, False, True]
    assert found[1].text == f"\x1b[1mfgh{RESET}"
    assert plain(text_of(found[:5])) == "abcdefgh\n日本語\n"
    assert not layout.at_line_start
    layout.feed("\n")
    assert layout.at_line_start


@pytest.mark.parametrize(("columns", "shown"), [(10, "a long li…"), (1, "…"), (40, "a long line")])
def test_a_row_that_is_cut_shows_it(columns: int, shown: str) -> None:
    row = fit_row("\x1b[2ma long line\x1b[0m", columns)
    assert plain(row.text) == shown
    assert row.width == len(shown)
    assert row.text.endswith(RESET) or columns == 1


@pytest.mark.spec("UI-1")
def test_appending_to_a_row_writes_only_what_is_new() -> None:
    frame, emulator = Frame(), Emulator()
    emulator.feed(frame.update(rows("hello", "", "> typed", "status"), Place(2, 7), 20))
    out = frame.update(rows("hello you", "", "> typed", "status"), Place(2, 7), 20)
    assert " you" in out
    assert "hello" not in out
    assert "typed" not in out
    assert SYNC_BEGIN not in out
    assert len(out) < 25
    emulator.feed(out)
    assert emulator.text() == ["hello you", "", "> typed", "status"]
    assert (emulator.screen.cursor.y, emulator.screen.cursor.x) == (2, 7)
    assert frame.update(rows("hello you", "", "> typed", "status"), Place(2, 7), 20) == ""


@pytest.mark.spec("UI-1")
def test_a_row_more_or_less_moves_the_others_without_drawing_them() -> None:
    frame, emulator = Frame(), Emulator(lines=5)
    emulator.feed("above\n" * 4)
    emulator.feed(frame.update(rows("one", "> typed", "status"), Place(1, 7), 20))
    out = frame.update(rows("one", "two", "> typed", "status"), Place(2, 7), 20)
    assert "typed" not in out
    assert "status" not in out
    assert out.startswith(SYNC_BEGIN)
    assert out.endswith(SYNC_END)
    emulator.feed(out)
    assert emulator.text() == ["above"] * 4 + ["one", "two", "> typed", "status"]
    emulator.feed(frame.update(rows("two", "> typed", "status"), Place(1, 7), 20))
    assert emulator.text() == ["above"] * 4 + ["two", "> typed", "status"]
    emulator.feed(frame.update(rows("two"), Place(0, 0), 20))
    assert emulator.text() == ["above"] * 4 + ["two"]
    emulator.feed(frame.erase(20))
    assert emulator.text() == ["above"] * 4


@pytest.mark.spec("UI-1")
def test_released_rows_stay_and_are_never_written_again() -> None:
    frame, emulator = Frame(), Emulator()
    emulator.feed(frame.update(rows("one", "two", "> "), Place(2, 2), 20))
    frame.release(2)
    out = frame.update(rows("three", "> "), Place(1, 2), 20)
    assert "one" not in out
    emulator.feed(out)
    emulator.feed(frame.print_above("four\n", rows("five", "> "), Place(1, 2), 20))
    assert emulator.text() == ["one", "two", "four", "five", "> ".rstrip()]


@pytest.mark.spec("UI-1")
def test_a_line_that_wraps_is_written_through_the_margin() -> None:
    """So the terminal knows that the two rows are one line, as in text that is printed."""
    frame, emulator = Frame(), Emulator(columns=10)
    below = rows("", "> ", columns=10)
    emulator.feed(frame.update([*rows("0123456", columns=10), *below], Place(2, 2), 10))
    out = frame.update([*rows("0123456789abc", columns=10), *below], Place(3, 2), 10)
    assert "789abc" in out
    emulator.feed(out)
    assert emulator.text() == ["0123456789", "abc", "", ">"]
    emulator.feed(frame.update([*rows("0123456789", columns=10), *below], Place(2, 2), 10))
    out = frame.update([*rows("0123456789x", columns=10), *below], Place(3, 2), 10)
    assert "9x" in out
    emulator.feed(out)
    assert emulator.text() == ["0123456789", "x", "", ">"]


@pytest.mark.spec("UI-1")
def test_a_line_that_wraps_over_what_stood_below_is_written_through_the_margin_too() -> None:
    """The rows below change in the same frame, so that the new row takes an old one's place."""
    frame, emulator = Frame(), Emulator(columns=10)
    emulator.feed(frame.update([*rows("01234", "", "1 s", columns=10)], Place(2, 3), 10))
    out = frame.update([*rows("0123456789abc", "", "2 s", columns=10)], Place(3, 3), 10)
    assert "56789abc" in out
    emulator.feed(out)
    assert emulator.text() == ["0123456789", "abc", "", "2 s"]


@pytest.mark.spec("UI-1")
def test_rows_that_repeat_are_still_one_line() -> None:
    frame, emulator = Frame(), Emulator(columns=10)
    below = rows("", "> ", columns=10)
    emulator.feed(frame.update([*rows("0123456789" * 2, columns=10), *below], Place(3, 2), 10))
    frame.release(1)
    rest = rows("0123456789" * 4, columns=10)[1:]
    out = frame.update([*rest, *below], Place(4, 2), 10)
    assert out.count("90123456789") == 1  # on through the margin of the row above
    emulator.feed(out)
    assert emulator.text() == ["0123456789"] * 4 + ["", ">"]


@pytest.mark.spec("UI-1")
def test_what_goes_on_in_the_middle_of_a_row_leaves_what_stands_before_it() -> None:
    frame, narrow = Frame(reflows=True), Emulator(columns=15)
    below = rows("", "> ")
    frame.update([*rows("0123456789abcdefghijklmno"), *below], Place(3, 2), 20)
    frame.release(1)
    narrow.feed("0123456789abcdefghijklmno\n\n> ")  # what a terminal makes of it
    frame.reflow(15, 5)
    tail = Rows(15, 5, soft=True)
    tail.feed("klmnopqrst")
    narrow.feed(frame.update([*tail.rows, *below], Place(2, 2), 15))
    tail.feed("uvw")
    narrow.feed(frame.update([*tail.rows, *below], Place(3, 2), 15))
    assert narrow.text() == ["0123456789abcde", "fghijklmnopqrst", "uvw", "", ">"]
    narrow.feed(frame.erase(15))
    assert narrow.text() == ["0123456789abcde", "fghij"]


@pytest.mark.parametrize(
    ("lines", "cursor", "columns", "start", "place"),
    [
        (["x" * 190, "> "], Place(3, 2), 60, 0, Place(4, 2)),
        (["x" * 110, "> "], Place(2, 2), 60, 20, Place(3, 2)),
        (["x" * 40, "> "], Place(1, 2), 60, 50, Place(2, 2)),
        (["> 3456789", "status"], Place(0, 9), 5, 0, Place(1, 4)),
        (["> 34567890", "status"], Place(0, 5), 5, 0, Place(1, 0)),
        (["> 345", "status"], Place(0, 5), 5, 0, Place(0, 5)),
        (["", "", "> "], Place(2, 2), 5, 0, Place(2, 2)),
        (["日本語", "> "], Place(1, 0), 5, 0, Place(2, 0)),
    ],
)
def test_the_cursor_is_where_a_terminal_puts_it_that_breaks_lines_anew(
    lines: list[str], cursor: Place, columns: int, start: int, place: Place
) -> None:
    laid_out = rows(*lines, columns=80)
    laid_out[0] = laid_out[0]._replace(soft=start > 0)
    assert reflowed(laid_out, cursor, columns, start) == place


def test_text_printed_after_a_released_row_of_the_same_line_goes_on_with_it() -> None:
    frame, emulator = Frame(), Emulator(columns=10)
    emulator.feed(frame.update([*rows("0123456789ab", columns=10), Row("> ", 2)], Place(2, 2), 10))
    frame.release(1)
    out = frame.print_above("abcde\nfg\n", [Row("> ", 2)], Place(0, 2), 10, anchor="9")
    emulator.feed(out)
    assert emulator.text() == ["0123456789", "abcde", "fg", ">"]


@pytest.mark.spec("UI-1")
@pytest.mark.parametrize("lines", [1, 2, 3, 8])
def test_a_region_as_high_as_the_screen_scrolls_nothing_of_itself_away(lines: int) -> None:
    frame, emulator = Frame(), Emulator(columns=10, lines=lines)
    for number in range(20):
        region = [Row(f"r{number}-{at}", 4 + (number > 9)) for at in range(lines)]
        emulator.feed(frame.update(region, Place(lines - 1, 1), 10))
        assert emulator.text() == [row.text for row in region]
    emulator.feed(frame.print_above("printed\n", region, Place(0, 0), 10))
    assert emulator.text() == ["printed", *(row.text for row in region)]


LINES = st.lists(st.text("ab \x1b", max_size=30).map(lambda t: t.replace("\x1b", "éж")), max_size=6)
STEP = st.tuples(st.sampled_from(["update", "release", "print", "erase", "resize"]), LINES)


@pytest.mark.slow
@pytest.mark.spec("UI-1")
@settings(max_examples=80, deadline=None)
@given(st.lists(STEP, max_size=12))
def test_whatever_happens_the_screen_shows_what_was_printed_and_the_region(
    steps: list[tuple[str, list[str]]],
) -> None:
    columns, height = 12, 40
    frame, emulator = Frame(), Emulator(columns, height)
    printed: list[Row] = []
    region: list[Row] = []
    for kind, lines in steps:
        new = [*rows(*lines, columns=columns), Row("> ", 2)]
        cursor = Place(len(new) - 1, 2)
        if kind == "release" and len(region) > 1:
            frame.release(len(region) - 1)
            printed += region[:-1]
            region = region[-1:]
        elif kind == "print":
            text = "".join(f"{line}\n" for line in lines)
            region = region or new
            emulator.feed(frame.print_above(text, region, Place(len(region) - 1, 0), columns))
            printed += rows(*lines, columns=columns)
        elif kind == "erase":
            emulator.feed(frame.erase(columns))
            region = []
        elif kind == "resize" and region:
            columns += 1  # the emulator cuts lines that are wider than the window
            emulator.screen.resize(height, columns)
            region = [Row("> ", 2)]
            emulator.feed(frame.update(region, Place(len(region) - 1, 0), columns))
        else:
            emulator.feed(frame.update(new, cursor, columns))
            region = new
        shown = [plain(row.text).rstrip() for row in [*printed, *region]]
        while shown and not shown[-1]:
            shown.pop()
        assert emulator.text() == shown
