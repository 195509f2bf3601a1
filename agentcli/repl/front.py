"""The seam between the chat and the person's terminal: two fronts satisfy it.

``live_front`` keeps an input on screen all the time; ``line_front`` asks line by line, for
terminals that cannot redraw and for screen readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol


class Left(Exception):
    """The person, or a signal, ended the chat."""


class Actions(Protocol):
    """What a key can ask of the chat."""

    def interrupt(self) -> None:
        """Ctrl-C or Esc while the agent works."""

    def ctrl_c_at_prompt(self, *, had_text: bool) -> str | None:
        """Ctrl-C at the prompt; a hint to show, or nothing. Raises ``Left``."""

    def typed_while_working(self, text: str) -> None:
        """Enter while the agent works."""

    def recall(self) -> bool:
        """Up on an empty line: take back what was queued last; false when nothing is."""

    def cycle_mode(self) -> None:
        """Shift-Tab: the next permission mode."""

    def toggle_todos(self) -> None:
        """Ctrl-T: show or hide the agent's list of things to do."""

    def move_to_background(self) -> None:
        """Ctrl-B: the running command goes on in the background."""

    def open_output(self) -> None:
        """Ctrl-O: the whole output of the last tool call."""

    def rewind(self) -> None:
        """Esc Esc on an empty line."""

    def has_waiting(self) -> bool:
        """Whether queued text waits to be sent with the next Enter."""

    def terminal_gone(self) -> None:
        """The window was closed."""


class Front(Protocol):
    """The person's side of the chat."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """The input is there until the block ends."""

    async def next_text(self) -> str:
        """What was typed and sent; empty to send what waits. Raises ``Left``."""

    def send(self, text: str) -> None:
        """As if ``text`` had been typed and sent; what is being typed stays.

        An empty one sends what waits, now or with what is being typed.
        """

    def give_back(self, text: str) -> None:
        """Put ``text`` into the input, to be edited."""

    def working(self) -> AbstractContextManager[None]:
        """The agent works until the block ends."""

    async def choose(self, answers: Mapping[str, str], show: Callable[[], None]) -> str:
        """Put a question with ``show``; the value of the key in ``answers`` that was pressed.

        Only keys pressed after the question appeared, and not in the flow of other typing, count.
        """

    async def line(self, label: str) -> str | None:
        """One line from the person; ``None`` when it was refused with Ctrl-C, Ctrl-D or Esc."""

    def aside(self) -> AbstractAsyncContextManager[None]:
        """Let something else have the terminal until the block ends."""

    def show_todos(self, lines: Sequence[str]) -> None:
        """Show the agent's list of things to do until another is given; nothing for none."""

    def refresh(self) -> None:
        """Something that is shown has changed."""

    def press_ctrl_c(self) -> None:
        """SIGINT came from outside: the same as the key."""

    def close(self) -> None:
        """End the input; ``next_text`` raises ``Left``."""
