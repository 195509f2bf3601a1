"""What a slash command is and what it may do to the chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agentcli.app.library import CustomCommand, SessionLibrary, UserFiles
from agentcli.app.session import Session
from agentcli.domain.cancel import CancelToken
from agentcli.ui.sanitize import clean_line
from agentcli.ui.theme import Theme

T = TypeVar("T")
MAX_HELP = 100


class Chat(Protocol):
    """The chat as a command sees it."""

    @property
    def sessions(self) -> SessionLibrary:
        """All sessions of the user."""

    @property
    def user(self) -> UserFiles:
        """The user's settings, rules, instructions, trust; the workspace."""

    @property
    def session(self) -> Session:
        """The conversation that is open."""

    @property
    def theme(self) -> Theme:
        """How to paint what is shown."""

    def show(self, lines: Sequence[str]) -> None:
        """Print lines that are painted and sanitized."""

    def leave(self) -> None:
        """End the chat after this command."""

    async def switch_to(self, session_id: str | None) -> None:
        """Open that session in place of this one; ``None``: a new one."""

    async def pick_session(self) -> str | None:
        """Let the person choose a session; its id, or ``None``."""

    async def choose(self, title: str, rows: Sequence[str], start: int = 0) -> int | None:
        """Let the person choose a row, ``start`` first; ``None``: none of them."""

    def put_in_input(self, text: str) -> None:
        """Let the person edit ``text`` and say it."""

    def commands(self) -> Sequence[SlashCommand]:
        """All commands, by name."""

    async def say(self, text: str) -> None:
        """Say ``text`` to the agent: a turn, or what waits for the next one."""

    def send_to_terminal(self, sequence: str) -> bool:
        """A control sequence of our own that moves nothing; false where there is no terminal."""

    async def edit(self, text: str) -> str:
        """``text`` as the person's editor leaves it. Raises ``AgentError``."""

    async def work(self, run: Callable[[CancelToken], Awaitable[T]], label: str) -> T | None:
        """Do something that takes time as the agent's work, shown as ``label``.

        Ctrl-C and Esc set the token given to ``run``, again: by force, which also cancels the
        wait. What ``run`` returned; ``None`` when it was cancelled. Its errors are raised.
        """


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """``/name arguments``. ``run`` gets the arguments as typed; ``AgentError`` is shown.

    ``while_working``: it changes nothing that a turn is built on, so that it runs at once while
    the agent works; the others wait until it is done.
    """

    name: str
    help: str
    run: Callable[[Chat, str], Awaitable[None]]
    usage: str = ""
    aliases: tuple[str, ...] = ()
    while_working: bool = False


def custom_command(custom: CustomCommand) -> SlashCommand:
    """The slash command for a file of the user's."""

    async def run(chat: Chat, arguments: str) -> None:
        await chat.say(chat.user.prompt_of(custom, arguments))

    text = clean_line(custom.description)
    short = text if len(text) <= MAX_HELP else f"{text[: MAX_HELP - 1]}…"
    kind = "skill" if custom.is_skill else "yours"
    return SlashCommand(custom.name, f"{short} ({kind})".strip(), run, clean_line(custom.hint))
