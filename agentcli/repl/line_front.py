"""Line by line: for terminals that cannot redraw, and for screen readers.

Law: what is written is never moved, coloured over or taken back; what is typed while the agent
works is there at the next prompt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager

from prompt_toolkit.completion import Completer

from agentcli.repl.front import Actions, Left
from agentcli.repl.prompt import ChatPrompt, ask_line
from agentcli.repl.prompts import Prompts
from agentcli.repl.terminal import Terminal
from agentcli.repl.turn_view import TurnView


class LineFront:
    """Satisfies ``front.Front``."""

    def __init__(
        self,
        terminal: Terminal,
        view: TurnView,
        actions: Actions,
        completer: Completer,
        prompts: Prompts,
    ) -> None:
        self._terminal = terminal
        self._view = view
        self._actions = actions
        self._prompt = ChatPrompt(terminal, completer, prompts, actions)
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

    async def choose(self, answers: Mapping[str, str], show: Callable[[], None]) -> str:
        """Put a question and wait for a key that answers it."""
        return await self._terminal.keys.choose(answers, show)

    async def line(self, label: str) -> str | None:
        """One line from the person."""
        with self._terminal.keys.paused():
            answer = await ask_line(self._terminal, label)
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

    def tell(self, line: str) -> None:
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
