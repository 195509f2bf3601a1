"""What stands below the scrollback, row by row: what happens, the input, help, the status line.

Law: never more rows than there is room; in a small window first the blank row goes, then help and
status, then what happens; the row with the cursor always stays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.document import Document
from prompt_toolkit.filters import vi_navigation_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import BaseStyle

from agentcli.domain.ports import QueueSource
from agentcli.repl.keys import key_lines
from agentcli.repl.open_session import OpenSession
from agentcli.repl.panel import Panel, PanelMode, PanelRows
from agentcli.repl.turn_view import TurnView
from agentcli.ui.frame import Below
from agentcli.ui.live_screen import Compose, LiveScreen
from agentcli.ui.rows import Place, Row, Rows, char_columns, columns_of, fit_row, wrap_line
from agentcli.ui.sanitize import clean_line, reveal
from agentcli.ui.screen import Size
from agentcli.ui.status_line import StatusLine, status_row
from agentcli.ui.theme import BOLD, DIM, RESET, Theme

PLACEHOLDER = "Ask or tell it what to do. / for commands, @ for files"
WORKING_PLACEHOLDER = "Enter queues what you type"
MENU_ROWS = 6
INPUT_ROWS = 10
QUEUE_ROWS = 3
TAB = "    "
_ROOMY = 8
_NARROW = 12
_REVERSE = "\x1b[7m"


class InputState(NamedTuple):
    """The live input at the moment of a frame.

    ``label`` and ``hint`` are about a line that is asked for, ``panel`` stands in the input's
    place, ``searched`` is what is looked for in earlier prompts.
    """

    document: Document
    label: str | None = None
    hint: str = ""
    panel: Panel | None = None
    is_working: bool = False
    is_idle: bool = False
    leaves: bool = False
    searched: str | None = None
    completions: CompletionState | None = None


class Region:
    """Composes the rows. ``keys`` are the user's, ``todos`` painted lines of what is to be done."""

    def __init__(
        self, view: TurnView, opened: OpenSession, theme: Theme, keys: Sequence[tuple[str, str]]
    ) -> None:
        self._theme = theme
        self._keys = keys
        self._view = view
        self._opened = opened
        self.todos: list[str] = []
        self._keys_shown = False
        self._keys_were_shown = False

    def key_comes(self) -> None:
        """Help is gone with the next key."""
        self._keys_were_shown, self._keys_shown = self._keys_shown, False

    def toggle_keys(self) -> None:
        """Show the keys; the key that hides them shows them not again."""
        self._keys_shown = not self._keys_were_shown

    def compose(self, state: InputState, size: Size, *, needs_gap: bool) -> Below:
        """The rows for a window of ``size``."""
        if state.panel is not None:
            return self._with_panel(state, state.panel, size, needs_gap=needs_gap)
        theme, more = self._theme, self._theme.symbols.more
        left = size.lines
        look = Look(
            size.columns,
            max(1, min(left // 2, INPUT_ROWS)),
            "> " if state.label is None else state.label,
            _placeholder(state),
        )
        typed = input_rows(state.document, look, theme)
        left -= len(typed.rows)
        status = self._status_rows(state, size.columns)[: max(0, left - 1)]
        left -= len(status)
        below = self._under(state, Size(size.columns, max(0, left - 1)))
        under = [fit_row(line, size.columns, more) for line in below]
        left -= len(under)
        over = [fit_row(line, size.columns, more) for line in self._over(state)]
        over = over[-left:] if left > 0 else []
        left -= len(over)
        gap = [Row("")] if needs_gap and left > 0 and size.lines >= _ROOMY else []
        rows = [*gap, *over, *typed.rows, *under, *status]
        cursor = Place(typed.cursor.row + len(gap) + len(over), typed.cursor.column)
        return Below(rows, cursor)

    def _with_panel(self, state: InputState, panel: Panel, size: Size, *, needs_gap: bool) -> Below:
        """The panel, and below it the text that is being typed, if there is any."""
        theme, columns, left = self._theme, size.columns, size.lines
        is_typing = state.label is not None or bool(state.document.text)
        typed = InputRows([], Place(0, 0))
        if is_typing:
            look = Look(
                columns,
                max(1, min(left // 4, INPUT_ROWS)),
                state.label or "> ",
                _placeholder(state),
            )
            typed = input_rows(state.document, look, theme)
            left -= len(typed.rows)
        status = self._status_rows(state, columns) if left >= _ROOMY else []
        gap = [Row("")] if needs_gap and left >= _ROOMY else []
        queued = self._queued(is_working=state.is_working) if left >= 2 * _ROOMY else []
        over = [fit_row(line, columns, theme.symbols.more) for line in queued]
        left -= len(status) + len(gap) + len(over)
        mode = PanelMode(typing=is_typing, asking=state.label is not None)
        shown, at = PanelRows([], 0), len(gap) + len(over)
        if left > 0:
            shown = panel.rows(Size(columns, left), theme, time.monotonic(), mode=mode)
        rows = [*gap, *over, *shown.rows, *typed.rows, *status]
        if is_typing:
            return Below(rows, Place(at + len(shown.rows) + typed.cursor.row, typed.cursor.column))
        return Below(rows, Place(at + shown.cursor, 0))

    def _status_rows(self, state: InputState, columns: int) -> list[Row]:
        """The user's own status line, if there is one; what has to be said now goes before it."""
        status, lines = self._status(state), self._opened.status_lines
        if lines and not status.hint:
            return [fit_row(line, columns, self._theme.symbols.more) for line in lines]
        return [status_row(status, columns, self._theme)]

    def _status(self, state: InputState) -> StatusLine:
        status = self._opened.status()
        if state.leaves:
            return replace(status, hint="leaving when the agent is done; press any key to stay")
        if vi_navigation_mode():
            return replace(status, hint="vi: normal")
        return status

    def _over(self, state: InputState) -> list[str]:
        """Above the input: things to do, what happens, what waits to be sent."""
        queued = self._queued(is_working=state.is_working)
        return [*self.todos, *self._view.lines(), *queued]

    def _queued(self, *, is_working: bool) -> list[str]:
        waiting, paint, symbols = self._opened.queue(), self._theme.paint, self._theme.symbols
        if not waiting:
            return []
        how = "after this step" if is_working else "with the next Enter"
        lines = [paint(f"Queued, sent {how} (/queue to change):", DIM)]
        for item in waiting[:QUEUE_ROWS]:
            # what the program says of background runs has been shown already
            is_ours = item.source is QueueSource.BACKGROUND
            text = "the result of a background run" if is_ours else clean_line(item.text)
            lines.append(paint(f"  {symbols.branch} {text}", DIM))
        if len(waiting) > QUEUE_ROWS:
            lines.append(paint(f"    {symbols.more} {len(waiting) - QUEUE_ROWS} more", DIM))
        return lines

    def _under(self, state: InputState, size: Size) -> list[str]:
        """Below the input, at most as many lines: search, completions or the keys."""
        lines: list[str] = []
        most = size.lines
        if most and state.searched is not None:
            lines = [f"{self._theme.paint('search:', DIM)} {clean_line(state.searched)}"]
        elif most and state.completions is not None:
            lines = _menu(state.completions, min(MENU_ROWS, most), self._theme)
        elif self._keys_shown:
            lines = key_lines(self._keys, self._theme)
            whole = [row for line in lines for row in wrap_line(line, size.columns)]
            lines = whole if len(whole) <= most else lines
        return lines[:most]


def _placeholder(state: InputState) -> str:
    if state.label is not None:
        return state.hint
    if state.is_working:
        return WORKING_PLACEHOLDER
    return PLACEHOLDER if state.is_idle else ""


def _menu(state: CompletionState, most: int, theme: Theme) -> list[str]:
    """The completions around the chosen one."""
    found = state.completions
    at = state.complete_index
    if len(found) > most > 1:
        most -= 1  # for how many more there are
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
    if len(found) > len(shown):
        more = f"{theme.symbols.more} {len(found) - len(shown)} more: type on, or use the arrows"
        lines.append(theme.paint(f"  {more}", DIM))
    return lines


# --- the input as rows ------------------------------------------------------------------------


class InputRows(NamedTuple):
    """Rows and the cursor among them."""

    rows: list[Row]
    cursor: Place


class Look(NamedTuple):
    """How the input is shown: in ``columns``, at most ``most`` rows, after ``label``."""

    columns: int
    most: int
    label: str = "> "
    placeholder: str = ""


def input_rows(document: Document, look: Look, theme: Theme) -> InputRows:
    """Lay out ``document``.

    At most ``look.most`` rows, of which one always holds the cursor; what cannot be seen is spelt
    out (SEC-6); the cost does not grow with the text above and below.
    """
    label = look.label if look.columns >= _NARROW or len(look.label) < look.columns // 2 else ""
    indent = sum(map(char_columns, label))
    width = max(1, look.columns - indent)
    if not document.text and look.placeholder:
        said = look.placeholder
        if columns_of(said) > width and ". " in said:  # the first sentence alone is whole
            said = said.partition(". ")[0] + "."
        shown = f"{theme.paint(label, BOLD)}{theme.paint(said, DIM)}"
        return InputRows([fit_row(shown, look.columns)], Place(0, min(indent, look.columns - 1)))
    lines, cursor = _laid_out(document, width, look.most)
    first = max(0, cursor.row - look.most + 1)
    rows = []
    for at, row in enumerate(lines[first : first + look.most], first):
        is_top = at == 0 and document.cursor_position_row < look.most
        lead = theme.paint(label, BOLD) if is_top else " " * indent
        rows.append(Row(lead + row.text, row.width + indent, soft=False, certain=row.certain))
    column = min(cursor.column + indent, look.columns - 1)
    return InputRows(rows, Place(cursor.row - first, column))


def _laid_out(document: Document, width: int, most: int) -> tuple[list[Row], Place]:
    """The rows of the lines near the cursor, and the cursor among them."""
    line_number, column = document.cursor_position_row, document.cursor_position_col
    lines = document.lines
    from_line = max(0, line_number - most + 1)
    selected = document.selection_range() if document.selection else (0, 0)
    position = document.translate_row_col_to_index(from_line, 0)
    rows: list[Row] = []
    cursor = Place(0, 0)
    for at in range(from_line, min(len(lines), line_number + most + 1)):
        line = lines[at]
        before = len(rows)
        layout = Rows(width)
        if at == line_number:
            head = _shown(line[:column], position, selected)
            layout.feed(head)
            cursor = _end_of(layout, width, before)
            layout.feed(_shown(line[column:], position + column, selected))
            if not line[column:] and cursor.row - before >= len(layout.rows):
                layout.feed("\n")
                rows += [*layout.rows, Row("")]
                position += len(line) + 1
                continue
        else:
            layout.feed(_shown(line, position, selected))
        rows += layout.rows or [Row("")]
        position += len(line) + 1
    return rows, cursor


def _end_of(layout: Rows, width: int, before: int) -> Place:
    """Where the next character will stand."""
    rows = layout.rows
    if not rows:
        return Place(before, 0)
    if rows[-1].width >= width:
        return Place(before + len(rows), 0)
    return Place(before + len(rows) - 1, rows[-1].width)


def _shown(text: str, position: int, selected: tuple[int, int]) -> str:
    start, end = (max(0, min(len(text), edge - position)) for edge in selected)
    if start >= end:
        return _visible(text)
    marked = f"{_REVERSE}{_visible(text[start:end])}{RESET}"
    return f"{_visible(text[:start])}{marked}{_visible(text[end:])}"


def _visible(text: str) -> str:
    return reveal(text).replace("\t", TAB)


# --- the renderer -----------------------------------------------------------------------------

_PASTE_ON = "\x1b[?2004h"
_PASTE_OFF = "\x1b[?2004l"
_PATIENCE_S = 0.5  # with a terminal that takes nothing, before others write to it


class LiveRenderer(Renderer):
    """Says when to draw; ``screen`` knows how. The application's layout serves the keys only.

    Law: the terminal's modes (marked pastes) are on exactly while the region is shown.
    """

    def __init__(
        self, style: BaseStyle, output: Output, screen: LiveScreen, compose: Compose
    ) -> None:
        self._screen = screen
        self._compose = compose
        super().__init__(style, output)

    def reset(
        self,
        _scroll: bool = False,  # noqa: FBT001, FBT002 - the signature of the base class
        leave_alternate_screen: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        """Somebody else has the terminal."""
        del _scroll, leave_alternate_screen

    def request_absolute_cursor_position(self) -> None:
        """Not asked for a frame: it knows where it stands by itself, but after a resize."""

    def render(
        self,
        app: Application[Any],
        layout: Layout,
        is_done: bool = False,  # noqa: FBT001, FBT002 - the signature of the base class
    ) -> None:
        """Draw a frame; when done, take the region away."""
        del app, layout
        if is_done:
            self.erase()
        elif self._screen.is_shown:
            self._screen.paint()
        else:
            self._screen.send(_PASTE_ON)
            self._screen.show(self._compose)

    def erase(
        self,
        leave_alternate_screen: bool = True,  # noqa: FBT001, FBT002 - as in the base class
    ) -> None:
        """Take the region away, for something else to be written there.

        prompt-toolkit leaves the alternate screen but when the terminal was resized.
        """
        if not leave_alternate_screen:
            self._screen.resized()
        elif self._screen.is_shown:
            self._screen.hide()
            self._screen.send(_PASTE_OFF)
            self._screen.drain(_PATIENCE_S)

    def clear(self) -> None:
        """Ctrl-L."""
        self._screen.clear()

    def report_cursor(self, report: str) -> None:
        """The answer to what the screen asks after a resize."""
        row, column = map(int, report[2:-1].split(";"))
        self._screen.cursor_is_at(Place(row - 1, column - 1))


def bind_cursor_report(bindings: KeyBindings) -> None:
    """The terminal's answers go to the renderer, with the column."""

    @bindings.add(Keys.CPRResponse, save_before=lambda _: False)
    def _report(event: KeyPressEvent) -> None:
        if isinstance(event.app.renderer, LiveRenderer):
            event.app.renderer.report_cursor(event.data)
