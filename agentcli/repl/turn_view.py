"""A turn on the screen: events in; printed lines, and rows that may be redrawn, out.

Law: what has happened is printed once; what is happening stands above the input. The one timer
runs only while the agent works: between the first and the terminal event of a turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agentcli.domain.events import (
    AgentEvent,
    AssistantRecorded,
    BackgroundChanged,
    CallForming,
    Cancelled,
    CompactionStarted,
    Done,
    Failed,
    Notice,
    PromptRecorded,
    QueueChanged,
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
from agentcli.domain.messages import (
    ABOUT_RUNS,
    AssistantMessage,
    ResultStatus,
    TextPart,
    ToolResult,
)
from agentcli.domain.session import LoadedSession
from agentcli.repl.calls_view import CallsView
from agentcli.ui import render, wording
from agentcli.ui.sanitize import clean_line
from agentcli.ui.screen import Screen
from agentcli.ui.theme import DIM

TICK_S = 1.0
LONG_TURN_S = 10.0


class TurnView:
    """Shows the events of one session on ``screen``."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._theme = screen.theme
        self._calls = CallsView(screen.theme, time.monotonic)
        self._summaries: dict[str, str] = {}
        self._begun: set[str] = set()  # calls whose first line is printed (not live)
        self._doing = ""
        self._since = 0.0
        self._retry: tuple[RetryWait, float] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._echoed: str | None = None
        self._typed: str | None = None
        self.last_output: ToolFinished | None = None
        self.on_todos: Callable[[], None] = lambda: None
        self.on_long_turn: Callable[[TurnSummary], None] = lambda _: None

    def adopt(self, earlier: LoadedSession | None) -> None:
        """Another session is shown; its last call is the last one."""
        self.last_output = None if earlier is None else _last_call(earlier)

    def typed(self, text: str) -> None:
        """``text`` stands on the screen as it was typed: ``echo`` prints it no more."""
        self._typed = text

    def echo(self, text: str) -> None:
        """Print what the person has sent; the event that it is recorded prints it no more."""
        self._echoed = text
        typed, self._typed = self._typed, None
        if typed != text:
            self._screen.print_block(render.prompt_lines(text, self._theme))

    def on_event(self, event: AgentEvent) -> None:  # noqa: C901, PLR0912 - one arm per event
        """Show ``event``."""
        screen, theme = self._screen, self._theme
        if not isinstance(event, RetryWait | QueueChanged | BackgroundChanged):
            self._retry = None
        match event:
            case TextChunk():
                screen.feed_text(event.text)
            case ThinkingChunk():
                screen.feed_thinking(event.text)
            case TurnStart():
                self._begin()
            case PromptRecorded():
                self._recorded(event)
            case StepStart():
                self._do("Working")
            case CallForming():
                screen.end_text()
                self._do(f"Preparing {clean_line(event.name)}")
            case AssistantRecorded():
                screen.end_text()
            case ToolAnnounced():
                self._announced(event)
            case ToolStarted():
                self._started(event)
            case ToolProgress():
                self._calls.progress(event)
                self._changed()
            case ToolFinished():
                self._finished(event)
            case RetryWait():
                self._waits(event)
            case Notice():
                screen.print_block([render.notice_line(event, theme)], gap=False)
            case Done() | Cancelled() | Failed():
                self._end(event)
            case BackgroundChanged():
                pass  # the front tells it, whatever stands on the screen
            case _:
                self._news(event)

    # --- what stands above the input -------------------------------------------------------

    @contextmanager
    def doing(self, label: str) -> Iterator[None]:
        """Say what is being done until the block ends."""
        self._since = time.monotonic()
        self._do(label)
        try:
            yield
        finally:
            self._stop()

    def forget_calls(self) -> None:
        """What ran was shown in another way."""
        self._calls.clear()
        self._summaries.clear()

    def cancelling(self) -> None:
        """The person asked to stop."""
        if self._doing:
            self._retry = None
            self._do("Stopping")

    def lines(self) -> list[str]:
        """Painted lines about what is happening now."""
        if not self._doing:
            return []
        theme = self._theme
        now = time.monotonic()
        lines = self._calls.lines()
        if self._retry is not None:
            event, until = self._retry
            return [*lines, render.retry_line(event, theme, until - now)]
        dot = f" {theme.symbols.dot} "
        took = wording.elapsed(now - self._since) if now - self._since >= 1 else ""
        parts = (self._doing, took, "Esc or Ctrl-C stops")
        return [*lines, theme.paint(dot.join(filter(None, parts)), DIM)]

    # --- events ----------------------------------------------------------------------------

    def _recorded(self, event: PromptRecorded) -> None:
        echoed, self._echoed = self._echoed, None
        first = event.message.parts[0] if event.message.parts else None
        typed = first.text.strip() if isinstance(first, TextPart) else event.message.typed
        if typed.startswith(ABOUT_RUNS):  # told in a line when they ended
            return
        if echoed is None or echoed.strip() != typed:
            self._screen.print_block(render.prompt_lines(typed, self._theme))

    def _announced(self, event: ToolAnnounced) -> None:
        self._summaries[event.call.id] = event.summary
        if self._theme.live:
            self._calls.announced(event)

    def _started(self, event: ToolStarted) -> None:
        if self._theme.live:
            self._calls.started(event)
            self._do("Working")
        else:
            self._summaries[event.call.id] = event.summary
            self._begun.add(event.call.id)
            self._screen.print_block([render.call_line(event.summary, self._theme)])

    def _finished(self, event: ToolFinished) -> None:
        self.last_output = event
        if event.call.name == "write_todos":
            self.on_todos()
        if self._theme.live:
            for block in self._calls.finished(event):
                self._screen.print_block(block)
            return
        summary = self._summaries.pop(event.call.id, event.call.name)
        begun = event.call.id in self._begun
        if event.result.status is ResultStatus.REFUSED or not begun:
            self._screen.print_block(render.tool_lines(event, summary, self._theme))
        else:
            lines = render.outcome_lines(event, summary, self._theme)
            self._screen.print_block(lines, gap=False)

    def _waits(self, event: RetryWait) -> None:
        if self._theme.live:
            self._retry = (event, time.monotonic() + event.delay_s)
            self._changed()
        else:
            self._screen.print_block([render.retry_line(event, self._theme)], gap=False)

    def _news(self, event: AgentEvent) -> None:
        line = render.news_line(event, self._theme)
        if isinstance(event, CompactionStarted) and self._theme.live:
            self._do("Summarising the conversation")
        elif line is not None:
            self._screen.print_block([line])
        self._changed()

    # --- the turn --------------------------------------------------------------------------

    def _begin(self) -> None:
        self._since = time.monotonic()
        self._summaries.clear()
        self._begun.clear()
        self._calls.clear()
        self._do("Working")

    def _end(self, event: Done | Cancelled | Failed) -> None:
        self._stop()
        screen, theme = self._screen, self._theme
        screen.end_text()
        for block in self._calls.rest():
            screen.print_block(block)
        match event:
            case Done():
                screen.print_block(self._closing_lines(event.summary))
            case Cancelled():
                screen.print_block([render.cancelled_line(event, theme)])
            case Failed():
                screen.print_block(render.failed_lines(event, theme))
        if event.summary.duration_s >= LONG_TURN_S and not isinstance(event, Cancelled):
            self.on_long_turn(event.summary)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._doing = ""
        self._retry = None
        self._screen.end_text()
        self._screen.request()

    def _closing_lines(self, summary: TurnSummary) -> list[str]:
        limit = render.limit_line(summary, self._theme)
        if limit is not None:
            return [limit]
        if summary.duration_s < LONG_TURN_S and summary.steps <= 1:
            return []
        return [render.turn_line(summary, self._theme)]

    # --- time ------------------------------------------------------------------------------

    def _do(self, doing: str) -> None:
        self._doing = doing
        self._changed()

    def _changed(self) -> None:
        if self._doing:
            self._screen.request()
            self._arm()

    def _arm(self) -> None:
        """Redraw when a second more has passed, or when a call is to be seen."""
        if self._timer is not None or not self._theme.live:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        now = time.monotonic()
        due = now + TICK_S - (now - self._since) % TICK_S
        seen = self._calls.next_change()
        if seen is not None:
            due = min(due, seen)
        self._timer = loop.call_later(max(0.02, due - now), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._changed()


def _last_call(earlier: LoadedSession) -> ToolFinished | None:
    """The newest call that has its result."""
    results: dict[str, ToolResult] = {}
    for stored in reversed(earlier.messages):
        if isinstance(stored.message, ToolResult):
            results.setdefault(stored.message.call_id, stored.message)
        elif isinstance(stored.message, AssistantMessage):
            for call in reversed(stored.message.tool_calls):
                if call.id in results:
                    return ToolFinished(call, results[call.id], "", 0.0)
    return None
