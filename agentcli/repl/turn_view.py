"""A turn on the screen: events in; printed lines, and rows that may be redrawn, out.

Law: what has happened is printed once; what is happening stands above the input. The one timer
runs only while the agent works: between the first and the terminal event of a turn.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from agentcli.domain.cancel import CancelToken
from agentcli.domain.clean import plural
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
    ToolRefused,
    ToolStarted,
    TurnStart,
    TurnSummary,
)
from agentcli.domain.messages import (
    NOT_SAID,
    AssistantMessage,
    ResultStatus,
    TextPart,
    ToolCall,
    ToolResult,
)
from agentcli.domain.session import LoadedSession
from agentcli.domain.tools import ToolOutput, status_of
from agentcli.repl.commands import Chat
from agentcli.repl.outside import overwritten
from agentcli.ui import render, wording
from agentcli.ui.rows import fit
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.screen import GUTTER, Screen
from agentcli.ui.theme import DIM, ERROR, Theme

# --- the tool calls of a step -----------------------------------------------------------------

SHOW_AFTER_S = 1.0
TAIL_CHARS = 600
TAIL_LINES = 3
MAX_CALLS = 6


class _Call:
    __slots__ = ("answered", "finished", "since", "summary", "tail")

    def __init__(self, summary: str) -> None:
        self.summary = summary
        self.answered: list[str] = []  # what the user said when it asked
        self.since: float | None = None
        self.tail = ""
        self.finished: ToolFinished | None = None


class CallsView:
    """What runs, for how long, what it printed last; ``columns`` wide.

    ``clock`` gives monotonic seconds.

    Law: calls keep their places. A finished one is printed when all before it are; until then it
    stands finished in its place. A call that is over within ``SHOW_AFTER_S`` is not shown running.
    """

    def __init__(
        self, theme: Theme, clock: Callable[[], float], columns: Callable[[], int]
    ) -> None:
        self._theme = theme
        self._clock = clock
        self._columns = columns
        self._calls: dict[str, _Call] = {}

    def clear(self) -> None:
        """A new turn."""
        self._calls.clear()

    def announced(self, event: ToolAnnounced) -> None:
        """A call will run."""
        self._calls[event.call.id] = _Call(clean_line(event.summary))

    def started(self, event: ToolStarted) -> None:
        """It runs."""
        call = self._calls.setdefault(event.call.id, _Call(""))
        call.summary = clean_line(event.summary)
        call.since = self._clock()

    def progress(self, event: ToolProgress) -> None:
        """It printed something."""
        call = self._calls.get(event.call_id)
        if call is not None:
            call.tail = (call.tail + event.text)[-TAIL_CHARS:]

    def finished(self, event: ToolFinished) -> Iterator[list[str]]:
        """It is over: the blocks that can be printed now, in the order of the calls."""
        call = self._calls.setdefault(event.call.id, _Call(clean_line(event.call.name)))
        call.finished = event
        for call_id, each in list(self._calls.items()):
            if each.finished is None:
                return
            del self._calls[call_id]
            yield self._block(each, each.finished)

    def answered(self, call_id: str, said: str) -> bool:
        """The user has answered what it asked: it is printed with the call; false: no such call."""
        call = self._calls.get(call_id)
        if call is not None:
            call.answered.append(said)
        return call is not None

    def _block(self, call: _Call, finished: ToolFinished) -> list[str]:
        answers = [answer_line(said, self._theme) for said in call.answered]
        return _block_of(finished, call.summary, answers, self._theme, self._columns())

    def rest(self) -> Iterator[list[str]]:
        """The turn is over: the blocks of finished calls whose turn never came."""
        for call in self._calls.values():
            if call.finished is not None:
                yield self._block(call, call.finished)
        self._calls.clear()

    def next_change(self) -> float | None:
        """When a running call is to be shown for the first time, if that is to come."""
        now = self._clock()
        dues = [
            call.since + SHOW_AFTER_S
            for call in self._calls.values()
            if call.since is not None and not call.finished and call.since + SHOW_AFTER_S > now
        ]
        return min(dues, default=None)

    def lines(self) -> list[str]:
        """Painted lines of what runs long enough to be seen, and what has finished beside it."""
        now = self._clock()
        running = [
            call
            for call in self._calls.values()
            if call.since is not None and not call.finished and now - call.since >= SHOW_AFTER_S
        ]
        if not running:
            return []
        shown = [call for call in self._calls.values() if call in running or call.finished]
        lines: list[str] = []
        for call in shown[:MAX_CALLS]:
            lines += self._lines_of(call, now, tail=1 if len(running) > 1 else TAIL_LINES)
        if len(shown) > MAX_CALLS:
            more = plural(len(shown) - MAX_CALLS, "more call")
            lines.append(self._theme.paint(f"{self._theme.symbols.more} {more}", DIM))
        return lines

    def _lines_of(self, call: _Call, now: float, tail: int) -> list[str]:
        paint, dot = self._theme.paint, self._theme.symbols.dot
        if call.finished is not None:
            took = wording.duration(call.finished.duration_s)
            head = render.call_line(call.summary, self._theme, call.finished.result.status)
            return [f"{head} {paint(f'{dot} finished {dot} {took}', DIM)}"]
        took = wording.elapsed(now - (call.since or now))
        head = f"{render.call_line(call.summary, self._theme)} {paint(f'{dot} {took}', DIM)}"
        return [head, *(paint(f"  {line}", DIM) for line in _last_lines(call.tail, tail))]


def _block_of(
    event: ToolFinished, summary: str, answers: Sequence[str], theme: Theme, columns: int
) -> list[str]:
    """A finished call with what the user has answered; a "no" says that it was refused."""
    head, *below = render.tool_lines(event, summary, theme, columns)
    is_told = answers and event.result.status is ResultStatus.REFUSED
    return [head, *answers, *(() if is_told else below)]


def answer_line(said: str, theme: Theme) -> str:
    """What the user answered when a call asked."""
    you = theme.symbols.you or f"{theme.symbols.branch} you:"
    return theme.paint(f"  {you} {said}", DIM)


def _last_lines(tail: str, number: int) -> list[str]:
    lines = [line.expandtabs(4) for line in clean(tail).split("\n") if line.strip()]
    return lines[-number:]


# --- the turn ---------------------------------------------------------------------------------

THINKING_ROWS = 6
MAX_TYPED_LINES = 100
_SUMMARY_COLUMNS = 200
TICK_S = 1.0
LONG_TURN_S = 10.0


class ThinkingFold:
    """Of a stretch of thinking only the beginning is for the screen (UI-12).

    Law: what is shown is the beginning, up to a blank where one is near; a stretch of
    ``THINKING_ROWS`` rows is shown whole, and one of a row more (``rest``).
    """

    def __init__(self) -> None:
        self.is_folded = False
        self._hidden = 0  # rows that hold something
        self._rest = ""  # what is hidden, as long as that is one row
        self._row = self._column = 0

    @property
    def hidden(self) -> int:
        """How many rows are hidden that hold something."""
        return self._hidden + (self._column > 0) if self.is_folded else 0

    @property
    def rest(self) -> str:
        """What is hidden, where that is one row; else nothing."""
        return self._rest.rstrip()

    def feed(self, text: str, columns: int) -> str:
        """The part of ``text`` to show."""
        if self.is_folded:
            self._hide(text, columns)
            return ""
        shown = ""
        parts = text.split("\n")
        for at, part in enumerate(parts):
            if at:
                self._row, self._column = self._row + 1, 0
            room = (THINKING_ROWS - self._row) * columns - self._column
            if room <= 0 or len(part) > room:
                kept = part[: max(room, 0)].rpartition(" ")[0]
                shown += f"\n{kept}" if at and kept else kept
                self.is_folded, self._column = True, 0
                self._hide(text[len(shown) :], columns)
                return shown
            shown += f"\n{part}" if at else part
            self._column += len(part)
            self._row, self._column = self._row + self._column // columns, self._column % columns
        return shown

    def _hide(self, text: str, columns: int) -> None:
        for at, part in enumerate(text.split("\n")):
            if at:
                self._hidden, self._column = self._hidden + (self._column > 0), 0
            if part.strip():
                self._column += len(part if self._column else part.lstrip())
                full = (self._column - 1) // columns
                self._hidden, self._column = self._hidden + full, self._column - full * columns
        self._rest = self._rest + text if self.hidden <= 1 else ""


class TurnView:
    """Shows the events of one session on ``screen``; ``folds`` long thinking, or shows it whole."""

    def __init__(self, screen: Screen, *, folds: bool = True) -> None:
        self._folds = folds
        self._fold: ThinkingFold | None = None  # of the stretch of thinking that comes now
        self._screen = screen
        self._theme = screen.theme
        self._calls = CallsView(screen.theme, time.monotonic, lambda: screen.columns)
        self._summaries: dict[str, str] = {}
        self._refused: dict[str, str] = {}  # calls, and why
        self._begun: set[str] = set()  # calls whose first line is printed (not live)
        self._answers: dict[str, list[str]] = {}  # of the user, to be printed below it
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

    def finish_replay(self) -> None:
        """All that was to be shown again was shown: what has no end yet is shown as it is."""
        self._end_thinking()
        self._screen.end_text()
        for block in self._calls.rest():
            self._screen.print_block(block)

    def typed(self, text: str) -> None:
        """``text`` stands on the screen as it was typed: ``echo`` prints it no more."""
        self._typed = text

    def echo(self, text: str, *, shown: bool = True) -> None:
        """Print what the user has sent; the event that it is recorded prints it no more.

        Not ``shown``: the command that stands for it was printed.
        """
        self._echoed = text
        typed, self._typed = self._typed, None
        if shown and typed != text:
            self._screen.print_block(render.prompt_lines(text, self._theme, self._screen.columns))

    def answered(self, call_id: str, summary: str, said: str) -> None:
        """The user answered what a call asked: one line of it stays, in the call's own place."""
        line = answer_line(said, self._theme)
        if self._calls.answered(call_id, said):
            return
        if call_id in self._begun:
            self._screen.print_block([line], gap=False)
        elif call_id in self._summaries and not self._theme.live:  # its own line is to come
            self._answers.setdefault(call_id, []).append(line)
        else:
            head = render.call_line(summary, self._theme)
            self._screen.print_block([head, line], gap=False)

    def on_event(self, event: AgentEvent) -> None:  # noqa: C901, PLR0912 - one arm per event
        """Show ``event``."""
        screen, theme = self._screen, self._theme
        if not isinstance(event, RetryWait | QueueChanged | BackgroundChanged):
            self._retry = None
            if self._fold is not None and not isinstance(event, ThinkingChunk):
                self._end_thinking()
        match event:
            case TextChunk():
                screen.feed_text(event.text)
            case ThinkingChunk():
                self._think(event.text)
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
            case ToolRefused():
                self._refused[event.call.id] = event.reason
            case ToolFinished():
                self._finished(event)
            case RetryWait():
                self._waits(event)
            case Notice():
                screen.print_block([render.notice_line(event, theme)], gap=False)
            case Done() | Cancelled() | Failed():
                self._end(event)
            case BackgroundChanged():
                pass  # ``BackgroundNews`` says it, whatever stands on the screen
            case _:
                self._news(event)

    async def run_typed(self, chat: Chat, command: str, *, remember: bool) -> None:
        """``!command``: run it in the session's shell as the agent's work (UI-4).

        Law: nothing is asked, for the user has typed it; with ``remember`` the model learns of it
        with the next prompt; the output is shown sanitized, its end when it is long. Raises
        ``AgentError``.
        """
        summary = fit(clean_line(command), _SUMMARY_COLUMNS)
        call = ToolCall(f"typed-{os.urandom(16).hex()}", "bash", {"command": command})
        started = time.monotonic()

        async def run(token: CancelToken) -> ToolOutput:
            self.on_event(ToolAnnounced(call, summary))
            self.on_event(ToolStarted(call, summary))
            return await chat.session.run_command(
                command,
                token,
                lambda text: self.on_event(ToolProgress(call.id, text)),
                remember=remember,
            )

        try:
            output = await chat.work(run, "Running")
        finally:
            self._calls.clear()
            self._summaries.clear()
        if output is None:
            return
        text = "\n".join(part.text for part in output.parts if isinstance(part, TextPart))
        status = status_of(output)
        result = ToolResult(call.id, call.name, (TextPart(text),), status)
        whole = overwritten(output.raw) if output.raw is not None else ""
        took = time.monotonic() - started
        self.last_output = ToolFinished(call, result, output.summary, took, display=whole)
        chat.show(_typed_lines(summary, text, status, self._theme, remember=remember))

    def show_notices(self, lines: Sequence[str]) -> None:
        """Lines of news from the opening of a session."""
        painted = [self._theme.paint(f"! {clean_line(line)}", DIM) for line in lines]
        self._screen.print_block(painted, gap=False)

    def show_error(self, message: str, advice: str = "") -> None:
        """Something that the user asked for could not be done."""
        sign = self._theme.symbols.failed
        line = self._theme.paint(f"{sign} {clean_line(message)}", ERROR)
        self._screen.print_aside([f"{line} {clean_line(advice)}".rstrip()])

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

    def cancelling(self) -> None:
        """The user asked to stop."""
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

    def _think(self, text: str) -> None:
        """More thinking; of a long one the rest is counted."""
        if not self._folds:
            self._screen.feed_thinking(text)
            return
        self._fold = self._fold or ThinkingFold()
        was_folded = self._fold.is_folded
        shown = self._fold.feed(text, max(1, self._screen.columns - GUTTER))
        if shown:
            self._screen.feed_thinking(shown)
        if self._fold.is_folded and not was_folded and self._doing:
            self._do("Thinking")

    def _end_thinking(self) -> None:
        fold, self._fold = self._fold, None
        if fold is None or not fold.is_folded:
            return
        if fold.rest:
            self._screen.feed_thinking(fold.rest)
        elif fold.hidden:
            self._screen.end_text()
            more = f"{plural(fold.hidden, 'more line')} of thinking (Ctrl-O shows all)"
            line = f"  {self._theme.symbols.more} {more}"
            self._screen.print_block([self._theme.paint(line, DIM)], gap=False)
        if self._doing:
            self._do("Working")

    def _recorded(self, event: PromptRecorded) -> None:
        echoed, self._echoed = self._echoed, None
        first = event.message.parts[0] if event.message.parts else None
        typed = first.text.strip() if isinstance(first, TextPart) else event.message.typed
        if typed.startswith(NOT_SAID):  # announced when they ended
            return
        if echoed is None or echoed.strip() != typed:
            self._screen.print_block(render.prompt_lines(typed, self._theme, self._screen.columns))

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
            head = render.call_line(event.summary, self._theme)
            self._screen.print_block([head, *self._answers.pop(event.call.id, ())])

    def _finished(self, event: ToolFinished) -> None:
        if event.result.status is ResultStatus.REFUSED:
            event = replace(event, summary=self._refused.pop(event.call.id, event.summary))
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
            answers = self._answers.pop(event.call.id, ())
            columns = self._screen.columns
            self._screen.print_block(_block_of(event, summary, answers, self._theme, columns))
        else:
            lines = render.outcome_lines(event, summary, self._theme, self._screen.columns)
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
        self._answers.clear()
        self._calls.clear()
        self._do("Working")

    def _end(self, event: Done | Cancelled | Failed) -> None:
        screen, theme = self._screen, self._theme
        if not isinstance(event, Done):
            screen.cut()
        self._stop()
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
        line = render.turn_line(summary, self._theme)
        return [line] if line else []

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


def _typed_lines(
    summary: str, text: str, status: ResultStatus, theme: Theme, *, remember: bool
) -> list[str]:
    lines = clean(text).rstrip("\n").split("\n")
    hidden = len(lines) - MAX_TYPED_LINES
    shown = [f"  {line}" for line in lines[-MAX_TYPED_LINES:]]
    if hidden > 0:
        more = f"  {theme.symbols.more} {plural(hidden, 'earlier line')} (Ctrl-O shows all)"
        shown = [theme.paint(more, DIM), *shown]
    note = "the agent sees it with your next message" if remember else "the agent does not see it"
    return [render.call_line(summary, theme, status), *shown, theme.paint(f"  ({note})", DIM)]
