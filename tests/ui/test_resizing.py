"""The window is resized while an answer comes: every word stands there once, in its place."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Sequence

import pytest

from agentcli.ui.frame import SAVE, Below
from agentcli.ui.live_screen import ASK_CURSOR, LiveScreen
from agentcli.ui.rows import Place, Row, Rows, fit_row
from agentcli.ui.screen import Size
from agentcli.ui.theme import Theme
from tests.support.documents import document, numbers_of
from tests.support.reflowing import ReflowingTerminal
from tests.support.ticks import TickLoop

LIVE = Theme(color=True, attributes=True, live=True)
REGION = (
    "* Working",
    "> Enter queues what you type, and more of it than fits",
    "a status line with the model, the mode, the tokens, the cost, and the name of it all",
)


class Window(io.StringIO):
    def __init__(self, *, reflows: bool) -> None:
        super().__init__()
        self.terminal = ReflowingTerminal(reflows=reflows)
        self._told = Size(80, 24)
        self.screen = LiveScreen(self, LIVE, self.size, reflows=reflows)
        self.screen.show(compose)

    def size(self) -> Size:
        return self._told

    def write(self, text: str, /) -> int:
        self.terminal.feed(text)
        return len(text)

    def resize(self, columns: int, lines: int, late: str = "") -> None:
        """And what the program does when it has learnt of it; it writes ``late`` before that."""
        terminal, screen = self.terminal, self.screen
        terminal.resize(columns, lines)
        if late:
            screen.feed_text(late)
        self._told = screen._first_size = Size(columns, lines)
        is_known = terminal.reflows
        screen._end_settling(*((terminal.row, terminal.mark) if is_known else ()))
        screen.paint()


def compose(size: Size, needs_gap: bool) -> Below:
    rows = [fit_row(line, size.columns) for line in REGION]
    rows = [*([Row("")] if needs_gap else []), *rows][-size.lines :]
    return Below(rows, Place(max(0, len(rows) - 2), min(2, size.columns - 1)))


def stream(text: str, window: Window, chance: random.Random, least: Size, most: Size) -> None:
    at = 0
    while at < len(text):
        piece = chance.choice([1, 5, 20, 60, 200])
        window.screen.feed_text(text[at : at + piece])
        at += piece
        if chance.random() < 0.1:
            columns = chance.randint(least.columns, most.columns)
            if not window.terminal.reflows:  # one that cuts what does not fit
                columns = window.terminal.columns + columns % 4
            window.resize(columns, chance.randint(least.lines, most.lines))


def check(seed: int, blocks: int, *, reflows: bool, least: Size, most: Size) -> None:
    text = document(seed, blocks)
    window = Window(reflows=reflows)
    stream(text, window, random.Random(seed), least, most)
    window.screen.end_text()
    window.screen.hide()
    shown = window.terminal.text()
    assert numbers_of(shown) == numbers_of(text)


@pytest.mark.slow
@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize("reflows", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_every_word_stands_there_once_and_in_order(seed: int, *, reflows: bool) -> None:
    check(seed, 12, reflows=reflows, least=Size(25, 5), most=Size(120, 40))


@pytest.mark.slow
@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize("seed", range(100, 160))
def test_at_any_size_every_word_stands_there_once(seed: int) -> None:
    check(seed, 25, reflows=True, least=Size(25, 12), most=Size(120, 40))
    check(seed, 25, reflows=True, least=Size(20, 6), most=Size(60, 12))
    check(seed, 25, reflows=False, least=Size(25, 5), most=Size(120, 40))


def late_frame(seed: int, least: Size, most: Size) -> tuple[list[str], list[str]]:
    """The words of a document, and those that are seen of it.

    Once the window is resized while a frame is on its way: the terminal has wrapped its lines
    again before it draws that frame.
    """
    text, chance = document(seed, 6), random.Random(seed)

    def piece() -> int:
        return chance.choice([1, 5, 20, 60, 200])

    def size() -> tuple[int, int]:
        return chance.randint(least.columns, most.columns), chance.randint(least.lines, most.lines)

    window = Window(reflows=True)
    window.screen.print_block(["said before"])
    window.resize(*size())
    at, when = 0, chance.randint(1, len(text))
    while at < len(text):
        part = text[at : at + piece()]
        if at < when <= at + len(part):
            window.resize(*size(), late=part)
        else:
            window.screen.feed_text(part)
        at += len(part)
    window.screen.end_text()
    window.screen.hide()
    return numbers_of(text), numbers_of(window.terminal.text())


@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize(
    "seeds",
    [
        range(1000, 1006),
        *(pytest.param(range(n, n + 20), marks=pytest.mark.slow) for n in range(1006, 1206, 20)),
    ],
)
def test_a_frame_that_is_drawn_in_another_window_than_it_was_made_for_loses_no_word(
    seeds: range,
) -> None:
    doubled = 0  # above the window, where it cannot be taken back
    for seed in seeds:
        words, seen = late_frame(seed, Size(40, 12), Size(110, 40))
        assert list(dict.fromkeys(seen)) == words
        doubled += seen != words
    assert doubled <= len(seeds) // 10


class SlowWindow(Window):
    """One whose terminal takes what is written when it is told to, and answers then."""

    def __init__(self) -> None:
        self._written = ""
        super().__init__(reflows=True)

    def write(self, text: str, /) -> int:
        self._written += text
        return len(text)

    def take(self) -> None:
        """Until nothing is written any more, not even for an answer."""
        while self._written:
            written, self._written = self._written, ""
            answers: list[Place] = []
            *asked, rest = written.split(ASK_CURSOR)
            for part in asked:
                self.terminal.feed(part)
                answers.append(self.terminal.cursor)
            self.terminal.feed(rest)
            for answer in answers:
                self.screen.cursor_is_at(answer)

    def change(self, columns: int, lines: int) -> None:
        """The terminal wraps its lines again, draws what was on its way, and tells of its size."""
        self.terminal.resize(columns, lines)
        self.take()
        self._told = Size(columns, lines)
        self.screen.resized()


async def dragged(seed: int, changes: int) -> tuple[list[str], list[str]]:
    """The words of a document, and those seen of it.

    The window is resized ``changes`` times, each time after frames that it has not drawn yet: one
    before the first change, and whatever the screen dares to write before the others.
    """
    text, chance = document(seed, 6), random.Random(seed)
    window, screen = (made := SlowWindow()), made.screen
    screen.print_block(["said before"])

    async def feed(number: int) -> None:
        nonlocal text
        for _ in range(number):
            screen.feed_text(text[: (piece := chance.choice([1, 5, 20, 60, 200]))])
            text = text[piece:]
            await asyncio.sleep(0.04)

    await feed(chance.randint(1, 8))
    window.take()
    await asyncio.sleep(0.04)
    window.take()
    for number in range(changes):
        await feed(1 if not number else chance.randint(1, 4))
        window.change(chance.randint(40, 110), chance.randint(12, 40))
        for _ in range(chance.randint(0, 24)):
            await asyncio.sleep(0.05)
            window.take()
    while screen._settling is not None:
        await asyncio.sleep(0.05)
        window.take()
    while text:
        await feed(1)
        window.take()
    screen.end_text()
    screen.hide()
    window.take()
    return numbers_of(document(seed, 6)), numbers_of(window.terminal.text())


def played(seed: int, changes: int) -> tuple[list[str], list[str]]:
    loop = TickLoop(lambda _: None)
    try:
        return loop.run_until_complete(dragged(seed, changes))
    finally:
        loop.close()


@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize(
    ("seeds", "changes"),
    [
        ([3044, 3061, 3075, 3097, 3110], 4),
        *(pytest.param(range(n, n + 30), 2, marks=pytest.mark.slow) for n in range(3000, 3120, 30)),
    ],
)
def test_a_window_that_is_resized_again_before_it_has_drawn_everything_loses_no_word(
    seeds: Sequence[int], changes: int
) -> None:
    doubled = 0
    for seed in seeds:
        words, seen = played(seed, changes)
        assert list(dict.fromkeys(seen)) == words
        doubled += seen != words
    assert doubled <= 1 + len(seeds) // 10


@pytest.mark.spec("UI-1")
def test_for_a_moment_after_a_resize_a_frame_waits_until_the_one_before_was_drawn() -> None:
    async def main() -> list[tuple[int, bool]]:
        window = SlowWindow()
        window.take()
        window.change(60, 20)
        found = []

        async def frames() -> None:
            """How many frames two pieces make that the terminal does not draw yet."""
            for piece in ("one ", "two "):
                window.screen.feed_text(piece)
                await asyncio.sleep(0.05)
            written = window._written
            found.append((written.count(SAVE), ASK_CURSOR in written))

        while window.screen._settling is not None:
            await asyncio.sleep(0.05)
            window.take()
        await frames()
        await asyncio.sleep(0.3)  # it has not answered: the next goes out nevertheless
        found.append((window._written.count(SAVE), ASK_CURSOR in window._written))
        window.take()
        await asyncio.sleep(5)
        window.take()
        await frames()
        return found

    loop = TickLoop(lambda _: None)
    try:
        assert loop.run_until_complete(main()) == [(1, True), (2, True), (2, False)]
    finally:
        loop.close()


@pytest.mark.spec("UI-1")
def test_a_terminal_of_another_size_than_it_says_gets_its_frames() -> None:
    async def main() -> str:
        window = SlowWindow()
        window.take()
        window.change(60, 20)
        window.terminal.resize(70, 22)  # and it says 60 by 20 for good
        for _ in range(20):
            await asyncio.sleep(0.1)
            window.take()
        window.screen.feed_text("seen\n")
        await asyncio.sleep(0.1)
        window.take()
        return window.terminal.text()

    loop = TickLoop(lambda _: None)
    try:
        assert "seen" in loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize(
    "seeds", [range(4000, 4012), pytest.param(range(4012, 4200), marks=pytest.mark.slow)]
)
def test_a_size_that_changes_again_before_a_frame_for_the_last_one_loses_no_word(
    seeds: range,
) -> None:
    doubled = 0
    for seed in seeds:
        text, chance, window = document(seed, 6), random.Random(seed), Window(reflows=True)
        screen, terminal = window.screen, window.terminal
        at = chance.randint(1, len(text))
        for start in range(0, at, 50):
            screen.feed_text(text[start : min(at, start + 50)])
        for _ in range(3):
            size = Size(chance.randint(40, 110), chance.randint(12, 40))
            terminal.resize(*size)
            window._told = screen._first_size = size
            screen._end_settling(terminal.row, terminal.mark)
        screen.feed_text(text[at:])
        screen.end_text()
        screen.hide()
        words, seen = numbers_of(text), numbers_of(terminal.text())
        assert list(dict.fromkeys(seen)) == words
        doubled += seen != words
    assert doubled <= len(seeds) // 10


@pytest.mark.spec("UI-1")
def test_a_region_that_was_scrolled_away_is_drawn_over_when_the_window_grows() -> None:
    window = Window(reflows=True)
    window.screen.print_block(["said before"])
    tall = [f"a row of a panel, number {number:02}" for number in range(12)]

    def panel(size: Size, needs_gap: bool) -> Below:
        rows = [fit_row(line, size.columns) for line in tall][: size.lines]
        return Below([*([Row("")] if needs_gap else []), *rows][: size.lines], Place(0, 0))

    window.screen._compose = lambda size, gap: panel(size, gap)._replace(
        cursor=Place(min(11, size.lines - 1), 0)
    )
    window.screen.paint()
    window.resize(20, 6)
    window.resize(80, 24)
    text = window.terminal.text()
    assert [text.count(line) for line in tall] == [1] * 12
    assert text.startswith("said before\n")


def panel_in_windows(seed: int) -> str:
    """What is seen when a panel has stood in windows of many sizes, below what was printed."""
    window, chance = Window(reflows=True), random.Random(seed)
    window.resize(100, 30)
    window.screen.print_block(["said before"])
    tall = [f"row {n:02} {'w' * chance.choice([0, 20, 60, 90])}" for n in range(12)]
    at = chance.randint(0, len(tall) - 1)

    def panel(size: Size, needs_gap: bool) -> Below:
        rows = [*([Row("")] if needs_gap else []), *(fit_row(row, size.columns) for row in tall)]
        first = max(0, at - size.lines // 2)
        return Below(rows[first : first + size.lines], Place(at - first, 0))

    window.screen._compose = panel
    window.screen.paint()
    for _ in range(4):
        window.resize(chance.choice([30, 40, 60, 80, 130]), chance.choice([4, 8, 14, 20, 30]))
    window.resize(100, 40)
    window.screen.hide()
    return window.terminal.text()


@pytest.mark.spec("UI-1", "OPS-1")
@pytest.mark.parametrize("seeds", [range(30), pytest.param(range(30, 400), marks=pytest.mark.slow)])
def test_a_panel_in_windows_of_many_sizes_takes_away_nothing_of_what_is_above(seeds: range) -> None:
    assert [n for n in seeds if not panel_in_windows(n).startswith("said before\n")] == []


@pytest.mark.spec("UI-1")
def test_what_comes_while_the_window_is_dragged_is_shown_afterwards() -> None:
    async def main() -> str:
        window = Window(reflows=False)
        window.screen.feed_text("one two ")
        window.screen.paint()
        window.terminal.resize(40, 12)
        window._told = Size(40, 12)
        window.screen.paint()  # a frame that comes before the signal draws nothing
        window.screen.feed_text("three")
        window.screen.end_text()
        window.screen.print_block(["a block"])
        assert "three" not in window.terminal.text()
        window.screen.hide()
        return window.terminal.text()

    assert asyncio.run(main()).split() == ["◆", "one", "two", "three", "a", "block"]


@pytest.mark.spec("UI-1")
def test_a_mark_at_the_margin_begins_no_row() -> None:
    layout = Rows(4)
    layout.feed("cafe\u0301\n")
    assert [row.text for row in layout.rows] == ["cafe\u0301"]
