"""What stands below the scrollback, row by row: what happens, the input, help, the status line.

Law: never more rows than there is room; in a small window first the blank row goes, then help and
status, then what happens; the row with the cursor always stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.document import Document
from prompt_toolkit.filters import vi_navigation_mode
from prompt_toolkit.search import SearchState

from agentcli.domain.ports import QueuedInput, QueueSource
from agentcli.repl.input_rows import InputRows, Look, input_rows
from agentcli.repl.key_help import KEYS, key_lines
from agentcli.repl.live_port import LiveInput
from agentcli.repl.turn_view import TurnView
from agentcli.ui.live_screen import Below, Place
from agentcli.ui.rows import Row, fit_row
from agentcli.ui.sanitize import clean_line
from agentcli.ui.screen import Size
from agentcli.ui.status_line import Status, status_row
from agentcli.ui.theme import DIM, RESET, WARNING, Theme

PLACEHOLDER = "Ask or tell it what to do. / for commands, @ for files"
WORKING_PLACEHOLDER = "Enter queues what you type"
ASKING = "Waiting for your answer."
TYPING = "Waiting for your answer: send or empty your text first (Ctrl-U)."
MENU_ROWS = 6
INPUT_ROWS = 10
QUEUE_ROWS = 3
_ROOMY = 8
_REVERSE = "\x1b[7m"


class Shown(NamedTuple):
    """What is told around the input: the bottom line, and what waits to be sent."""

    status: Callable[[], Status]
    queue: Callable[[], Sequence[QueuedInput]]


class Region:
    """Composes the rows. ``todos`` are painted lines of what is to be done."""

    def __init__(self, front: LiveInput, view: TurnView, shown: Shown, theme: Theme) -> None:
        self._front = front
        self._theme = theme
        self._view = view
        self._shown = shown
        self.todos: list[str] = []
        self._keys_shown = False
        self._keys_were_shown = False

    def key_comes(self) -> None:
        """Help is gone with the next key."""
        self._keys_were_shown, self._keys_shown = self._keys_shown, False

    def toggle_keys(self) -> None:
        """Show the keys; the key that hides them shows them not again."""
        self._keys_shown = not self._keys_were_shown

    def compose(self, size: Size, needs_gap: bool) -> Below:  # noqa: FBT001 - the screen's port
        """The rows for a window of ``size``."""
        theme = self._theme
        left = size.lines
        typed = self._input(Size(size.columns, max(1, min(left // 2, INPUT_ROWS))), theme)
        left -= len(typed.rows)
        status = [status_row(self._told(), size.columns, theme)] if left >= 2 else []  # noqa: PLR2004 - one for what is above
        left -= len(status)
        under = self._under(Size(size.columns, max(0, left - 1)), theme)
        left -= len(under)
        over = [fit_row(line, size.columns, theme.symbols.more) for line in self._over(theme)]
        over = over[-left:] if left > 0 else []
        left -= len(over)
        gap = [Row("")] if needs_gap and left > 0 and size.lines >= _ROOMY else []
        rows = [*gap, *over, *typed.rows, *under, *status]
        cursor = Place(typed.cursor.row + len(gap) + len(over), typed.cursor.column)
        return Below(rows, cursor)

    def _told(self) -> Status:
        status = self._shown.status()
        if self._front.leaves:
            return replace(status, hint="leaving when the agent is done, any key stays")
        if vi_navigation_mode():
            return replace(status, hint="vi: normal")
        return status

    # --- above the input -------------------------------------------------------------------

    def _over(self, theme: Theme) -> list[str]:
        doing = self._view.lines()
        if self._front.answers.is_waiting:
            hint = TYPING if self._front.buffer.text else ASKING
            doing = [theme.paint(hint, WARNING)]
        return [*self.todos, *doing, *self._queued(theme)]

    def _queued(self, theme: Theme) -> list[str]:
        waiting = self._shown.queue()
        if not waiting:
            return []
        lines = [
            theme.paint(f"  {theme.symbols.branch} {_shown(item)}", DIM)
            for item in waiting[:QUEUE_ROWS]
        ]
        more = len(waiting) - QUEUE_ROWS
        if more > 0:
            lines.append(theme.paint(f"    {theme.symbols.more} {more} more", DIM))
        how = "after this step" if self._front.is_working else "with the next Enter"
        return [theme.paint(f"Queued, sent {how} (/queue to change):", DIM), *lines]

    # --- the input -------------------------------------------------------------------------

    def _input(self, size: Size, theme: Theme) -> InputRows:
        front = self._front
        document = self._searched() or front.buffer.document
        placeholder = PLACEHOLDER if front.is_idle else ""
        if front.is_working:
            placeholder = WORKING_PLACEHOLDER
        if front.answers.is_waiting:
            placeholder = f"{front.answers.letters} answers; other text is queued with Enter"
        label = front.label
        if label is not None:
            placeholder = ""
        look = Look(size.columns, size.lines, "> " if label is None else label, placeholder)
        return input_rows(document, look, theme)

    def _searched(self) -> Document | None:
        """What the history search has found so far."""
        front = self._front
        if not front.app.layout.is_searching:
            return None
        state = front.control.search_state
        state = SearchState(
            text=front.search.buffer.text, direction=state.direction, ignore_case=state.ignore_case
        )
        return front.buffer.document_for_search(state)

    # --- below the input -------------------------------------------------------------------

    def _under(self, size: Size, theme: Theme) -> list[Row]:
        if size.lines <= 0:
            return []
        front = self._front
        lines: list[str] = []
        if front.app.layout.is_searching:
            lines = [f"{theme.paint('search:', DIM)} {clean_line(front.search.buffer.text)}"]
        elif front.buffer.complete_state is not None:
            lines = _menu(front.buffer.complete_state, min(MENU_ROWS, size.lines), theme)
        elif self._keys_shown:
            lines = key_lines(KEYS, theme)
        return [fit_row(line, size.columns, theme.symbols.more) for line in lines[: size.lines]]


def _menu(state: CompletionState, most: int, theme: Theme) -> list[str]:
    """The completions around the chosen one."""
    found = state.completions
    at = state.complete_index
    first = max(0, min((at or 0) - most + 1, len(found) - most))
    shown = found[first : first + most]
    width = max((len(each.display_text) for each in shown), default=0)
    lines = []
    for number, each in enumerate(shown, first):
        name = each.display_text.ljust(width)
        meta = f"  {theme.paint(each.display_meta_text, DIM)}" if each.display_meta_text else ""
        chosen = number == at
        painted = f"{_REVERSE}{name}{RESET}" if chosen else name
        lines.append(f"{'> ' if chosen else '  '}{painted}{meta}")
    return lines


def _shown(item: QueuedInput) -> str:
    """What waits, in a line; what the program says of background runs has been told already."""
    if item.source is QueueSource.BACKGROUND:
        return "what became of a background run"
    return clean_line(item.text)
