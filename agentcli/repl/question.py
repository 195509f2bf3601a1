"""A question outside of a chat: whether a directory is trusted (SEC-1), a plugin is added (EXT-5).

Law: it is answered like an approval (UI-7): by a choice that was moved to and confirmed, never by
typing; where nothing was decided nothing takes effect. What is typed meanwhile stands in the input
of the chat that follows, what was sent is sent there. The terminal is given back as it was found.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, Layout, Window
from prompt_toolkit.styles import DummyStyle

from agentcli.domain.values import frozen
from agentcli.repl.keys import bind_idle_escape, bind_panel, text_follows
from agentcli.repl.live_region import InputRows, LiveRenderer, Look, bind_cursor_report, input_rows
from agentcli.repl.outside import page_text
from agentcli.repl.panel import GUARD_S, Choice, Choices, PanelMode, PanelSubject, Press
from agentcli.repl.terminal import ESCAPE_S, Terminal
from agentcli.ui.exact import marked
from agentcli.ui.frame import Below
from agentcli.ui.live_screen import LiveScreen
from agentcli.ui.rows import Place, Row, fit_row
from agentcli.ui.sanitize import reveal
from agentcli.ui.screen import Size
from agentcli.ui.theme import DIM, Theme

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_VIEW = "v"


@frozen
class Question:
    """``lines`` about ``title`` and the choices by letter; ``refusal``: Esc, and what comes first.

    ``said`` is printed after an answer. ``is_before_chat``: what is typed is for the chat, else it
    is for nobody.
    """

    title: str
    choices: Mapping[str, str]
    refusal: str
    leaving: str
    lines: Sequence[str] = ()
    said: Mapping[str, str] = {}
    is_before_chat: bool = False


def ask(question: Question, place: Path, theme: str) -> str:
    """Show it and return the letter that was chosen. For a terminal that can redraw.

    Raises ``KeyboardInterrupt`` for Ctrl-C; signals that end the program do so.
    """
    ended: list[signal.Signals] = []
    letter = asyncio.run(_asked(question, place, theme, ended))
    for number in ended:  # the terminal is as it was by now
        signal.raise_signal(number)
    return letter


async def _asked(question: Question, place: Path, theme: str, ended: list[signal.Signals]) -> str:
    terminal = Terminal(theme)
    if not isinstance(terminal.screen, LiveScreen):
        raise TypeError("the question needs a live screen")
    with terminal.in_use():
        asking = _Asking(terminal, terminal.screen, question)
        with asking.ended_by_signals(ended):
            letter = await asking.answer()
            while letter == _VIEW:
                with terminal.input.cooked_mode():
                    rows = _rows(question, terminal.screen.columns, terminal.theme)
                    text = "\n".join((*rows, ""))
                    paged = await asyncio.to_thread(page_text, text, place, os.environ, less="S")
                if not paged:
                    terminal.screen.print_block(rows)
                letter = await asking.answer()
        asking.keep_typed()
        if not ended and letter in question.said:
            terminal.screen.print_block([reveal(question.said[letter])])
            terminal.screen.gap()
    return letter


def _rows(question: Question, columns: int, theme: Theme) -> list[str]:
    """What it is about, row by row: what goes on in another one is no other line (SEC-6)."""
    lines = (each for line in question.lines for each in reveal(line).split("\n"))
    return [row for line in lines for row in marked(line, columns, theme)]


class _QuestionPanel(Choices):
    """The lines and the choices; to leave it is to refuse."""

    def __init__(self, question: Question, theme: Theme) -> None:
        def rows(columns: int) -> list[Row]:
            return [fit_row(row, columns) for row in _rows(question, columns, theme)]

        choices = [Choice(letter, text) for letter, text in question.choices.items()]
        if question.lines:
            choices.append(Choice(_VIEW, "view all of it"))
        self.leaving = question.leaving
        self._left_as = question.refusal
        if not question.is_before_chat:
            self.with_text = "This is none of the choices: Enter or Ctrl-U takes it away."
        super().__init__(
            PanelSubject(reveal(question.title), rows),
            choices,
            refusal=question.refusal,
            views=bool(question.lines),
        )

    def leave(self) -> bool:
        """Esc."""
        self.answer = self._left_as
        return True


class _Asking:
    """The panel with its own input. Satisfies ``keys.TakesKeys``."""

    def __init__(self, terminal: Terminal, screen: LiveScreen, question: Question) -> None:
        self._terminal = terminal
        self._screen = screen
        self._is_before_chat = question.is_before_chat
        self._panel = _QuestionPanel(question, terminal.theme)
        self._buffer = Buffer(multiline=True)
        self._sent: list[str] = []
        self._later: asyncio.TimerHandle | None = None
        self._app: Application[None] = Application(
            layout=Layout(Window(BufferControl(self._buffer))),
            key_bindings=self._bindings(),
            style=DummyStyle(),
            include_default_pygments_style=False,
            erase_when_done=True,
            terminal_size_polling_interval=None,
            max_render_postpone_time=None,
            input=terminal.input,
            output=terminal.output,
        )
        self._app.renderer = LiveRenderer(
            self._app._merged_style,  # noqa: SLF001 - the base class wants one; nothing is styled by it
            terminal.output,
            screen,
            self._compose,
        )
        self._app.ttimeoutlen = ESCAPE_S

    async def answer(self) -> str:
        """The letter of the choice that was confirmed. Raises ``KeyboardInterrupt``."""
        now = time.monotonic()
        self._panel.open(now, has_text=True)  # nobody has chosen yet: the one that does no harm
        self._wake_at(now + GUARD_S)
        try:
            await self._app.run_async(handle_sigint=False, set_exception_handler=False)
        except (EOFError, OSError):  # the terminal is gone
            self._panel.leave()
        finally:
            if self._later is not None:
                self._later.cancel()
        return self._panel.answer

    def keep_typed(self) -> None:
        """What was sent and typed is for the chat."""
        keys: list[KeyPress] = []
        for text in self._sent:
            keys += [*_keys_of(text), KeyPress(Keys.ControlM, "\r")]
        keys += _keys_of(self._buffer.text)
        store_typeahead(self._terminal.input, keys + get_typeahead(self._terminal.input))

    @contextmanager
    def ended_by_signals(self, ended: list[signal.Signals]) -> Iterator[None]:
        """Signals that end the program leave the question; ``ended`` gets the one that came."""
        loop = asyncio.get_running_loop()

        def end(number: signal.Signals) -> None:
            ended.append(number)
            self.leave_panel()

        for number in _ENDING:
            loop.add_signal_handler(number, end, number)
        try:
            yield
        finally:
            for number in _ENDING:
                loop.remove_signal_handler(number)

    # --- keys ------------------------------------------------------------------------------

    def press(self, key: str, text: str = "", *, more: bool = False) -> None:
        """A key for the panel."""
        given = self._panel.press(Press(key, text), time.monotonic(), more=more)
        self._buffer.insert_text(given.text)
        if given.sends:
            self._send()
        self._look()

    def leave_panel(self) -> bool:
        """No decision."""
        self._panel.leave()
        self._look()
        return True

    def idle_escape(self) -> None:
        """The same."""
        self.leave_panel()

    def leave_when_done(self) -> None:
        """The same."""
        self.leave_panel()

    def _send(self) -> None:
        if self._buffer.text.strip():
            self._sent += [self._buffer.text] if self._is_before_chat else []
            self._buffer.reset()
            self._panel.text_sent()

    def _look(self) -> None:
        """Whether it is answered, or changes by itself later."""
        if self._panel.is_answered:
            if self._app.is_running and not self._app.is_done:
                self._app.exit()
            return
        if self._panel.due is not None:
            self._wake_at(self._panel.due)
        self._screen.request()

    def _wake_at(self, when: float) -> None:
        if self._later is not None:
            self._later.cancel()
        loop = asyncio.get_running_loop()
        self._later = loop.call_later(max(0.0, when - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self._panel.tick(time.monotonic())
        self._look()

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        has_text = Condition(lambda: bool(self._buffer.text))
        alone = Condition(lambda: not get_app().key_processor.input_queue)

        @bindings.add("enter", filter=has_text)
        def _enter(event: KeyPressEvent) -> None:
            if text_follows(event):
                self._buffer.newline(copy_margin=False)
            else:
                self._send()

        @bindings.add(Keys.BracketedPaste)
        def _paste(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            if not has_text():
                self.press("paste")  # it is no choice, not even one letter
            self._buffer.insert_text(text)

        @bindings.add("c-c", eager=True)
        @bindings.add("<sigint>", eager=True)
        def _ctrl_c(event: KeyPressEvent) -> None:
            event.app.exit(exception=KeyboardInterrupt())

        bindings.add("c-l")(lambda event: event.app.renderer.clear())
        bindings.add("c-z")(lambda event: event.app.suspend_to_background())
        bind_cursor_report(bindings)
        bind_idle_escape(bindings, Condition(lambda: True), alone, self)
        bind_panel(bindings, ~has_text, self)
        return bindings

    # --- what is seen ----------------------------------------------------------------------

    def _compose(self, size: Size, needs_gap: bool) -> Below:  # noqa: FBT001 - the screen's port
        del needs_gap
        theme, typed = self._screen.theme, InputRows([], Place(0, 0))
        if self._buffer.text:
            look = Look(size.columns, max(1, size.lines // 4))
            typed = input_rows(self._buffer.document, look, theme)
        waiting = [f"Sent when the chat begins: {reveal(text)}" for text in self._sent[-2:]]
        under = [fit_row(theme.paint(line, DIM), size.columns) for line in waiting] + typed.rows
        room = Size(size.columns, max(1, size.lines - len(under)))
        mode = PanelMode(typing=bool(typed.rows))
        rows, at = self._panel.rows(room, theme, time.monotonic(), mode=mode)
        if typed.rows:
            at = len(rows) + len(waiting) + typed.cursor.row
        return Below([*rows, *under], Place(at, typed.cursor.column))


def _keys_of(text: str) -> list[KeyPress]:
    keys = {"\n": Keys.ControlJ}
    return [KeyPress(keys.get(char, char), char) for char in text]
