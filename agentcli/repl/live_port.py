"""What the keys and the rows of the live input see of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, SearchBufferControl

from agentcli.repl.answers import Answers
from agentcli.repl.front import Actions
from agentcli.repl.paste import Pastes


class LiveInput(Protocol):
    """The live input; ``live_front`` is it."""

    actions: Actions
    answers: Answers
    pastes: Pastes
    keys: Mapping[str, tuple[Keys | str, ...]]
    app: Application[None]
    buffer: Buffer
    control: BufferControl
    search: SearchBufferControl

    @property
    def is_working(self) -> bool:
        """Whether the agent works."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is done until something is sent."""

    @property
    def label(self) -> str | None:
        """What the line that is asked for is about, if one is."""

    @property
    def takes_answers(self) -> bool:
        """Whether the next key answers a question."""

    def submit(self) -> None:
        """Enter."""

    def answer_line(self, text: str | None) -> None:
        """The line that was asked for."""

    def ctrl_c(self) -> None:
        """Ctrl-C, wherever."""

    @property
    def leaves(self) -> bool:
        """Whether the chat ends when the agent is done."""

    def leave_when_done(self) -> None:
        """Ctrl-D while the agent works; any other key takes it back."""

    def close(self) -> None:
        """End the input."""

    def toggle_keys(self) -> None:
        """``?``: the keys."""

    async def take_dropped(self, text: str) -> Any:
        """What was pasted may be the paths of images: then they are attached."""

    async def take_clipboard(self) -> Any:
        """The image in the clipboard."""

    async def edit_outside(self) -> Any:
        """Ctrl-G: the person's editor."""
