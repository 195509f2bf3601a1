"""The prompt of a terminal that cannot redraw: a line, or several, that a person writes.

Law: nothing wakes the program while it waits; Enter sends; Alt-Enter, Ctrl-J and a backslash
before Enter make a new line; a paste is one input; Ctrl-C follows ``interrupts``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app_or_none, run_in_terminal
from prompt_toolkit.completion import Completer
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus, is_searching
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from agentcli.repl.front import Actions, Left
from agentcli.repl.keys import ESCAPE_S
from agentcli.repl.prompts import Prompts
from agentcli.repl.terminal import Terminal

_STYLE = Style.from_dict(
    {
        "prompt": "bold",
        "completion-menu": "noreverse",
        "completion-menu.completion": "bg:default fg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "bg:default fg:ansibrightblack",
        "completion-menu.meta.completion.current": "reverse",
    }
)


class ChatPrompt:
    """Asks for the next message; ``actions`` says what Ctrl-C means."""

    def __init__(
        self,
        terminal: Terminal,
        completer: Completer,
        prompts: Prompts,
        actions: Actions,
    ) -> None:
        self._terminal = terminal
        self._actions = actions
        self._is_asking = False
        self._session: PromptSession[str] = PromptSession(
            message=FormattedText([("class:prompt", "> ")]),
            multiline=True,
            prompt_continuation=_continuation,
            completer=completer,
            complete_while_typing=False,
            reserve_space_for_menu=0,
            history=prompt_history(prompts),
            key_bindings=self._bindings(),
            style=_STYLE,
            color_depth=terminal.color_depth,
            include_default_pygments_style=False,
            enable_suspend=True,
            input=terminal.input,
            output=None if terminal.is_dumb else terminal.output,
        )
        self._session.app.terminal_size_polling_interval = None
        self._session.app.ttimeoutlen = ESCAPE_S

    async def ask(self, default: str = "") -> str:
        """The next message, not blank; raises ``Left``."""
        self._is_asking = True
        try:
            return await self._session.prompt_async(
                default=default, handle_sigint=False, set_exception_handler=False
            )
        except EOFError:
            raise Left from None
        finally:
            self._is_asking = False

    @property
    def is_open(self) -> bool:
        """Whether the person is being asked now."""
        return self._running is not None

    @property
    def _running(self) -> Application[Any] | None:
        """What reads the keys now; on a dumb terminal not the session's own application."""
        app = get_app_or_none() if self._is_asking else None
        return app if app is not None and app.is_running else None

    def press_ctrl_c(self) -> None:
        """SIGINT came from outside: the same as the key."""
        if app := self._running:
            app.key_processor.send_sigint()

    def send_if_empty(self) -> None:
        """As if Enter had been pressed, when nothing is typed."""
        app = self._running
        if app is not None and not app.is_done and not self._session.default_buffer.text:
            app.exit(result="")

    def close(self) -> None:
        """End a running prompt; ``ask`` raises ``Left``."""
        app = self._running
        if app is not None and not app.is_done:
            app.exit(exception=Left())

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        focused = has_focus(DEFAULT_BUFFER)

        @bindings.add("enter", filter=focused)
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state and buffer.complete_state.current_completion:
                buffer.complete_state = None
            elif buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.newline(copy_margin=False)
            elif buffer.text.strip() or self._actions.has_waiting():
                buffer.validate_and_handle()

        @bindings.add("c-j", filter=focused)
        @bindings.add("escape", "enter", filter=focused)
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        # eager: on a dumb terminal the session's own bindings come after these
        @bindings.add("c-c", filter=focused & ~is_searching, eager=True)
        @bindings.add("<sigint>", eager=True)
        def _ctrl_c(event: KeyPressEvent) -> None:
            buffer = self._session.default_buffer
            had_text = bool(buffer.text)
            buffer.reset()
            try:
                hint = self._actions.ctrl_c_at_prompt(had_text=had_text)
            except Left as left:
                if not event.app.is_done:
                    event.app.exit(exception=left)
                return
            if hint is not None or self._terminal.is_dumb:
                self.say(hint or "")

        return bindings

    def say(self, text: str) -> None:
        """Print a line above the prompt; on a dumb terminal, and the prompt again."""
        if self._terminal.is_dumb:
            self._terminal.output.write(f"\n{text}\n> " if text else "\n> ")
            self._terminal.output.flush()
            return
        screen = self._terminal.screen

        def show() -> None:
            screen.cursor_was_moved()
            screen.print_block([text], gap=False)

        run_in_terminal(show)


async def ask_line(terminal: Terminal, message: str) -> str | None:
    """One line from the person; ``None`` when it was refused with Ctrl-C, Ctrl-D or Esc."""
    bindings = KeyBindings()

    @bindings.add("escape", eager=True)
    def _escape(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError())

    session: PromptSession[str] = PromptSession(
        message=message,
        key_bindings=bindings,
        enable_suspend=True,
        color_depth=terminal.color_depth,
        input=terminal.input,
        output=None if terminal.is_dumb else terminal.output,
    )
    session.app.terminal_size_polling_interval = None
    session.app.ttimeoutlen = ESCAPE_S
    try:
        return await session.prompt_async(handle_sigint=False, set_exception_handler=False)
    except (EOFError, KeyboardInterrupt):
        return None


def _continuation(width: int, line_number: int, wrap_count: int) -> str:
    del line_number, wrap_count
    return " " * width


class _SafeHistory(FileHistory):
    """A history file; where it cannot be read or written, memory has to do."""

    def __init__(self, prompts: Prompts, path: Path) -> None:
        super().__init__(str(path))
        self._redact = prompts.redact

    def load_history_strings(self) -> Iterable[str]:
        """The strings, newest first."""
        try:
            return super().load_history_strings()
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Append, privately."""
        try:
            descriptor = os.open(self.filename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            os.fchmod(descriptor, 0o600)
            os.close(descriptor)
            super().store_string(self._redact(string))
        except OSError:
            return


def prompt_history(prompts: Prompts) -> History:
    """Earlier prompts, in a private file where there is one, without keys (SEC-9)."""
    path = prompts.file
    if path is None:
        return InMemoryHistory()
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
            path.parent.chmod(0o700)
    except OSError:
        return InMemoryHistory()
    return _SafeHistory(prompts, path)
