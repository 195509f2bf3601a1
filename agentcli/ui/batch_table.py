"""A table of tasks that redraws itself at the end of the terminal's output (SCALE-2).

Laws: it takes no more rows than the terminal has; what it says besides stays above it; texts of
tasks are cleaned before they are shown. Where the terminal cannot redraw there is no table.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agentcli.domain.clean import plural
from agentcli.domain.values import frozen
from agentcli.ui import wording
from agentcli.ui.rows import wrap
from agentcli.ui.sanitize import clean_line

_MARGIN = 4  # the line of totals, the head, and what the shell writes below
_LAST = 5
_FEW = 2  # of them are shown however many tasks run
_WIDE = 60
_ECHO = 2  # columns, for the ^C that a terminal echoes: on a row of its own it would leave a trace
_STYLES = {"done": "green", "failed": "red", "limit": "yellow", "refused": "yellow"}


@frozen
class TaskLine:
    """A task that runs, or has ended. ``began`` is a time of ``time.monotonic``."""

    name: str
    text: str
    state: str
    began: float
    took_s: float | None = None
    cost_usd: float | None = None


class LiveTable:
    """The table on ``stream``: what runs, what has ended last, and the totals. A context manager.

    ``total`` is how many tasks there are, ``counts`` how many stand how, by the state's word.
    ``waiting`` is what no task stands for yet: its name, and what it waits for.
    """

    def __init__(self, stream: TextIO, total: int, env: Mapping[str, str]) -> None:
        self.counts: dict[str, int] = {}
        self.spent_usd: float | None = 0.0
        self.total = total
        self.waiting: Sequence[tuple[str, str]] = ()
        self._running: dict[str, TaskLine] = {}
        self._ended: deque[TaskLine] = deque(maxlen=_LAST)
        self._began = time.monotonic()
        self._console = Console(
            file=stream, no_color=bool(env.get("NO_COLOR")), highlight=False, emoji=False
        )
        self._live = Live(
            get_renderable=self._drawn,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def started(self, task_id: str, text: str) -> None:
        """The task runs now."""
        name, shown = clean_line(task_id), clean_line(text)
        self._running[task_id] = TaskLine(name, shown, "running", time.monotonic())

    def ended(self, task_id: str, state: str, cost_usd: float | None) -> None:
        """The task does not run any more."""
        line = self._running.pop(task_id, None)
        if line is not None:
            took_s = time.monotonic() - line.began
            self._ended.append(TaskLine(line.name, line.text, state, line.began, took_s, cost_usd))

    def says(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(clean_line(text)))

    def refresh(self) -> None:
        """Draw it as things are now."""
        self._live.refresh()

    def _drawn(self) -> Group:
        width = max(1, self._console.width - _ECHO)
        totals = wrap(self.totals(), width)[: max(1, self._console.height - _MARGIN)]
        room = max(1, self._console.height - _MARGIN - len(totals) + 1)
        running = list(self._running.values())
        shown = running[: max(1, room - min(_FEW, len(self._ended)))]
        table = Table(box=None, pad_edge=False, expand=True, padding=(0, 1), show_header=False)
        is_wide = self._console.width >= _WIDE
        table.add_column(width=11)
        table.add_column(
            max_width=24, no_wrap=True, overflow="ellipsis", ratio=None if is_wide else 1
        )
        if is_wide:
            table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(justify="right", no_wrap=True)
        if is_wide:
            table.add_column(justify="right", no_wrap=True)
        lines = [*list(self._ended)[-max(0, room - len(shown)) :], *shown][-room:]
        for line in lines:
            took_s = time.monotonic() - line.began if line.took_s is None else line.took_s
            cost = "" if line.took_s is None else wording.cost(line.cost_usd)
            table.add_row(
                Text(line.state, style=_STYLES.get(line.state, "")),
                Text(line.name),
                *([Text(line.text)] if is_wide else []),
                wording.elapsed(took_s),
                *([cost] if is_wide else []),
            )
        named = self.waiting[: room - len(lines)]
        for name, text in named:
            cells = ("waiting", clean_line(name), *([clean_line(text)] if is_wide else []))
            table.add_row(*map(Text, cells))
        left = {"running": len(running) - len(shown), "waiting": len(self.waiting) - len(named)}
        more = ", ".join(f"{count} more {state}" for state, count in left.items() if count)
        last = Text(totals[-1] + (more and f"  and {more}"), no_wrap=True)
        last.truncate(width, overflow="ellipsis")
        return Group(table, *map(Text, totals[:-1]), last)

    def totals(self) -> str:
        """How many stand how, in a line."""
        words = [f"{count} {state}" for state, count in self.counts.items() if count]
        took = wording.elapsed(time.monotonic() - self._began)
        cost = wording.cost(self.spent_usd)
        return f"{plural(self.total, 'task')}: {', '.join(words)}; {took}, {cost}"
