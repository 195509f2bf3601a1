"""A turn on the screen: events in, printed lines and a status region out.

Law: a finished call is printed once, when its result is durable; while it runs it stands in the
status region. The one timer runs only between the first and the terminal event of a turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    CallForming,
    Cancelled,
    Done,
    Failed,
    Notice,
    RetryWait,
    StepStart,
    TextChunk,
    ThinkingChunk,
    ToolAnnounced,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnStart,
    TurnSummary,
)
from agentcli.domain.messages import ResultStatus
from agentcli.ui import render, wording
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.screen import Screen

TICK_S = 1.0
REDRAW_S = 0.1
TAIL_CHARS = 600
TAIL_LINES = 2
LONG_TURN_S = 10.0


class _Call:
    """A call that runs: its line, since when, the end of its live output."""

    __slots__ = ("since", "summary", "tail")

    def __init__(self, summary: str) -> None:
        self.summary = summary
        self.since = time.monotonic()
        self.tail = ""


class TurnView:
    """Shows the events of one session on ``screen``."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._theme = screen.theme
        self._summaries: dict[str, str] = {}
        self._running: dict[str, _Call] = {}
        self._doing = ""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._hidden = False

    def on_event(self, event: AgentEvent) -> None:  # noqa: C901, PLR0912 - one arm per event
        """Show ``event``."""
        screen, theme = self._screen, self._theme
        match event:
            case TextChunk():
                screen.feed_text(event.text)
            case ThinkingChunk():
                screen.feed_thinking(event.text)
            case TurnStart():
                self._begin()
            case StepStart():
                self._do("Working")
            case CallForming():
                screen.end_text()
                self._do(f"Preparing {clean_line(event.name)}")
            case AssistantRecorded():
                screen.end_text()
            case ToolAnnounced():
                self._summaries[event.call.id] = event.summary
            case ToolStarted():
                self._started(event)
            case ToolProgress():
                self._progress(event)
            case ToolFinished():
                self._finished(event)
            case RetryWait():
                screen.print_block([render.retry_line(event, theme)], gap=False)
            case Notice():
                screen.print_block([render.notice_line(event, theme)], gap=False)
            case Done() | Cancelled() | Failed():
                self._end(event)
            case _:
                pass

    def hide_status(self) -> None:
        """No status region until ``show_status``: a question stands there."""
        self._hidden = True
        self._screen.clear_status()

    def show_status(self) -> None:
        """The question is answered."""
        self._hidden = False
        self._redraw()

    @contextmanager
    def doing(self, label: str) -> Iterator[None]:
        """Say what is being done until the block ends."""
        self._since = time.monotonic()
        self._do(label)
        try:
            yield
        finally:
            self._stop()

    def cancelling(self) -> None:
        """The person asked to stop."""
        if self._timer is not None:
            self._do("Stopping")

    # --- calls -----------------------------------------------------------------------------

    def _started(self, event: ToolStarted) -> None:
        self._summaries[event.call.id] = event.summary
        self._running[event.call.id] = _Call(clean_line(event.summary))
        if not self._theme.live:
            self._screen.print_block([render.call_line(event.summary, self._theme)])
        self._redraw()

    def _progress(self, event: ToolProgress) -> None:
        call = self._running.get(event.call_id)
        if call is not None:
            call.tail = (call.tail + event.text)[-TAIL_CHARS:]
            self._arm(REDRAW_S)

    def _finished(self, event: ToolFinished) -> None:
        call_id = event.call.id
        summary = self._summaries.pop(call_id, event.call.name)
        announced = self._running.pop(call_id, None) is not None and not self._theme.live
        if announced and event.result.status is not ResultStatus.REFUSED:
            lines = render.outcome_lines(event, summary, self._theme)
        else:
            lines = render.tool_lines(event, summary, self._theme)
        self._screen.print_block(lines, gap=not announced)
        self._redraw()

    # --- the turn --------------------------------------------------------------------------

    def _begin(self) -> None:
        self._since = time.monotonic()
        self._summaries.clear()
        self._running.clear()
        self._hidden = False
        self._do("Working")

    def _end(self, event: Done | Cancelled | Failed) -> None:
        self._stop()
        screen, theme = self._screen, self._theme
        match event:
            case Done():
                screen.print_block(self._closing_lines(event.summary))
            case Cancelled():
                screen.print_block([render.cancelled_line(event, theme)])
            case Failed():
                screen.print_block(render.failed_lines(event, theme))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._doing = ""
        self._screen.end_text()
        self._screen.clear_status()

    def _closing_lines(self, summary: TurnSummary) -> list[str]:
        limit = render.limit_line(summary, self._theme)
        if limit is not None:
            return [limit]
        if summary.duration_s < LONG_TURN_S and summary.steps <= 1:
            return []
        return [render.turn_line(summary, self._theme)]

    # --- the status region -----------------------------------------------------------------

    def _do(self, doing: str) -> None:
        self._doing = doing
        self._redraw()

    def _redraw(self) -> None:
        if not self._doing:
            return
        if not self._hidden:
            self._screen.set_status(self._status_lines())
        self._arm(TICK_S)

    def _arm(self, delay_s: float) -> None:
        """Redraw after ``delay_s`` at the latest; only where there is something to redraw."""
        if not self._theme.live or not self._doing:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        due = loop.time() + delay_s
        if self._timer is not None:
            if not self._timer.cancelled() and loop.time() < self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._redraw()

    def _status_lines(self) -> list[str]:
        now = time.monotonic()
        dot = f" {self._theme.symbols.dot} "
        if not self._running:
            took = wording.duration(now - self._since)
            return [dot.join((self._doing, took, "Esc or Ctrl-C stops"))]
        lines = []
        for call in list(self._running.values())[:2]:
            lines.append(dot.join((call.summary, wording.duration(now - call.since))))
            lines += [f"  {line}" for line in _last_lines(call.tail)]
        return lines


def _last_lines(tail: str) -> list[str]:
    lines = [line.expandtabs(4) for line in clean(tail).split("\n") if line.strip()]
    return lines[-TAIL_LINES:]
