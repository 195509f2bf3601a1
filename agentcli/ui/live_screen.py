"""The screen of a chat whose input is always there: the scrollback and, below it, a region.

Law: what is finished goes to the scrollback once and is never drawn again. The region holds the
end of the streamed text (at most ``MAX_TAIL`` finished rows wait there for company, then comes what
may still change) and below it what ``Below`` gives: running calls, the input, a status line.
Text that is printed costs its own bytes and little more. Frames that events ask for come at most
30 times a second, a frame that a key asks for at once. Without a region the text is printed as it
comes.

A frame that is on its way while the terminal is resized is found afterwards, but only the last
one is. So for a moment after a resize each frame asks for an answer, and the next waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TextIO

from agentcli.ui.frame import ALL_ROWS, RESTORE, Below, Frame
from agentcli.ui.rows import (
    TO_END,
    Place,
    Row,
    Rows,
    last_character,
    plain,
    text_of,
    wrap_line,
)
from agentcli.ui.screen import END_S, FLUSHES_PER_S, PIECE_CHARS, Screen, Size, TerminalWriter
from agentcli.ui.theme import Theme

MAX_TAIL = 6
SETTLE_S = 0.3
ANSWER_S = 0.25
UNSTEADY_S = 1.0  # after a resize, in which the next one is likely
ASK_CURSOR = "\x1b[6n"

HOME = "\x1b[H"
CORNER = "\x1b[9999;9999H"  # the last place of the window


Compose = Callable[[Size, bool], Below]


class Last(NamedTuple):
    """What the last frame made final of the text, and what was begun above it before.

    The first rows of it, ``kept``, stood there and were not drawn.
    """

    rows: list[Row]
    kept: int
    goes_on: bool  # with the tail
    begun: list[str]


class Drawn(NamedTuple):
    """How many rows of text are at the top of the last frame: finished ones and the others."""

    finished: int
    unfinished: int


class LiveScreen(Screen):
    """``compose`` is given by ``show``: it gets the room and whether it needs a blank row first."""

    def __init__(
        self,
        stream: TextIO | TerminalWriter,
        theme: Theme,
        size: Callable[[], Size] | None = None,
        *,
        reflows: bool = False,
    ) -> None:
        super().__init__(stream, theme, size)
        self._writer = stream if isinstance(stream, TerminalWriter) else None
        self._frame = Frame(reflows=reflows)
        self._compose: Compose | None = None
        self._tail = Rows(self.columns)
        self._settled = False  # all that is complete in the tail is finished
        self._painting = False
        self._settling: asyncio.TimerHandle | None = None
        self._asked: deque[Callable[[Place], None]] = deque()  # each takes one answer
        self._asking: object = None  # what the answers are for
        self._answers = False  # the terminal does
        self._corner = Place(0, 0)  # the last one of the window, as the terminal says
        self._unsteady_until = 0.0
        self._unseen: asyncio.TimerHandle | None = None  # a frame that the terminal is yet to take
        self._settled_size = Size(0, 0)
        self._first_size: Size | None = None  # that was seen, while it changes
        self._last = Last([], 0, goes_on=False, begun=[])
        self._drawn_size = Size(0, 0)  # of the window, when a frame was drawn
        self._drawn = Drawn(0, 0)
        self._is_away = False  # something else has the terminal
        self._waiting: list[Callable[[], None]] = []  # what is to be shown when it can be
        self._left: list[Row] = []  # rows of the region that the terminal has scrolled away
        self._begun: list[str] = []  # what is finished of the line that the tail goes on with
        self._anchor = ""  # its last character, where that stands at the end of a row

    @property
    def is_shown(self) -> bool:
        """Whether there is a region."""
        return self._compose is not None

    def show(self, compose: Compose) -> None:
        """Draw the region from now on."""
        if not self._at_line_start:
            self._print("\n")
        self._compose = compose
        self._tail = Rows(self.columns)
        self._drawn, self._drawn_size = Drawn(0, 0), self.size
        self._left.clear()
        self._begin_line()
        self.paint()

    def hide(self) -> None:
        """Take the region away; what it held of the text is printed."""
        if self._compose is None:
            return
        self._end_settling()
        self._catch_up()
        self._compose = None
        self._cancel_timer()
        rest = self._tail.rows
        out = self._frame.erase(self.columns) + (text_of(rest) + "\n" if rest else "")
        if rest and not self._tail.at_line_start:
            self._at_line_start = True
        self._tail = Rows(self.columns)
        self._write(out)

    def resized(self) -> None:
        """The terminal's size changes: nothing is drawn until it has kept one for a moment.

        While a window is dragged the reported sizes lag behind the real ones (tmux reports
        one every 250 ms): what is drawn meanwhile would stand in the wrong place.
        """
        if self._compose is None:
            return
        self._cancel_timer()
        if self._settling is not None:
            self._settling.cancel()
        self._asking = None
        if self._first_size is None and self.size != self._drawn_size:
            self._first_size = self.size
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._end_settling()
            self.paint()
        else:
            self._settling = loop.call_later(SETTLE_S, self._settle_size)

    def _settle_size(self) -> None:
        """Where lines are wrapped again, ask where that has put the cursor."""
        self._settled_size = self.size
        if self._frame.reflows or self._left:
            self._asking = object()
            self._await_answer(None)
            self._asked.append(partial(self._ask_for_mark, self._asking))
            self._write(ASK_CURSOR)
        else:
            self._place(None)

    def _await_answer(self, row: int | None) -> None:
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(ANSWER_S, self._place, row)

    def cursor_is_at(self, place: Place) -> None:
        """The terminal reports where the cursor is."""
        if self._asked:
            self._asked.popleft()(place)

    def _ask_for_mark(self, asking: object, at: Place) -> None:
        if asking is not self._asking:
            return
        if self._frame.reflows and self._first_size is not None:
            self._await_answer(at.row)
            found: list[Place] = []
            self._asked += found.append, found.append, partial(self._find_mark, asking, at, found)
            self._write(f"{ASK_CURSOR}{RESTORE}{ASK_CURSOR}{CORNER}{ASK_CURSOR}{_to(at)}")
        else:
            self._place(at.row)

    def _find_mark(self, asking: object, at: Place, found: list[Place], corner: Place) -> None:
        """The cursor was in the first place that was ``found``, the mark is in the second."""
        stood, mark = found
        if stood != at:  # wrapped again since: the cursor was put where it had been before
            self._write(_to(stood))
        if asking is self._asking:
            size, before, self._corner = self._settled_size, self._corner, corner
            if stood == at and corner in {Place(size.lines - 1, size.columns - 1), before}:
                self._place(at.row, mark)
            else:
                self.resized()

    def _place(self, row: int | None, mark: Place | None = None) -> None:
        """Draw the region where it has come to stand."""
        self._asked.clear()
        self._answers = row is not None
        if self.size != self._settled_size:
            self.resized()
        else:
            self._end_settling(row, mark)
            self.paint()

    def _end_settling(self, row: int | None = None, mark: Place | None = None) -> None:
        """Go on at the size that the window has now, the cursor being in ``row`` if that is known.

        What waits is shown.
        """
        if self._settling is not None:
            self._settling.cancel()
            self._unsteady_until = self._settling.when() + UNSTEADY_S if self._answers else 0.0
        self._settling = self._asking = None
        size = self.size
        if size != self._drawn_size:
            self._take_place(size, row, mark)
            self._draw(size, at_once=True)  # what stands there is known only now
        self._first_size = None
        self._show_waiting()

    def _take_place(self, size: Size, row: int | None, mark: Place | None) -> None:
        """Know again what stands where: what was scrolled away of the region stays there.

        Text of it is finished then. Other rows of it are drawn over when a window that grows
        brings them back.
        """
        more, right = (0, 0) if mark is None else self._misdrawn(mark, size.columns)
        text_rows, start = self._frame.rows[: sum(self._drawn)], self._line_goes_on_at(size.columns)
        self._frame.reflow(size.columns, start)
        above = self._frame.rows_above_cursor + more - (size.lines - 1 if row is None else row)
        # of rows that stand there twice, the upper ones are those that are gone
        known = above if above <= right else max(right, above - max(0, more))
        gone = self._frame.rows[: max(0, known)]
        self._frame.release(len(gone))
        self._frame.move_cursor(more - max(0, above) + len(gone))
        scrolled = self._heights(text_rows, size.columns, start)
        number = sum(before < len(gone) for before in [0, *scrolled[:-1]]) if scrolled else 0
        if number > self._drawn.finished:
            self._settle_text(number - self._drawn.finished)
        old = self._tail.rows
        old[: len(text_rows)] = text_rows[: len(old)]
        whole = min(sum(height <= len(gone) for height in scrolled), len(old))
        self._finish_rows(old, whole)
        self._tail.drop(whole)
        start = self._line_goes_on_at(size.columns)
        is_cut = whole < min(number, len(old))
        self._lay_out(size.columns, start, is_cut=is_cut)
        if is_cut:
            part = len(gone) - (scrolled[whole - 1] if whole else 0) + bool(whole and start)
            rows = self._tail.rows
            self._finish_rows(rows, min(part, len(rows)))
            self._tail.drop(part)
        if gone:
            self._anchor = ""
            self._left += gone[scrolled[-1] if scrolled else 0 :]
        elif above < 0 and row is not None and self._left:
            layout = Rows(size.columns)
            layout.feed(text_of(self._left))
            self._left = layout.rows
            self._frame.take_back(self._left[above:])
            del self._left[above:]
        if any(row.soft for row in self._frame.rows[:1]):  # the terminal joins it to those above
            self._left.clear()
        self._drawn, self._drawn_size = Drawn(0, 0), size

    def _misdrawn(self, mark: Place, columns: int) -> tuple[int, int]:
        """Where the last frame was drawn in the new window, all of its text is the tail's again."""
        frame, first = self._frame, self._first_size
        if first is None or not frame.is_misdrawn(mark, first.columns, columns):
            return 0, 0
        rows, kept, goes_on, begun = self._last
        rest, tail = self._tail.rows, self._tail
        text = text_of(rows) + ("" if goes_on or not rows else "\n") + text_of(rest)
        self._tail = Rows(tail.columns, rows[0].start if rows else 0, soft=bool(begun))
        self._tail.feed(text + ("\n" if rest and tail.at_line_start else ""))
        self._begun[:] = begun
        frame.take_back(rows)
        self._drawn = self._drawn._replace(finished=self._drawn.finished + len(rows))
        return frame.misdrawn(mark, first.columns, kept)

    def _heights(self, rows: Sequence[Row], columns: int, start: int) -> list[int]:
        """For each row how many there are up to its end, when the terminal has wrapped them."""
        if not self._frame.reflows:
            return list(range(1, len(rows) + 1))
        layout = Rows(columns, start, soft=bool(rows) and rows[0].soft)
        found = []
        for at, row in enumerate(rows):
            layout.feed(row.text if row.soft or not at else f"\n{row.text}")
            found.append(len(layout.rows) + layout.at_line_start)
        return found

    def _settle_text(self, number: int) -> None:
        """The first ``number`` unfinished rows are finished."""
        text = self._text
        if text is None:
            return
        before = 0 if text.begun else (not self._gap) + text.head.count("\n")
        self._painting = True
        self._show(text.settle(max(1, number - before)))
        self._painting = False

    def clear(self) -> None:
        """Scroll the screen away, into the scrollback, and draw the region again at its top."""
        if self._compose is not None:
            self._end_settling()
            self._draw_again(self._frame.erase(self.columns) + "\n" * self.size.lines + HOME)

    def written_over(self) -> None:
        """Another program has written where the region was: draw it again below that."""
        if self._compose is not None:
            self._end_settling()
            self._frame.erase(self.columns)
            self._draw_again(f"\r{ALL_ROWS}")

    def _draw_again(self, before: str) -> None:
        self._write(before)
        self._begin_line()
        self._left.clear()
        self._lay_out(self.columns)
        self.paint()

    def drain(self, patience_s: float) -> None:
        """Wait until all is written; ``patience_s`` for a terminal that takes nothing."""
        if self._writer is not None:
            self._writer.drain(patience_s)

    # --- frames ----------------------------------------------------------------------------

    def request(self) -> None:
        """Draw a frame soon."""
        if self._compose is None:
            super().request()
            return
        if self._timer is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.paint()
            return
        due = self._last_flush + 1 / FLUSHES_PER_S
        if loop.time() >= due:
            self._timer = loop.call_soon(self._flush_now)
        else:
            self._timer = loop.call_at(due, self._flush_now)

    def _flush(self) -> None:
        if self._compose is None:
            super()._flush()
            return
        self.paint()
        if self._waiting and not self._is_held and not self._behind:
            self._show_waiting()

    def paint(self) -> None:
        """Draw a frame now, or when a terminal that is behind has caught up."""
        if self._compose is None or self._settling is not None:
            return
        if self._is_blocked:
            self._cancel_timer()
            return
        if (size := self.size) != self._drawn_size:
            self.resized()
        else:
            self._draw(size)

    def _draw(self, size: Size, *, at_once: bool = False) -> None:
        if self._compose is None:
            return
        self._painting = True
        self._take_pending()
        self._painting = False
        self._cancel_timer()
        unfinished = self._unfinished(size.columns)
        if len(unfinished) > (most := size.lines // 2):
            self._settle_text(len(unfinished) - most)
            unfinished = self._unfinished(size.columns)[:most]
        rows = self._tail.rows
        kept = min(len(rows), MAX_TAIL, max(1, size.lines // 3)) + len(unfinished)
        needs_gap = bool(unfinished) or not self._gap
        below = self._compose(Size(size.columns, max(1, size.lines - kept)), needs_gap)
        if self.size != size and not at_once:
            self.resized()
            return
        cursor = _lower(below.cursor, len(unfinished))
        out = self._frame_of(rows, Below([*unfinished, *below.rows], cursor), size)
        self._drawn = self._drawn._replace(unfinished=len(unfinished))
        if out and self._unsteady_until:
            out += self._asking_whether_taken()
        self._write(out)
        if self._behind or (self._waiting and not self._is_held):
            self.request()

    def _catch_up(self) -> None:
        """Show what waits, all of it but text that would take too long, which is told."""
        while True:
            self._take_pending(END_S)
            self.cut()
            self._take_pending(END_S)
            if not self._waiting or self._is_held:
                break
            self._show_waiting()

    def _asking_whether_taken(self) -> str:
        """What asks for the answer to a frame, soon after a resize; none follows before it."""
        loop = asyncio.get_running_loop()
        if loop.time() > self._unsteady_until:
            self._unsteady_until = 0.0
            return ""
        self._unseen = loop.call_later(ANSWER_S, self._is_taken, None)
        self._asked.append(self._is_taken)
        return ASK_CURSOR

    def _is_taken(self, _at: Place | None) -> None:
        if self._unseen is not None:
            self._unseen.cancel()
            self._unseen = None
            self.request()

    def _unfinished(self, columns: int) -> list[Row]:
        """The end of the streamed text as far as it may still change."""
        text = self._text
        lines = text.tail() if text is not None else []
        if text is None or not lines:
            return []
        layout = Rows(columns)
        if not text.begun:
            layout.feed(f"{'' if self._gap else chr(10)}{text.head}")
        layout.feed("\n".join(lines))
        return layout.rows

    def _frame_of(self, rows: list[Row], below: Below, size: Size) -> str:
        room = size.lines - len(below.rows)
        finished = self._finished(rows, room)
        drawn = rows[finished:] if len(rows) - finished <= room else []
        together = [*rows, *below.rows]
        goes_on, kept = bool(rows) and rows[0].soft and not rows[0].start, 0
        if len(rows) <= room and all(row.certain for row in rows[:finished]):
            cursor = _lower(below.cursor, len(rows))
            anchor = self._anchor if goes_on else ""
            out = self._frame.update(together, cursor, size.columns, anchor)
            if finished:
                self._frame.release(finished)
        else:
            kept = self._frame.standing(together, finished, size.columns)
            self._frame.release(kept)
            text = text_of(rows[kept:finished])
            if finished == len(rows) or not rows[finished].soft:
                text += "\n" if finished > kept else ""
            goes_on = goes_on and bool(text) and not kept and self._frame.height < size.lines
            anchor = self._anchor if goes_on else ""
            cursor = _lower(below.cursor, len(drawn))
            out = self._frame.print_above(text, [*drawn, *below.rows], cursor, size.columns, anchor)
        self._tail.drop(finished)
        if out:
            goes_on = finished < len(rows) and rows[finished].soft
            self._last = Last(rows[:finished], kept, goes_on, list(self._begun))
        self._finish_rows(rows, finished)
        self._drawn = Drawn(len(drawn), 0)
        self._settled = False
        return out

    def _finished(self, rows: list[Row], room: int) -> int:
        """How many of ``rows`` go to the scrollback with this frame."""
        complete = len(rows) - (not self._tail.at_line_start)
        if self._settled or len(rows) > min(MAX_TAIL, room):
            return max(0, complete)
        return 0

    def _finish_rows(self, rows: list[Row], finished: int) -> None:
        """The first ``finished`` rows are: remember the line that the next one goes on with."""
        if finished:
            self._left.clear()
        for at, row in enumerate(rows[:finished]):
            if at and not row.soft:
                self._begun.clear()
            self._begun.append(row.text)
        if finished == len(rows) or not rows[finished].soft:
            self._begin_line()
        elif finished:
            self._anchor = _anchor(rows[finished - 1], self._tail.columns)

    def _begin_line(self) -> None:
        self._begun.clear()
        self._anchor = ""

    def _line_goes_on_at(self, columns: int) -> int:
        """The column in which a finished line that the tail goes on with ends in such a window."""
        start, self._anchor = 0, ""
        rows = self._tail.rows
        if self._begun and rows and self._frame.reflows:
            above = Rows(columns)
            above.feed("".join(self._begun))
            ended = above.rows
            above.feed(plain(rows[0].text)[:1])
            start = ended[-1].width if len(above.rows) == len(ended) else 0
            self._anchor = "" if start else _anchor(ended[-1], columns)
        return start

    def _lay_out(self, columns: int, start: int = 0, *, is_cut: bool = False) -> None:
        """Break the tail's lines again between words; of one that ``is_cut`` a part is above."""
        tail, rows = self._tail, self._tail.rows
        is_cut = is_cut or bool(self._begun)
        lines: list[str] = []
        for at, line in enumerate(text_of(rows).split("\n") if rows else ()):
            as_is = TO_END in line or (is_cut and not at)
            lines += [line] if as_is else wrap_line(line, columns)
        self._tail = Rows(columns, start, soft=bool(self._begun))
        self._tail.feed("\n".join(lines) + ("\n" if rows and tail.at_line_start else ""))

    # --- printing: it waits while the window is resized, or is another program's -------------

    @contextmanager
    def given_away(self) -> Iterator[None]:
        """Something else has the terminal until the block ends: nothing is printed there."""
        self._is_away = True
        try:
            yield
        finally:
            self._is_away = False
            self._show_waiting()

    @property
    def _laid_out(self) -> int:
        return self.columns if self._compose is None else self._tail.columns

    def _feed(self, text: str, *, thinking: bool) -> None:
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, _LateText) and last.thinking is thinking:
            last.texts.append(text)
            return
        goes_on = self._text is not None and self._text.thinking is thinking
        late = _LateText(self._feed, thinking, [text])
        if (goes_on and not self._waiting and not self._is_held) or not self._waits(late):
            super()._feed(text, thinking=thinking)

    def _drop_text(self) -> int:
        late = [show for show in self._waiting if isinstance(show, _LateText)]
        self._waiting = [show for show in self._waiting if show not in late]
        return super()._drop_text() + sum(len(text) for each in late for text in each.texts)

    def print_block(self, lines: Sequence[str], *, gap: bool = True) -> None:
        """Print whole lines above the region."""
        if not self._waits(lambda: self.print_block(lines, gap=gap)):
            super().print_block(lines, gap=gap)

    def print_aside(self, lines: Sequence[str]) -> None:
        """Print a block that is no part of the answer."""
        if not self._waits(lambda: self.print_aside(lines)):
            super().print_aside(lines)

    def gap(self) -> None:
        """An empty line, unless there is one."""
        if not self._waits(self.gap):
            super().gap()

    @property
    def _is_blocked(self) -> bool:
        is_behind = self._writer is not None and self._writer.is_behind
        return is_behind or self._unseen is not None or self._settling is not None

    @property
    def _is_held(self) -> bool:
        return self._is_away or self._settling is not None

    def _waits(self, show: Callable[[], None]) -> bool:
        """Whether ``show`` comes later: behind text that is not shown yet, too."""
        is_late = self._compose is not None and (self._behind > PIECE_CHARS or self._waiting)
        waits = self._is_held or bool(is_late)
        if waits:
            self._waiting.append(show)
            if not self._is_held:
                self.request()
        return waits

    def _show_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for show in waiting:
            show()

    def _print(self, text: str) -> None:
        if self._compose is None:
            super()._print(text)
            return
        if not text:
            return
        self._note(text)
        self._tail.feed(text)
        if self._text is None:
            self._settled = True
        if not self._painting:
            self.request()

    def end_text(self) -> None:
        """The answer so far is complete: all of it is finished."""
        if self._waits(self.end_text):
            return
        shown = self._text is not None
        super().end_text()
        if shown and self._compose is not None:
            self._settled = True
            self.request()

    def cursor_was_moved(self) -> None:
        """Something else wrote while there was no region."""
        if self._compose is None:
            super().cursor_was_moved()


@dataclass(slots=True, eq=False)
class _LateText:
    """Text that comes behind what is not shown yet."""

    feed: Callable[..., None]
    thinking: bool
    texts: list[str]

    def __call__(self) -> None:
        """Feed it."""
        self.feed("".join(self.texts), thinking=self.thinking)


def _to(place: Place) -> str:
    return f"\x1b[{place.row + 1};{place.column + 1}H"


def _lower(cursor: Place, rows: int) -> Place:
    return Place(cursor.row + rows, cursor.column)


def _anchor(row: Row, columns: int) -> str:
    """The last character of a row that it fills for certain."""
    return last_character(row)[0] if row.certain and row.width == columns else ""
