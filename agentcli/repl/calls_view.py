"""The tool calls of a step: what runs, for how long, what it printed last; printed in order.

Law: calls keep their places. A finished one is printed when all before it are; until then it
stands finished in its place. A call that is over within ``SHOW_AFTER_S`` never shows as running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentcli.domain.events import ToolAnnounced, ToolFinished, ToolProgress, ToolStarted
from agentcli.ui import render, wording
from agentcli.ui.sanitize import clean, clean_line
from agentcli.ui.theme import DIM, Theme

SHOW_AFTER_S = 1.0
TAIL_CHARS = 600
TAIL_LINES = 3
MAX_CALLS = 6


class _Call:
    __slots__ = ("finished", "since", "summary", "tail")

    def __init__(self, summary: str) -> None:
        self.summary = summary
        self.since: float | None = None
        self.tail = ""
        self.finished: ToolFinished | None = None


class CallsView:
    """``clock`` gives seconds of a monotonic clock."""

    def __init__(self, theme: Theme, clock: Callable[[], float]) -> None:
        self._theme = theme
        self._clock = clock
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
            yield render.tool_lines(each.finished, each.summary, self._theme)

    def rest(self) -> Iterator[list[str]]:
        """The turn is over: the blocks of finished calls whose turn never came."""
        for call in self._calls.values():
            if call.finished is not None:
                yield render.tool_lines(call.finished, call.summary, self._theme)
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
            more = wording.plural(len(shown) - MAX_CALLS, "more call")
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


def _last_lines(tail: str, number: int) -> list[str]:
    lines = [line.expandtabs(4) for line in clean(tail).split("\n") if line.strip()]
    return lines[-number:]
