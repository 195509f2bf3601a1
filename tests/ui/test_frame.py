"""The region: whatever is drawn, printed and released, the screen shows it, and little is written."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.ui.frame import SYNC_BEGIN, SYNC_END, Frame, Place, _reflowed
from agentcli.ui.rows import Row, Rows, fit_row, plain, text_of
from agentcli.ui.theme import RESET


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
    assert _reflowed(laid_out, cursor, columns, start) == place


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
