"""Line by line: for terminals that cannot redraw, and for screen readers.

Law: what is written is never moved, coloured over or taken back; what is typed while the agent
works is there at the next prompt.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app_or_none, run_in_terminal
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus, is_searching
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from agentcli.app.user_files import UserFiles
from agentcli.repl.actions import ChatActions, Left
from agentcli.repl.commands import helps
from agentcli.repl.completion import ChatCompleter, prompt_history
from agentcli.repl.panel import GUARD_S, Panel
from agentcli.repl.terminal import ESCAPE_S, Terminal
from agentcli.repl.turn_view import TurnView

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


class LineInput:
    """Satisfies ``actions.ChatInput``."""

    def __init__(
        self, terminal: Terminal, view: TurnView, actions: ChatActions, user: UserFiles
    ) -> None:
        self._terminal = terminal
        self._view = view
        self._actions = actions
        self._prompt = ChatPrompt(terminal, actions, user)
        self._default = ""
        self._sent: deque[str] = deque()
        self._closed = False
        self._is_working = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """There is nothing to keep running."""
        yield

    async def next_text(self) -> str:
        """What was typed and sent."""
        if self._closed:
            raise Left
        if self._sent:
            return self._sent.popleft()
        self._terminal.screen.gap()
        default, self._default = self._default, ""
        try:
            text = await self._prompt.ask(default)
        except Left:
            if self._terminal.input.closed:
                self._actions.terminal_gone()
            raise
        except OSError:
            self._actions.terminal_gone()
            raise Left from None
        finally:
            self._terminal.screen.cursor_was_moved()
        self._view.typed(text)
        return text

    def send(self, text: str) -> None:
        """As if ``text`` had been typed and sent."""
        if text or not self._prompt.is_open:
            self._sent.append(text)
        else:
            self._prompt.send_if_empty()

    def give_back(self, text: str) -> None:
        """For the next prompt."""
        self._default = text

    @contextmanager
    def working(self) -> Iterator[None]:
        """Read keys, unechoed, for Ctrl-C and for what is typed ahead."""
        self._is_working = True
        try:
            with self._terminal.keys.reading(
                self._actions.interrupt, self._actions.move_to_background
            ):
                yield
        finally:
            self._is_working = False

    async def choose(self, panel: Panel) -> None:
        """Print ``panel`` and ask for a line until one answers it; other text is queued."""
        screen = self._terminal.screen
        panel.open(asyncio.get_running_loop().time(), has_text=False)
        screen.print_block(panel.lines(screen.theme, screen.columns))
        if self._is_working:  # what is typed before it can be read is for the next prompt
            await asyncio.sleep(GUARD_S)
        while not panel.is_answered:
            text = await self.line("Answer: ")
            if text is None:
                if not panel.leave():
                    self._actions.interrupt()
                return
            if not panel.answer_line(text):
                if not panel.yields_to_text:
                    return
                if text.strip():
                    self._actions.typed_while_working(text)
                    screen.print_block(["Queued; the question still waits for its answer."])

    async def line(
        self, label: str, panel: Panel | None = None, start: str = "", hint: str = ""
    ) -> str | None:
        """One line from the user."""
        del panel
        if hint:
            self._terminal.screen.print_block([hint], gap=False)
        with ExitStack() as stack:
            if self._is_working:
                stack.enter_context(self._terminal.keys.paused())
            answer = await ask_line(self._terminal, label, start)
        self._terminal.screen.cursor_was_moved()
        return answer

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Nothing of ours stands on the screen; keys that are read for us wait."""
        self._terminal.drain()
        try:
            with ExitStack() as stack:
                if self._is_working:
                    stack.enter_context(self._terminal.keys.paused())
                    stack.enter_context(self._terminal.input.cooked_mode())
                yield
        finally:
            self._terminal.screen.cursor_was_moved()

    def show_todos(self, lines: Sequence[str]) -> None:
        """Print them."""
        self._terminal.screen.print_aside(lines)

    def refresh(self) -> None:
        """Nothing that is printed changes."""

    def announce(self, line: str) -> None:
        """Print a painted line; an open prompt stays below it."""
        if self._prompt.is_open:
            self._prompt.say(line)
        else:
            self._terminal.screen.print_block([line], gap=False)

    def press_ctrl_c(self) -> None:
        """SIGINT came from outside."""
        if self._is_working:
            self._terminal.keys.cancelled()
            self._actions.interrupt()
        elif self._prompt.is_open:
            self._prompt.press_ctrl_c()

    def close(self) -> None:
        """End the prompt."""
        self._closed = True
        self._prompt.close()


# --- the prompt -------------------------------------------------------------------------------


class ChatPrompt:
    """Asks for the next message: one line, or several; ``actions`` says what Ctrl-C means.

    Law: nothing wakes the program while it waits; Enter sends; Alt-Enter, Ctrl-J and a backslash
    before Enter make a new line; a paste is one input.
    """

    def __init__(self, terminal: Terminal, actions: ChatActions, user: UserFiles) -> None:
        self._terminal = terminal
        self._actions = actions
        self._is_asking = False
        self._session: PromptSession[str] = PromptSession(
            message=FormattedText([("class:prompt", "> ")]),
            multiline=True,
            prompt_continuation=_continuation,
            completer=ChatCompleter(helps, user.cwd, actions.arguments_of, actions.resources),
            complete_while_typing=False,
            reserve_space_for_menu=0,
            history=prompt_history(user),
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
        """Whether the user is being asked now."""
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
            said = f"\n{self._terminal.screen.wrapped([text])}" if text else ""
            self._terminal.output.write(f"{said}\n> ")
            self._terminal.output.flush()
            return
        screen = self._terminal.screen

        def show() -> None:
            screen.cursor_was_moved()
            screen.print_block([text], gap=False)

        run_in_terminal(show)


async def ask_line(terminal: Terminal, message: str, start: str = "") -> str | None:
    """One line from the user; ``None`` when it was refused with Ctrl-C, Ctrl-D or Esc."""
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
        return await session.prompt_async(
            default=start, handle_sigint=False, set_exception_handler=False
        )
    except (EOFError, KeyboardInterrupt):
        return None


def _continuation(width: int, _line_number: int, _wrap_count: int) -> str:
    return " " * width
